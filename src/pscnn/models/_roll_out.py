"""A network that continues what it is given."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from pscnn.nn import expand_once


def roll_out(model: nn.Module, past: Tensor, steps: int) -> Tensor:
    """Let a network see its own frames: the oldest is dropped, what it said is appended.

    Args:
        model: From (B, 20, H, W) to (B, 2, H, W).
        past: (B, 20, H, W).
        steps: How many frames.

    Returns:
        (B, steps, 2, H, W).
    """
    frames = []
    # A compiler sees for itself that kernels are the same in every step.
    once = contextlib.nullcontext() if torch.compiler.is_compiling() else expand_once(model)
    with once:
        for _ in range(steps):
            frames.append(model(past))
            past = torch.cat([past[:, 2:], frames[-1].to(past.dtype)], 1)
    return torch.stack(frames, 1)

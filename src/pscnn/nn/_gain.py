"""Initialisation gains of nonlinearities, by a small fixed experiment instead of tables."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def fixed_point_gain(layer: nn.Module, channels: int) -> float:
    """The g for which noise of variance g² leaves the layer with variance 1.

    Solved by bisection on one fixed sample of Gaussian noise, so the answer is the same every time and the process's
    random state is not touched.
    """
    generator = torch.Generator().manual_seed(0)
    parameter = next(layer.parameters(), None)
    noise = torch.randn(max(64, 2**16 // channels), channels, generator=generator)
    if parameter is not None:
        noise = noise.to(parameter)
    low, high = 0.1, 10.0
    for _ in range(30):
        middle = (low * high) ** 0.5
        power = layer(middle * noise).square().mean().item()
        low, high = (low, middle) if power > 1 else (middle, high)
    return (low * high) ** 0.5

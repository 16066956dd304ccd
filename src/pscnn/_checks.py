"""Checks that several rooms need."""

from typing import Any

from torch import Tensor

from pscnn._words import short


def check_batch(name: str, x: Any) -> None:
    """Raise a ``TypeError`` unless it is a tensor of real numbers."""
    if not isinstance(x, Tensor) or x.is_complex():
        got = f"complex numbers, {x.dtype}" if isinstance(x, Tensor) else short(x)
        raise TypeError(f"{name} must be a torch.Tensor of real numbers, got {got}")

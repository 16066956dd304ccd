"""Measuring how far a module is from equivariance."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._types import ArrayLike
from pscnn.nn import FieldType


@torch.no_grad()
def equivariance_error(
    model: nn.Module,
    x: Tensor,
    elements: ArrayLike,
    in_type: FieldType | None = None,
    out_type: FieldType | None = None,
) -> Tensor:
    """‖h·f(x) − f(h·x)‖ / ‖f(x)‖ for each element, averaged over the batch (paper, Appendix F.3).

    Args:
        model: A layer or network, evaluated in the mode it is in; call ``eval()`` first, or batch statistics move.
        x: A batch.
        elements: Shape (N, n, n).
        in_type: Type of x; by default that of the first layer that has one.
        out_type: Type of the output; by default that of the model's last module. A network that ends in plain layers
            has none: then the error is that of invariance, f(h·x) against f(x).

    Returns:
        Shape (N,).
    """
    in_type = in_type or _first_type(model)
    out_type = out_type or _last_type(model)
    elements = np.asarray(elements, dtype=np.float64).reshape(-1, *in_type.group.identity.shape)
    y = model(x)
    norm = y.flatten(1).norm(dim=1).clamp_min(torch.finfo(y.dtype).tiny)
    errors = []
    for element in elements:
        moved = y if out_type is None else out_type.transform(y, element)
        difference = moved - model(in_type.transform(x, element))
        errors.append((difference.flatten(1).norm(dim=1) / norm).mean())
    return torch.stack(errors)


def _first_type(model: nn.Module) -> FieldType:
    for module in model.modules():
        if isinstance(getattr(module, "in_type", None), FieldType):
            return _typed(module.in_type)
    raise ValueError(f"{type(model).__name__} has no layer with an in_type: give in_type")


def _last_type(model: nn.Module) -> FieldType | None:
    if hasattr(model, "out_type"):
        return None if model.out_type is None else _typed(model.out_type)
    children = list(model.children())
    return _last_type(children[-1]) if children else None


def _typed(value: Any) -> FieldType:
    assert isinstance(value, FieldType)
    return value

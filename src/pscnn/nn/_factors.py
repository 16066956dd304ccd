"""Invariant factors, one per field: learnt, or found from the whole map."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pscnn.measures import Measure
from pscnn.nn._conv import Linear
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Layer


class _PerField(Layer):
    field_of: Tensor

    def __init__(self, in_type: FieldType) -> None:
        super().__init__(in_type)
        sizes = [rho.size for rho in in_type.representations]
        self.add_constant("field_of", np.repeat(np.arange(len(sizes)), sizes), torch.empty(0))


class FieldScale(_PerField):
    """Multiplies every field by a learnt number, as layer scale does with channels.

    Args:
        in_type: The fields; the output has the same type.
        value: With what it begins.

    Shape:
        (B, in_type.size, …) → the same.
    """

    def __init__(self, in_type: FieldType, value: float = 1.0, device: Device = None, dtype: DType = None) -> None:
        super().__init__(in_type)
        start = torch.full((len(in_type.representations),), float(value), device=device, dtype=dtype)
        self.weight = nn.Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply."""
        self.check(x)
        factors = self.weight.index_select(0, self.field_of).to(x.dtype)
        return (x.reshape(x.shape[0], self.in_type.size, -1) * factors[:, None]).reshape(x.shape)


class FieldProduct(_PerField):
    """Multiplies every field by an invariant factor of its own, given as a second input.

    Args:
        in_type: The fields; the output has the same type.

    Shape:
        (B, in_type.size, …) and (B, factors, …) → (B, in_type.size, …). One factor serves for all fields; if there are
        other numbers of them than fields, those of neighbouring channels are averaged to one per field.
    """

    def forward(self, x: Tensor, factors: Tensor) -> Tensor:
        """Multiply."""
        self.check(x)
        fields = len(self.in_type.representations)
        if isinstance(factors, Tensor) and factors.shape[1] == 1:
            return x * factors
        one_each = F.adaptive_avg_pool1d(factors.flatten(2).transpose(1, 2), fields).transpose(1, 2)
        spread = one_each.index_select(1, self.field_of)
        return (x.flatten(2) * spread.to(x.dtype)).reshape(x.shape)

    def extra_repr(self) -> str:
        return str(self.in_type)


class SqueezeExcitation(_PerField):
    """Squeeze and excitation: every field times a factor between 0 and 1 that follows from the mean of the whole map.

    y_f = σ(W₂ relu(W₁ x̄))_f x_f, where W₁ is a steerable map of the mean x̄ to invariant features.

    Args:
        in_type: The fields; the output has the same type.
        channels: Number of invariant features.
        likelihood: The density of W₁; None for full equivariance without one.

    Shape:
        (B, in_type.size, H, W[, …]) → the same.
    """

    def __init__(
        self,
        in_type: FieldType,
        channels: int,
        likelihood: Measure | None = None,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        super().__init__(in_type)
        if channels < 1:
            raise ValueError(f"SqueezeExcitation: channels must be 1 or more, got {channels}")
        group = in_type.group
        features = FieldType(group, channels * [group.trivial])
        self.squeeze = Linear(in_type, features, likelihood=likelihood, device=device, dtype=dtype)
        self.excite = nn.Linear(channels, len(in_type.representations), device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply."""
        self.check(x, self.in_type.group.dimension)
        flat = x.flatten(2)
        factors = self.excite(self.squeeze(flat.mean(2)).relu()).sigmoid()
        return (flat * factors.index_select(1, self.field_of).to(x.dtype)[:, :, None]).reshape(x.shape)

"""Batch normalisation that commutes with H."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pscnn._constants import ConstantsModule
from pscnn._types import Array, IntArray
from pscnn.groups import Representation
from pscnn.nn._check import check_input, check_types
from pscnn.nn._field_type import FieldType


class BatchNorm(ConstantsModule):
    """Divides each field by one standard deviation and centres its trivial irreps only.

    A field of size d has the variance of its channels, averaged; means exist only along trivial irreps (all others
    average to zero over the group). Learnt: one scale per field, one shift per trivial irrep.

    Args:
        in_type: The fields; the output has the same type.
        eps: Added to the variance.
        momentum: Of the running statistics, as in ``torch.nn.BatchNorm2d``.

    Shape:
        (B, in_type.size, …) → the same.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    field_of: Tensor
    inverse_size: Tensor
    trivial: Tensor

    def __init__(
        self,
        in_type: FieldType,
        eps: float = 1e-5,
        momentum: float = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_types("BatchNorm", in_type)
        self.in_type = self.out_type = in_type
        self.eps, self.momentum = eps, momentum
        fields = len(in_type.representations)
        field_of, trivial = _structure(in_type.representations)
        self.weight = nn.Parameter(torch.ones(fields, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(trivial.shape[1], device=device, dtype=dtype))
        self.register_buffer("running_mean", torch.zeros_like(self.bias.data))
        self.register_buffer("running_var", torch.ones_like(self.weight.data))
        self.register_buffer("num_batches_tracked", torch.tensor(0, device=device))
        self.add_constant("field_of", field_of, self.weight)
        self.add_constant("inverse_size", 1 / np.bincount(field_of)[field_of], self.weight)
        self.add_constant("trivial", trivial, self.weight)

    def forward(self, x: Tensor) -> Tensor:
        check_input("BatchNorm", x, self.in_type.size, None)
        with torch.autocast(x.device.type, enabled=False):
            return self._normalise(x) if self.training else F.batch_norm(x, *self.channel_statistics(), eps=self.eps)

    def _normalise(self, x: Tensor) -> Tensor:
        if x.numel() == x.shape[1]:
            raise ValueError(f"BatchNorm: needs more than one value per channel in training, got {tuple(x.shape)}")
        axes = [0, *range(2, x.ndim)]
        full = x if x.dtype in (torch.float32, torch.float64) else x.float()
        variance, mean = torch.var_mean(full, axes, correction=0)
        centre = mean @ self.trivial  # the part of the mean that lies along trivial irreps
        removed = self.trivial @ centre
        power = (variance + (mean - removed).square()) * self.inverse_size
        field_variance = torch.zeros_like(self.running_var).index_add(
            0, self.field_of, power.to(self.running_var.dtype)
        )
        with torch.no_grad():
            count = x.numel() / x.shape[1]
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(centre.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(field_variance * (count / (count - 1)), self.momentum)
        scale = (self.weight * (field_variance + self.eps).rsqrt()).index_select(0, self.field_of)
        shift = self.trivial @ self.bias - removed * scale
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return torch.addcmul(shift.view(shape), full, scale.view(shape)).to(x.dtype)

    def channel_statistics(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Running mean, running variance, scale and shift of every channel."""
        return (
            self.trivial @ self.running_mean,
            self.running_var.index_select(0, self.field_of),
            self.weight.index_select(0, self.field_of),
            self.trivial @ self.bias,
        )

    def extra_repr(self) -> str:
        return f"{self.in_type}, eps={self.eps}, momentum={self.momentum}"


@cache
def _structure(fields: tuple[Representation, ...]) -> tuple[IntArray, Array]:
    """Which field each channel belongs to, and the trivial directions as columns (channels, trivial irreps)."""
    field_of = np.repeat(np.arange(len(fields)), [rho.size for rho in fields])
    vectors = [rho.trivial_vectors() for rho in fields]
    trivial = np.zeros((len(field_of), sum(v.shape[1] for v in vectors)))
    row = column = 0
    for v in vectors:
        trivial[row : row + len(v), column : column + v.shape[1]] = v
        row, column = row + len(v), column + v.shape[1]
    return field_of, trivial

"""Normalisation and gate as one layer."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from pscnn._memo import memo
from pscnn._types import AnyArray
from pscnn.nn._batch_norm import BatchNorm
from pscnn.nn._fast import fused
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Layer
from pscnn.nn._nonlinearity import GatedNonlinearity, Gates, gate_sizes
from pscnn.nn._norm_act import GATE, Following


class GatedBatchNorm(Layer):
    """``BatchNorm`` followed by ``GatedNonlinearity``.

    Args:
        out_type: The fields after the gate, sums of irreps. ``in_type`` follows from it.
        eps: As in ``BatchNorm``.
        momentum: As in ``BatchNorm``.
        gates: As in ``GatedNonlinearity``.

    Shape:
        (B, in_type.size, …) → (B, out_type.size, …).

    Example:
        >>> import torch
        >>> from pscnn.groups import O2
        >>> H = O2()
        >>> layer = GatedBatchNorm(FieldType(H, 4 * [H.irrep(0, 0) + H.irrep(1, 1)]))
        >>> layer(torch.randn(2, layer.in_type.size, 5, 5)).shape
        torch.Size([2, 12, 5, 5])
    """

    gate_of: Tensor
    members: Tensor

    def __init__(
        self,
        out_type: FieldType,
        eps: float = 1e-5,
        momentum: float = 0.1,
        gates: Gates = "irrep",
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        gate = GatedNonlinearity(out_type, gates)
        super().__init__(gate.in_type, out_type)
        self.gate = gate
        self.norm = BatchNorm(self.in_type, eps, momentum, device, dtype)
        field = out_type.representations[0]
        self._equal = all(rho == field for rho in out_type.representations)
        sizes = gate_sizes(field, gates)
        self._gates = len(sizes)
        for name, table in zip(("gate_of", "members"), _partners(tuple(sizes)), strict=True):
            self.add_constant(name, table, self.norm.weight)

    @property
    def gain(self) -> float:
        """The gain before this layer that keeps the variance of a signal through it."""
        return self.gate.gain

    def forward(self, x: Tensor) -> Tensor:
        if not (self._equal and fused(x) and self.norm.one_pass(x)):
            return self.gate(self.norm(x))
        size = self.in_type.representations[0].size
        return self.norm.then(x, Following(self.gate_of, self.members, GATE, self._gates, size))


@memo
def _partners(sizes: tuple[int, ...]) -> tuple[AnyArray, AnyArray]:
    """The gate of each channel, (W,), and the channels of each gate, (M, W), −1 where there are fewer; W = 2ⁿ ≥ P.

    Args:
        sizes: How many channels of a field each of its gates scales.
    """
    gates, channels = len(sizes), len(sizes) + sum(sizes)
    width = max(16, 1 << (channels - 1).bit_length())
    gate_of = np.zeros(width, dtype=np.int32)
    gate_of[gates:channels] = np.repeat(np.arange(gates), sizes)
    members = np.full((max(sizes), width), -1, dtype=np.int32)
    members[np.concatenate([np.arange(d) for d in sizes]), gate_of[gates:channels]] = np.arange(gates, channels)
    return gate_of, members

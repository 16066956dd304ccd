"""Normalisation and gate as one layer."""

from __future__ import annotations

from torch import Tensor

from pscnn.nn._batch_norm import BatchNorm
from pscnn.nn._fast import fused
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Layer
from pscnn.nn._nonlinearity import GatedNonlinearity, Gates


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

    @property
    def gain(self) -> float:
        """The gain before this layer that keeps the variance of a signal through it."""
        return self.gate.gain

    def forward(self, x: Tensor) -> Tensor:
        following = self.gate.following() if fused(x) and self.norm.one_pass(x) else None
        return self.gate(self.norm(x)) if following is None else self.norm.then(x, following)

"""Normalisation and gate as one layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pscnn._memo import memo
from pscnn._types import AnyArray
from pscnn.groups import Representation
from pscnn.nn._batch_norm import BatchNorm, field_gradients, field_statistics
from pscnn.nn._fast import channels_last, compiled
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Layer
from pscnn.nn._nonlinearity import GatedNonlinearity


class GatedBatchNorm(Layer):
    """``BatchNorm`` followed by ``GatedNonlinearity``.

    Args:
        out_type: The fields after the gate, sums of irreps. ``in_type`` follows from it.
        eps: As in ``BatchNorm``.
        momentum: As in ``BatchNorm``.

    Shape:
        (B, in_type.size, …) → (B, out_type.size, …).

    Example:
        >>> from pscnn.groups import O2
        >>> H = O2()
        >>> layer = GatedBatchNorm(FieldType(H, 4 * [H.irrep(0, 0) + H.irrep(1, 1)]))
        >>> layer(torch.randn(2, layer.in_type.size, 5, 5)).shape
        torch.Size([2, 12, 5, 5])
    """

    gate_of: Tensor
    members: Tensor

    def __init__(
        self, out_type: FieldType, eps: float = 1e-5, momentum: float = 0.1, device: Device = None, dtype: DType = None
    ) -> None:
        gate = GatedNonlinearity(out_type)
        super().__init__(gate.in_type, out_type)
        self.gate = gate
        self.norm = BatchNorm(self.in_type, eps, momentum, device, dtype)
        field = out_type.representations[0]
        self._equal = all(rho == field for rho in out_type.representations)
        self._gates = len(field.irreps)
        for name, table in zip(("gate_of", "members"), _partners(field), strict=True):
            self.add_constant(name, table, self.norm.weight)

    @property
    def gain(self) -> float:
        """The gain before this layer that keeps the variance of a signal through it."""
        return self.gate.gain

    def forward(self, x: Tensor) -> Tensor:
        if not self._in_one_pass(x):
            return self.gate(self.norm(x))
        norm, copies = self.norm, len(self.out_type.representations)
        tables = self.gate_of, self.members
        with torch.autocast(x.device.type, enabled=False):
            if not self.training:
                mean, variance, weight, bias = norm.channel_statistics()
                scale = weight * (variance + norm.eps).rsqrt()
                return norm_gate(x, *tables, scale, bias - mean * scale, self._gates, copies)
            y, centre, variance, *_ = _NormGate.apply(  # type: ignore[no-untyped-call]
                x, *norm.ingredients(norm.weight), norm.field_size, *tables, self._gates, copies
            )
            norm.update(centre, variance, x.numel() // x.shape[1])
        return y

    def _in_one_pass(self, x: Tensor) -> bool:
        return (
            isinstance(x, Tensor)
            and compiled(x)
            and self._equal
            and x.ndim > 2
            and x.shape[1] == self.in_type.size
            and x.dtype != torch.float64
            and self.norm.weight.dtype == torch.float32
            and (self.training or not torch.is_grad_enabled())
        )


@memo
def _partners(field: Representation) -> tuple[AnyArray, AnyArray]:
    """The gate of each channel, (W,), and the channels of each gate, (M, W), −1 where there are fewer; W = 2ⁿ ≥ P."""
    sizes = [psi.size for psi in field.irreps]
    gates, channels = len(sizes), len(sizes) + sum(sizes)
    width = max(16, 1 << (channels - 1).bit_length())
    gate_of = np.zeros(width, dtype=np.int32)
    gate_of[gates:channels] = np.repeat(np.arange(gates), sizes)
    members = np.full((max(sizes), width), -1, dtype=np.int32)
    members[np.concatenate([np.arange(d) for d in sizes]), gate_of[gates:channels]] = np.arange(gates, channels)
    return gate_of, members


class _NormGate(torch.autograd.Function):
    """The output, and ``field_statistics``; with the gradient written out."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, field_of: Tensor, average: Tensor, trivial: Tensor,
        eps: float, field_size: Tensor, gate_of: Tensor, members: Tensor, gates: int, copies: int,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        found = field_statistics(x.float(), weight, bias, field_of, average, trivial, eps)
        return norm_gate(x, gate_of, members, found.scale, found.shift, gates, copies), *found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, _, _, field_of, average, trivial, _, field_size, gate_of, members, *ctx.numbers = inputs
        _, _, _, *statistics, shift = output  # mean, removed, inverse, scale
        ctx.save_for_backward(x, gate_of, members, shift, field_of, field_size, average, trivial, *statistics)
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        x, gate_of, members, shift, *constants, mean, removed, inverse, scale = ctx.saved_tensors
        common = x, channels_last(gradients[0]), gate_of, members, scale, shift
        sums = norm_gate_sums(*common, mean, *ctx.numbers)
        slope, offset, d_weight, d_bias = field_gradients(
            sums[0], sums[1], x.numel() // x.shape[1], constants, mean, removed, inverse, scale
        )
        dx = norm_gate_backward(*common, slope, offset, *ctx.numbers)
        return dx, d_weight, d_bias, *[None] * 9


# The compiler sees these as operations of their own. They look at the layouts of what they get when they run, since
# the compiler may choose others than it announces.


@torch.library.custom_op("pscnn::norm_gate", mutates_args=())
def norm_gate(
    x: Tensor, gate_of: Tensor, members: Tensor, scale: Tensor, shift: Tensor, gates: int, copies: int
) -> Tensor:
    """(features · scale + shift) · σ(gates · scale + shift), channels innermost."""
    from pscnn.nn import _gate_kernels

    y = _innermost(x, x.shape[1] - gates * copies)
    _gate_kernels.forward(_even(x), y, gate_of, members, (scale, shift), gates, copies)
    return y


@torch.library.custom_op("pscnn::norm_gate_sums", mutates_args=())
def norm_gate_sums(
    x: Tensor, g: Tensor, gate_of: Tensor, members: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, gates: int,
    copies: int,
) -> Tensor:  # fmt: skip
    """With d the gradient of x · scale + shift: Σ d and Σ d (x − mean) over all pixels, (2, C)."""
    from pscnn.nn import _gate_kernels

    return _gate_kernels.sums(_even(x), _even(g), gate_of, members, (scale, shift, mean), gates, copies)


@torch.library.custom_op("pscnn::norm_gate_backward", mutates_args=())
def norm_gate_backward(
    x: Tensor, g: Tensor, gate_of: Tensor, members: Tensor, scale: Tensor, shift: Tensor, slope: Tensor,
    offset: Tensor, gates: int, copies: int,
) -> Tensor:  # fmt: skip
    """With d as above: d · scale + x · slope + offset."""
    from pscnn.nn import _gate_kernels

    dx = _innermost(x, x.shape[1])
    vectors = scale, shift, slope, offset
    _gate_kernels.backward(_even(x), _even(g), dx, gate_of, members, vectors, gates, copies)
    return dx


norm_gate.register_fake(lambda x, _0, _1, _2, _3, gates, copies: _innermost(x, x.shape[1] - gates * copies))
norm_gate_sums.register_fake(lambda x, g, gate_of, members, scale, *_: scale.new_empty(2, x.shape[1]))
norm_gate_backward.register_fake(lambda x, *_: _innermost(x, x.shape[1]))


def _innermost(x: Tensor, channels: int) -> Tensor:
    """An empty map like x with its channels innermost."""
    return x.new_empty(x.shape[0], *x.shape[2:], channels).movedim(-1, 1)


def _even(x: Tensor) -> Tensor:
    """X with all channels of a pixel together and pixels at equal distances."""
    step = x.stride(-1)
    even = x.stride(1) == 1
    for axis in (*range(x.ndim - 1, 1, -1), 0):
        even &= x.stride(axis) == step
        step *= x.shape[axis]
    return x if even else channels_last(x)

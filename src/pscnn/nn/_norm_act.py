"""Normalisation and what follows it in one pass over memory, on a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pscnn.nn._fast import Operation, empty_map, with_surplus
from pscnn.nn._field_norm import field_gradients, field_statistics

NONE, GATE, FOURIER = 0, 1, 2


class Following(NamedTuple):
    """What follows a normalisation.

    Attributes:
        one: A table: the gate of each channel, (W,); or the transform to samples, (W, S).
        two: Another: the channels of each gate, (M, W), −1 where there are fewer; or the transform back, (S, W).
        kind: NONE, GATE or FOURIER.
        gates: Channels at the beginning of each field that are used up.
        size: Channels per field, W ≥ size a power of two.
    """

    one: Tensor
    two: Tensor
    kind: int
    gates: int
    size: int


class NormAct(torch.autograd.Function):
    """The output, and ``field_statistics``; with the gradient written out."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, field_of: Tensor, average: Tensor, trivial: Tensor, eps: float,
        field_size: Tensor, one: Tensor, two: Tensor, kind: int, gates: int, size: int,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        variance, mean = channel_moments(x).unbind()
        found = field_statistics((variance, mean), weight, bias, field_of, average, trivial, eps)
        y = norm_act(x, one, two, found.scale, found.shift, kind, gates, size)
        return with_surplus(y, _out_channels(x, gates, size)), *found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, _, _, field_of, average, trivial, _, field_size, one, two, *ctx.numbers = inputs
        _, _, _, *statistics, shift = output  # mean, removed, inverse, scale
        ctx.save_for_backward(x, one, two, shift, field_of, field_size, average, trivial, *statistics)
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        x, one, two, shift, *constants, mean, removed, inverse, scale = ctx.saved_tensors
        common = x, gradients[0], one, two, scale, shift
        sums = norm_act_sums(*common, mean, *ctx.numbers)
        slope, offset, d_weight, d_bias = field_gradients(
            sums[0], sums[1], x.numel() // x.shape[1], constants, mean, removed, inverse, scale
        )
        dx = with_surplus(norm_act_backward(*common, slope, offset, *ctx.numbers), x.shape[1])
        return dx, d_weight, d_bias, *[None] * 10


# The compiler sees these as operations of their own. They look at the layouts of what they get when they run, since
# the compiler may choose others than it announces. Maps that they make have zeros behind their channels.


def _channel_moments(x: Tensor) -> Tensor:
    """The variance and the mean of every channel, (2, C)."""
    from pscnn.nn import _triton_kernels

    return _triton_kernels.moments(_even(x))


def _norm_act(
    x: Tensor, one: Tensor, two: Tensor, scale: Tensor, shift: Tensor, kind: int, gates: int, size: int
) -> Tensor:
    """What follows, applied to x · scale + shift."""
    from pscnn.nn import _triton_kernels

    y = empty_map(x, _out_channels(x, gates, size))
    _triton_kernels.forward(_even(x), y, one, two, (scale, shift), kind, gates, size)
    return y


def _norm_act_sums(
    x: Tensor, g: Tensor, one: Tensor, two: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, kind: int, gates: int,
    size: int,
) -> Tensor:  # fmt: skip
    """With d the gradient of x · scale + shift: Σ d and Σ d (x − mean) over all pixels, (2, C)."""
    from pscnn.nn import _triton_kernels

    return _triton_kernels.sums(_even(x), _even(g), one, two, (scale, shift, mean), kind, gates, size)


def _norm_act_backward(
    x: Tensor, g: Tensor, one: Tensor, two: Tensor, scale: Tensor, shift: Tensor, slope: Tensor, offset: Tensor,
    kind: int, gates: int, size: int,
) -> Tensor:  # fmt: skip
    """With d as above: d · scale + x · slope + offset."""
    from pscnn.nn import _triton_kernels

    dx = empty_map(x, x.shape[1])
    vectors = scale, shift, slope, offset
    _triton_kernels.backward(_even(x), _even(g), dx, one, two, vectors, kind, gates, size)
    return dx


channel_moments = Operation(_channel_moments, lambda x: x.new_empty(2, x.shape[1], dtype=torch.float32))
norm_act = Operation(_norm_act, lambda x, *rest: empty_map(x, _out_channels(x, *rest[-2:])))
norm_act_sums = Operation(_norm_act_sums, lambda x, *rest: x.new_empty(2, x.shape[1], dtype=torch.float32))
norm_act_backward = Operation(_norm_act_backward, lambda x, *_: empty_map(x, x.shape[1]))


def _out_channels(x: Tensor, gates: int, size: int) -> int:
    return x.shape[1] - gates * (x.shape[1] // size)


def _even(x: Tensor) -> Tensor:
    """X with all channels of a pixel together and pixels at equal distances."""
    step = x.stride(-1)
    even = x.stride(1) == 1
    for axis in (*range(x.ndim - 1, 1, -1), 0):
        even &= x.stride(axis) == step
        step *= x.shape[axis]
    # Not channels_last: of maps with one pixel it may leave any distances.
    return x if even else x.new_empty(x.shape[0], *x.shape[2:], x.shape[1]).movedim(-1, 1).copy_(x)

"""Normalisation and what follows it in one pass over memory, on a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pscnn._differentiable import differentiable
from pscnn.nn._fast import empty_map, even, with_surplus
from pscnn.nn._field_norm import FieldStatistics
from pscnn.nn._operation import Operation

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


def split_statistics(found: Tensor, fields: int, channels: int) -> FieldStatistics:
    """What the kernels leave one after the other."""
    trivial = len(found) - 2 * fields - 4 * channels
    centre, variance, inverse, *others = found.split([trivial, fields, fields, *[channels] * 4])
    mean, removed, scale, shift = others
    return FieldStatistics(centre, variance, mean, removed, inverse, scale, shift)


Running = tuple[Tensor, Tensor, Tensor, float]
"""Mean, variance and number of batches, which follow every batch, and the momentum."""


class NormAct(torch.autograd.Function):
    """The output, and the statistics one after the other; with the gradient written out."""

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, table: Tensor, directions: Tensor, eps: float, one: Tensor,
        two: Tensor, kind: int, gates: int, size: int, running: Running | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        ingredients = x, weight, bias, table, directions, eps
        found = map_statistics(*ingredients) if running is None else _statistics(*ingredients, running)
        y = norm_act(x, one, two, found, kind, gates, size)
        return with_surplus(y, _out_channels(x, gates, size)), found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, _, _, table, directions, _, one, two, *ctx.numbers, _ = inputs
        ctx.save_for_backward(x, one, two, output[1], table, directions)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        x, one, two, found, table, directions = ctx.saved_tensors
        channels, fields = x.shape[1], table.shape[0]
        slopes = norm_act_vectors(x, gradients[0], one, two, found, table, directions, *ctx.numbers)
        dx = norm_act_backward(x, gradients[0], one, two, found, slopes, *ctx.numbers)
        trivial = slopes.shape[0] - 2 * channels - fields
        d_weight, d_bias = slopes.narrow(0, 2 * channels, fields), slopes.narrow(0, 2 * channels + fields, trivial)
        return with_surplus(dx, channels), d_weight, d_bias, *[None] * 9


normalised = differentiable(NormAct)


class Act(torch.autograd.Function):
    """What follows a normalisation, without one; ``unit`` holds 0, 0, 1 and 0 for every channel.

    The last two are a scale and a shift, and the first two a slope and an offset.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, unit: Tensor, one: Tensor, two: Tensor, kind: int, gates: int, size: int
    ) -> Tensor:
        ctx.save_for_backward(x, unit, one, two)
        ctx.numbers = kind, gates, size
        return with_surplus(norm_act(x, one, two, unit, *ctx.numbers), _out_channels(x, gates, size))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, unit, *tables = ctx.saved_tensors
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # this gradient is to be differentiated
            y = _act_in_torch(x, *tables, *ctx.numbers)
            (dx,) = torch.autograd.grad(y, x, gradients[0], create_graph=True)
        else:
            dx = with_surplus(norm_act_backward(x, gradients[0], *tables, unit, unit, *ctx.numbers), x.shape[1])
        return dx, *[None] * 6


def _act_in_torch(x: Tensor, one: Tensor, two: Tensor, kind: int, gates: int, size: int) -> Tensor:
    fields = x.unflatten(1, (-1, size))
    if kind == GATE:
        opened = fields[:, :, :gates].sigmoid().index_select(2, one[gates:size])
        return (fields[:, :, gates:] * opened).flatten(1, 2)
    samples = F.elu(torch.einsum("bnd...,ds->bns...", fields, one[:size].to(x.dtype)))
    return torch.einsum("bns...,sd->bnd...", samples, two[:, :size].to(x.dtype)).flatten(1, 2)


# The compiler sees these as operations of their own. They look at the layouts of what they get when they run, since
# the compiler may choose others than it announces. Maps that they make have zeros behind their channels.


def _statistics(
    x: Tensor, weight: Tensor, bias: Tensor, table: Tensor, directions: Tensor, eps: float,
    running: Running | None = None,
) -> Tensor:  # fmt: skip
    """What ``split_statistics`` takes apart; if given, running statistics follow."""
    from pscnn.nn import _triton_fields, _triton_kernels

    found, portion = _triton_kernels.moments(even(x))
    ingredients = weight, bias, table, directions, eps
    out = _triton_fields.field_statistics(found, portion, x.numel() // x.shape[1], *ingredients, running)
    for changed in running[:3] if running is not None else ():
        if not changed.is_inference():
            torch.autograd.graph.increment_version(changed)  # autograd sees no kernels of others
    return out


def _map_statistics(x: Tensor, weight: Tensor, bias: Tensor, table: Tensor, directions: Tensor, eps: float) -> Tensor:
    return _statistics(x, weight, bias, table, directions, eps)


def _norm_act(x: Tensor, one: Tensor, two: Tensor, vectors: Tensor, kind: int, gates: int, size: int) -> Tensor:
    """What follows, applied to x · scale + shift, which are the last of ``vectors``."""
    from pscnn.nn import _triton_kernels

    y = empty_map(x, _out_channels(x, gates, size))
    _triton_kernels.forward(even(x), y, one, two, vectors, kind, gates, size)
    return y


def _norm_act_vectors(
    x: Tensor, g: Tensor, one: Tensor, two: Tensor, found: Tensor, table: Tensor, directions: Tensor, kind: int,
    gates: int, size: int,
) -> Tensor:  # fmt: skip
    """Slope and offset of x in its gradient, and the gradients of weight and bias, one after the other."""
    from pscnn.nn import _triton_fields, _triton_kernels

    sums = _triton_kernels.sums(even(x), even(g), one, two, found, kind, gates, size)
    return _triton_fields.field_gradients(sums, found, x.numel() // x.shape[1], table, directions)


def _norm_act_backward(
    x: Tensor, g: Tensor, one: Tensor, two: Tensor, vectors: Tensor, slopes: Tensor, kind: int, gates: int, size: int
) -> Tensor:  # fmt: skip
    """With d the gradient of x · scale + shift: d · scale + x · slope + offset, the first of ``slopes``."""
    from pscnn.nn import _triton_kernels

    dx = empty_map(x, x.shape[1])
    _triton_kernels.backward(even(x), even(g), dx, one, two, vectors, slopes, kind, gates, size)
    return dx


map_statistics = Operation(
    "(Tensor x, Tensor weight, Tensor bias, Tensor table, Tensor directions, float eps) -> Tensor",
    _map_statistics,
    lambda x, weight, bias, *_: x.new_empty(len(bias) + 2 * len(weight) + 4 * x.shape[1], dtype=torch.float32),
)
_KIND = "SymInt kind, SymInt gates, SymInt size"
norm_act = Operation(
    f"(Tensor x, Tensor one, Tensor two, Tensor vectors, {_KIND}) -> Tensor",
    _norm_act,
    lambda x, *rest: empty_map(x, _out_channels(x, *rest[-2:])),
)
norm_act_vectors = Operation(
    f"(Tensor x, Tensor g, Tensor one, Tensor two, Tensor found, Tensor table, Tensor directions, {_KIND}) -> Tensor",
    _norm_act_vectors,
    lambda x, g, one, two, found, table, *_: torch.empty_like(found[: len(found) - len(table) - 2 * x.shape[1]]),
)
norm_act_backward = Operation(
    f"(Tensor x, Tensor g, Tensor one, Tensor two, Tensor vectors, Tensor slopes, {_KIND}) -> Tensor",
    _norm_act_backward,
    lambda x, *_: empty_map(x, x.shape[1]),
)


def _out_channels(x: Tensor, gates: int, size: int) -> int:
    return x.shape[1] - gates * (x.shape[1] // size)

"""Normalisation and what follows it in one pass over memory, on a GPU."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pscnn._differentiable import differentiable
from pscnn.nn._fast import empty_map, even, with_surplus
from pscnn.nn._field_norm import FieldStatistics
from pscnn.nn._operation import Operation

NONE, GATE, FOURIER, RELU = 0, 1, 2, 3


class Following(NamedTuple):
    """What follows a normalisation.

    Attributes:
        one: A matrix (W, S), with zeros around it: the gate of each channel, W = S; or the transform to samples, in
            units of log 2. Anything else for the other kinds.
        two: Another, (S, V): what picks the features; or the transform back.
        kind: NONE, GATE, FOURIER or RELU.
        gates: Channels of each block that are used up.
        size: Channels per block, of one or more fields.
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
        return norm_act(x, one, two, found, kind, gates, size), found

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
        dx, slopes = norm_act_gradients(x, gradients[0], one, two, found, table, directions, *ctx.numbers)
        trivial = slopes.shape[0] - 2 * channels - fields
        d_weight, d_bias = slopes.narrow(0, 2 * channels, fields), slopes.narrow(0, 2 * channels + fields, trivial)
        return dx, d_weight, d_bias, *[None] * 9


normalised = differentiable(NormAct)


class Act(torch.autograd.Function):
    """What follows a normalisation, without one; ``unit`` ends with a scale of 1 and a shift of 0 for every channel."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, unit: Tensor, one: Tensor, two: Tensor, kind: int, gates: int, size: int
    ) -> Tensor:
        ctx.save_for_backward(x, unit, one, two)
        ctx.numbers = kind, gates, size
        return norm_act(x, one, two, unit, *ctx.numbers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, unit, *tables = ctx.saved_tensors
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # this gradient is to be differentiated
            y = _act_in_torch(x, *tables, *ctx.numbers)
            (dx,) = torch.autograd.grad(y, x, gradients[0], create_graph=True)
        else:
            dx = act_gradient(x, gradients[0], *tables, unit, *ctx.numbers)
        return dx, *[None] * 6


def _act_in_torch(x: Tensor, one: Tensor, two: Tensor, kind: int, gates: int, size: int) -> Tensor:
    unit = math.log(2) if kind == FOURIER else 1.0
    one, two = (one[:size] * unit).to(x.dtype), (two[:, : size - gates] / unit).to(x.dtype)
    v = F.pad(x, (*[0] * (2 * (x.ndim - 2)), 0, -x.shape[1] % size)).unflatten(1, (-1, size))
    if kind == GATE:
        v = v * torch.einsum("bnd...,ds->bns...", v.sigmoid(), one[:, :size])
        two = two[:size]
    else:
        v = F.elu(torch.einsum("bnd...,ds->bns...", v, one))
    return torch.einsum("bns...,sd->bnd...", v, two).flatten(1, 2)[:, : _out_channels(x, gates, size)]


# The compiler sees these as operations of their own. They look at the layouts of what they get when they run, since
# the compiler may choose others than it announces. Maps that they make have zeros behind their channels; the compiler
# sees that they lie at larger distances.


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
    return with_surplus(y, _out_channels(x, gates, size))


def _norm_act_gradients(
    x: Tensor, g: Tensor, one: Tensor, two: Tensor, found: Tensor, table: Tensor, directions: Tensor, kind: int,
    gates: int, size: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradient of x; and its slope and offset, and the gradients of weight and bias, one after the other.

    With d the gradient of x · scale + shift it is d · scale + x · slope + offset.
    """
    from pscnn.nn import _triton_fields, _triton_kernels

    x, g, dx = even(x), even(g), empty_map(x, x.shape[1])
    d = g if kind == NONE else dx
    sums = _triton_kernels.gradients(x, g, d, one, two, found, kind, gates, size, True)
    slopes = _triton_fields.field_gradients(sums, found, x.numel() // x.shape[1], table, directions)
    _triton_kernels.combine(x, d, dx, found, slopes)
    return with_surplus(dx, x.shape[1]), slopes


def _act_gradient(
    x: Tensor, g: Tensor, one: Tensor, two: Tensor, unit: Tensor, kind: int, gates: int, size: int
) -> Tensor:
    from pscnn.nn import _triton_kernels

    dx = empty_map(x, x.shape[1])
    _triton_kernels.gradients(even(x), even(g), dx, one, two, unit, kind, gates, size, False)
    return with_surplus(dx, x.shape[1])


def _fake_map(x: Tensor, channels: int) -> Tensor:
    return empty_map(x, channels).narrow(1, 0, channels)


def _follow(found: Tensor, mean: Tensor, variance: Tensor, batches: Tensor, count: int, momentum: float) -> None:
    """Let running statistics follow those of a batch."""
    from pscnn.nn import _triton_fields

    _triton_fields.follow(found, mean, variance, batches, count, momentum)


follow = Operation(
    "(Tensor found, Tensor(a!) mean, Tensor(b!) variance, Tensor(c!) batches, SymInt count, float momentum) -> ()",
    _follow,
    lambda *_: None,
)
map_statistics = Operation(
    "(Tensor x, Tensor weight, Tensor bias, Tensor table, Tensor directions, float eps) -> Tensor",
    _map_statistics,
    lambda x, weight, bias, *_: x.new_empty(len(bias) + 2 * len(weight) + 4 * x.shape[1], dtype=torch.float32),
)
_KIND = "SymInt kind, SymInt gates, SymInt size"
norm_act = Operation(
    f"(Tensor x, Tensor one, Tensor two, Tensor vectors, {_KIND}) -> Tensor",
    _norm_act,
    lambda x, *rest: _fake_map(x, _out_channels(x, *rest[-2:])),
)
norm_act_gradients = Operation(
    f"(Tensor x, Tensor g, Tensor one, Tensor two, Tensor found, Tensor table, Tensor directions, {_KIND}) "
    "-> (Tensor, Tensor)",
    _norm_act_gradients,
    lambda x, g, one, two, found, table, *_: (
        _fake_map(x, x.shape[1]),
        torch.empty_like(found[: len(found) - len(table) - 2 * x.shape[1]]),
    ),
)
act_gradient = Operation(
    f"(Tensor x, Tensor g, Tensor one, Tensor two, Tensor unit, {_KIND}) -> Tensor",
    _act_gradient,
    lambda x, *_: _fake_map(x, x.shape[1]),
)


def _out_channels(x: Tensor, gates: int, size: int) -> int:
    return x.shape[1] * (size - gates) // size

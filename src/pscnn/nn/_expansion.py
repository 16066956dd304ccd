"""From a density and weights to a kernel in few operations: on a GPU, starting one takes longer than its arithmetic."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pscnn.likelihood import Likelihood, density_moments
from pscnn.measures import Measure
from pscnn.nn._bases import Tile, multiply
from pscnn.nn._fast import CHANNELS, empty, even, fused, with_surplus

LARGEST_GRID = 1024
"""Nodes of a density's grid that one program holds."""


def has_kernels(x: Tensor) -> bool:
    """Whether these functions can be used: a compiler makes its own kernels, and tensors without values have none.

    They are written for single precision; a layer whose weights are in half has few operations of torch instead.
    """
    plain = type(x) in (Tensor, nn.Parameter) and x.dtype == torch.float32
    return plain and not torch.compiler.is_compiling() and fused(x)


class Shape(NamedTuple):
    """What a kernel is made of.

    Attributes:
        tile: Of the kernel; it has one.
        spatial: Its sides.
        irreps: Sizes of the irreps of the moments; none if there are no moments.
    """

    tile: Tile
    spatial: tuple[int, ...]
    irreps: tuple[int, ...]

    @property
    def copies(self) -> tuple[int, ...]:
        """Of composites, out and in; their channels, out and in; points."""
        tile = self.tile
        return tile.out_copies, tile.in_copies, tile.d_out, tile.d_in, math.prod(self.spatial)


def density_of(measure: Measure) -> tuple[Tensor, ...]:
    """The coefficients of a density and its constants, or the moments of another measure."""
    if (
        not isinstance(measure, Likelihood)
        or measure.grid_size > LARGEST_GRID
        or not measure.coefficients.numel()
        or not has_kernels(measure.coefficients)
    ):
        with torch.autocast("cuda", enabled=False):
            return (measure.flat_moments(),)
    return measure.logit_coefficients(), measure.logit_matrix, measure.log_weights, measure.moment_matrix


def moments_of(measure: Measure) -> Tensor:
    """The entries of all moments of a density, one after the other."""
    given, *constants = density_of(measure)
    return _Moments.apply(given, *constants) if constants else given  # type: ignore[no-untyped-call]


class _Moments(torch.autograd.Function):
    """∫ λ ψ_i, one kernel forwards and one backwards."""

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, *constants: Tensor) -> Tensor:
        from pscnn.nn import _triton_expansion

        moments, masses = _triton_expansion.density(coefficients, *constants)
        ctx.save_for_backward(coefficients, masses, *constants)
        return moments

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from pscnn.nn import _triton_expansion

        coefficients, masses, *constants = ctx.saved_tensors
        if torch.is_grad_enabled():  # this gradient is to be differentiated
            found = density_moments(coefficients, *constants)
            (own,) = torch.autograd.grad(found, coefficients, gradients[0], create_graph=True)
        else:
            own = _triton_expansion.density_backward(gradients[0], masses, constants[0], constants[2])
        return own, None, None, None


class Turned(torch.autograd.Function):
    """Λ_i w for every slot, (copies, weights) to the same shape."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, moments: Tensor, table: Tensor, tile: Tile, irreps: tuple[int, ...]
    ) -> Tensor:
        from pscnn.nn import _triton_expansion

        ctx.save_for_backward(weight, moments, table)
        ctx.segments, ctx.irreps = tile.segments, irreps
        return _triton_expansion.turn(weight, moments, table, max(irreps))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from pscnn.nn import _triton_expansion

        weight, moments, table = ctx.saved_tensors
        if torch.is_grad_enabled():
            found = _turned(weight, moments, ctx.segments, ctx.irreps)
            own = torch.autograd.grad(found, [weight, moments], gradients[0], create_graph=True, allow_unused=True)
        else:
            own = _triton_expansion.turn_back(gradients[0].contiguous(), weight, moments, table, max(ctx.irreps))
        return *own, None, None, None


def _turned(weight: Tensor, moments: Tensor, segments: tuple[Any, ...], irreps: tuple[int, ...]) -> Tensor:
    """Λ_i w for every slot, in torch."""
    parts = moments.split([d * d for d in irreps])
    return multiply(weight, segments, [part.view(d, d) for part, d in zip(parts, irreps, strict=True)])


class Expanded(torch.autograd.Function):
    """The kernel of a convolution, from weights and a density, in the layout and precision that it wants.

    One function, since every one of them takes autograd longer than a kernel runs. Behind the kernel's channels there
    are zeros up to whole portions. Products are written to given memory, which autocast leaves as it is.
    """

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, given: Tensor | None, sampled: Tensor, table: Tensor | None, shape: Shape,
        dtype: torch.dtype, *constants: Tensor,
    ) -> Tensor:  # fmt: skip
        from pscnn.nn import _triton_expansion

        turned, moments, masses = weight.view(shape.tile.copies, -1), given, None
        if given is not None:
            if constants:
                moments, masses = _triton_expansion.density(given, *constants)
            turned = _triton_expansion.turn(turned, moments, table, max(shape.irreps))
        block = torch.mm(turned, sampled, out=weight.new_empty(len(turned), sampled.shape[1]))
        rows, columns = shape.tile.out_copies * shape.tile.d_out, shape.tile.in_copies * shape.tile.d_in
        padded = empty(block, rows + -rows % CHANNELS, columns + -columns % CHANNELS, shape.spatial, dtype)
        _triton_expansion.pack(block, padded, shape.copies)
        ctx.save_for_backward(weight, given, sampled, table, moments, masses, *constants)
        ctx.shape = shape
        return with_surplus(padded, columns, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from pscnn.nn import _triton_expansion

        weight, given, sampled, table, moments, masses, *constants = ctx.saved_tensors
        shape, nothing = ctx.shape, [None] * (4 + len(constants))
        inputs = [t for t, wanted in zip((weight, given), ctx.needs_input_grad, strict=False) if wanted]
        if torch.is_grad_enabled():
            kernel = _expanded(weight, given, sampled, shape, *constants)
            up = gradients[0].to(kernel.dtype)
            found = iter(torch.autograd.grad(kernel, inputs, up, create_graph=True, allow_unused=True))
            return *[next(found) if wanted else None for wanted in ctx.needs_input_grad[:2]], *nothing
        g = even(gradients[0])
        block = weight.new_empty(shape.tile.copies, sampled.shape[1])
        _triton_expansion.unpack(g, block, shape.copies)
        own = torch.mm(block, sampled.T, out=weight.new_empty(shape.tile.copies, len(sampled)))
        d_given = None
        if given is not None:
            own, d_given = _triton_expansion.turn_back(own, weight.view_as(own), moments, table, max(shape.irreps))
            if constants:
                d_given = _triton_expansion.density_backward(d_given, masses, constants[0], constants[2])
        return own.view(-1), d_given, *nothing


def _expanded(weight: Tensor, given: Tensor | None, sampled: Tensor, shape: Shape, *constants: Tensor) -> Tensor:
    """The same in torch."""
    weight = weight.view(shape.tile.copies, -1)
    if given is not None:
        moments = density_moments(given, *constants) if constants else given
        weight = _turned(weight, moments, shape.tile.segments, shape.irreps)
    kernel = shape.tile.joined(weight @ sampled)
    return kernel.reshape(*kernel.shape[:2], *shape.spatial)

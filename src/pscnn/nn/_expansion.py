"""From a density and weights to a kernel in few operations: on a GPU, starting one takes longer than its arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pscnn.likelihood import Likelihood, density_moments
from pscnn.measures import Measure
from pscnn.nn._bases import Tile, multiply
from pscnn.nn._fast import CHANNELS, empty, even, fused, with_surplus
from pscnn.nn._operation import Operation

LARGEST_GRID = 1024
"""Nodes of a density's grid that one program holds."""


def has_kernels(x: Tensor, compiled: bool = False) -> bool:
    """Whether these functions can be used: tensors without values have none, and what is exported must do without them.

    They are written for single precision; a layer whose weights are in half has few operations of torch instead.

    Args:
        x: A parameter.
        compiled: Whether they are operations for a compiler, too. It would take minutes over what they consist of.
    """
    if torch.compiler.is_compiling() and (not compiled or _exporting()):
        return False
    return type(x) in (Tensor, nn.Parameter) and x.dtype == torch.float32 and fused(x)


def wanted_dtype(weight: Tensor) -> torch.dtype:
    """Of kernels: that of autocast on a GPU, or that of the weights."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else weight.dtype


def _exporting() -> bool:
    # Versions before 2.7 do not tell; they get what can be exported.
    return not hasattr(torch.compiler, "is_exporting") or torch.compiler.is_exporting()


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

    @property
    def channels(self) -> tuple[int, int]:
        """Out and in."""
        return self.tile.out_copies * self.tile.d_out, self.tile.in_copies * self.tile.d_in

    @property
    def padded(self) -> tuple[int, int]:
        """The same, up to whole portions."""
        rows, columns = self.channels
        return rows + -rows % CHANNELS, columns + -columns % CHANNELS

    @property
    def largest(self) -> int:
        """Rows of the largest moment."""
        return max(self.irreps, default=0)


def density_of(measure: Measure) -> tuple[Tensor, ...]:
    """The coefficients of a density and its constants, or the moments of another measure."""
    if (
        not isinstance(measure, Likelihood)
        or measure.grid_size > LARGEST_GRID
        or not measure.coefficients.numel()
        or not has_kernels(measure.coefficients, compiled=True)
    ):
        with torch.autocast("cuda", enabled=False):
            return (measure.flat_moments(),)
    return measure.logit_coefficients(), measure.logit_matrix, measure.log_weights, measure.moment_matrix


def moments_of_all(
    densities: Sequence[tuple[int, tuple[Tensor, ...]]],
) -> tuple[list[Tensor], dict[int, tuple[int, int]]]:
    """The moments of several measures in rows, a table for all with equal constants; and which table and row is whose.

    Args:
        densities: What ``density_of`` gives, with a name for each.
    """
    alike: dict[tuple[int, ...], list[tuple[int, tuple[Tensor, ...]]]] = {}
    for name, (given, *constants) in densities:
        alike.setdefault((len(given), *map(id, constants)), []).append((name, (given, *constants)))
    tables, places = list[Tensor](), dict[int, tuple[int, int]]()
    for own in alike.values():
        rows = torch.stack([given for _, (given, *_) in own])
        constants = list(own[0][1][1:])
        places |= {name: (len(tables), row) for row, (name, _) in enumerate(own)}
        tables.append(_Moments.apply(rows, *constants) if constants else rows)  # type: ignore[no-untyped-call]
    return tables, places


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
            rows = coefficients.view(-1, coefficients.shape[-1])
            found = torch.stack([density_moments(row, *constants) for row in rows]).view_as(gradients[0])
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


def _expand(
    weight: Tensor, given: Tensor | None, sampled: Tensor, table: Tensor | None, constants: list[Tensor],
    copies: list[int], spatial: list[int], largest: int, dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The kernel; and, of a density, its moments and masses."""
    from pscnn.nn import _triton_expansion

    moments, masses = weight.new_empty(0), weight.new_empty(0)
    turned = weight.view(copies[0] * copies[1], -1)
    if given is not None:
        if constants:
            moments, masses = _triton_expansion.density(given, *constants)
        turned = _triton_expansion.turn(turned, moments if constants else given, table, largest)
    block = torch.mm(turned, sampled, out=weight.new_empty(len(turned), sampled.shape[1]))
    padded = empty(block, *_padded_sides(copies), spatial, dtype)
    _triton_expansion.pack(block, padded, copies)
    return with_surplus(padded, copies[1] * copies[3], copies[0] * copies[2]), moments, masses


def _expand_back(
    g: Tensor, weight: Tensor, given: Tensor | None, sampled: Tensor, table: Tensor | None, constants: list[Tensor],
    moments: Tensor, masses: Tensor, copies: list[int], largest: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of weights and density from that of the kernel."""
    from pscnn.nn import _triton_expansion

    count, d_given = copies[0] * copies[1], weight.new_empty(0)
    block = weight.new_empty(count, sampled.shape[1])
    _triton_expansion.unpack(even(g), block, copies)
    own = torch.mm(block, sampled.T, out=weight.new_empty(count, len(sampled)))
    if given is not None:
        by = moments if constants else given
        own, d_given = _triton_expansion.turn_back(own, weight.view_as(own), by, table, largest)
        if constants:
            d_given = _triton_expansion.density_backward(d_given, masses, constants[0], constants[2])
    return own.view(-1), d_given


def _padded_sides(copies: Sequence[int]) -> tuple[int, int]:
    rows, columns = copies[0] * copies[2], copies[1] * copies[3]
    return rows + -rows % CHANNELS, columns + -columns % CHANNELS


def _fake_expand(
    weight: Tensor, given: Any, sampled: Any, table: Any, constants: list[Tensor], copies: list[int],
    spatial: list[int], largest: int, dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    entries, nodes = constants[2].shape if constants else (0, 0)
    padded = empty(weight, *_padded_sides(copies), spatial, dtype)
    kernel = padded.narrow(0, 0, copies[0] * copies[2]).narrow(1, 0, copies[1] * copies[3])
    return kernel, weight.new_empty(entries), weight.new_empty(nodes)


_MADE_OF = "Tensor weight, Tensor? given, Tensor sampled, Tensor? table, Tensor[] constants"
expand = Operation(
    f"({_MADE_OF}, SymInt[] copies, SymInt[] spatial, SymInt largest, ScalarType dtype) -> (Tensor, Tensor, Tensor)",
    _expand,
    _fake_expand,
)
expand_back = Operation(
    f"(Tensor g, {_MADE_OF}, Tensor moments, Tensor masses, SymInt[] copies, SymInt largest) -> (Tensor, Tensor)",
    _expand_back,
    lambda g, weight, given, *_: (torch.empty_like(weight), weight.new_empty(0 if given is None else len(given))),
)


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
        numbers = list(shape.copies), list(shape.spatial), shape.largest
        kernel, moments, masses = expand(weight, given, sampled, table, list(constants), *numbers, dtype)
        ctx.save_for_backward(weight, given, sampled, table, moments, masses, *constants)
        ctx.shape = shape
        return kernel

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight, given, sampled, table, moments, masses, *constants = ctx.saved_tensors
        shape, nothing = ctx.shape, [None] * (4 + len(constants))
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # this gradient is to be differentiated
            inputs = [t for t, wanted in zip((weight, given), ctx.needs_input_grad, strict=False) if wanted]
            kernel = expanded_in_torch(weight, given, sampled, shape, *constants)
            up = gradients[0].to(kernel.dtype)
            found = iter(torch.autograd.grad(kernel, inputs, up, create_graph=True, allow_unused=True))
            return *[next(found) if wanted else None for wanted in ctx.needs_input_grad[:2]], *nothing
        made = weight, given, sampled, table, constants, moments, masses
        own, d_given = expand_back(gradients[0], *made, list(shape.copies), shape.largest)
        return own, None if given is None else d_given, *nothing


def expanded_in_torch(
    weight: Tensor, given: Tensor | None, sampled: Tensor, shape: Shape, *constants: Tensor
) -> Tensor:
    """The same in torch."""
    weight = weight.view(shape.tile.copies, -1)
    if given is not None:
        moments = density_moments(given, *constants) if constants else given
        weight = _turned(weight, moments, shape.tile.segments, shape.irreps)
    kernel = shape.tile.joined(weight @ sampled)
    return kernel.reshape(*kernel.shape[:2], *shape.spatial)

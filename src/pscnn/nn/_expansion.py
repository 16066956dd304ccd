"""From a density and weights to a kernel in few operations: on a GPU, starting one takes longer than its arithmetic."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from pscnn.likelihood import Likelihood, density_moments
from pscnn.nn._bases import Tile
from pscnn.nn._fast import CHANNELS, even, fused, with_surplus

LARGEST_GRID = 1024
"""Nodes of a density's grid that one program holds."""


def has_kernels(x: Tensor) -> bool:
    """Whether these functions can be used: a compiler makes its own kernels, and tensors without values have none.

    They are written for single precision; a layer whose weights are in half has few operations of torch instead.
    """
    plain = type(x) in (Tensor, nn.Parameter) and x.dtype == torch.float32
    return plain and not torch.compiler.is_compiling() and fused(x)


def moments_of(likelihood: Any) -> Tensor:
    """The entries of all moments of a density, one after the other."""
    if (
        not isinstance(likelihood, Likelihood)
        or not has_kernels(likelihood.coefficients)
        or likelihood.grid_size > LARGEST_GRID
        or likelihood.logit_matrix.shape[1] == 0
    ):
        return likelihood.flat_moments()
    constants = likelihood.logit_matrix, likelihood.log_weights, likelihood.moment_matrix
    return _Moments.apply(likelihood.logit_coefficients(), *constants)  # type: ignore[no-untyped-call]


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
    """Λ_i w for every slot, (copies, weights) to the same shape.

    The gradient of the moments is picked from all products of weights with gradients, one product for all slots.
    """

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, moments: Tensor, table: Tensor, places: Tensor, which: Tensor, largest: int
    ) -> Tensor:
        from pscnn.nn import _triton_expansion

        ctx.save_for_backward(weight, moments, table, places, which)
        ctx.largest = largest
        return _triton_expansion.turn(weight, moments, table, largest, False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from pscnn.nn import _triton_expansion

        weight, moments, table, places, which = ctx.saved_tensors
        up, size = gradients[0], weight.shape[1]
        if torch.is_grad_enabled():
            flat = moments.new_zeros(size**2).index_copy(0, places, moments.index_select(0, which))
            d_weight = up @ flat.view(size, size).T
        else:
            d_weight = _triton_expansion.turn(up, moments, table, ctx.largest, True)
        products = (weight.T @ up).reshape(-1).index_select(0, places)
        return d_weight, torch.zeros_like(moments).index_add(0, which, products), None, None, None, None


class Packed(torch.autograd.Function):
    """A kernel (channels out, channels in, …) from blocks of copies, in the layout and precision of a convolution.

    Behind its channels there are zeros up to whole portions.
    """

    @staticmethod
    def forward(ctx: Any, block: Tensor, tile: Tile, spatial: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        from pscnn.nn import _triton_expansion

        ctx.shape = tile.out_copies, tile.in_copies, tile.d_out, tile.d_in, math.prod(spatial)
        ctx.dtype = block.dtype
        rows, columns = tile.out_copies * tile.d_out, tile.in_copies * tile.d_in
        full = rows + -rows % CHANNELS, *spatial, columns + -columns % CHANNELS
        padded = torch.empty(full, dtype=dtype, device=block.device).movedim(-1, 1)
        _triton_expansion.pack(block, padded, ctx.shape)
        return with_surplus(padded, columns, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        from pscnn.nn import _triton_expansion

        out_copies, in_copies, d_out, d_in, points = ctx.shape
        if torch.is_grad_enabled():
            blocks = gradients[0].to(ctx.dtype).reshape(out_copies, d_out, in_copies, d_in, points).transpose(1, 2)
            return blocks.reshape(out_copies * in_copies, -1), None, None, None
        g = even(gradients[0])
        block = torch.empty(out_copies * in_copies, d_out * d_in * points, dtype=ctx.dtype, device=g.device)
        _triton_expansion.unpack(g, block, ctx.shape)
        return block, None, None, None

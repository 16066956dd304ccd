"""The products that a kernel is made of."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Tile(NamedTuple):
    """A block of the kernel: ``out_copies`` × ``in_copies`` repetitions of one slot basis."""

    out_copies: int
    in_copies: int
    d_out: int
    d_in: int
    weights: int
    segments: tuple[tuple[int, int, int], ...]  # (index of the irrep i among the moments, its size, its slots)

    @property
    def copies(self) -> int:
        """How often the weights repeat."""
        return self.out_copies * self.in_copies

    def joined(self, block: Tensor) -> Tensor:
        """From (copies, d_out·d_in·points) to (channels out, channels in, points)."""
        block = block.view(self.out_copies, self.in_copies, self.d_out, self.d_in, -1).transpose(1, 2)
        return block.reshape(self.out_copies * self.d_out, self.in_copies * self.d_in, -1)


class Expansion(torch.autograd.Function):
    """(w · L(Λ)) · basis, where L holds the moments in blocks along its diagonal, with its gradient written out.

    L is filled and multiplied whole, where autograd would see one product per irrep and a dozen views around it.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, moments: Tensor, basis: Tensor, places: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        flat = torch.zeros(len(basis) ** 2, dtype=moments.dtype, device=moments.device)
        matrix = flat.index_copy(0, places, moments.index_select(0, which)).view(len(basis), -1)
        return weight @ matrix @ basis, matrix

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, moments, basis, places, which, matrix = ctx.saved_tensors
        d_kernel, d_matrix = gradients  # the matrix has one if this gradient is differentiated
        d_weight = None
        if d_kernel is not None:
            turned = d_kernel @ basis.T
            d_weight, own = turned @ matrix.T, weight.T @ turned
            d_matrix = own if d_matrix is None else own + d_matrix
        if d_matrix is None:
            return None, None, None, None, None
        filled = d_matrix.reshape(-1).index_select(0, places)
        return d_weight, torch.zeros_like(moments).index_add(0, which, filled), None, None, None


def multiply(weight: Tensor, segments: tuple[tuple[int, int, int], ...], moments: list[Tensor]) -> Tensor:
    """Λ_i w for every slot: (copies, weights) to the same shape."""
    parts = weight.split([size * count for _, size, count in segments], dim=1)
    out = []
    for part, (index, size, _) in zip(parts, segments, strict=True):
        if index == 0:  # trivial: Λ = 1
            out.append(part)
        elif size <= 3 and torch.compiler.is_compiling():
            # Written out, a compiler makes one kernel of all segments; as products they would be one each.
            columns = part.unflatten(1, (-1, size)).unbind(2)
            rows = [sum(m * w for m, w in zip(row.unbind(), columns, strict=True)) for row in moments[index].unbind()]
            out.append(torch.stack(rows, 2).view_as(part))
        else:
            out.append((part.reshape(-1, size) @ moments[index].T).view_as(part))
    return torch.cat(out, 1) if len(out) > 1 else out[0]

"""Slots: the coordinates in which a density acts on a kernel by small matrices.

The unconstrained kernels between irreps ψ_l and ψ_J are K(x) = Σ_{j,k} W_jk · Y_j^k(x), and H acts on W_jk by
ψ_J ⊗ ψ_l ⊗ ψ_j. Decomposing that tensor product (first ψ_J ⊗ ψ_l into ψ_j', then ψ_j' ⊗ ψ_j into ψ_i) gives *slots*:
subspaces on which H acts by a single irrep ψ_i. Averaging the kernel with a density λ then multiplies the d_i weights
of each slot by Λ_i = ∫ λ(h) ψ_i(h) dh, and nothing else (paper, Eq. 14).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pscnn._memo import memo
from pscnn._types import Array, IntArray
from pscnn.groups import Irrep, clebsch_gordan
from pscnn.kernels._harmonics import SteerableBasis


@memo
def slots(out_irrep: Irrep, in_irrep: Irrep, basis_irrep: Irrep, target: Irrep) -> Array:
    """Orthonormal embeddings of ψ_i into ψ_J ⊗ ψ_l ⊗ ψ_j.

    Returns:
        Shape (slots, d_J, d_l, d_j, d_i).
    """
    group = out_irrep.group
    found = [np.empty((0, out_irrep.size, in_irrep.size, basis_irrep.size, target.size))]
    for middle in group.irreps(out_irrep.frequency + in_irrep.frequency):
        if not group.may_contain(middle, basis_irrep, target):
            continue
        outer = clebsch_gordan(out_irrep, in_irrep, middle)
        inner = clebsch_gordan(middle, basis_irrep, target)
        if len(outer) and len(inner):
            joined = np.einsum("sabm,rmji->srabji", outer, inner, optimize=True)
            found.append(joined.reshape(-1, *joined.shape[2:]))
    return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class SlotBasis:
    """The fixed basis of all kernels between two sums of irreps.

    Attributes:
        matrix: Coefficients of each basis kernel over (out channel, in channel, harmonic), shape
            (weights, D_out, D_in, harmonics). Rows are ordered by the irrep i, then slot, then component of ψ_i.
        segments: Each irrep i with its number of slots.
        out_index: For each row, which of the output irreps it feeds.
        harmonics: Values of the harmonics on the grid, shape (harmonics, points).

    Every slot is scaled such that unit weights turn white noise of variance 1 into an output of variance 1 per channel.
    """

    matrix: Array
    segments: tuple[tuple[Irrep, int], ...]
    out_index: IntArray
    harmonics: Array

    def __post_init__(self) -> None:
        for array in (self.matrix, self.out_index, self.harmonics):
            array.flags.writeable = False

    @cached_property
    def flat(self) -> Array:
        """The matrix with shape (weights, D_out·D_in·harmonics)."""
        return self.matrix.reshape(len(self.matrix), int(np.prod(self.matrix.shape[1:])))


@memo
def slot_basis(
    out_irreps: tuple[Irrep, ...],
    in_irreps: tuple[Irrep, ...],
    steerable: SteerableBasis,
    moments: tuple[Irrep, ...] | None,
) -> SlotBasis:
    """The basis between ⊕ ψ_J and ⊕ ψ_l, built once per process for equal arguments.

    Args:
        out_irreps: The irreps J of the output.
        in_irreps: The irreps l of the input.
        steerable: The harmonics.
        moments: Which irreps i to keep: the trivial one alone for an equivariant layer, those of a density's band-limit
            for a partially equivariant one, None for all (unconstrained kernels).
    """
    if moments is None:
        highest = sum(max(psi.frequency for psi in some) for some in (out_irreps, in_irreps, steerable.irreps))
        moments = steerable.group.irreps(highest)
    values = steerable.sample()
    outs, ins, harmonics = _places(out_irreps), _places(in_irreps), _places(steerable.irreps)
    grams = [values[y] @ values[y].T for _, y in harmonics]
    # First count, then fill one array: bases in 3D are large and must not exist twice.
    counts = {
        i: sum(len(slots(a, b, j, i)) for a in out_irreps for b in in_irreps for j in steerable.irreps) for i in moments
    }
    segments = tuple((i, counts[i]) for i in moments if counts[i])
    shape = (sum(psi.size for psi in some) for some in (out_irreps, in_irreps, steerable.irreps))
    matrix = np.zeros((sum(i.size * n for i, n in segments), *shape))
    out_index = np.zeros(len(matrix), dtype=np.int64)
    row = 0
    for i, _ in segments:
        for a, (psi_out, o) in enumerate(outs):
            for psi_in, c in ins:
                for (psi_y, y), gram in zip(harmonics, grams, strict=True):
                    found = slots(psi_out, psi_in, psi_y, i)
                    if not len(found):
                        continue
                    power = np.einsum("sabji,jk,sabki->s", found, gram, found, optimize=True)
                    scale = np.sqrt(i.size * psi_out.size / power)
                    block = (found * scale[:, None, None, None, None]).transpose(0, 4, 1, 2, 3)
                    stop = row + len(found) * i.size
                    matrix[row:stop, o, c, y] = block.reshape(-1, *block.shape[2:])
                    out_index[row:stop] = a
                    row = stop
    return SlotBasis(matrix, segments, out_index, values)


def _places(irreps: Sequence[Irrep]) -> list[tuple[Irrep, slice]]:
    """Each irrep with its channels."""
    stops = np.cumsum([psi.size for psi in irreps]).tolist()
    return [(psi, slice(stop - psi.size, stop)) for psi, stop in zip(irreps, stops, strict=True)]

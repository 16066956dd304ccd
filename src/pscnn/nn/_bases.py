"""The parts of a steerable layer's kernel: its bases, scaled; the order of channels and slots; the products of all."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pscnn._memo import memo
from pscnn._types import Array, IntArray
from pscnn.groups import DirectSum, Irrep
from pscnn.kernels import SlotBasis, SteerableBasis, slot_basis, slots


class TileBasis(NamedTuple):
    """The basis kernels of a tile, a part of a layer's kernel.

    Attributes:
        irreps: Irreps of the output that the tile feeds.
        copies: How often the output's composite has them.
        matrix: Coefficients of each kernel, scaled and with the changes of basis, (weights, d_out·d_in·harmonics).
        slots: What the matrix was made from.
    """

    irreps: tuple[Irrep, ...]
    copies: int
    matrix: Array
    slots: SlotBasis


def kinds(composite: DirectSum) -> dict[Irrep, int]:
    """Distinct irreps with their multiplicity, in order of first appearance."""
    return Counter(composite.irreps)


@memo
def sorted_channels(composite: DirectSum, copies: int) -> IntArray:
    """For each channel of ``copies`` composites (copy by copy), its place when channels are sorted by irrep."""
    distinct = list(kinds(composite))
    kind_of = [distinct.index(psi) for psi in composite.irreps for _ in range(psi.size)]
    return np.argsort(np.argsort(np.tile(kind_of, copies), kind="stable"))


@memo
def entries(out: DirectSum, inn: DirectSum, steerable: SteerableBasis, moments: tuple[Irrep, ...]) -> int:
    """Entries of the dense basis, counted without building it."""
    weights = 0
    for a, n in kinds(out).items():
        for b, m in kinds(inn).items():
            weights += n * m * sum(len(slots(a, b, j, i)) * i.size for j in steerable.irreps for i in moments)
    return weights * out.size * inn.size * steerable.size


@memo
def scales(out: DirectSum, inn: DirectSum, steerable: SteerableBasis, moments: tuple[Irrep, ...]) -> dict[Irrep, float]:
    """By how much to multiply the basis kernels that feed each output irrep.

    Let an output irrep J receive t_J equivariant kernels of unit power per copy of the input composite. Weights of
    variance 1/fan_in then keep the variance of the signal if the kernels are multiplied by √(fan_in / (copies · t_J)),
    in which the copies cancel. Kernels that the uniform density silences get the same factor.
    """
    points = steerable.sample().shape[1]
    out_scales = {}
    for a in kinds(out):
        counts = {
            i: sum(m * len(slots(a, b, j, i)) * i.size for b, m in kinds(inn).items() for j in steerable.irreps)
            for i in moments
        }
        received = counts[moments[0]] or sum(counts.values()) or 1
        out_scales[a] = math.sqrt(inn.size * points / received)
    return out_scales


@memo
def scaled_basis(
    irrep: Irrep | None, out: DirectSum, inn: DirectSum, steerable: SteerableBasis, moments: tuple[Irrep, ...]
) -> tuple[Array, SlotBasis]:
    """The scaled basis from a composite to one irrep of another or, for None, to all; with their changes of basis."""
    irreps = out.irreps if irrep is None else (irrep,)
    basis = slot_basis(irreps, inn.irreps, steerable, moments)
    factors = scales(out, inn, steerable, moments)
    rows = np.array([factors[psi] for psi in irreps])[basis.out_index]
    matrix = basis.matrix * rows[:, None, None, None]
    if out.change_of_basis is not None and irrep is None:
        matrix = np.einsum("pa,wabh->wpbh", out.change_of_basis, matrix, optimize=True)
    if inn.change_of_basis is not None:
        matrix = np.einsum("qb,wabh->waqh", inn.change_of_basis, matrix, optimize=True)
    return matrix.reshape(len(matrix), math.prod(matrix.shape[1:])), basis


def tile_bases(
    out: DirectSum, inn: DirectSum, steerable: SteerableBasis, moments: tuple[Irrep, ...], dense: bool
) -> list[TileBasis]:
    """One dense basis, or one for each kind of output irrep."""
    if dense:
        return [TileBasis(out.irreps, 1, *scaled_basis(None, out, inn, steerable, moments))]
    return [TileBasis((psi,), n, *scaled_basis(psi, out, inn, steerable, moments)) for psi, n in kinds(out).items()]


def at_points(matrix: Array, harmonics: Array) -> Array:
    """A basis at the points of the kernel, (weights, d_out·d_in·points), from (weights, d_out·d_in·harmonics)."""
    pairs = matrix.shape[1] // len(harmonics)
    blocks = matrix.reshape(len(matrix), pairs, len(harmonics))
    return (blocks @ harmonics).reshape(len(matrix), pairs * harmonics.shape[1])


@memo
def sampled_basis(out: DirectSum, inn: DirectSum, steerable: SteerableBasis, moments: tuple[Irrep, ...]) -> Array:
    """The dense basis at the points of the kernel."""
    return at_points(scaled_basis(None, out, inn, steerable, moments)[0], steerable.sample())


@memo
def slot_table(segments: tuple[tuple[Irrep, int], ...], moments: tuple[Irrep, ...]) -> IntArray:
    """For every weight: where its slot begins, the slot's size, and where its Λ_i begins in the flat moments."""
    starts = dict(zip(moments, np.cumsum([0] + [psi.size**2 for psi in moments]), strict=False))
    rows, start = [np.empty((3, 0), dtype=np.int32)], 0
    for psi, count in segments:
        firsts = np.repeat(start + psi.size * np.arange(count), psi.size)
        rows.append(np.stack([firsts, np.full_like(firsts, psi.size), np.full_like(firsts, starts[psi])]))
        start += psi.size * count
    return np.concatenate(rows, axis=1).astype(np.int32)


@memo
def trivial_rows(composite: DirectSum) -> Array:
    return composite.trivial_vectors().T.copy()


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

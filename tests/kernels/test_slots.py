from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from pscnn.groups import O3, SO2, SO3, C, Group, Irrep, direct_sum
from pscnn.kernels import SteerableBasis, slot_basis, slots


def as_columns(found: np.ndarray) -> np.ndarray:
    """Embeddings (slots, d_J, d_l, d_j, d_i) as columns of ψ_J ⊗ ψ_l ⊗ ψ_j."""
    return np.moveaxis(found, 0, -2).reshape(int(np.prod(found.shape[1:4])), -1)


def fields(group: Group) -> tuple[tuple[Irrep, ...], tuple[Irrep, ...]]:
    """An input and an output with several kinds of irreps, one of them twice."""
    irreps = group.irreps(1)
    return (irreps[-1], *irreps[:2], irreps[-1]), (irreps[0], group.irreps(2)[-1])


def test_slots_are_orthonormal_and_fill_the_tensor_product(group: Group) -> None:
    for out, into, basis in product(group.irreps(1), group.irreps(1), group.irreps(2)):
        highest = out.frequency + into.frequency + basis.frequency
        columns = [as_columns(slots(out, into, basis, i)) for i in group.irreps(highest)]
        whole = np.concatenate(columns, axis=1)
        assert whole.shape == (out.size * into.size * basis.size,) * 2
        np.testing.assert_allclose(whole.T @ whole, np.eye(len(whole)), atol=1e-10)


def test_slots_intertwine(group: Group) -> None:
    h = group.sample(3, seed=0)
    for out, into, basis, i in product(group.irreps(1), group.irreps(1), group.irreps(1), group.irreps(2)):
        found = slots(out, into, basis, i)
        moved = np.einsum("nab,ncd,nef,sbdfi->nsacei", out(h), into(h), basis(h), found, optimize=True)
        np.testing.assert_allclose(moved, np.einsum("saceu,nui->nsacei", found, i(h)), atol=1e-10)


def test_slots_without_a_match_are_empty() -> None:
    one = C(4).trivial
    assert slots(one, one, one, C(4).irrep(1)).shape == (0, 1, 1, 1, 2)


@pytest.mark.parametrize("kernel_size", [None, 1, 3])
def test_without_bandlimit_the_basis_spans_all_kernels(group: Group, kernel_size: int | None) -> None:
    outs, ins = fields(group)
    steerable = SteerableBasis(group, kernel_size)
    basis = slot_basis(outs, ins, steerable, None)
    d_out, d_in = sum(psi.size for psi in outs), sum(psi.size for psi in ins)
    assert basis.matrix.shape == (d_out * d_in * steerable.size, d_out, d_in, steerable.size)
    assert sum(i.size * count for i, count in basis.segments) == len(basis.matrix)
    np.testing.assert_array_equal(basis.flat, basis.matrix.reshape(len(basis.matrix), -1))
    assert np.linalg.matrix_rank(basis.flat) == len(basis.flat)
    np.testing.assert_array_equal(basis.harmonics, steerable.sample())


def test_a_bandlimit_keeps_the_first_rows(group: Group) -> None:
    outs, ins = fields(group)
    steerable = SteerableBasis(group, 3)
    everything = slot_basis(outs, ins, steerable, None)
    kept = slot_basis(outs, ins, steerable, group.irreps(1))
    assert kept.segments == tuple((i, n) for i, n in everything.segments if i.frequency <= 1)
    np.testing.assert_array_equal(kept.matrix, everything.matrix[: len(kept.matrix)])


@pytest.mark.parametrize("kernel_size", [None, 3, 5])
def test_the_group_moves_each_slot_by_its_irrep(group: Group, kernel_size: int | None) -> None:
    outs, ins = fields(group)
    steerable = SteerableBasis(group, kernel_size)
    basis = slot_basis(outs, ins, steerable, group.irreps(2))
    rho_out, rho_in = direct_sum(list(outs)), direct_sum(list(ins))
    points = 1.5 * np.random.default_rng(2).normal(size=(6, group.dimension))
    kernels = np.tensordot(basis.matrix, steerable.evaluate(points), 1)
    for h in group.sample(2, seed=3):
        at_moved = np.tensordot(basis.matrix, steerable.evaluate(points @ h), 1)
        moved = np.einsum("ab,wbcp,dc->wadp", rho_out(h), at_moved, rho_in(h), optimize=True)
        row = 0
        for i, count in basis.segments:
            stop = row + count * i.size
            slot = kernels[row:stop].reshape(count, i.size, *kernels.shape[1:])
            expected = np.einsum("nm,snabp->smabp", i(h), slot).reshape(moved[row:stop].shape)
            np.testing.assert_allclose(moved[row:stop], expected, atol=1e-9)
            row = stop
        assert row == len(kernels)


def test_trivial_slots_are_all_equivariant_kernels(group: Group) -> None:
    outs, ins = fields(group)
    steerable = SteerableBasis(group, 3)
    basis = slot_basis(outs, ins, steerable, (group.trivial,))
    elements, weights = group.quadrature(
        sum(max(psi.frequency for psi in part) for part in (outs, ins, steerable.irreps))
    )
    characters = [
        np.trace(direct_sum(list(part))(elements), axis1=1, axis2=2) for part in (outs, ins, steerable.irreps)
    ]
    assert len(basis.matrix) == round(weights @ np.prod(characters, axis=0))


def test_rows_know_which_output_they_feed(group: Group) -> None:
    outs, ins = fields(group)
    basis = slot_basis(outs, ins, SteerableBasis(group, 3), group.irreps(1))
    owner = np.repeat(np.arange(len(outs)), [psi.size for psi in outs])
    for row, fed in zip(basis.matrix, basis.out_index, strict=True):
        assert np.all(owner[np.abs(row).max(axis=(1, 2)) > 0] == fed)


@pytest.mark.parametrize("kernel_size", [None, 1, 3])
def test_unit_weights_keep_the_variance_of_white_noise(group: Group, kernel_size: int | None) -> None:
    outs, ins = fields(group)
    basis = slot_basis(outs, ins, SteerableBasis(group, kernel_size), None)
    power = (np.tensordot(basis.matrix, basis.harmonics, 1) ** 2).sum(axis=(1, 2, 3))
    row = 0
    for i, count in basis.segments:
        for _ in range(count):
            d_out = outs[basis.out_index[row]].size
            assert power[row : row + i.size].mean() == pytest.approx(d_out, rel=1e-10)
            row += i.size


def test_slots_of_three_vectors_are_the_known_ones() -> None:
    one, scalar, pseudo = O3().irrep(1, 1), O3().irrep(0, 0), O3().irrep(1, 0)
    assert len(slots(one, one, one, scalar)) == 0
    epsilon = slots(one, one, one, pseudo)[0, ..., 0]
    assert abs(epsilon[0, 1, 2]) == pytest.approx(1 / np.sqrt(6))
    np.testing.assert_allclose(epsilon, -epsilon.transpose(1, 0, 2), atol=1e-12)
    np.testing.assert_allclose(epsilon, -epsilon.transpose(0, 2, 1), atol=1e-12)
    assert len(slots(one, one, one, one)) == 3
    assert len(slots(SO2().irrep(1), SO2().irrep(1), SO2().irrep(1), SO2().irrep(1))) == 3


@pytest.mark.parametrize(
    "result",
    [
        lambda: slots(SO3().irrep(1), SO3().irrep(1), SO3().irrep(1), SO3().irrep(1)),
        lambda: slot_basis((C(4).irrep(1),), (C(4).trivial,), SteerableBasis(C(4), 3), None).matrix,
        lambda: SteerableBasis(C(4), 3).sample(),
    ],
    ids=["slots", "matrix", "harmonics"],
)
def test_results_handed_out_cannot_be_used_to_change_the_library(result: Callable[[], np.ndarray]) -> None:
    first, second = result(), result()
    assert not first.flags.writeable or not np.shares_memory(first, second)

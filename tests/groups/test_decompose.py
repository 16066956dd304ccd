from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import ortho_group

from pscnn.groups import O2, O3, SO2, SO3, C, D, Group, Irrep, Representation, _decompose, clebsch_gordan, direct_sum


def indices(rho: Representation) -> list[tuple[int, ...]]:
    return sorted(psi.index for psi in rho.irreps)


def span(matrices: np.ndarray, endomorphisms: np.ndarray) -> np.ndarray:
    """Orthogonal projector on all X e, for matrices X and endomorphisms e."""
    vectors = np.einsum("sab,ebc->seac", matrices, endomorphisms).reshape(-1, matrices.shape[1] * matrices.shape[2])
    q, _ = np.linalg.qr(vectors.T)
    return q @ q.T


def intertwiners_by_null_space(rho: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Projector on the X with ρ(g) X = X ψ(g) at the given elements, from a singular value decomposition."""
    size, dim = rho.shape[1], psi.shape[1]
    normal = np.zeros((size * dim, size * dim))
    for r, p in zip(rho, psi, strict=True):
        equation = np.kron(r, np.eye(dim)) - np.kron(np.eye(size), p.T)
        normal += equation.T @ equation
    vectors, values, _ = np.linalg.svd(normal, hermitian=True)
    kernel = vectors[:, values < 1e-10]
    return kernel @ kernel.T


def generators(group: Group) -> np.ndarray:
    """Elements that generate a dense subgroup: all of them, or random ones from every coset."""
    return group.quadrature(0)[0] if group.order is not None else group.sample(5, seed=3)


def quaternion_group() -> np.ndarray:
    """The real irrep of Q8 on the quaternions, by multiplication from the left."""
    i = np.array([[0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 0, -1], [0, 0, 1, 0]], dtype=float)
    j = np.array([[0, 0, -1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, -1, 0, 0]], dtype=float)
    half = np.stack([np.eye(4), i, j, i @ j])
    return np.concatenate([half, -half])


def test_commutant_of_a_quaternionic_irrep_is_the_quaternions() -> None:
    psi = quaternion_group()
    e = _decompose.commutant(psi, np.full(8, 1 / 8))
    assert e.shape == (4, 4, 4)
    np.testing.assert_allclose(e[0], np.eye(4), atol=1e-12)
    np.testing.assert_allclose(np.einsum("iab,jab->ij", e, e), 4 * np.eye(4), atol=1e-12)
    np.testing.assert_allclose(e[None] @ psi[:, None], psi[:, None] @ e[None], atol=1e-12)
    np.testing.assert_allclose(e[1:] @ e[1:], np.broadcast_to(-np.eye(4), (3, 4, 4)), atol=1e-12)
    np.testing.assert_allclose(e[1] @ e[2], -e[2] @ e[1], atol=1e-12)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_copies_of_a_quaternionic_irrep_are_found_modulo_its_endomorphisms(copies: int) -> None:
    psi, weights = quaternion_group(), np.full(8, 1 / 8)
    signs = np.array([1, 1, -1, -1, 1, 1, -1, -1.0])[:, None, None]  # a one-dimensional irrep of Q8, i to 1 and j to -1
    size = 4 * copies + 1
    blocks = np.zeros((8, size, size))
    blocks[:, :-1, :-1] = np.kron(np.eye(copies), psi)
    blocks[:, -1:, -1:] = signs
    q = ortho_group.rvs(size, random_state=5)
    rho = q @ blocks @ q.T
    e = _decompose.commutant(psi, weights)
    found = _decompose.intertwiners(rho, psi, weights, e)
    assert found.shape == (copies, size, 4)
    columns = np.concatenate(found, axis=1)
    np.testing.assert_allclose(columns.T @ columns, np.eye(4 * copies), atol=1e-10)
    np.testing.assert_allclose(rho[:, None] @ found, found @ psi[:, None], atol=1e-10)
    np.testing.assert_allclose(span(found, e), intertwiners_by_null_space(rho, psi), atol=1e-10)
    single = _decompose.intertwiners(rho, signs, weights, np.ones((1, 1, 1)))
    np.testing.assert_allclose(np.abs(single[0, :, 0]), np.abs(q[:, -1]), atol=1e-10)


def test_no_intertwiners_where_the_irrep_does_not_occur() -> None:
    found = _decompose.intertwiners(quaternion_group(), np.ones((8, 1, 1)), np.full(8, 1 / 8), np.ones((1, 1, 1)))
    assert found.shape == (0, 4, 1)


def test_the_choice_of_intertwiners_does_not_hang_on_rounding() -> None:
    for group in (C(3), SO2(), SO3(), D(4)):
        elements, weights = group.quadrature(6)
        a, b = group.irreps(1)[-1](elements), group.irreps(2)[-1]
        rho = np.einsum("nab,ncd->nacbd", a, b(elements)).reshape(len(a), a.shape[1] * b.size, -1)
        noise = 1e-13 * np.random.default_rng(0).normal(size=rho.shape)
        for psi in group.irreps(3):
            args = psi(elements), weights, psi.endomorphisms
            np.testing.assert_allclose(
                _decompose.intertwiners(rho + noise, *args), _decompose.intertwiners(rho, *args), atol=1e-11
            )


def test_clebsch_gordan_embeddings_are_isometric_and_intertwine(group: Group) -> None:
    h = group.sample(4, seed=6)
    for left, right, target in product(group.irreps(2), group.irreps(2), group.irreps(4)):
        found = clebsch_gordan(left, right, target)
        assert found.shape[1:] == (left.size, right.size, target.size)
        columns = np.moveaxis(found, 0, -2).reshape(left.size * right.size, -1)
        np.testing.assert_allclose(columns.T @ columns, np.eye(columns.shape[1]), atol=1e-10)
        moved = np.einsum("nab,ncd,sbdt->nsact", left(h), right(h), found)
        np.testing.assert_allclose(moved, np.einsum("sact,ntu->nsacu", found, target(h)), atol=1e-10)


def test_clebsch_gordan_embeddings_are_complete(group: Group) -> None:
    for left, right in product(group.irreps(2), group.irreps(2)):
        found = [clebsch_gordan(left, right, target) for target in group.irreps(left.frequency + right.frequency)]
        columns = [np.moveaxis(x, 0, -2).reshape(left.size * right.size, -1) for x in found]
        basis = np.concatenate(columns, axis=1)
        assert basis.shape == (left.size * right.size,) * 2
        np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-10)


def test_clebsch_gordan_spans_the_null_space(group: Group) -> None:
    g = generators(group)
    for left, right, target in product(group.irreps(1), group.irreps(2), group.irreps(3)):
        rho = np.einsum("nab,ncd->nacbd", left(g), right(g)).reshape(len(g), left.size * right.size, -1)
        found = clebsch_gordan(left, right, target).reshape(-1, left.size * right.size, target.size)
        expected = intertwiners_by_null_space(rho, target(g))
        np.testing.assert_allclose(span(found, target.endomorphisms), expected, atol=1e-8)


@pytest.mark.parametrize(
    ("group", "index", "subgroup", "expected"),
    [
        (O2(), (1, 1), C(4), [(1,)]),
        (O2(), (1, 2), C(4), [(2,), (2,)]),
        (O2(), (1, 4), C(4), [(0,), (0,)]),
        (O2(), (1, 5), C(4), [(1,)]),
        (O2(), (1, 0), SO2(), [(0,)]),
        (O2(), (1, 3), D(3), [(0, 0), (1, 0)]),
        (O2(), (1, 2), D(4), [(0, 2), (1, 2)]),
        (O2(), (1, 1), D(1), [(0, 0), (1, 0)]),
        (SO2(), (3,), C(3), [(0,), (0,)]),
        (SO2(), (2,), C(3), [(1,)]),
        (C(4), (1,), C(2), [(1,), (1,)]),
        (D(4), (1, 1), C(1), [(0,), (0,)]),
        (D(4), (1, 2), C(1), [(0,)]),
        (D(6), (1, 1), D(2), [(0, 1), (1, 1)]),
        (D(6), (1, 2), D(2), [(0, 0), (1, 0)]),
        (D(6), (0, 3), D(3), [(0, 0)]),
        (D(6), (1, 3), D(3), [(1, 0)]),
        (SO3(), (2,), SO2(), [(0,), (1,), (2,)]),
        (SO3(), (3,), SO2().about((1, 1, 0)), [(0,), (1,), (2,), (3,)]),
        (SO3(), (1,), O2(), [(1, 0), (1, 1)]),
        (SO3(), (2,), O2(), [(0, 0), (1, 1), (1, 2)]),
        (SO3(), (1,), C(1), [(0,), (0,), (0,)]),
        (O3(), (1, 2), SO3(), [(2,)]),
        (O3(), (1, 1), O2(), [(0, 0), (1, 1)]),
        (O3(), (0, 1), O2(), [(1, 0), (1, 1)]),
        (O3(), (1, 1), O2().about((0, 0, 1), "turn"), [(1, 0), (1, 1)]),
        (O3(), (1, 1), D(3), [(0, 0), (1, 1)]),
        (O3(), (0, 2), D(3).about((0, 1, 0)), [(0, 0), (1, 1), (1, 1)]),
        (O3(), (1, 3), D(3), [(0, 0), (0, 0), (1, 0), (1, 1), (1, 1)]),
        (O3(), (1, 0), SO2(), [(0,)]),
        (D(4).about((0, 1, 0)), (1, 1), C(2).about((0, 1, 0)), [(1,), (1,)]),
    ],
    ids=str,
)
def test_restriction_keeps_the_matrices_and_finds_the_irreps(
    group: Group, index: tuple[int, ...], subgroup: Group, expected: list[tuple[int, ...]]
) -> None:
    psi = group.irrep(*index)
    rho = psi.restrict(subgroup)
    assert indices(rho) == expected
    assert rho.group == group.as_subgroup(subgroup)
    elements = rho.group.sample(10, seed=7)
    assert group.contains(elements)
    np.testing.assert_allclose(rho(elements), psi(elements), atol=1e-10)


def test_restriction_to_the_group_itself_changes_nothing(group: Group) -> None:
    rho = group.irreps(1)[-1] + group.trivial + group.irreps(3)[-1]
    same = rho.restrict(group)
    assert indices(same) == indices(rho)
    elements = group.sample(5, seed=8)
    np.testing.assert_allclose(same(elements), rho(elements), atol=1e-10)


def test_restricting_in_two_steps_is_restricting_at_once() -> None:
    h = D(2).sample(10, seed=9)
    psi = O2().irrep(1, 3)
    twice, once = psi.restrict(D(6)).restrict(D(2)), psi.restrict(D(2))
    assert indices(twice) == indices(once)
    np.testing.assert_allclose(twice(h), once(h), atol=1e-10)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (O2().irrep(1, 1), O2().irrep(1, 1), [(0, 0), (1, 0), (1, 2)]),
        (O2().irrep(1, 0), O2().irrep(1, 2), [(1, 2)]),
        (SO2().irrep(1), SO2().irrep(1), [(0,), (0,), (2,)]),
        (SO2().irrep(1), SO2().irrep(2), [(1,), (3,)]),
        (C(3).irrep(1), C(3).irrep(1), [(0,), (0,), (1,)]),
        (C(4).irrep(1), C(4).irrep(1), [(0,), (0,), (2,), (2,)]),
        (D(3).irrep(1, 1), D(3).irrep(1, 1), [(0, 0), (1, 0), (1, 1)]),
        (D(4).irrep(1, 1), D(4).irrep(1, 1), [(0, 0), (0, 2), (1, 0), (1, 2)]),
        (SO3().irrep(2), SO3().irrep(1), [(1,), (2,), (3,)]),
        (O3().irrep(1, 1), O3().irrep(1, 1), [(0, 0), (0, 1), (0, 2)]),
        (O3().irrep(0, 2), O3().irrep(1, 1), [(1, 1), (1, 2), (1, 3)]),
    ],
    ids=repr,
)
def test_tensor_products_are_the_known_ones(left: Irrep, right: Irrep, expected: list[tuple[int, ...]]) -> None:
    assert indices(left.tensor(right)) == expected


def test_tensor_product_is_the_kronecker_product(group: Group) -> None:
    left, right = group.vector + group.trivial, group.irreps(2)[-1]
    h = group.sample(4, seed=10)
    expected = np.stack([np.kron(a, b) for a, b in zip(left(h), right(h), strict=True)])
    np.testing.assert_allclose(left.tensor(right)(h), expected, atol=1e-10)


def test_direct_sums_are_block_diagonal(group: Group) -> None:
    h = group.sample(4, seed=11)
    parts = [group.vector, group.irreps(2)[-1], group.vector.tensor(group.vector), group.trivial]
    rho = direct_sum(parts)
    assert rho.size == sum(part.size for part in parts)
    assert rho.irreps == tuple(psi for part in parts for psi in part.irreps)
    expected, start = np.zeros((4, rho.size, rho.size)), 0
    for part in parts:
        stop = start + part.size
        expected[:, start:stop, start:stop] = part(h)
        start = stop
    np.testing.assert_allclose(rho(h), expected, atol=1e-10)
    np.testing.assert_allclose((parts[0] + parts[1])(h), direct_sum(parts[:2])(h), atol=1e-12)


def test_trivial_vectors_are_the_invariant_ones(group: Group) -> None:
    rho = group.vector.tensor(group.vector) + group.trivial
    fixed = rho.trivial_vectors()
    np.testing.assert_allclose(fixed.T @ fixed, np.eye(fixed.shape[1]), atol=1e-10)
    elements, weights = group.quadrature(2)
    average = np.einsum("nab,n->ab", rho(elements), weights)
    np.testing.assert_allclose(fixed @ fixed.T, average, atol=1e-10)

from __future__ import annotations

import numpy as np
import pytest

from pscnn.groups import O2, O3, SO2, SO3, C, D, FunctionSpace, Group


def permutes(matrices: np.ndarray) -> bool:
    return bool(np.allclose(matrices, np.round(matrices), atol=1e-10)) and all(
        np.all(np.round(m).sum(axis=axis) == 1) and np.all(np.round(m) >= 0) for m in matrices for axis in (0, 1)
    )


def test_basis_functions_are_orthonormal(space: FunctionSpace) -> None:
    elements, weights = space.quadrature(2 * space.bandlimit)
    values = space.sample(elements)
    assert values.shape == (len(elements), space.size)
    np.testing.assert_allclose(values.T @ (weights[:, None] * values), np.eye(space.size), atol=1e-10)


def test_the_group_acts_from_the_left(space: FunctionSpace) -> None:
    c = np.random.default_rng(0).normal(size=space.size)
    g, h = space.group.sample(7, seed=1), space.group.sample(3, seed=2)
    for one in h:
        moved = space.sample(one.T @ g) @ c
        np.testing.assert_allclose(space.sample(g) @ (space(one) @ c), moved, atol=1e-10)


def test_fourier_transform_inverts_sampling(space: FunctionSpace) -> None:
    c = np.random.default_rng(3).normal(size=(space.size, 2))
    elements, weights = space.quadrature(2 * space.bandlimit)
    values = space.sample(elements) @ c
    np.testing.assert_allclose(space.transform(values, elements, weights), c, atol=1e-10)
    np.testing.assert_allclose(space.transform(values[:, 0], elements, weights), c[:, 0], atol=1e-10)
    np.testing.assert_allclose(weights @ values**2, (c**2).sum(axis=0), atol=1e-10)


def test_the_first_coefficient_is_the_mean(space: FunctionSpace) -> None:
    assert space.irreps[0].is_trivial
    np.testing.assert_allclose(space.sample(space.group.sample(5, seed=4))[:, 0], 1, atol=1e-12)


def test_functions_on_a_quotient_do_not_see_the_subgroup(quotient: tuple[FunctionSpace, int]) -> None:
    space, size = quotient
    assert space.size == size
    assert space.subgroup is not None
    g, k = space.group.sample(6, seed=5), space.subgroup.sample(6, seed=6)
    np.testing.assert_allclose(space.sample(g @ k), space.sample(g), atol=1e-10)


def test_functions_on_the_sphere_are_the_spherical_harmonics() -> None:
    space = SO3().functions(4, SO2())
    assert [psi.index for psi in space.irreps] == [(0,), (1,), (2,), (3,), (4,)]
    g = SO3().sample(8, seed=7)
    heights = (g @ [0, 0, 1])[:, 2]
    zonal = space.sample(g) @ space.sample(np.eye(3)[None])[0]
    expected = sum((2 * n + 1) * np.polynomial.Legendre.basis(n)(heights) for n in range(5))
    np.testing.assert_allclose(zonal, expected, atol=1e-10)


@pytest.mark.parametrize(
    ("group", "bandlimit", "size"),
    [(SO2(), 3, 7), (O2(), 3, 14), (SO3(), 2, 35), (O3(), 2, 70), (C(4), 9, 4), (D(4), 1, 6), (D(4), 2, 8)],
    ids=str,
)
def test_function_spaces_have_the_known_size(group: Group, bandlimit: int, size: int) -> None:
    assert group.functions(bandlimit).size == size


def test_regular_representation_permutes_the_elements(finite: Group) -> None:
    elements = finite.quadrature(0)[0]
    matrices = finite.regular(elements)
    assert finite.regular.size == finite.order
    assert permutes(matrices)
    is_identity = np.abs(elements - finite.identity).max(axis=(1, 2)) < 1e-10
    np.testing.assert_allclose(np.trace(matrices, axis1=1, axis2=2), finite.order * is_identity, atol=1e-10)
    for h, matrix in zip(elements, matrices, strict=True):
        images = elements[np.argmax(matrix, axis=0)]
        np.testing.assert_allclose(images, h @ elements, atol=1e-10)


@pytest.mark.parametrize(
    ("group", "subgroup"),
    [(D(4), D(1)), (D(4), C(4)), (D(6), D(2)), (C(4), C(2)), (C(7), C(7)), (D(3), C(1)), (D(2), D(2))],
    ids=str,
)
def test_quotient_representation_permutes_the_cosets(group: Group, subgroup: Group) -> None:
    rho = group.quotient(subgroup)
    assert group.order is not None
    assert subgroup.order is not None
    assert rho.size == group.order // subgroup.order
    elements, members = group.quadrature(0)[0], subgroup.quadrature(0)[0]
    matrices = rho(elements)
    assert permutes(matrices)
    assert len(rho.trivial_vectors().T) == 1
    # The character of an induced representation counts the g with g⁻¹ h g in K.
    conjugated = np.einsum("gba,hbc,gcd->hgad", elements, elements, elements)
    inside = (np.abs(conjugated[:, :, None] - members).max(axis=(-2, -1)) < 1e-10).any(axis=2)
    np.testing.assert_allclose(np.trace(matrices, axis1=1, axis2=2), inside.sum(axis=1) / subgroup.order, atol=1e-10)


def test_function_spaces_restrict_like_any_representation() -> None:
    space = O2().functions(2)
    h = D(4).sample(5, seed=8)
    np.testing.assert_allclose(space.restrict(D(4))(h), space(h), atol=1e-10)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from pscnn.groups import MIRROR, O2, O3, SO2, SO3, Axial, C, D, Group, Irrep, quaternion_rotation, rotation

PROPERTY = settings(deadline=None, derandomize=True, max_examples=20)


def element(group: Group) -> st.SearchStrategy[np.ndarray]:
    """Single elements, built without the group's own sampler where the group is infinite."""
    if isinstance(group, Axial):
        return element(group.planar).map(lambda h: group.lift(h[None])[0])
    if group.order is not None:
        return st.sampled_from(list(group.quadrature(0)[0]))
    if group.dimension == 2:
        rotations = st.floats(-7, 7).map(rotation)
        flip = MIRROR
    else:
        part = st.floats(-1, 1)
        quaternions = st.tuples(part, part, part, part).map(np.array).filter(lambda q: np.linalg.norm(q) > 0.1)
        rotations = quaternions.map(lambda q: quaternion_rotation(q[None])[0])
        flip = -np.eye(3)
    if not group.has_reflections:
        return rotations
    return st.tuples(rotations, st.booleans()).map(lambda pair: pair[0] @ flip if pair[1] else pair[0])


def haar(group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the Haar measure, built from scratch: a fine grid of angles or random rotations."""
    if group.order is not None:
        elements = group.quadrature(0)[0]
    elif isinstance(group, Axial) or group.dimension == 2:
        axis = np.array(group.axis if isinstance(group, Axial) else (0.0, 0.0, 1.0))
        angles = 0.1 + 2 * np.pi * np.arange(101) / 101
        elements = Rotation.from_rotvec(angles[:, None] * axis).as_matrix()
        planar = group.planar if isinstance(group, Axial) else group
        if planar.has_reflections:
            normal = np.cross(axis, [0.6, 0.8, 0.0] if abs(axis[2]) > 0.5 else [0.0, 0.0, 1.0])
            normal /= np.linalg.norm(normal)
            mirror = np.eye(3) - 2 * np.outer(normal, normal)
            turn = 2 * np.outer(normal, normal) - np.eye(3)
            flip = turn if isinstance(group, Axial) and group.reflections == "turn" else mirror
            elements = np.concatenate([elements, elements @ flip])
        elements = elements[:, : group.dimension, : group.dimension]
    else:
        elements = Rotation.random(6000, np.random.default_rng(11)).as_matrix()
        if group.has_reflections:
            elements = np.concatenate([elements, -elements])
    return elements, np.full(len(elements), 1 / len(elements))


def haar_error(group: Group) -> float:
    """What ``haar`` may miss: nothing on grids, some ten standard deviations of random rotations."""
    return 0.12 if isinstance(group, (SO3, O3)) else 1e-10


def coefficients(psi: Irrep, elements: np.ndarray) -> np.ndarray:
    return np.sqrt(psi.size) * psi(elements).reshape(len(elements), -1)


@PROPERTY
@given(data=st.data())
def test_irreps_are_orthogonal_homomorphisms(group: Group, data: st.DataObject) -> None:
    g, h = data.draw(element(group)), data.draw(element(group))
    assert group.contains(np.stack([g, h, g @ h, g.T]))
    for psi in group.irreps(4):
        a, b, ab, inverse = psi(np.stack([g, h, g @ h, g.T]))
        np.testing.assert_allclose(a @ b, ab, atol=1e-10)
        np.testing.assert_allclose(a @ inverse, np.eye(psi.size), atol=1e-10)
        np.testing.assert_allclose(a.T, inverse, atol=1e-10)


@PROPERTY
@given(data=st.data())
def test_vector_is_the_element_itself(group: Group, data: st.DataObject) -> None:
    h = data.draw(element(group))
    np.testing.assert_allclose(group.vector(h), h, atol=1e-10)


@pytest.mark.parametrize("nodes", ["quadrature", "independent"])
def test_real_irreps_satisfy_schur_orthogonality(group: Group, nodes: str) -> None:
    elements, weights = group.quadrature(8) if nodes == "quadrature" else haar(group)
    assert group.contains(elements)
    real = [psi for psi in group.irreps(4) if psi.type == "real"]
    values = np.concatenate([coefficients(psi, elements) for psi in real], axis=1)
    gram = values.T @ (weights[:, None] * values)
    error = 1e-10 if nodes == "quadrature" else haar_error(group)
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=error)


def test_characters_of_different_irreps_are_orthogonal_and_irreducible(group: Group) -> None:
    elements, weights = group.quadrature(8)
    irreps = group.irreps(4)
    characters = np.stack([np.trace(psi(elements), axis1=1, axis2=2) for psi in irreps])
    gram = (characters * weights) @ characters.T
    np.testing.assert_allclose(gram, np.diag([len(psi.endomorphisms) for psi in irreps]), atol=1e-10)


def test_frobenius_schur_indicator_agrees_with_the_type(group: Group) -> None:
    elements, weights = haar(group)
    for psi in group.irreps(4):
        indicator = weights @ np.trace(psi(elements @ elements), axis1=1, axis2=2)
        assert indicator == pytest.approx({"real": 1, "complex": 0}[psi.type], abs=haar_error(group))


def test_only_rotations_of_the_plane_have_complex_irreps(group: Group) -> None:
    planar = group.planar if isinstance(group, Axial) else group
    for psi in group.irreps(4):
        turning = isinstance(planar, (C, SO2)) and psi.size == 2
        assert psi.type == ("complex" if turning else "real")
        assert len(psi.endomorphisms) == (2 if turning else 1)


def test_endomorphisms_commute_and_are_orthogonal(group: Group) -> None:
    elements = group.sample(5, seed=1)
    for psi in group.irreps(4):
        e = psi.endomorphisms
        np.testing.assert_allclose(e[0], np.eye(psi.size), atol=1e-12)
        np.testing.assert_allclose(np.einsum("iab,jab->ij", e, e), psi.size * np.eye(len(e)), atol=1e-10)
        rho = psi(elements)[:, None]
        np.testing.assert_allclose(rho @ e, e @ rho, atol=1e-10)


def test_squared_dimensions_over_types_sum_to_the_order(finite: Group) -> None:
    irreps = finite.irreps(None)
    assert sum(psi.size**2 // len(psi.endomorphisms) for psi in irreps) == finite.order
    assert finite.irreps(100) == irreps
    assert max(psi.frequency for psi in irreps) == finite.max_frequency


def test_a_finite_group_is_its_quadrature(finite: Group) -> None:
    elements, weights = finite.quadrature(3)
    assert finite.order is not None
    assert elements.shape == (finite.order, finite.dimension, finite.dimension)
    np.testing.assert_allclose(weights, 1 / finite.order)
    products = (elements[:, None] @ elements[None]).reshape(-1, 1, finite.dimension, finite.dimension)
    matches = np.abs(products - elements).max(axis=(-2, -1)) < 1e-10
    np.testing.assert_array_equal(matches.sum(axis=1), 1)
    np.testing.assert_array_equal(matches.sum(axis=0), finite.order)


@pytest.mark.parametrize(
    ("group", "bandlimit", "expected"),
    [
        (C(1), 4, {(0,): 1}),
        (C(2), 4, {(0,): 1, (1,): 1}),
        (C(7), 4, {(0,): 1, (1,): 2, (2,): 2, (3,): 2}),
        (D(1), 4, {(0, 0): 1, (1, 0): 1}),
        (D(2), 4, {(0, 0): 1, (1, 0): 1, (0, 1): 1, (1, 1): 1}),
        (D(6), 4, {(0, 0): 1, (1, 0): 1, (1, 1): 2, (1, 2): 2, (0, 3): 1, (1, 3): 1}),
        (D(6), 1, {(0, 0): 1, (1, 0): 1, (1, 1): 2}),
        (SO2(), 2, {(0,): 1, (1,): 2, (2,): 2}),
        (O2(), 2, {(0, 0): 1, (1, 0): 1, (1, 1): 2, (1, 2): 2}),
        (SO3(), 2, {(0,): 1, (1,): 3, (2,): 5}),
        (O3(), 1, {(0, 0): 1, (1, 0): 1, (0, 1): 3, (1, 1): 3}),
    ],
    ids=str,
)
def test_irreps_are_the_known_ones(group: Group, bandlimit: int, expected: dict[tuple[int, ...], int]) -> None:
    assert {psi.index: psi.size for psi in group.irreps(bandlimit)} == expected
    assert group.irreps(bandlimit)[0] == group.trivial == group.irrep(*next(iter(expected)))


def test_only_the_trivial_irrep_is_trivial(group: Group) -> None:
    elements = group.quadrature(8)[0]
    for psi in group.irreps(4):
        assert psi.is_trivial == bool(np.allclose(psi(elements), np.eye(psi.size)))


def test_signs_of_dihedral_irreps() -> None:
    quarter = rotation(np.pi / 2)
    table = {(0, 0): (1, 1, 1), (1, 0): (1, -1, -1), (0, 2): (-1, 1, -1), (1, 2): (-1, -1, 1)}
    for index, signs in table.items():
        values = D(4).irrep(*index)(np.stack([quarter, MIRROR, quarter @ MIRROR]))
        np.testing.assert_allclose(values.ravel(), signs, atol=1e-12)


def test_sign_irreps_follow_the_determinant() -> None:
    for group, index in [(O2(), (1, 0)), (O3(), (1, 0)), (D(3), (1, 0))]:
        elements = group.sample(20, seed=0)
        np.testing.assert_allclose(group.irrep(*index)(elements).ravel(), np.linalg.det(elements), atol=1e-12)


@pytest.mark.parametrize("degree", range(7))
def test_characters_of_rotations(degree: int) -> None:
    t = np.linspace(0.1, 3.1, 7)
    axes = np.random.default_rng(2).normal(size=(7, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    elements = Rotation.from_rotvec(t[:, None] * axes).as_matrix()
    expected = np.sin((2 * degree + 1) * t / 2) / np.sin(t / 2)
    for parity in (0, 1):
        psi = O3().irrep(parity, degree)
        np.testing.assert_allclose(np.trace(psi(elements), axis1=1, axis2=2), expected, atol=1e-10)
        np.testing.assert_allclose(psi(-np.eye(3)), (-1) ** parity * np.eye(psi.size), atol=1e-12)
    np.testing.assert_array_equal(SO3().irrep(degree)(elements), O3().irrep(0, degree)(elements))


def test_one_element_and_a_batch_agree(group: Group) -> None:
    elements = group.sample(3, seed=4)
    rho = group.vector + group.irreps(2)[-1]
    assert rho(elements).shape == (3, rho.size, rho.size)
    np.testing.assert_allclose(rho(elements[1]), rho(elements)[1], atol=1e-14)


def test_an_empty_batch_gives_an_empty_batch(group: Group) -> None:
    psi = group.irreps(2)[-1]
    assert psi(np.empty((0, group.dimension, group.dimension))).shape == (0, psi.size, psi.size)

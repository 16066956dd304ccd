from __future__ import annotations

import itertools

import numpy as np
import pytest

from pscnn.groups import O2, O3, SO2, SO3, Axial, C, D, Group, octahedral_sphere_rule, rotation_to
from pscnn.groups._harmonics import sphere_quadrature, spherical_harmonics


def coefficients(group: Group, bandlimit: int, elements: np.ndarray) -> np.ndarray:
    return np.concatenate([psi(elements).reshape(len(elements), -1) for psi in group.irreps(bandlimit)], axis=1)


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 5, 8])
def test_quadrature_is_exact_to_its_degree(group: Group, degree: int) -> None:
    elements, weights = group.quadrature(degree)
    assert group.contains(elements)
    assert np.all(weights > 0)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    integrals = weights @ coefficients(group, degree, elements)
    np.testing.assert_allclose(integrals, np.eye(len(integrals))[0], atol=1e-12)


def test_quadrature_is_not_exact_far_beyond_its_degree(infinite: Group) -> None:
    elements, weights = infinite.quadrature(1)
    integrals = weights @ coefficients(infinite, 8, elements)
    assert np.abs(integrals[1:]).max() > 0.1


def test_quadrature_needs_a_degree(group: Group) -> None:
    with pytest.raises(ValueError, match="degree must be 0 or more, got -1"):
        group.quadrature(-1)


@pytest.mark.parametrize("group", [SO2(), O2()], ids=str)
def test_planar_quadrature_is_closed_under_quarter_turns(group: Group) -> None:
    elements = group.quadrature(5)[0]
    moved = np.array([[0.0, -1.0], [1.0, 0.0]]) @ elements
    assert np.abs(moved[:, None] - elements).max(axis=(-2, -1)).min(axis=1).max() < 1e-12


@pytest.mark.parametrize("degree", [0, 2, 5, 9])
@pytest.mark.parametrize(
    ("group", "subgroup"),
    [
        (SO3(), SO2()),
        (SO3(), O2()),
        (SO3(), SO2().about((1, 1, 0))),
        (O3(), SO2()),
        (O3(), O2()),
        (O3(), O2().about((1, 2, -1))),
        (O3(), O2().about((0, 0, 1), "turn")),
        (O3(), SO2().about((1, 1, 0))),
        (SO3(), C(3)),
        (O2(), D(1)),
        (O3(), SO3()),
    ],
    ids=str,
)
def test_quotient_quadrature_is_exact_for_functions_on_the_quotient(group: Group, subgroup: Group, degree: int) -> None:
    space = group.functions(min(degree, 5), subgroup)
    elements, weights = space.quadrature(degree)
    assert group.contains(elements)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    integrals = weights @ space.sample(elements)
    np.testing.assert_allclose(integrals, np.eye(space.size)[0], atol=1e-12)


def test_quotient_quadrature_is_smaller_than_that_of_the_group() -> None:
    for subgroup in (SO2(), O2()):
        assert len(O3().functions(6, subgroup).quadrature(6)[0]) < len(O3().quadrature(6)[0]) / 4
    on_sphere = len(octahedral_sphere_rule(6)[0])
    assert len(SO3().functions(6, SO2()).quadrature(6)[0]) == on_sphere
    assert len(O3().functions(6, O2()).quadrature(6)[0]) == on_sphere
    assert SO3().quotient_quadrature(6, C(4).about((0, 0, 1))) is None


@pytest.mark.parametrize("degree", [0, 3, 6, 13, 17, 32])
def test_sphere_rules_are_exact(degree: int) -> None:
    for points, weights in (sphere_quadrature(degree), octahedral_sphere_rule(degree)):
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-12)
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        for n in range(1, min(degree, 17) + 1):
            np.testing.assert_allclose(weights @ spherical_harmonics(n, points), 0, atol=1e-11)


@pytest.mark.parametrize("degree", [3, 6, 14, 21])
def test_octahedral_rule_is_closed_under_the_cube(degree: int) -> None:
    points, weights = octahedral_sphere_rule(degree)
    cube = [
        np.eye(3)[list(order)] * np.array(signs)
        for order in itertools.permutations(range(3))
        for signs in itertools.product((1.0, -1.0), repeat=3)
    ]
    assert len(cube) == 48
    for h in cube:
        distances = np.abs((points @ h.T)[:, None] - points).max(axis=-1)
        assert distances.min(axis=1).max() < 1e-12
        np.testing.assert_allclose(weights[distances.argmin(axis=1)], weights, atol=1e-14)


def test_octahedral_rule_has_an_end() -> None:
    with pytest.raises(ValueError, match="up to degree 131, got 132"):
        octahedral_sphere_rule(132)


def test_samples_follow_the_haar_measure(group: Group) -> None:
    count = 20_000
    elements = group.sample(count, seed=12)
    assert elements.shape == (count, group.dimension, group.dimension)
    assert group.contains(elements)
    moments = coefficients(group, 3, elements).mean(axis=0)
    # Coefficients are at most 1 in size, so five standard deviations are below 5/sqrt(count).
    np.testing.assert_allclose(moments, np.eye(len(moments))[0], atol=5 / np.sqrt(count))


def test_samples_of_a_finite_group_reach_every_element(finite: Group) -> None:
    elements = finite.quadrature(0)[0]
    assert finite.order is not None
    drawn = finite.sample(100 * finite.order, seed=13)
    hits = (np.abs(drawn[:, None] - elements).max(axis=(-2, -1)) < 1e-10).sum(axis=0)
    assert hits.sum() == len(drawn)
    assert hits.min() > 40


def test_samples_repeat_with_their_seed(group: Group) -> None:
    np.testing.assert_array_equal(group.sample(5, seed=3), group.sample(5, seed=3))
    if group.order != 1:
        assert not np.array_equal(group.sample(20, seed=3), group.sample(20, seed=4))


def test_sampling_leaves_the_global_generator_alone(group: Group) -> None:
    before = np.random.get_state(legacy=False)  # noqa: NPY002
    group.sample(3, seed=0)
    group.near_identity(3, seed=0)
    np.testing.assert_equal(np.random.get_state(legacy=False), before)  # noqa: NPY002


def test_near_identity_is_near_the_identity(infinite: Group) -> None:
    elements = infinite.near_identity(200, seed=14)
    assert elements.shape == (200, infinite.dimension, infinite.dimension)
    assert infinite.contains(elements)
    assert np.all(np.linalg.det(elements) > 0)
    traces = np.trace(elements, axis1=1, axis2=2) - (infinite.dimension - 2)
    angles = np.arccos(np.clip(traces / 2, -1, 1))
    spread = np.sqrt(np.mean(angles**2))
    assert spread == pytest.approx(0.2 if not isinstance(infinite, (SO3, O3)) else 0.2 * np.sqrt(3), rel=0.2)
    np.testing.assert_array_equal(elements, infinite.near_identity(200, seed=14))


def test_near_identity_of_a_finite_group_is_empty(finite: Group) -> None:
    assert finite.near_identity(100, seed=0).shape == (0, finite.dimension, finite.dimension)


@pytest.mark.parametrize(
    ("group", "outsider"),
    [
        (C(4), np.array([[0.6, -0.8], [0.8, 0.6]])),
        (C(4), np.diag([-1.0, 1.0])),
        (D(3), np.diag([1.0, -1.0])),
        (D(1), -np.eye(2)),
        (SO2(), np.diag([-1.0, 1.0])),
        (O2(), np.diag([1.0, 0.9])),
        (O2(), np.eye(3)),
        (SO3(), -np.eye(3)),
        (O3(), np.diag([1.0, 1.0, 0.5])),
        (O3(), np.eye(2)),
        (SO2().about((0, 0, 1)), np.diag([1.0, -1.0, -1.0])),
        (SO2().about((0, 0, 1)), np.diag([-1.0, 1.0, 1.0])),
        (SO2().about((0, 0, 1)), np.eye(2)),
        (C(4).about((0, 0, 1)), np.array([[0.6, -0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])),
        (O2().about((0, 0, 1), "mirror"), np.diag([1.0, -1.0, -1.0])),
        (O2().about((0, 0, 1), "turn"), np.diag([1.0, -1.0, 1.0])),
        (SO2().about((1, 1, 0)), np.diag([-1.0, -1.0, 1.0])),
    ],
    ids=str,
)
def test_groups_do_not_contain_outsiders(group: Group, outsider: np.ndarray) -> None:
    assert not group.contains(outsider)
    if outsider.shape == group.identity.shape:
        assert not group.contains(np.stack([group.identity, outsider]))
    assert group.contains(group.identity)


def test_axial_groups_keep_their_axis() -> None:
    for axis in ((0, 0, 1), (0, 0, -1), (1, 1, 0), (0.3, -2, 1), (0, 1, 0)):
        group = O2().about(axis, "turn")
        assert isinstance(group, Axial)
        unit = np.array(axis) / np.linalg.norm(axis)
        elements = group.sample(10, seed=15)
        np.testing.assert_allclose(np.abs(elements @ unit @ unit), 1, atol=1e-12)
        np.testing.assert_allclose(np.linalg.det(elements), 1, atol=1e-12)
        mirrors = O2().about(axis, "mirror").sample(10, seed=16)
        np.testing.assert_allclose(mirrors @ unit, np.tile(unit, (10, 1)), atol=1e-12)
        np.testing.assert_allclose(group.lift(group.lower(elements)), elements, atol=1e-12)


def test_rotation_to_takes_the_pole_there() -> None:
    points = np.random.default_rng(17).normal(size=(20, 3))
    points = np.concatenate([points / np.linalg.norm(points, axis=1, keepdims=True), np.eye(3), -np.eye(3)])
    turns = rotation_to(points)
    assert SO3().contains(turns)
    np.testing.assert_allclose(turns[:, :, 2], points, atol=1e-12)

"""What groups say about themselves and each other, against brute force on their elements."""

from __future__ import annotations

import numpy as np
import pytest

from pscnn.groups import O2, O3, SO2, SO3, Axial, C, D, Group

PLANE = [*(family(n) for n in (1, 2, 3, 4, 6, 8, 12) for family in (C, D)), SO2(), O2()]
SPACE = [
    SO3(),
    O3(),
    *(
        group.about(axis, kind)
        for group in (C(1), C(2), C(4), D(1), D(2), D(4), SO2(), O2())
        for axis in ((0, 0, 1), (0, 0, -1), (1, 0, 0), (1, 1, 0), (1, 2, 3))
        for kind in (("mirror", "turn") if group.has_reflections else ("mirror",))
    ),
]


def elements(group: Group) -> np.ndarray:
    """All of a finite group; for the others the nodes of a fine quadrature and random elements."""
    nodes = group.quadrature(0 if group.order else 9)[0]
    return nodes if group.order else np.concatenate([nodes, group.sample(30, seed=5)])


def is_element(h: np.ndarray, group: Group) -> bool:
    """By definition: one of a finite list, or an orthogonal matrix with the sign and the axis of an infinite group."""
    if group.order is not None:
        return bool((np.abs(group.quadrature(0)[0] - h).max((1, 2)) < 1e-6).any())
    sign = round(np.linalg.det(h))
    if not isinstance(group, Axial):
        return sign == 1 or group in (O2(), O3())
    moved = h @ np.array(group.axis)
    if group.planar == SO2():
        return sign == 1 and np.allclose(moved, group.axis)
    if group.reflections == "mirror":
        return np.allclose(moved, group.axis)
    return sign == 1 and (np.allclose(moved, group.axis) or np.allclose(moved, np.negative(group.axis)))


@pytest.mark.parametrize("groups", [PLANE, SPACE], ids=["plane", "space"])
def test_subgroups_are_those_whose_elements_are_elements(groups: list[Group]) -> None:
    samples = {group: elements(group) for group in groups}
    for small in groups:
        for large in groups:
            expected = all(is_element(h, large) for h in samples[small])
            assert small.is_subgroup_of(large) == expected, (small, large)


def test_groups_of_the_plane_are_subgroups_in_space_where_they_act() -> None:
    for group in PLANE:
        assert group.is_subgroup_of(SO3())
        assert group.is_subgroup_of(O3())
        assert not SO3().is_subgroup_of(group)
        assert not group.about((0, 0, 1)).is_subgroup_of(group)
    assert C(2).is_subgroup_of(C(4).about((1, 0, 0)))
    assert not C(3).is_subgroup_of(C(4).about((1, 0, 0)))


def test_fine_finite_groups_are_not_taken_for_continuous_ones() -> None:
    assert not SO2().is_subgroup_of(C(10**6))
    assert not C(7).is_subgroup_of(C(10**6))
    assert C(1000).is_subgroup_of(D(10**6))


@pytest.mark.parametrize("group", [*PLANE, *SPACE], ids=str)
def test_rotations_are_the_elements_of_determinant_one(group: Group) -> None:
    found = elements(group)
    signs = np.linalg.det(found)
    assert group.has_reflections == bool((signs < 0).any())
    for h, sign in zip(found, signs, strict=True):
        assert group.rotations.contains(h) == (sign > 0)
    assert group.rotations.is_subgroup_of(group)
    assert not group.rotations.has_reflections
    assert group.rotations.rotations == group.rotations
    if group.order is not None:
        assert group.rotations.order == (signs > 0).sum()


def test_groups_know_the_group_of_the_plane_they_are() -> None:
    assert D(4).planar == D(4).about((1, 2, 3)).planar == D(4)
    assert SO3().planar is O3().planar is None

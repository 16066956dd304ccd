"""Plane groups acting on space about an axis: subgroups of O(3); and all groups by their names."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

import numpy as np

from pscnn._types import Array, ArrayLike
from pscnn.groups._group import Group
from pscnn.groups._planar import O2, SO2, C, D, PlanarGroup
from pscnn.groups._representation import Irrep
from pscnn.groups._spatial import O3, SO3, rotation_to

_PATTERN = re.compile(r"(C|D|SO|O)(?:\((\d+)\)|(\d+))(?:@([XYZ]|\(.*\))(, *TURN)?)?")
_AXES = {"X": (1, 0, 0), "Y": (0, 1, 0), "Z": (0, 0, 1)}


@dataclass(frozen=True, repr=False)
class Axial(Group):
    """A plane group that acts on space about an axis: g becomes diag(g, 1) in a frame whose third axis is ``axis``.

    Irreps and their indices are those of the plane group. A reflection of the plane is either a *mirror*, diag(g, 1),
    or the half-turn ("turn") diag(g, −1), which is a rotation of space.

    Args:
        planar: C(N), D(N), SO2() or O2().
        axis: Direction of the axis, of any length but zero.
        reflections: "mirror" or "turn"; of no effect for groups without reflections.

    Example:
        >>> from pscnn.groups import SO2, SO3
        >>> upright = SO2().about((0, 0, 1))
        >>> [psi.index for psi in SO3().irrep(1).restrict(upright).irreps]
        [(0,), (1,)]
    """

    planar: PlanarGroup
    axis: tuple[float, float, float]
    reflections: str = "mirror"

    dimension = 3

    def __post_init__(self) -> None:
        axis = np.asarray(self.axis, dtype=np.float64)
        if axis.shape != (3,) or not np.isfinite(axis).all() or not axis.any():
            raise ValueError(f"axis must be three numbers, not all zero, got {self.axis}")
        if self.reflections not in ("mirror", "turn"):
            raise ValueError(f"reflections must be 'mirror' or 'turn', got {self.reflections!r}")
        object.__setattr__(self, "axis", _unit(axis))
        if not self.planar.has_reflections:
            object.__setattr__(self, "reflections", "mirror")

    @property
    def name(self) -> str:
        letter = {(1.0, 0.0, 0.0): "x", (0.0, 1.0, 0.0): "y", (0.0, 0.0, 1.0): "z"}.get(self.axis)
        return f"{self.planar.name}@{letter or _direction(self.axis)}{', turn' if self.reflections == 'turn' else ''}"

    def __repr__(self) -> str:
        turn = ", 'turn'" if self.reflections == "turn" else ""
        return f"{self.planar!r}.about({_direction(self.axis)}{turn})"

    @property
    def frame(self) -> Array:
        """Rotation that takes the z axis to this group's axis."""
        axis = np.array([self.axis])
        return rotation_to(axis / np.linalg.norm(axis))[0]

    @property
    def order(self) -> int | None:
        return self.planar.order

    @property
    def max_frequency(self) -> int | None:
        return self.planar.max_frequency

    @property
    def has_reflections(self) -> bool:
        return self.planar.has_reflections and self.reflections == "mirror"

    @property
    def rotations(self) -> Axial:
        return Axial(self.planar.rotations, self.axis) if self.has_reflections else self

    def lift(self, elements: Array) -> Array:
        """Elements of the plane group (N, 2, 2) as elements of this one (N, 3, 3)."""
        out = np.zeros((len(elements), 3, 3))
        out[:, :2, :2] = elements
        out[:, 2, 2] = np.sign(np.linalg.det(elements)) if self.reflections == "turn" else 1.0
        return np.asarray(self.frame @ out @ self.frame.T)

    def lower(self, elements: Array) -> Array:
        """The inverse of ``lift``."""
        return np.asarray((self.frame.T @ elements @ self.frame)[:, :2, :2])

    def irrep_indices(self, bandlimit: int) -> list[tuple[int, ...]]:
        return self.planar.irrep_indices(bandlimit)

    def has_irrep(self, index: tuple[int, ...]) -> bool:
        return self.planar.has_irrep(index)

    def irrep_size(self, index: tuple[int, ...]) -> int:
        return self.planar.irrep_size(index)

    def irrep_matrices(self, index: tuple[int, ...], elements: Array) -> Array:
        return self.planar.irrep_matrices(index, self.lower(elements))

    def may_contain(self, left: Irrep, right: Irrep, target: Irrep) -> bool:
        return self.planar.may_contain(left, right, target)

    def quadrature(self, degree: int) -> tuple[Array, Array]:
        elements, weights = self.planar.quadrature(degree)
        return self.lift(elements), weights

    def sample(self, count: int, seed: int) -> Array:
        return self.lift(self.planar.sample(count, seed))

    def near_identity(self, count: int, seed: int) -> Array:
        return self.lift(self.planar.near_identity(count, seed))

    def contains(self, elements: ArrayLike) -> bool:
        elements = np.asarray(elements, dtype=np.float64)
        if elements.shape[-2:] != (3, 3):
            return False
        elements = elements.reshape(-1, 3, 3)
        lowered = self.lower(elements)
        return self.planar.contains(lowered) and bool(np.allclose(self.lift(lowered), elements, atol=1e-6))

    def place(self, group: Group) -> Group:
        """Plane groups act about the same axis."""
        return group.about(self.axis, self.reflections) if isinstance(group, PlanarGroup) else group


def _unit(axis: Array) -> tuple[float, float, float]:
    """Rounded, so that axes of different lengths in one direction give equal groups; once, so that it reads back."""
    if abs(np.linalg.norm(axis) - 1) > 1e-11:
        axis = axis / np.linalg.norm(axis)
    x, y, z = (float(a) for a in np.round(axis, 12) + 0.0)
    return x, y, z


def _direction(axis: tuple[float, float, float]) -> tuple[float, float, float]:
    """The axis in small whole numbers where these give exactly the same, otherwise as it is."""
    least = min(abs(a) for a in axis if a)
    for factor in range(1, 10):
        whole = np.round(factor / least * np.array(axis))
        if np.abs(whole).max() < 100 and _unit(whole) == axis:
            x, y, z = (int(a) for a in whole)
            return x, y, z
    return axis


def parse(name: str) -> Group:
    """The group with this name, so that ``parse(group.name) == group``.

    The brackets around a number are optional and case does not matter. ``@`` and an axis, x, y, z or three numbers,
    let a group of the plane act on space; with ``, turn`` its reflections are half-turns. See ``Axial``.

    Example:
        >>> parse("O(2)"), parse("c4"), parse("SO3")
        (O2(), C(4), SO3())
        >>> parse("SO(2)@z"), parse("D(4)@(1, 1, 0), turn")
        (SO2().about((0, 0, 1)), D(4).about((1, 1, 0), 'turn'))
    """
    match = _PATTERN.fullmatch(name.strip().upper()) if isinstance(name, str) else None
    if match:
        with contextlib.suppress(ValueError):  # such as C(0), or an axis of length 0
            return _group(match[1], int(match[2] or match[3]), match[4], bool(match[5]))
    raise ValueError(
        f"unknown group {name!r}: use C(N), D(N), SO(2), O(2), SO(3) or O(3), for example 'O(2)' or 'C4'; "
        "groups of the plane about an axis of space have names such as 'SO(2)@z', 'C(4)@(1, 1, 0)' or 'D(4)@x, turn'"
    )


def _group(family: str, number: int, axis: str | None, turn: bool) -> Group:
    known: dict[tuple[str, int], Group] = {("SO", 2): SO2(), ("O", 2): O2(), ("SO", 3): SO3(), ("O", 3): O3()}
    group = C(number) if family == "C" else D(number) if family == "D" else known.get((family, number))
    if group is not None and axis is None:
        return group
    if not isinstance(group, PlanarGroup) or axis is None:
        raise ValueError("no such group, or not one of the plane")
    direction = _AXES.get(axis) or [float(a) for a in axis[1:-1].split(",")]
    return group.about(direction, "turn" if turn else "mirror")

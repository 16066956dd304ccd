"""Transformations by axis, side and angle: what is tried on examples, and what the slider of a page leads to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pscnn._types import Array
from pscnn.groups._axial import Axial
from pscnn.groups._group import Group
from pscnn.groups._planar import MIRROR, rotation
from pscnn.groups._spatial import O3, SO3, axis_angle

PLANE_STEPS, SPACE_STEPS = 48, 12
"""Angles of continuous groups, in the plane and about each axis."""
AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


@dataclass(frozen=True)
class Elements:
    """Some elements of a group in the order axis, side, angle.

    Attributes:
        group: Whose they are.
        axes: Names of the axes; a single one without a name in the plane, and for groups about an axis.
        sides: "rotations" and, if there are any, the others.
        angles: In degrees from 0°, evenly spread; the positions of the slider.
        matrices: (axes · sides · angles, n, n).
    """

    group: Group
    axes: tuple[str, ...]
    sides: tuple[str, ...]
    angles: tuple[float, ...]
    matrices: Array

    def words(self) -> list[str]:
        """What each element does."""
        return [
            self._words(axis, side, angle)
            for axis in self.axes
            for side in range(len(self.sides))
            for angle in self.angles
        ]

    def _words(self, axis: str, side: int, angle: float) -> str:
        if side == 1 and self.sides[1] == "mirrors":
            return f"mirror line at {(angle / 2 + 90) % 180:g}°"
        turn = f"rotation by {angle:g}°" + (f" about {axis}" if axis else "")
        return turn if side == 0 else f"point reflection and {turn}"


def explored(group: Group, steps: int = PLANE_STEPS) -> Elements:
    """The elements of a finite group, or evenly spread ones.

    Reflections of the plane are R(θ)·mirror, for which the line at θ/2 + 90° to the x axis stays where it is.

    Args:
        group: Any.
        steps: Angles of a continuous group of the plane, or about an axis.
    """
    if group in (SO3(), O3()):
        angles = 360 * np.arange(SPACE_STEPS) / SPACE_STEPS
        signs = {"rotations": 1.0} | ({"with a point reflection": -1.0} if group == O3() else {})
        found = [
            sign * axis_angle(np.array([axis]), np.radians(angle))[0]
            for axis in AXES.values()
            for sign in signs.values()
            for angle in angles
        ]
        return Elements(group, tuple(AXES), tuple(signs), tuple(angles.tolist()), np.stack(found))
    if group.planar is None:
        raise ValueError(f"groups of the plane, about an axis, SO(3) and O(3) can be explored, not {group.name}")
    count = group.planar.n or steps
    angles = 360 * np.arange(count) / count
    factors = {"rotations": np.eye(2)} | ({"mirrors": MIRROR} if group.planar.has_reflections else {})
    plane = np.concatenate([rotation(np.radians(angles)) @ factor for factor in factors.values()])
    lifted = group.lift(plane) if isinstance(group, Axial) else plane
    return Elements(group, ("",), tuple(factors), tuple(angles.tolist()), lifted)

"""Subgroups as answers: with the angle of their mirror lines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pscnn._types import Array
from pscnn.groups import MIRROR, O3, SO3, Axial, PlanarGroup, parse, rotation

STEPS = 360


class Kept(NamedTuple):
    """A subgroup.

    Attributes:
        name: As ``pscnn.groups.parse`` knows it; C(1) is the identity alone.
        angle: Of one of its mirror lines to the x axis, in degrees; None where it has none, all, or any one may be.

    Example:
        >>> Kept("D(1)", 0).elements()[1].round(6) + 0
        array([[ 1.,  0.],
               [ 0., -1.]])
    """

    name: str
    angle: float | None = None

    def elements(self) -> Array:
        """All elements, or many of a continuous group, (N, n, n); those of a group at any angle, at 90°."""
        group = parse(self.name)
        if group in (SO3(), O3()):
            return group.sample(200, seed=0)
        planar = group.planar
        assert isinstance(planar, PlanarGroup)
        count = planar.n or STEPS
        found = rotation(2 * np.pi * np.arange(count) / count)
        if planar.has_reflections:
            turn = rotation(np.radians(0.0 if self.angle is None else self.angle - 90))  # the groups have a line at 90°
            found = np.concatenate([found, turn @ found @ MIRROR @ turn.T])
        return group.lift(found) if isinstance(group, Axial) else found

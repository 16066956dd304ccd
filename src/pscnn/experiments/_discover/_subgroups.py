"""Subgroups of H that can be enforced, and which of them are tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from pscnn._types import Array, ArrayLike
from pscnn.groups import O2, O3, SO2, SO3, Axial, C, D, Group, axis_angle, parse, rotation

USUAL_ANGLES = (90.0, 0.0, 45.0, 135.0)
"""Of mirror lines, in degrees from the x axis, counter-clockwise: 90° is that of left and right."""
GRID = tuple(15.0 * k for k in range(12))
"""Of the mirror lines among which one is looked for."""
NEAR = 4.0
"""Degrees between two mirror lines that need not be told apart."""
GAIN = 0.01
"""By how much another angle than the usual ones must lower the loss, as a share of what angles change at all."""
MOST_ELEMENTS = 128
"""Of a finite group H: networks average over all of them."""
NODES = 12
"""Rotations of a continuous group over which is averaged at once; they are drawn anew every time."""
NODES_3D = 24
AXES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@dataclass(frozen=True)
class Subgroup:
    """A subgroup K of H, in the plane with its mirror lines turned to an angle.

    Attributes:
        group: K, in its usual place.
        angle: Of one of its mirror lines, in degrees from the x axis, counter-clockwise; None if it has none or if all
            lines are mirror lines. In space, by which its mirrors are turned about its axis.

    Example:
        >>> mirror = Subgroup(D(1), 30.0)
        >>> mirror.name, str(mirror), Subgroup(D(2), 30.0).includes(mirror)
        ('D(1)', 'D(1) at 30°', True)
    """

    group: Group
    angle: float | None = None

    def __post_init__(self) -> None:
        planar = self.group.planar
        turns = isinstance(planar, D)
        if (self.angle is None and isinstance(self.group, D)) or (self.angle is not None and not turns):
            raise ValueError(f"Subgroup: {self.group.name} {'needs an' if turns else 'has no'} angle")
        if self.angle is not None and isinstance(planar, D):
            object.__setattr__(self, "angle", round(float(self.angle) % (180 / planar.n), 2))

    @property
    def name(self) -> str:
        """The usual name, without the angle."""
        return "the identity" if self.group.order == 1 else self.group.name

    @property
    def axis(self) -> tuple[float, float, float] | None:
        """In space, the axis of a group of rotations about one."""
        return self.group.axis if isinstance(self.group, Axial) else None

    def __str__(self) -> str:
        return self.name if self.angle is None else f"{self.name} at {self.angle:g}°"

    @property
    def is_usual(self) -> bool:
        """Whether it is the group itself, in its usual place: one of its mirror lines is that of left and right."""
        planar = self.group.planar
        return self.angle is None or (isinstance(planar, D) and (self.angle - 90) % (180 / planar.n) == 0)

    @cached_property
    def _frame(self) -> Array:
        """From where the group is usually, with a mirror line along y, to its place."""
        if self.angle is None:
            return np.eye(self.group.dimension)
        turn = np.radians(self.angle - 90)
        return rotation(turn) if self.axis is None else axis_angle(np.array([self.axis]), turn)[0]

    def elements(self) -> Array:
        """All elements of a finite group, (N, n, n); of others, those of a fine quadrature."""
        nodes, _ = self.group.quadrature(12 if self.group.planar is None else 64)
        return np.asarray(self._frame @ nodes @ self._frame.T)

    def contains(self, elements: ArrayLike) -> bool:
        """Whether all given elements are in it."""
        return self.group.contains(self._frame.T @ np.asarray(elements) @ self._frame)

    def sample(self, count: int, seed: int) -> Array:
        """Elements drawn uniformly, (count, n, n)."""
        return np.asarray(self._frame @ self.group.sample(count, seed) @ self._frame.T)

    def includes(self, other: Subgroup) -> bool:
        """Whether another one is part of it, or equal to it."""
        return _includes(self, other)

    def nodes(self, rng: np.random.Generator) -> Array:
        """Elements to average over: all of a finite group, of others some, moved at random.

        So that nothing depends on which: an average over fixed elements would keep only their symmetry.
        """
        if self.group.order is not None:
            return self.elements()
        seed = int(rng.integers(2**31))
        if self.group.planar is None:
            return self.group.sample(NODES_3D, seed)
        return np.asarray(self.group.quadrature(NODES - 1)[0] @ self.group.sample(1, seed)[0])

    def to_json(self) -> list[object]:
        """As text, from which ``from_json`` makes it again."""
        return [self.group.name, self.angle]

    @classmethod
    def from_json(cls, value: Sequence[object]) -> Subgroup:
        """The other way round."""
        name, angle = value
        return cls(parse(str(name)), None if angle is None else float(str(angle)))

    @property
    def rank(self) -> tuple[int, int]:
        """For the order of size: dimension, then number of elements, or of parts."""
        dimension = 0 if self.group.order is not None else 3 if self.group.planar is None else 1
        return dimension, self.group.order or 1 + (self.group != self.group.rotations)


@lru_cache(4096)
def _includes(large: Subgroup, small: Subgroup) -> bool:
    mine, theirs = large.group.order, small.group.order
    if mine is not None and (theirs is None or mine % theirs):
        return False
    return large.contains(small.elements() if theirs is not None else small.sample(16, seed=0))


def identity(group: Group) -> Subgroup:
    """The smallest."""
    return Subgroup(C(1) if group.dimension == 2 else C(1).about((0, 0, 1)))


def scouts(group: Group) -> list[Subgroup]:
    """Those whose training tells where mirror lines may be: all but the ones with several mirror lines."""
    if group.dimension == 3:
        return candidates(group)
    plain = [one for one in candidates(group) if one.angle is None]
    return [*plain, *within(group, [Subgroup(D(1), angle) for angle in GRID])]


def candidates(group: Group, found: Sequence[Subgroup] = (), numbers: Sequence[int] = (2, 4)) -> list[Subgroup]:
    """Subgroups that are enforced and compared, the identity first.

    Args:
        group: H.
        found: Subgroups with mirror lines at other angles than the usual ones.
        numbers: Of rotations that groups have, besides one and all.
    """
    if group.dimension == 3:
        return _in_space(group)
    some = [identity(group), *(Subgroup(C(n)) for n in numbers), Subgroup(SO2())]
    for n in (1, *numbers):
        some += [Subgroup(D(n), angle) for angle in (USUAL_ANGLES if n % 3 else USUAL_ANGLES[:2])]
    own = [Subgroup(C(group.n)), Subgroup(group, 90.0)] if isinstance(group, D) else [Subgroup(group)]
    whole = [Subgroup(O2()), *own]
    return within(group, [*some, *found, *whole])


def _in_space(group: Group) -> list[Subgroup]:
    found: list[Subgroup] = [identity(group)]
    found += [Subgroup(D(1).about((0, 0, 1)), 90.0), Subgroup(D(1).about((0, 0, 1)), 0.0)]  # of x, and of y
    found.append(Subgroup(D(1).about((1, 0, 0))))  # of z
    for axis in AXES:
        found += [Subgroup(planar.about(axis)) for planar in (C(2), C(4), SO2())]
        found.append(Subgroup(O2().about(axis, "turn")))
        found.append(Subgroup(O2().about(axis)))
    return within(group, [*found, Subgroup(SO3()), Subgroup(O3()), Subgroup(group)])


def within(group: Group, found: Sequence[Subgroup]) -> list[Subgroup]:
    """Those that are subgroups of H, each once."""
    whole = Subgroup(group, 90.0 if isinstance(group, D) else None)
    out: list[Subgroup] = []
    for one in found:
        if whole.includes(one) and not any(one.includes(other) and other.includes(one) for other in out):
            out.append(one)
    return out


def likely_mirrors(angles: Sequence[float], losses: Sequence[float], numbers: Sequence[int] = (2, 4)) -> list[Subgroup]:
    """Subgroups with mirror lines where these may be, if not at one of the usual angles.

    The loss with one mirror line is known at some angles. A Fourier series through them tells where it is least; for
    groups with several lines, where its sum over all of them is.

    Example:
        >>> [str(one) for one in likely_mirrors(GRID, [float(-np.cos(np.radians(2 * (a - 37)))) for a in GRID], ())]
        ['D(1) at 37°']
        >>> likely_mirrors(GRID, [float(-np.cos(np.radians(2 * (a - 88)))) for a in GRID], ())
        []
    """
    where, fine = np.radians(np.asarray(angles)), np.arange(0, 180, 0.5)

    def waves(turns: Array, order: int) -> Array:
        parts = [np.ones_like(turns)]
        parts += [f(2 * k * turns) for k in range(1, order + 1) for f in (np.cos, np.sin)]
        return np.stack(parts, -1)

    out: list[Subgroup] = []
    for n in (1, *numbers):
        # Of n lines at equal angles the sum has the n-th wave as its first; more waves than that are mostly noise.
        order = min(max(3, n), (len(where) - 1) // 2)
        fitted = np.linalg.lstsq(waves(where, order), np.asarray(losses), rcond=None)[0]
        curve = waves(np.radians(fine), order) @ fitted
        folded = np.mean([np.roll(curve, round(k * len(fine) / n)) for k in range(n)], 0)
        best, period = float(fine[int(folded.argmin())]), 180 / n
        usual = min(folded[fine == angle].item() for angle in USUAL_ANGLES)
        gain = (usual - folded.min()) > GAIN * (folded.max() - folded.min())
        # Groups with several lines may have one where the best single line is.
        for angle in {best, *(one.angle or 0.0 for one in out[:1])} if gain or out else ():
            if all(abs((angle - a + period / 2) % period - period / 2) > NEAR for a in USUAL_ANGLES):
                out += [one for one in [Subgroup(D(n), angle)] if one not in out]
    return out


def between(angles: Sequence[float], losses: Sequence[float], numbers: Sequence[int] = (2, 4)) -> list[Subgroup]:
    """Subgroups with a mirror line where the losses of a few lines, at known angles, say that one is.

    The loss is taken as a cosine of twice the angle, which four lines determine.

    Example:
        >>> [str(one) for one in between([90, 0, 45, 135], [0.444, 0.143, 0.038, 0.548], ())]
        ['D(1) at 29.7°']
    """
    where = np.radians(np.asarray(angles))
    waves = np.stack([np.ones_like(where), np.cos(2 * where), np.sin(2 * where)], -1)
    _, x, y = np.linalg.lstsq(waves, np.asarray(losses), rcond=None)[0]
    best = round(float(np.degrees(np.arctan2(-y, -x)) / 2 % 180), 1)
    if any(abs((best - angle + 90) % 180 - 90) <= NEAR for angle in angles):
        return []
    return [Subgroup(D(n), best) for n in (1, *numbers)]

"""Groups of the plane: C(N), D(N), SO(2) and O(2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pscnn._memo import memo
from pscnn._memory import afford
from pscnn._types import Array, ArrayLike
from pscnn.groups import _harmonics
from pscnn.groups._group import Group
from pscnn.groups._representation import Irrep

MIRROR = np.diag([-1.0, 1.0])
"""The reflection that D(1) consists of: left and right change places."""


def rotation(angles: ArrayLike) -> Array:
    """Counter-clockwise rotations by the given angles (radians), shape (..., 2, 2)."""
    angles = np.asarray(angles, dtype=np.float64)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)


class PlanarGroup(Group):
    """What the four families of plane groups share: N-fold (or all) rotations, with or without reflections."""

    dimension = 2

    n: int | None
    """Number of rotations, None for all."""

    @property
    def planar(self) -> PlanarGroup:  # type: ignore[override]
        return self

    @property
    def rotations(self) -> PlanarGroup:
        return SO2() if self.n is None else C(self.n)

    @property
    def reflections(self) -> bool:
        """The same as ``has_reflections``."""
        return self.has_reflections

    @property
    def order(self) -> int | None:
        return None if self.n is None else self.n * (2 if self.has_reflections else 1)

    @property
    def max_frequency(self) -> int | None:
        return None if self.n is None else self.n // 2

    def has_irrep(self, index: tuple[int, ...]) -> bool:
        if not super().has_irrep(index) or (self.max_frequency is not None and index[-1] > self.max_frequency):
            return False
        return not self.has_reflections or index[0] == 1 or self.irrep_size(index) == 1

    def irrep_size(self, index: tuple[int, ...]) -> int:
        k = index[-1]
        return 1 if k == 0 or 2 * k == self.n else 2

    def irrep_matrices(self, index: tuple[int, ...], elements: Array) -> Array:
        k = index[-1]
        if self.irrep_size(index) == 2:
            return _harmonics.circular_matrix(k, elements)
        sign = np.sign(np.linalg.det(elements))
        # h = R(θ) or R(θ)·MIRROR; the first column of R(θ) is that of h, negated in the second case.
        theta = np.arctan2(sign * elements[:, 1, 0], sign * elements[:, 0, 0])
        parity = sign if self.has_reflections and index[0] == 1 else 1.0
        return (parity * np.cos(k * theta))[:, None, None]

    def may_contain(self, left: Irrep, right: Irrep, target: Irrep) -> bool:
        a, b, c = left.frequency, right.frequency, target.frequency
        n = self.n
        combinations = (a + b - c, a + b + c, a - b - c, a - b + c)
        return any(k == 0 if n is None else k % n == 0 for k in combinations)

    def quadrature(self, degree: int) -> tuple[Array, Array]:
        """All elements of a finite group; equally spaced angles, closed under D(4), otherwise."""
        if degree < 0:
            raise ValueError(f"degree must be 0 or more, got {degree}")
        afford(10 * (self.n or degree), f"the elements of {self.name}", "use a smaller group or degree")
        return _planar_quadrature(self.n or 4 * (degree // 4 + 1), self.has_reflections)

    def sample(self, count: int, seed: int) -> Array:
        rng, n = np.random.default_rng(seed), self.n
        out = rotation(rng.uniform(0, 2 * np.pi, count) if n is None else 2 * np.pi * rng.integers(n, size=count) / n)
        if self.has_reflections:
            mirrored = rng.integers(2, size=count).astype(bool)
            out[mirrored] = out[mirrored] @ MIRROR
        return out

    def near_identity(self, count: int, seed: int) -> Array:
        """Rotations by angles drawn from N(0, 0.2 rad), as in the paper."""
        if self.n is not None:
            return super().near_identity(count, seed)
        return rotation(np.random.default_rng(seed).normal(0, 0.2, count))

    def contains(self, elements: ArrayLike) -> bool:
        inside = super().contains(elements)
        if not inside or self.n is None:
            return inside
        elements = np.asarray(elements, dtype=np.float64)
        sign = np.linalg.det(elements)
        theta = np.arctan2(sign * elements[..., 1, 0], sign * elements[..., 0, 0])
        steps = theta * self.n / (2 * np.pi)
        return bool(np.all(np.abs(steps - np.round(steps)) < 1e-6 * self.n))

    def about(self, axis: ArrayLike, reflections: str = "mirror") -> Group:
        """This group acting on space, about an axis. See ``Axial``."""
        from pscnn.groups._axial import Axial

        return Axial(self, tuple(np.asarray(axis, dtype=np.float64).tolist()), reflections)


@memo
def _planar_quadrature(count: int, reflections: bool) -> tuple[Array, Array]:
    elements = rotation(2 * np.pi * np.arange(count) / count)
    if reflections:
        elements = np.concatenate([elements, elements @ MIRROR])
    return elements, np.full(len(elements), 1 / len(elements))


@dataclass(frozen=True, repr=False)
class _Finite(PlanarGroup):
    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, (int, np.integer)) or self.n < 1:
            raise ValueError(f"{type(self).__name__}(N) needs a whole number N ≥ 1, got {self.n!r}")

    @property
    def name(self) -> str:
        return f"{type(self).__name__}({self.n})"

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class C(_Finite):
    """The cyclic group C(N): rotations by multiples of 2π/N. Irreps ``(k,)``, k = 0 … N//2.

    Example:
        >>> C(4).irreps(None)
        (C(4).irrep(0), C(4).irrep(1), C(4).irrep(2))
    """

    has_reflections = False


@dataclass(frozen=True, repr=False)
class D(_Finite):
    """The dihedral group D(N): C(N) and N reflections. D(1) is the single reflection of left and right.

    Irreps ``(r, k)``: (0, 0) trivial, (1, 0) the sign of a reflection, (1, k) of size 2 for 0 < k < N/2, and for even N
    the two signs (0, N/2) and (1, N/2).
    """

    has_reflections = True


@dataclass(frozen=True)
class SO2(PlanarGroup):
    """All rotations of the plane. Irreps ``(k,)``, k ≥ 0."""

    name = "SO(2)"
    has_reflections = False
    n = None


@dataclass(frozen=True)
class O2(PlanarGroup):
    """All rotations and reflections of the plane. Irreps (0, 0) trivial, (1, 0) sign, (1, k) of size 2 for k ≥ 1."""

    name = "O(2)"
    has_reflections = True
    n = None

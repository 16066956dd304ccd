"""Groups of space: SO(3) and O(3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pscnn._memo import memo
from pscnn._memory import afford
from pscnn._types import Array
from pscnn.groups import _harmonics
from pscnn.groups._group import Group
from pscnn.groups._planar import PlanarGroup, rotation
from pscnn.groups._representation import Irrep


def quaternion_rotation(quaternions: Array) -> Array:
    """Rotation matrices of quaternions (w, x, y, z), normalised first; shape (N, 4) to (N, 3, 3)."""
    w, x, y, z = (quaternions / np.linalg.norm(quaternions, axis=1, keepdims=True)).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def axis_angle(axes: Array, angle: float) -> Array:
    """Rotations about axes (N, 3) of unit length by an angle in radians, shape (N, 3, 3) (Rodrigues' formula)."""
    x, y, z = axes.T
    zero = np.zeros_like(x)
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1).reshape(-1, 3, 3)
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def rotation_to(points: Array) -> Array:
    """Rotations that take the z axis to the given unit vectors, shape (N, 3) to (N, 3, 3)."""
    x, y, z = points.T
    radius = np.hypot(x, y)
    safe = np.where(radius > 1e-12, radius, 1.0)
    cos = np.where(radius > 1e-12, x / safe, 1.0)
    sin = np.where(radius > 1e-12, y / safe, 0.0)
    zero = np.zeros_like(z)
    rows = [[cos * z, -sin, cos * radius], [sin * z, cos, sin * radius], [-radius, zero, z]]
    return np.stack([np.stack(row, -1) for row in rows], -2)


class SpatialGroup(Group):
    """What SO(3) and O(3) share. O(3) = SO(3) × {1, −1}."""

    dimension = 3
    planar = None
    has_reflections: bool

    @property
    def rotations(self) -> SO3:
        return SO3()

    def may_contain(self, left: Irrep, right: Irrep, target: Irrep) -> bool:
        a, b, c = left.frequency, right.frequency, target.frequency
        parity = not self.has_reflections or (left.index[0] + right.index[0] + target.index[0]) % 2 == 0
        return parity and abs(a - b) <= c <= a + b

    def irrep_size(self, index: tuple[int, ...]) -> int:
        return 2 * index[-1] + 1

    def irrep_matrices(self, index: tuple[int, ...], elements: Array) -> Array:
        sign = np.sign(np.linalg.det(elements))[:, None, None]
        matrices = _harmonics.wigner_matrix(index[-1], elements * sign)
        return matrices * sign if self.has_reflections and index[0] == 1 else matrices

    def quadrature(self, degree: int) -> tuple[Array, Array]:
        """A sphere rule for the image of the z axis times equally spaced turns about it; both parities for O(3)."""
        if degree < 0:
            raise ValueError(f"degree must be 0 or more, got {degree}")
        return _rotation_quadrature(degree, self.has_reflections)

    def quotient_quadrature(self, degree: int, subgroup: Group) -> tuple[Array, Array] | None:
        """One representative per point of an octahedrally symmetric sphere rule, if K holds all turns about an axis."""
        from pscnn.groups._axial import Axial

        if not isinstance(subgroup, Axial) or subgroup.planar.n is not None:
            return None
        points, weights = octahedral_sphere_rule(degree)
        elements = rotation_to(points) @ subgroup.frame.T
        if self.has_reflections and not subgroup.has_reflections:
            elements, weights = np.concatenate([elements, -elements]), np.concatenate([weights, weights]) / 2
        return elements, weights

    def sample(self, count: int, seed: int) -> Array:
        rng = np.random.default_rng(seed)
        out = quaternion_rotation(rng.normal(size=(count, 4)))
        if self.has_reflections:
            out *= rng.choice([-1.0, 1.0], size=(count, 1, 1))
        return out

    def near_identity(self, count: int, seed: int) -> Array:
        """The identity quaternion with N(0, 0.1) added to each component, normalised, as in the paper."""
        noise = np.random.default_rng(seed).normal(0, 0.1, (count, 4))
        return quaternion_rotation(noise + np.array([1.0, 0, 0, 0]))

    def place(self, group: Group) -> Group:
        """Plane groups act about the z axis; their reflections are mirrors in O(3) and half-turns in SO(3)."""
        reflections = "mirror" if self.has_reflections else "turn"
        return group.about((0, 0, 1), reflections) if isinstance(group, PlanarGroup) else group


@memo
def _rotation_quadrature(degree: int, reflections: bool) -> tuple[Array, Array]:
    afford(
        4.5 * (1 + reflections) * (degree + 1) ** 3, f"a quadrature of degree {degree} in space", "use a lower degree"
    )
    points, weights = _harmonics.sphere_quadrature(degree)
    angles = 2 * np.pi * np.arange(degree + 1) / (degree + 1)
    turns = np.zeros((degree + 1, 3, 3))
    turns[:, :2, :2], turns[:, 2, 2] = rotation(angles), 1
    elements = (rotation_to(points)[:, None] @ turns[None]).reshape(-1, 3, 3)
    weights = np.repeat(weights, degree + 1) / (degree + 1)
    if reflections:
        elements, weights = np.concatenate([elements, -elements]), np.concatenate([weights, weights]) / 2
    return elements, weights


@memo
def octahedral_sphere_rule(degree: int) -> tuple[Array, Array]:
    """Lebedev's points and weights: exact to ``degree`` and closed under the 48 symmetries of the cube."""
    from scipy.integrate import lebedev_rule

    available = [*range(3, 32, 2), *range(35, 132, 6)]
    order = next((d for d in available if d >= degree), None)
    if order is None:
        raise ValueError(f"sphere rules exist up to degree 131, got {degree}")
    points, weights = lebedev_rule(order)
    return points.T.copy(), weights / weights.sum()


@dataclass(frozen=True)
class SO3(SpatialGroup):
    """All rotations of space. Irreps ``(l,)`` of size 2l + 1; ``irrep(1)`` is the rotation matrix itself."""

    name = "SO(3)"
    has_reflections = False


@dataclass(frozen=True)
class O3(SpatialGroup):
    """All rotations and reflections of space. Irreps ``(p, l)``: −1 acts as (−1)^p; vectors are (1, 1)."""

    name = "O(3)"
    has_reflections = True

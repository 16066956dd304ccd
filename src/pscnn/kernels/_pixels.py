"""All functions on a kernel's pixels, decomposed under a group that maps the pixels to pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pscnn._memo import memo
from pscnn._types import Array, IntArray
from pscnn.groups import Group, Irrep, intertwiners


def maps_pixels(group: Group) -> bool:
    """Whether all elements map a square (cubic) grid to itself: they permute the axes and change their signs.

    Example:
        >>> from pscnn.groups import O2, C, D
        >>> maps_pixels(D(4)), maps_pixels(C(4).about((0, 0, 1))), maps_pixels(C(8)), maps_pixels(O2())
        (True, True, False, False)
    """
    if not isinstance(group, Group):
        raise TypeError(f"group must be a group such as D(4), got {group!r}")
    if group.order is None:
        return False
    elements = group.quadrature(0)[0]
    return bool(np.allclose(elements, np.round(elements), atol=1e-6))


def exchanges(group: Group, values: tuple[int, ...]) -> bool:
    """Whether a group that maps pixels to pixels exchanges axes along which something differs.

    Args:
        group: H; ``maps_pixels`` holds for it.
        values: One for each axis of a kernel, in the order of its memory: its sizes, or its strides.

    Example:
        >>> from pscnn.groups import D
        >>> exchanges(D(4), (1, 3)), exchanges(D(2), (1, 3)), exchanges(D(4).about((0, 0, 1)), (1, 3, 3))
        (True, False, False)
    """
    axes = np.abs(np.round(group.quadrature(0)[0]))  # which of x, y[, z] becomes which
    along = np.array(values[::-1])
    return bool((axes @ along != along).any())


@dataclass(frozen=True)
class PixelBasis:
    """An orthonormal basis of all functions on a grid, Y_j^k with Y_j^k(h x) = ψ_j(h) Y_j^k(x).

    Where ``SteerableBasis`` samples smooth harmonics, of which a kernel resolves few, this one is complete: every
    kernel is a combination of its functions. It exists for finite groups that map the grid to itself. The pixels of
    one orbit are decomposed together.

    Args:
        group: H; ``maps_pixels`` holds for it.
        shape: Pixels along each axis of the kernel, in the order of its memory; even numbers are fine.

    Example:
        >>> from pscnn.groups import D
        >>> [psi.index for psi in PixelBasis(D(4), (2, 2)).irreps]  # the mean, two slopes and a checkerboard
        [(0, 0), (1, 1), (1, 2)]
    """

    group: Group
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        group, shape = self.group, self.shape
        if not maps_pixels(group):
            raise ValueError(
                f"PixelBasis: {group.name} does not map a grid of pixels to itself; use one of the quarter turns and "
                "mirrors along the axes, such as D(4), C(4) or D(1)"
            )
        if len(shape) != group.dimension or min(shape) < 1:
            raise ValueError(f"PixelBasis: {group.name} acts on {group.dimension} axes, got a kernel of shape {shape}")
        if exchanges(group, shape):
            raise ValueError(f"PixelBasis: {group.name} exchanges axes along which a kernel of shape {shape} differs")

    @property
    def points(self) -> Array:
        """Coordinates of the pixels in the order of memory, shape (pixels, n), as in ``grid_points``."""
        steps = [np.arange(n) - (n - 1) / 2 for n in self.shape]
        *depth, row, column = np.meshgrid(*steps, indexing="ij")
        return np.stack([axis.ravel() for axis in (column, -row, *depth)], axis=1)

    @property
    def irreps(self) -> tuple[Irrep, ...]:
        """The irrep of every element of the basis."""
        return _decomposed(self)[0]

    @property
    def size(self) -> int:
        """Number of functions, which is that of pixels."""
        return int(np.prod(self.shape))

    def sample(self) -> Array:
        """Values at the pixels: an orthogonal matrix, (functions, pixels)."""
        return _decomposed(self)[1]

    def evaluate(self, points: Array) -> Array:
        """Values at some of the pixels (N, n), such as all of them moved by an element; shape (functions, N)."""
        return self.sample()[:, self.find(points)]

    def find(self, points: Array) -> IntArray:
        """The number of the pixel at each of the points (N, n)."""
        distances = np.abs(points[:, None] - self.points[None]).max(axis=2)
        if distances.min(axis=1).max() > 1e-6:
            raise ValueError("PixelBasis: its functions are known at pixels only")
        return distances.argmin(axis=1)


@memo
def _decomposed(basis: PixelBasis) -> tuple[tuple[Irrep, ...], Array]:
    """Orbit by orbit: the irreps of functions on it, and their values."""
    group, points = basis.group, basis.points
    elements, weights = group.quadrature(0)
    targets = np.stack([basis.find(points @ h.T) for h in elements])  # (elements, pixels): where each goes
    irreps: list[Irrep] = []
    rows: list[Array] = []
    done: set[int] = set()
    for first in range(len(points)):
        if first in done:
            continue
        orbit = np.unique(targets[:, first])
        done.update(orbit.tolist())
        moved = np.searchsorted(orbit, targets[:, orbit])
        permutations = np.eye(len(orbit))[moved].transpose(0, 2, 1)  # P(h) δ_x = δ_hx
        for psi in group.irreps(None):
            for embedding in intertwiners(permutations, psi.matrices(elements), weights, psi.endomorphisms):
                values = np.zeros((psi.size, len(points)))
                values[:, orbit] = embedding.T
                irreps.append(psi)
                rows.append(values)
    return tuple(irreps), np.concatenate(rows)

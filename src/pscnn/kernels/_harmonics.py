"""Steerable functions on a kernel's grid: harmonics times Gaussian rings or modes, decomposed under H."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pscnn._memo import memo
from pscnn._memory import afford
from pscnn._types import Array
from pscnn.groups import O2, O3, Group, Irrep, circular_harmonics, spherical_harmonics


@dataclass(frozen=True)
class Ring:
    """A Gaussian shell of a kernel: its radius, its width, and the highest frequency it carries."""

    radius: float
    width: float
    frequency: int

    def values(self, radius: Array, frequency: int) -> Array:
        """exp(−(r − radius)² / 2·width²)."""
        shell = np.exp(-((radius - self.radius) ** 2) / (2 * self.width**2))
        # A direction does not exist at the centre: anything but zero there breaks the symmetry.
        return np.where(radius < 1e-9, 0.0, shell) if frequency > 0 else shell


@dataclass(frozen=True)
class Gaussian:
    """A window exp(−r²/2σ²) times polynomials: kernels that are smooth everywhere, and sampled well.

    Rings are not: their harmonics are singular at the centre, and their spectra reach beyond what a grid can hold, so
    that between right angles kernels on them are equivariant to some per cent only.

    Args:
        width: σ in pixels.
        degree: The highest of the polynomials.

    Example:
        >>> Gaussian.of(7)
        Gaussian(width=0.9354143466934853, degree=2)
    """

    width: float
    degree: int

    def __post_init__(self) -> None:
        if not self.width > 0 or self.degree < 0:
            raise ValueError(f"Gaussian: needs width > 0 and degree ≥ 0, got {self.width} and {self.degree}")

    @classmethod
    def of(cls, kernel_size: int) -> Gaussian:
        """The usual one of a kernel: σ = √(k/8), where what the grid cuts off in space and in frequency is balanced."""
        return cls(float(np.sqrt(kernel_size / 8)), min(2, (kernel_size - 1) // 2))

    def modes(self, dimension: int) -> tuple[Mode, ...]:
        """All frequencies ℓ and orders n with ℓ + 2n ≤ degree, by degree."""
        degrees = range(self.degree + 1)
        return tuple(Mode(self.width, (d - m) // 2, m, dimension) for d in degrees for m in range(d % 2, d + 1, 2))


@dataclass(frozen=True)
class Mode:
    """The radial part of a polynomial times a Gaussian: r^ℓ L_n^(ℓ + d/2 − 1)(r²/σ²) exp(−r²/2σ²) in d dimensions."""

    width: float
    order: int
    frequency: int
    dimension: int

    def values(self, radius: Array, frequency: int) -> Array:
        """At any distances from the centre."""
        from scipy.special import eval_genlaguerre  # slow to import

        squared = (radius / self.width) ** 2
        laguerre = eval_genlaguerre(self.order, frequency + self.dimension / 2 - 1, squared)
        return np.asarray((radius / self.width) ** frequency * laguerre * np.exp(-squared / 2))


def rings(kernel_size: int, dimension: int) -> tuple[Ring, ...]:
    """The rings of a kernel: radii 0 … ⌊k/2⌋, width 0.6 (0.4 for the last, 0.005 for the centre).

    The highest frequency on ring r is 0 at the centre; in the plane min(2r, 2) on the last ring and
    min(2r, 2r − (r+1) mod 2) between; in space min(2r, ⌊k/2⌋ − r + 2). The centre of an even kernel lies between
    pixels: its radii are ½, 1½, …, (k − 1)/2, with frequencies min(2r, 2) on the last ring and 2r between, in space
    min(2r, ⌊k/2 − r⌋ + 2).
    """
    last = (kernel_size - 1) / 2
    even = kernel_size % 2 == 0
    out = [] if even else [Ring(0.0, 0.005, 0)]
    for r in np.arange(0.5 if even else 1.0, last + 1).tolist():
        in_plane = 2 if r == last else 2 * r - (0 if even else (r + 1) % 2)
        in_space = kernel_size // 2 - r + 2
        frequency = min(2 * r, in_space if dimension == 3 else in_plane)
        out.append(Ring(r, 0.4 if r == last else 0.6, int(frequency)))
    return tuple(out)


def grid_points(kernel_size: int, dimension: int) -> Array:
    """Coordinates of a kernel's pixels in the order of its memory, shape (k^n, n).

    x runs along the last axis (to the right), y against the second to last (rows are counted downwards), z along the
    first axis of a volume.
    """
    steps = np.arange(kernel_size) - (kernel_size - 1) / 2
    *depth, row, column = np.meshgrid(*[steps] * dimension, indexing="ij")
    return np.stack([axis.ravel() for axis in (column, -row, *depth)], axis=1)


@dataclass(frozen=True)
class SteerableBasis:
    """Functions Y_j^k with Y_j^k(h x) = ψ_j(h) Y_j^k(x), for the kernels of one size under one group.

    With ``kernel_size=None`` the space is a single point, on which only the constant exists (linear layers).

    Args:
        group: H.
        kernel_size: k, or None.
        profile: By default harmonics live on ``rings``; a ``Gaussian`` gives smoother ones.
    """

    group: Group
    kernel_size: int | None
    profile: Gaussian | None = None

    def __post_init__(self) -> None:
        k = self.kernel_size
        if k is not None and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
            raise ValueError(f"kernel_size must be a number such as 3 or 5, the same in all directions, got {k!r}")

    @property
    def irreps(self) -> tuple[Irrep, ...]:
        """The irrep j of each element, in order."""
        return _elements(self.group, self.kernel_size, self.profile)[0]

    @property
    def size(self) -> int:
        """Number of harmonics: the sum of the sizes of the irreps."""
        return sum(psi.size for psi in self.irreps)

    @memo
    def sample(self) -> Array:
        """Values on the kernel's grid, shape (size, k^n)."""
        return self.evaluate(grid_points(self.kernel_size or 1, self.group.dimension))

    def evaluate(self, points: Array) -> Array:
        """Values at any points (N, n), shape (size, N)."""
        if self.kernel_size is None:
            return np.ones((1, len(points)))
        radius = np.linalg.norm(points, axis=1)
        centre = radius < 1e-9
        directions = points / np.where(centre, 1.0, radius)[:, None]
        harmonics = circular_harmonics if self.group.dimension == 2 else spherical_harmonics
        rows = []
        for part, frequency, basis in _elements(self.group, self.kernel_size, self.profile)[1]:
            values = harmonics(frequency, directions) * part.values(radius, frequency)[:, None]
            rows.append(basis.T @ values.T)
        return np.concatenate(rows)


@memo
def _elements(
    group: Group, kernel_size: int | None, profile: Gaussian | None
) -> tuple[tuple[Irrep, ...], tuple[tuple[Ring | Mode, int, Array], ...]]:
    """The irreps of all elements, and per radial part and frequency the change of basis that splits them under H."""
    if kernel_size is None:
        return (group.trivial,), ()
    n = group.dimension
    radial: list[tuple[Ring | Mode, int]]
    if profile is None:
        radial = [(ring, frequency) for ring in rings(kernel_size, n) for frequency in range(ring.frequency + 1)]
    else:
        radial = [(mode, mode.frequency) for mode in profile.modes(n)]
    count = sum(min(frequency, 1) + 1 if n == 2 else 2 * frequency + 1 for _, frequency in radial)
    afford(count * kernel_size**n, f"the basis of kernels of side {kernel_size}", "use a smaller kernel_size")
    irreps: list[Irrep] = []
    parts = []
    for part, frequency in radial:
        ambient = O2().irrep(min(frequency, 1), frequency) if n == 2 else O3().irrep(frequency % 2, frequency)
        split = ambient.restrict(group)
        basis = np.eye(ambient.size) if split.change_of_basis is None else split.change_of_basis
        irreps += split.irreps
        parts.append((part, frequency, basis))
    return tuple(irreps), tuple(parts)

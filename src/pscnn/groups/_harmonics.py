"""Circular and spherical harmonics, and the matrices by which they transform.

Both families are orthonormal for the *normalised* measure of the circle or sphere, so the harmonic of
frequency zero is the constant 1.
"""

from __future__ import annotations

import numpy as np

from pscnn._memo import memo
from pscnn._types import Array


def circular_harmonics(frequency: int, points: Array) -> Array:
    """Harmonics of one frequency on the circle: 1, or sqrt(2) (cos fφ, sin fφ).

    Args:
        frequency: f ≥ 0.
        points: Unit vectors, shape (N, 2).

    Returns:
        Shape (N, 1) for f = 0, otherwise (N, 2).
    """
    if frequency == 0:
        return np.ones((len(points), 1))
    phi = np.arctan2(points[:, 1], points[:, 0])
    return np.sqrt(2) * np.stack([np.cos(frequency * phi), np.sin(frequency * phi)], axis=1)


def circular_matrix(frequency: int, elements: Array) -> Array:
    """The matrix D with Y_f(h x) = D(h) Y_f(x) for h in O(2), shape (N, 2, 2); frequency ≥ 1.

    A rotation by α turns the pair by fα. A reflection whose first column points to the angle α maps φ to α − φ.
    Both cases are the same formula with s = det h.
    """
    alpha = np.arctan2(elements[:, 1, 0], elements[:, 0, 0])
    sign = np.sign(np.linalg.det(elements))
    cos, sin = np.cos(frequency * alpha), np.sin(frequency * alpha)
    return np.stack([np.stack([cos, -sign * sin], -1), np.stack([sin, sign * cos], -1)], -2)


def spherical_harmonics(degree: int, points: Array) -> Array:
    """Real spherical harmonics of one degree; degree 1 is sqrt(3) (x, y, z).

    The polar axis is y (so that degree 1 comes in the order x, y, z), evaluated with the stable
    three-term recursion of the associated Legendre functions in Cartesian form.

    Args:
        degree: l ≥ 0.
        points: Unit vectors, shape (N, 3).

    Returns:
        Shape (N, 2l + 1), orders m = −l … l.
    """
    x, y, z = points[:, 2], points[:, 0], points[:, 1]
    out = np.empty((len(points), 2 * degree + 1))
    power = np.ones(len(points), dtype=complex)  # (x + iy)^m
    diagonal = 1.0  # normalised P_m^m / sin^m
    for m in range(degree + 1):
        if m > 0:
            power = power * (x + 1j * y)
            diagonal *= np.sqrt((2 * m + 1) / (2 * m))
        before, legendre = np.zeros(len(points)), np.full(len(points), diagonal)
        for degree_now in range(m + 1, degree + 1):
            a = np.sqrt((4 * degree_now**2 - 1) / (degree_now**2 - m**2))
            b = np.sqrt(((degree_now - 1) ** 2 - m**2) / (4 * (degree_now - 1) ** 2 - 1))
            before, legendre = legendre, a * (z * legendre - b * before)
        if m == 0:
            out[:, degree] = legendre
        else:
            out[:, degree + m] = np.sqrt(2) * legendre * power.real
            out[:, degree - m] = np.sqrt(2) * legendre * power.imag
    return out


@memo
def sphere_quadrature(degree: int) -> tuple[Array, Array]:
    """Points (N, 3) and weights (N,) that integrate polynomials up to ``degree`` over the sphere exactly.

    Gauss–Legendre nodes along z times equally spaced longitudes.
    """
    heights, weights = np.polynomial.legendre.leggauss(degree // 2 + 1)
    angles = 2 * np.pi * np.arange(degree + 1) / (degree + 1)
    radius = np.sqrt(1 - heights**2)
    x, y, z = np.outer(radius, np.cos(angles)), np.outer(radius, np.sin(angles)), np.repeat(heights, degree + 1)
    return np.stack([x.ravel(), y.ravel(), z], axis=1), np.repeat(weights / 2, degree + 1) / (degree + 1)


@memo
def _wigner_nodes(degree: int) -> tuple[Array, Array]:
    points, weights = sphere_quadrature(2 * degree)
    return points, weights[:, None] * spherical_harmonics(degree, points)


def wigner_matrix(degree: int, rotations: Array) -> Array:
    """The matrix D with Y_l(R x) = D(R) Y_l(x), shape (N, 2l+1, 2l+1).

    Computed as ∫ Y_l(Rx) Y_l(x)ᵀ dx with a rule that is exact for this integrand.
    """
    if degree == 0:
        return np.ones((len(rotations), 1, 1))
    if degree == 1:
        return rotations.copy()
    points, weighted = _wigner_nodes(degree)
    rotated = np.einsum("nab,pb->npa", rotations, points).reshape(-1, 3)
    values = spherical_harmonics(degree, rotated).reshape(len(rotations), len(points), 2 * degree + 1)
    return np.einsum("npa,pb->nab", values, weighted, optimize=True)

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy.special import sph_harm_y

from pscnn.groups import O2, O3, SO3
from pscnn.groups._harmonics import (
    circular_harmonics,
    circular_matrix,
    sphere_quadrature,
    spherical_harmonics,
    wigner_matrix,
)


def unit_vectors(count: int, dimension: int, seed: int) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(count, dimension))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def test_circular_harmonics_are_orthonormal() -> None:
    angles = 0.3 + 2 * np.pi * np.arange(19) / 19
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    values = np.concatenate([circular_harmonics(f, points) for f in range(9)], axis=1)
    np.testing.assert_allclose(values.T @ values / 19, np.eye(17), atol=1e-12)


@pytest.mark.parametrize("frequency", range(1, 6))
def test_circular_harmonics_turn_by_their_matrix(frequency: int) -> None:
    h, x = O2().sample(10, seed=0), unit_vectors(10, 2, seed=1)
    moved = circular_harmonics(frequency, np.einsum("nab,nb->na", h, x))
    expected = np.einsum("nab,nb->na", circular_matrix(frequency, h), circular_harmonics(frequency, x))
    np.testing.assert_allclose(moved, expected, atol=1e-12)


def test_spherical_harmonics_are_orthonormal() -> None:
    points, weights = sphere_quadrature(16)
    values = np.concatenate([spherical_harmonics(degree, points) for degree in range(9)], axis=1)
    np.testing.assert_allclose(values.T @ (weights[:, None] * values), np.eye(81), atol=1e-12)


def test_low_degrees_are_one_and_the_vector() -> None:
    x = unit_vectors(10, 3, seed=2)
    np.testing.assert_allclose(spherical_harmonics(0, x), 1)
    np.testing.assert_allclose(spherical_harmonics(1, x), np.sqrt(3) * x, atol=1e-14)


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 7, 20])
def test_spherical_harmonics_agree_with_scipy(degree: int) -> None:
    points = np.concatenate([unit_vectors(20, 3, seed=3), np.eye(3), -np.eye(3)])
    x, y, z = points.T
    polar, azimuth = np.arccos(y), np.arctan2(x, z)
    expected = np.empty((len(points), 2 * degree + 1))
    for m in range(-degree, degree + 1):
        value = np.sqrt(4 * np.pi) * (-1) ** m * sph_harm_y(degree, abs(m), polar, azimuth)
        expected[:, degree + m] = value.real if m == 0 else np.sqrt(2) * (value.real if m > 0 else value.imag)
    np.testing.assert_allclose(spherical_harmonics(degree, points), expected, atol=1e-11)


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 4, 8])
def test_spherical_harmonics_turn_by_their_wigner_matrix(degree: int) -> None:
    h, x = SO3().sample(10, seed=4), unit_vectors(10, 3, seed=5)
    moved = spherical_harmonics(degree, np.einsum("nab,nb->na", h, x))
    expected = np.einsum("nab,nb->na", wigner_matrix(degree, h), spherical_harmonics(degree, x))
    np.testing.assert_allclose(moved, expected, atol=1e-10)
    parity = O3().irrep(degree % 2, degree)(-np.eye(3))
    np.testing.assert_allclose(spherical_harmonics(degree, -x), spherical_harmonics(degree, x) @ parity.T, atol=1e-12)


@pytest.fixture
def double_precision() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("degree", range(6))
def test_wigner_matrices_and_harmonics_agree_with_e3nn(degree: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from e3nn import o3

        h, x = SO3().sample(8, seed=6), unit_vectors(8, 3, seed=7)
        angles = o3.matrix_to_angles(torch.from_numpy(h))
        theirs = o3.wigner_D(degree, *angles).numpy()
        harmonics = o3.spherical_harmonics(degree, torch.from_numpy(x), normalize=False, normalization="component")
    np.testing.assert_allclose(wigner_matrix(degree, h), theirs, atol=1e-10)
    np.testing.assert_allclose(spherical_harmonics(degree, x), harmonics.numpy(), atol=1e-10)

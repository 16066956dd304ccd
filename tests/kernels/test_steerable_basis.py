from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pscnn.groups import O2, O3, SO2, C, D, Group, direct_sum
from pscnn.kernels import Gaussian, SteerableBasis, grid_points, rings


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize(("kernel_size", "frequencies"), [(1, [0]), (3, [0, 2]), (5, [0, 2, 2]), (7, [0, 2, 3, 2])])
def test_rings_carry_the_published_frequencies(kernel_size: int, frequencies: list[int], dimension: int) -> None:
    found = rings(kernel_size, dimension)
    assert [ring.frequency for ring in found] == frequencies
    assert [ring.radius for ring in found] == list(range(kernel_size // 2 + 1))


@pytest.mark.parametrize(("dimension", "frequencies"), [(2, [1, 3, 2]), (3, [1, 3, 2])])
def test_rings_of_even_kernels_lie_between_pixels(dimension: int, frequencies: list[int]) -> None:
    found = rings(6, dimension)
    assert [ring.radius for ring in found] == [0.5, 1.5, 2.5]
    assert [ring.frequency for ring in found] == frequencies
    assert [ring.frequency for ring in rings(2, dimension)] == [1]
    assert [ring.frequency for ring in rings(4, dimension)] == [1, 2]


@pytest.mark.parametrize(
    ("kernel_size", "widths"), [(1, [0.005]), (3, [0.005, 0.4]), (5, [0.005, 0.6, 0.4]), (7, [0.005, 0.6, 0.6, 0.4])]
)
def test_rings_have_the_published_widths(kernel_size: int, widths: list[float]) -> None:
    assert [ring.width for ring in rings(kernel_size, 2)] == [ring.width for ring in rings(kernel_size, 3)] == widths


@pytest.mark.parametrize(("kernel_size", "planar", "spatial"), [(1, 1, 1), (3, 6, 10), (5, 11, 19), (7, 18, 35)])
def test_number_of_harmonics_does_not_depend_on_the_group(kernel_size: int, planar: int, spatial: int) -> None:
    of_plane: list[Group] = [C(1), C(3), D(4), SO2(), O2()]
    of_space: list[Group] = [O3(), SO2().about((0, 0, 1)), D(3).about((0, 1, 0))]
    assert {SteerableBasis(group, kernel_size).size for group in of_plane} == {planar}
    assert {SteerableBasis(group, kernel_size).size for group in of_space} == {spatial}


def test_grid_points_follow_memory_with_rows_downwards() -> None:
    np.testing.assert_array_equal(grid_points(3, 2)[:4], [[-1, 1], [0, 1], [1, 1], [-1, 0]])
    volume = grid_points(3, 3)
    np.testing.assert_array_equal(volume[[0, 1, 3, 9]], [[-1, 1, -1], [0, 1, -1], [-1, 0, -1], [-1, 1, 0]])
    for dimension in (2, 3):
        points = grid_points(5, dimension)
        assert len(np.unique(points, axis=0)) == 5**dimension
        np.testing.assert_array_equal(points[len(points) // 2], 0)


@pytest.mark.parametrize("kernel_size", [2, 3, 4, 7])
def test_harmonics_are_steered_by_their_irreps(group: Group, kernel_size: int) -> None:
    basis = SteerableBasis(group, kernel_size)
    rho = direct_sum(list(basis.irreps))
    points = 2 * np.random.default_rng(0).normal(size=(20, group.dimension))
    values = basis.evaluate(points)
    assert values.shape == (basis.size, 20)
    for h in group.sample(5, seed=1):
        np.testing.assert_allclose(basis.evaluate(points @ h.T), rho(h) @ values, atol=1e-10)


@pytest.mark.parametrize("kernel_size", [3, 5, 7])
def test_only_constants_reach_the_centre(group: Group, kernel_size: int) -> None:
    basis = SteerableBasis(group, kernel_size)
    at_centre = basis.evaluate(np.zeros((1, group.dimension)))[:, 0]
    centre = basis.sample()[:, kernel_size**group.dimension // 2]
    np.testing.assert_array_equal(centre, at_centre)
    shells = rings(kernel_size, group.dimension)
    sizes = [
        (f, 1 if f == 0 else 2 if group.dimension == 2 else 2 * f + 1) for s in shells for f in range(s.frequency + 1)
    ]
    frequencies = np.repeat([f for f, _ in sizes], [size for _, size in sizes])
    assert np.all(centre[frequencies > 0] == 0.0)
    assert centre[0] == 1.0
    np.testing.assert_allclose(
        np.abs(centre[frequencies == 0]), [np.exp(-(s.radius**2) / (2 * s.width**2)) for s in shells], atol=1e-14
    )


def test_harmonics_on_the_grid_are_linearly_independent(group: Group) -> None:
    for kernel_size in (1, 2, 3, 4, 5):
        basis = SteerableBasis(group, kernel_size)
        assert basis.sample().shape == (basis.size, kernel_size**group.dimension)
        assert np.linalg.matrix_rank(basis.sample(), tol=1e-6) == basis.size


def test_a_single_point_carries_only_the_constant(group: Group) -> None:
    basis = SteerableBasis(group, None)
    assert basis.irreps == (group.trivial,)
    assert basis.size == 1
    np.testing.assert_array_equal(basis.sample(), [[1.0]])
    np.testing.assert_array_equal(basis.evaluate(np.ones((4, group.dimension))), np.ones((1, 4)))


@pytest.mark.parametrize("kernel_size", [0, -3, 3.0, "3", (3, 5), True])
def test_kernels_that_are_no_square_are_refused(kernel_size: Any) -> None:
    with pytest.raises(
        ValueError, match=r"kernel_size must be a number such as 3 or 5, the same in all directions, got"
    ):
        SteerableBasis(C(4), kernel_size)


@pytest.mark.parametrize("kernel_size", [1, 3, 4, 7])
def test_smooth_harmonics_are_steered_by_their_irreps(group: Group, kernel_size: int) -> None:
    basis = SteerableBasis(group, kernel_size, Gaussian(0.9, min(3, kernel_size - 1)))
    rho = direct_sum(list(basis.irreps))
    points = 2 * np.random.default_rng(0).normal(size=(20, group.dimension))
    for h in group.sample(5, seed=1):
        np.testing.assert_allclose(basis.evaluate(points @ h.T), rho(h) @ basis.evaluate(points), atol=1e-10)
    assert np.linalg.matrix_rank(basis.sample(), tol=1e-9) == basis.size


@pytest.mark.parametrize(("group", "count"), [(O2(), 10), (O3(), 20)])
def test_smooth_harmonics_are_all_polynomials_times_a_gaussian(group: Group, count: int) -> None:
    basis = SteerableBasis(group, 7, Gaussian(1.1, 3))
    points = np.random.default_rng(0).normal(size=(200, group.dimension))
    powers = [p for p in itertools.product(range(4), repeat=group.dimension) if sum(p) <= 3]
    window = np.exp(-(points**2).sum(1) / (2 * 1.1**2))
    expected = np.stack([window * np.prod(points**p, axis=1) for p in powers])
    assert basis.size == len(powers) == count
    assert np.linalg.matrix_rank(np.concatenate([expected, basis.evaluate(points)]), tol=1e-8) == count


def test_smooth_kernels_turn_better_than_rings() -> None:
    """Responses of cos 2φ + i sin 2φ to waves in all directions have the angular frequency 2, but for the grid."""

    def lost(basis: SteerableBasis) -> float:
        starts = np.cumsum([0] + [psi.size for psi in basis.irreps])
        angles = np.arange(64) * 2 * np.pi / 64
        waves = np.exp(1j * grid_points(7, 2) @ np.stack([np.cos(angles), np.sin(angles)]))
        shares = []
        for psi, start in zip(basis.irreps, starts, strict=False):
            if psi.frequency == 2:
                spectrum = np.abs(np.fft.fft((basis.sample()[start] + 1j * basis.sample()[start + 1]) @ waves)) ** 2
                shares.append(np.sqrt(1 - max(spectrum[2], spectrum[-2]) / spectrum.sum()))
        return float(max(shares))

    smooth, ring = (lost(SteerableBasis(O2(), 7, profile)) for profile in (Gaussian.of(7), None))
    assert smooth < 0.005 < 0.02 < ring


def test_impossible_gaussians_are_refused() -> None:
    with pytest.raises(ValueError, match="needs width > 0 and degree ≥ 0, got 0 and 2"):
        Gaussian(0, 2)

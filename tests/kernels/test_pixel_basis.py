"""All kernels on a grid, decomposed under groups that map pixels to pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import grid_elements

from pscnn.groups import O2, O3, C, D, Group
from pscnn.kernels import PixelBasis, grid_points, maps_pixels

CASES: list[tuple[Group, tuple[int, ...]]] = [
    (C(1), (3, 3)),
    (C(4), (3, 3)),
    (D(4), (5, 5)),
    (D(4), (4, 4)),
    (D(2), (3, 6)),
    (D(1), (1, 4)),
    (C(4).about((0, 0, 1)), (3, 3, 3)),
    (D(4).about((0, 1, 0), "turn"), (2, 2, 2)),
    (C(3).about((1, 1, 1)), (3, 3, 3)),
    (D(2).about((0, 0, 1)), (3, 2, 5)),
]


@pytest.mark.parametrize(("group", "shape"), CASES, ids=lambda value: str(value))
def test_it_is_orthonormal_complete_and_steerable(group: Group, shape: tuple[int, ...]) -> None:
    basis = PixelBasis(group, shape)
    values = basis.sample()
    assert values.shape == (basis.size, basis.size) == (math.prod(shape), math.prod(shape))
    np.testing.assert_allclose(values @ values.T, np.eye(len(values)), atol=1e-12)
    assert sum(psi.size for psi in basis.irreps) == basis.size
    elements = group.quadrature(0)[0]
    for h in elements:
        moved, start = basis.evaluate(basis.points @ h.T), 0
        for psi in basis.irreps:
            rows = slice(start, start + psi.size)
            np.testing.assert_allclose(moved[rows], psi(h) @ values[rows], atol=1e-12)
            start += psi.size


def test_the_invariant_functions_are_those_that_averaging_leaves() -> None:
    """An independent count: one invariant function per orbit, the mean of a random kernel over the group."""
    kernel = np.random.default_rng(0).normal(size=(5, 5))
    mean = sum(np.rot90(k, n) for k in (kernel, kernel.T) for n in range(4)) / 8
    basis = PixelBasis(D(4), (5, 5))
    invariant = np.repeat([psi.is_trivial for psi in basis.irreps], [psi.size for psi in basis.irreps])
    values = basis.sample()[invariant]
    assert len(values) == 6
    np.testing.assert_allclose((values.T @ values @ kernel.ravel()).reshape(5, 5), mean, atol=1e-12)


def test_pixels_are_where_other_bases_have_them() -> None:
    np.testing.assert_array_equal(PixelBasis(D(4), (3, 3)).points, grid_points(3, 2))
    axial = D(4).about((0, 0, 1))
    np.testing.assert_array_equal(PixelBasis(axial, (5, 5, 5)).points, grid_points(5, 3))


def test_which_groups_map_pixels_to_pixels() -> None:
    groups = [C(n) for n in (1, 2, 3, 4, 8)] + [D(n) for n in (1, 2, 3, 4, 8)] + [D(4).about((1, 1, 0)), O2(), O3()]
    for group in groups:
        expected = group.order is not None and len(grid_elements(group)) == group.order
        assert maps_pixels(group) == expected, group.name


@pytest.mark.parametrize(
    ("group", "shape", "message"),
    [
        (O2(), (3, 3), r"O\(2\) does not map a grid of pixels to itself; use .* D\(4\)"),
        (C(8), (3, 3), "does not map"),
        (D(4), (3, 3, 3), r"acts on 2 axes, got a kernel of shape \(3, 3, 3\)"),
        (D(4), (1, 3), r"exchanges axes along which a kernel of shape \(1, 3\) differs"),
    ],
)
def test_what_is_refused(group: Group, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PixelBasis(group, shape)


def test_functions_are_known_at_pixels_only() -> None:
    with pytest.raises(ValueError, match="at pixels only"):
        PixelBasis(D(4), (3, 3)).evaluate(np.array([[0.5, 0.0]]))

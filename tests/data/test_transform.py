"""Turning examples: against exact permutations, against formulas, against another library, and how much is lost."""

from __future__ import annotations

import time
from itertools import permutations, product

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates
from torch import Tensor

from pscnn import FieldType
from pscnn.data import transform, transform_targets
from pscnn.groups import MIRROR, O2, O3, SO2, SO3, C, Group, rotation


def blobs(points: Tensor) -> Tensor:
    """A smooth function of the plane or of space that no rotation or reflection leaves as it is; zero far away."""
    centres = torch.tensor([[0.25, 0.1, 0.2], [-0.3, 0.3, -0.1], [0.05, -0.35, 0.3]], dtype=torch.float64)
    squares = (points[..., None, :] - centres[:, : points.shape[-1]]).square().sum(-1)
    return (torch.tensor([1.0, -0.7, 0.5], dtype=torch.float64) * torch.exp(-squares / (2 * 0.15**2))).sum(-1)


def drawn(sides: tuple[int, ...], element: Tensor) -> Tensor:
    """h·f at the pixels, from the formula of f: x to the right, y upwards, z towards the last slice."""
    scale = min(sides) / 2
    axes = [(torch.arange(side, dtype=torch.float64) - (side - 1) / 2) / scale for side in sides]
    grid = torch.meshgrid(*axes, indexing="ij")
    points = torch.stack([grid[-1], -grid[-2], *grid[:-2]], -1)
    return blobs(points @ element)  # of rows: h⁻¹p = hᵀp


@pytest.mark.parametrize(
    ("group", "sides"), [(O2(), (28, 28)), (O2(), (31, 26)), (O3(), (26, 26, 26)), (O3(), (25, 28, 27))]
)
def test_turned_pixels_are_the_pixels_of_the_turned_function(group: Group, sides: tuple[int, ...]) -> None:
    elements = torch.from_numpy(group.sample(12, seed=1))
    x = drawn(sides, torch.eye(len(sides), dtype=torch.float64)).expand(12, 1, *sides)
    expected = torch.stack([drawn(sides, element) for element in elements])[:, None]
    assert (transform(x, elements) - expected).abs().max() < 3e-3  # the highest value is about 1
    assert (expected - x).abs().flatten(1).amax(1).min() > 0.2  # none of them is the identity


def test_quarter_turns_and_mirrors_are_exact() -> None:
    x = torch.randn(8, 2, 9, 9)
    elements = torch.from_numpy(
        np.concatenate([rotation(np.pi / 2 * np.arange(4)), rotation(np.pi / 2 * np.arange(4)) @ MIRROR])
    )
    expected = [x[k].rot90(k, (1, 2)) for k in range(4)] + [x[4 + k].flip(2).rot90(k, (1, 2)) for k in range(4)]
    assert torch.equal(transform(x, elements), torch.stack(expected))
    assert torch.equal(transform(transform(x, elements), elements.mT), x)


@pytest.mark.parametrize("group", [O2(), O3()])
def test_symmetries_of_the_grid_are_those_of_field_types(group: Group) -> None:
    n = group.dimension
    x = torch.randn(2, 1, *(6,) * n)
    scalars = FieldType(group, [group.trivial])
    signs = [np.diag(one) for one in product((-1.0, 1.0), repeat=n)]
    elements = [sign @ np.eye(n)[list(order)] for sign in signs for order in permutations(range(n))]
    assert len(elements) == {2: 8, 3: 48}[n]
    for element in elements:
        assert torch.equal(transform(x, torch.from_numpy(element)), scalars.transform(x, element))


def test_half_turns_of_oblong_images_are_exact_and_quarter_turns_keep_the_shape() -> None:
    x = torch.rand(1, 1, 6, 10)
    half, quarter = (torch.from_numpy(rotation(angle)) for angle in (np.pi, np.pi / 2))
    assert torch.equal(transform(x, half), x.rot90(2, (2, 3)))
    border = (x.sum() - x[..., 1:-1, 1:-1].sum()) / 28
    expected = border.expand(1, 1, 6, 10).clone()
    expected[..., 2:8] = x.rot90(1, (2, 3))[..., 2:8, :]
    torch.testing.assert_close(transform(x, quarter), expected, rtol=0, atol=2e-6)


def test_splines_are_those_of_scipy() -> None:
    """Inside, where both know all neighbours."""
    x = torch.randn(1, 1, 15, 12, dtype=torch.float64)
    element = torch.from_numpy(rotation(0.4))
    rows, columns = np.meshgrid(np.arange(15) - 7, np.arange(12) - 5.5, indexing="ij")
    across, up = np.cos(0.4) * columns - np.sin(0.4) * rows, -np.sin(0.4) * columns - np.cos(0.4) * rows
    expected = map_coordinates(x[0, 0].numpy(), [7 - up, 5.5 + across], order=3, mode="mirror")
    inside = (np.abs(across) <= 5.5) & (np.abs(up) <= 7)
    assert 100 < inside.sum() < 180
    np.testing.assert_allclose(transform(x, element)[0, 0].numpy()[inside], expected[inside], atol=1e-10)


def test_what_comes_from_outside_has_the_mean_of_the_border() -> None:
    x = torch.full((2, 2, 11, 11), 3.0)
    x[1, 1] = -5.0
    x[:, :, 3:8, 3:8] = 1.0
    turned = transform(x, torch.from_numpy(rotation(np.pi / 4)))
    torch.testing.assert_close(turned[..., 0, 0], x[..., 0, 0], rtol=0, atol=1e-5)
    flat = torch.full((1, 1, 7, 9, 8), 0.25)
    torch.testing.assert_close(transform(flat, torch.from_numpy(SO3().sample(1, seed=0)[0])), flat, rtol=0, atol=1e-6)


def test_every_example_has_its_own_element() -> None:
    x, elements = torch.rand(6, 1, 10, 10), torch.from_numpy(O2().sample(6, seed=3))
    elements[2] = torch.eye(2)
    together = transform(x, elements)
    for k in range(6):
        torch.testing.assert_close(together[k : k + 1], transform(x[k : k + 1], elements[k]), rtol=0, atol=1e-6)


def test_turning_there_and_back_loses_little_and_less_than_linear_interpolation() -> None:
    x = drawn((28, 28), torch.eye(2, dtype=torch.float64)).float().expand(20, 1, 28, 28)
    elements = torch.from_numpy(SO2().sample(20, seed=0))
    lost = (transform(transform(x, elements), elements.mT) - x).norm() / x.norm()
    scalars = FieldType(SO2(), [SO2().trivial])
    linear = torch.cat([scalars.transform(scalars.transform(x[:1], h), h.T) for h in elements.numpy()])
    assert lost < 0.002 < 0.04 < (linear - x).norm() / x.norm()


def test_two_turns_are_one() -> None:
    x = drawn((28, 28), torch.eye(2, dtype=torch.float64))[None, None]
    g, h = torch.from_numpy(O2().sample(2, seed=5))
    assert (transform(transform(x, g), h) - transform(x, h @ g)).abs().max() < 0.01


def test_whole_numbers_and_half_precision_become_single_precision() -> None:
    element = torch.from_numpy(C(4).sample(1, seed=1)[0])
    for kind in (torch.uint8, torch.float16):
        assert transform(torch.ones(1, 1, 4, 4, dtype=kind), element).dtype == torch.float32


def test_single_rows_and_columns_can_be_turned() -> None:
    turned = transform(torch.tensor([[[[1.0, 2.0, 3.0]]]]), torch.from_numpy(rotation(0.3)))
    assert turned.shape == (1, 1, 1, 3)
    assert turned.isfinite().all()


def test_thousands_of_small_images_per_second() -> None:
    x, elements = torch.rand(1000, 1, 28, 28), torch.from_numpy(O2().sample(1000, seed=0))
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        transform(x, elements)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 1  # 0.09 on an idle core


def test_examples_are_moved_before_they_are_turned() -> None:
    x = torch.rand(3, 2, 9, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    half = torch.tensor([[-1.0, 0.0], [0.0, -1.0]])
    shifts = torch.tensor([[2.0, 0.0], [0.0, -1.0], [0.0, 0.0]])
    found, turned = transform(x, half, shifts), transform(x, half)
    torch.testing.assert_close(found[0, :, :-2], turned[0, :, 2:])
    torch.testing.assert_close(found[1, :, :, 1:], turned[1, :, :, :-1])
    torch.testing.assert_close(found[2], turned[2])
    masks = torch.randint(3, (3, 9, 7), generator=torch.Generator().manual_seed(1))
    moved = transform_targets(masks, half, "masks", shifts)
    assert torch.equal(moved[0, :-2], transform_targets(masks, half, "masks")[0, 2:])
    with pytest.raises(ValueError, match=r"expected shifts of shape \(3, 2\), got \(2,\)"):
        transform(x, half, torch.zeros(2))


@pytest.mark.parametrize(
    ("shape", "elements"), [((2, 1, 4, 4), (3, 3)), ((2, 1, 4, 4), (3, 2, 2)), ((1, 4, 4), (2, 2))]
)
def test_shapes_that_do_not_go_together_get_a_sentence(shape: tuple[int, ...], elements: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected examples .* got examples .* with elements"):
        transform(torch.zeros(shape), torch.zeros(elements))


def test_vectors_turn_with_their_images_and_other_answers_stay() -> None:
    elements = torch.from_numpy(O2().sample(5, seed=0))
    vectors = torch.randn(5, 4)
    turned = transform_targets(vectors, elements, "vectors")
    for k in range(5):
        for pair in (slice(0, 2), slice(2, 4)):
            torch.testing.assert_close(turned[k, pair], elements[k].float() @ vectors[k, pair])
    for kind, answers in (("classes", torch.arange(5)), ("labels", torch.ones(5, 3)), ("numbers", vectors)):
        assert torch.equal(transform_targets(answers, elements, kind), answers)
    one = elements[0]
    torch.testing.assert_close(transform_targets(vectors, one, "vectors")[:, :2], vectors[:, :2] @ one.float().T)


def test_masks_turn_with_their_images() -> None:
    """Where the image is one of the mask, the turned image is that of the turned mask."""
    mask = torch.zeros(3, 16, 14, dtype=torch.int64)
    mask[:, 4:12, 5:11], mask[:, 4:8, 5:8] = 1, 2
    elements = torch.from_numpy(O2().sample(3, seed=2))
    turned = transform_targets(mask, elements, "masks")
    assert turned.dtype == mask.dtype
    for kind in range(3):
        share = transform((mask == kind)[:, None].float(), elements)[:, 0]
        assert torch.equal(turned[share > 0.55], torch.full_like(turned[share > 0.55], kind))
    assert torch.equal(transform_targets(mask, torch.eye(2), "masks"), mask)
    soft = torch.rand(3, 2, 16, 14)
    assert torch.equal(transform_targets(soft, elements, "masks"), transform(soft, elements))


def test_unknown_kinds_of_targets_get_a_sentence() -> None:
    with pytest.raises(ValueError, match="one of classes, labels, numbers, vectors, masks, got 'boxes'"):
        transform_targets(torch.zeros(1), torch.eye(2), "boxes")


def test_pixels_whose_class_is_not_known_turn_along() -> None:
    masks = torch.tensor([[[-1, 0, 1], [-1, 0, 0], [-1, 2, 0]]])
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    assert torch.equal(transform_targets(masks, quarter, "masks"), masks.rot90(1, (1, 2)))

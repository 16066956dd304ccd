"""Pictures drawn at any angle, and what networks let through on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn as tnn

from pscnn import FieldType, nn
from pscnn.groups import O2, SO2
from pscnn.testing import draw, leak, scenes

QUARTER = np.array([[0.0, -1.0], [1.0, 0.0]])


@pytest.mark.parametrize("kind", ["smooth", "plus", "given"])
def test_a_quarter_turn_permutes_pixels(kind: str) -> None:
    images = torch.rand(3, 1, 12, 12) if kind == "given" else kind
    pictures = scenes(images, (12, 12), count=3)
    turned = draw(pictures, (12, 12), QUARTER)
    assert torch.allclose(turned, draw(pictures, (12, 12), np.eye(2)).rot90(1, (2, 3)), atol=1e-6)
    assert turned.std() > 0.01


def test_any_angle_is_that_of_a_finer_picture() -> None:
    element = SO2().sample(1, seed=1)[0]
    pictures = scenes("smooth", (20, 20), count=2)
    fine = draw(lambda points: pictures(points / 4), (80, 80), element)  # four times the resolution
    coarse = torch.nn.functional.interpolate(fine, (20, 20), mode="area")
    assert (coarse - draw(pictures, (20, 20), element)).abs().max() < 0.06 * coarse.abs().max()


def test_given_images_are_blurred_a_little() -> None:
    images = torch.zeros(1, 1, 9, 9)
    images[..., 4, 4] = 1
    found = draw(scenes(images, (9, 9)), (9, 9), np.eye(2))
    axis = torch.arange(9.0) - 4
    expected = torch.exp(-(axis[:, None] ** 2 + axis**2) / (2 * 0.8**2))
    assert torch.allclose(found[0, 0], expected / expected.sum(), atol=1e-3)


def test_a_mean_over_pixels_leaks_next_to_nothing_and_nothing_at_right_angles() -> None:
    scalar = FieldType(O2(), [O2().trivial])
    mean = tnn.Sequential(nn.Conv2d(scalar, scalar, 1), tnn.AdaptiveAvgPool2d(1), tnn.Flatten()).double()
    assert 1e-12 < leak(mean, shape=(24, 24), count=8).worst < 0.01
    assert leak(mean, shape=(24, 24), count=8, elements=QUARTER[None]).worst < 1e-5


def test_a_network_that_reads_pixels_leaks() -> None:
    scalar = FieldType(O2(), [O2().trivial])
    reads = tnn.Sequential(nn.Conv2d(scalar, scalar, 1), tnn.Flatten(), tnn.Linear(576, 4))
    found = leak(reads, shape=(24, 24), count=8)
    assert found.worst > 0.5
    assert set(found.layers) == {"0"}
    assert found.layers["0"].max() < 0.01
    assert "in all: " in str(found)


def test_vectors_turn_along() -> None:
    group = O2()
    vector = FieldType(group, [group.vector])
    layer = tnn.Sequential(nn.Conv2d(FieldType(group, [group.trivial]), vector, 15, padding=0))
    shape = (15, 15)
    turned = leak(tnn.Sequential(*layer, tnn.Flatten()), shape=shape, count=8, out_type=vector)
    fixed = leak(tnn.Sequential(*layer, tnn.Flatten()), shape=shape, count=8)
    assert turned.worst < 0.2 * fixed.worst


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="no layer with an in_type: give group"):
        leak(tnn.Linear(2, 2), shape=(8, 8))
    with pytest.raises(ValueError, match="unknown kind 'minus': use 'smooth', 'plus' or a tensor of images"):
        scenes("minus", (8, 8))

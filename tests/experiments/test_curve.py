"""Scores over the elements of a group: networks whose answers to turned examples are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pscnn.data import transform
from pscnn.experiments import curve
from pscnn.groups import O2, SO2, SO3, C, D


class Top(nn.Module):
    """0 if the upper half is brighter than the lower, else 1."""

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[-2] // 2
        return torch.stack([x[..., :half, :].sum((1, 2, 3)), x[..., half:, :].sum((1, 2, 3))], 1)


def halves(count: int = 12, side: int = 16) -> tuple[Tensor, Tensor]:
    """A bright spot at the top or at the bottom."""
    y = torch.arange(count) % 2
    x = torch.zeros(count, 1, side, side)
    for one, label in zip(x, y, strict=True):
        row = 3 if label == 0 else side - 6
        one[0, row : row + 3, side // 2 - 2 : side // 2 + 2] = 1
    return x, y


def test_a_network_that_knows_the_top_is_right_up_to_a_quarter_turn() -> None:
    x, y = halves()
    found = curve(Top(), x, y, SO2())
    angles = np.array(found.elements.angles)
    near, far = (angles < 80) | (angles > 280), (angles > 100) & (angles < 260)
    assert (found.turned[near, 0] == 1).all()
    assert (found.turned[far, 0] == 0).all()
    assert (found.back[:, 0] == 1).all()
    np.testing.assert_array_equal(found.same[near | far, 0], found.turned[near | far, 0])
    assert (found.lost[far, 1] > 0).all()  # for all elements together
    assert (found.lost[near, 1] <= 0).all()
    assert found.examples == 12


def test_what_is_frozen_in_a_network_that_is_trained_stays_so() -> None:
    frozen = nn.BatchNorm2d(1)
    model = nn.Sequential(frozen, Top())
    frozen.eval()
    curve(model, *halves(), C(2))
    assert (model.training, frozen.training) == (True, False)


def test_intervals_are_wilsons() -> None:
    x, y = halves(10)
    y[:3] = 1 - y[:3]
    mean, low, high = curve(Top(), x, y, C(2)).turned[0]
    assert mean == pytest.approx(0.7)
    for end in (low, high):  # where the score test is just at its limit
        assert abs(0.7 - end) == pytest.approx(1.96 * np.sqrt(end * (1 - end) / 10), rel=1e-3)


def test_reflections_have_the_order_of_the_elements() -> None:
    """Top and bottom change places in half-turns and in the mirror with a level line."""
    x, y = halves()
    found = curve(Top(), x, y, D(2))
    said = dict(zip(found.elements.words(), found.turned[:, 0].tolist(), strict=True))
    assert said == {"rotation by 0°": 1, "rotation by 180°": 0, "mirror line at 90°": 1, "mirror line at 0°": 0}


class Spot(nn.Module):
    """Where the brightness is, from the centre, x to the right and y upwards."""

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(x.shape[-1]) - (x.shape[-1] - 1) / 2
        share = x[:, 0] / x.sum((1, 2, 3))[:, None, None]
        return torch.stack([(share.sum(1) * steps).sum(1), -(share.sum(2) * steps).sum(1)], 1)


def test_vectors_turn_along() -> None:
    torch.manual_seed(0)
    x = torch.zeros(20, 1, 21, 21)
    for one, (row, column) in zip(x, torch.randint(4, 13, (20, 2)), strict=True):
        one[0, row : row + 5, column : column + 5] = 1
    found = curve(Spot(), x, Spot()(x), O2(), "vectors", steps=8)
    assert found.turned[:, 0].min() > 0.98
    assert found.same[:, 0].min() > 0.98
    as_numbers = curve(Spot(), x, Spot()(x), O2(), "numbers", steps=8)
    assert as_numbers.turned[1:, 0].max() < 0.9


def test_masks_turn_along() -> None:
    torch.manual_seed(0)
    x = torch.nn.functional.avg_pool2d(torch.randn(4, 1, 20, 20), 7, 1, 3)
    bright = nn.Conv2d(1, 2, 1)
    bright.weight.data, bright.bias = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1), None
    found = curve(bright, x, (x[:, 0] > 0).long(), SO2(), "masks", steps=8)
    assert found.turned[:, 0].min() > 0.8  # the corners are filled
    assert found.turned[[0, 2, 4, 6], 0].min() == 1
    slope = nn.Conv2d(1, 2, (3, 1), padding=(1, 0), bias=False)
    slope.weight.data = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, -1.0]]).view(2, 1, 3, 1)
    falls = curve(slope, x, slope(x).argmax(1), SO2(), "masks", steps=8)
    assert falls.turned[4, 0] < 0.2 < 0.99 < falls.turned[0, 0]


def test_labels_and_volumes() -> None:
    class Halves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x[:, 0, :4].mean((1, 2, 3)), x[:, 0, :, :, :4].mean((1, 2, 3))], 1)

    x = torch.full((6, 1, 8, 8, 8), -1.0)
    x[:, :, :4] = 1
    y = torch.tensor([[1.0, 0.0]]).expand(6, 2)
    x[:, :, :, :, :4] -= 0.5
    found = curve(Halves(), x, y, SO3(), "labels")
    said = dict(zip(found.elements.words(), found.turned[:, 0].tolist(), strict=True))
    assert said["rotation by 90° about z"] == said["rotation by 0° about x"] == 1
    assert said["rotation by 180° about y"] == 0.5
    assert len(said) == 36


def test_networks_stay_in_the_mode_they_were_in() -> None:
    x, y = halves()
    model = Top().train()
    curve(model, x, y, C(2))
    assert model.training
    assert torch.equal(transform(x, torch.eye(2)), x)


def test_unfit_input_gets_a_sentence() -> None:
    x, y = halves()
    with pytest.raises(ValueError, match="each with its answer, got 12 and 5"):
        curve(Top(), x, y[:5], C(2))
    with pytest.raises(ValueError, match="one of classes, labels, numbers, vectors, masks, got 'boxes'"):
        curve(Top(), x, y, C(2), "boxes")

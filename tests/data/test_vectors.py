from __future__ import annotations

import math

import pytest
import torch

from pscnn.data import vectors


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("distribution", ["polar", "cube"])
def test_targets_are_the_norm_and_the_angle_to_the_last_axis(dimension: int, distribution: str) -> None:
    x, targets = vectors.load(500, dimension=dimension, distribution=distribution, seed=3)
    assert x.shape == (500, dimension)
    torch.testing.assert_close(targets[:, 0], x.norm(dim=1))
    torch.testing.assert_close(targets[:, 0] * targets[:, 1].cos(), x[:, -1], atol=1e-6, rtol=1e-5)
    assert targets[:, 1].min() >= 0
    assert targets[:, 1].max() <= math.pi


def test_polar_vectors_have_uniform_norms_and_directions() -> None:
    x, targets = vectors.load(20_000, seed=0)
    assert targets[:, 0].max() <= math.sqrt(2) + 1e-6
    quantiles = torch.quantile(targets[:, 0], torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(quantiles, math.sqrt(2) * torch.tensor([0.25, 0.5, 0.75]), atol=0.02, rtol=0)
    angles = torch.atan2(x[:, 0], x[:, 1])
    for k in (1, 2, 3):
        assert abs(torch.exp(1j * k * angles).mean()) < 0.02


def test_seeds_decide() -> None:
    assert torch.equal(vectors.load(10, seed=1).x, vectors.load(10, seed=1).x)
    assert not torch.equal(vectors.load(10, seed=1).x, vectors.load(10, seed=2).x)


def test_errors_compare_cosines_of_angles() -> None:
    targets = torch.tensor([[1.0, 0.5], [2.0, 3.0]])
    prediction = torch.tensor([[1.0, -0.5], [4.0, 2 * math.pi - 3.0]])
    assert vectors.error(prediction, targets, "angle").item() == pytest.approx(0, abs=1e-10)
    assert vectors.error(prediction, targets, "norm").item() == 2
    assert vectors.error(prediction, targets, "both").item() == pytest.approx(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "at least one vector, got 0"),
        ({"dimension": 4}, "2 or 3 dimensions, got 4"),
        ({"distribution": "sphere"}, "unknown distribution 'sphere': use one of polar, cube"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vectors.load(**arguments)  # type: ignore[arg-type]

"""Pictures of forecasts."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from helpers import flow
from matplotlib.quiver import Quiver
from PIL import Image

from pscnn import report


def test_pictures_of_a_forecast() -> None:
    true = flow(1, 6, 16)[0]
    figure = report.forecast_figure(true + 0.1, true, columns=3)
    assert [axis.get_title() for axis in figure.axes[:3]] == ["step 1", "step 3", "step 6"]
    for axis, field in zip(figure.axes[1:9:3], (true[2], true[2] + 0.1, None), strict=True):
        expected = 0.1 * math.sqrt(2) * torch.ones(16, 16) if field is None else field.norm(dim=0)
        speeds = axis.images[0].get_array()
        assert speeds is not None
        np.testing.assert_allclose(speeds, expected.numpy(), rtol=1e-5)
        if field is not None:
            (arrows,) = axis.collections  # one per pixel of so small a flow; y points up
            assert isinstance(arrows, Quiver)
            np.testing.assert_allclose(
                np.stack([np.asarray(arrows.U), np.asarray(arrows.V)]), field.flatten(1), rtol=1e-5
            )
    content = report.forecast_animation(true + 0.1, true)
    assert Image.open(io.BytesIO(content)).n_frames == 6  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="two flows of shape"):
        report.forecast_figure(true, true[:, :1])


def test_forecasts_side_by_side() -> None:
    true = flow(1, 3, 16)[0]
    one = report.comparison_animation({"near": true + 0.01}, true)
    two = report.comparison_animation({"near": true + 0.01, "far": true + 0.5}, true)
    narrow, wide = (Image.open(io.BytesIO(content)) for content in (one, two))
    assert wide.n_frames == 3  # type: ignore[attr-defined]
    assert wide.width / narrow.width == pytest.approx(3 / 2, rel=0.01)
    with pytest.raises(ValueError, match="two flows of shape"):
        report.comparison_animation({"other": true[:2]}, true)


def test_the_fastest_place_of_an_animation_has_its_colour() -> None:
    true = 0.3 * flow(1, 1)[0]
    true[0, 0, 8, 8:10] = 1  # so few pixels that a palette by frequency would not hold their yellow
    shown = Image.open(io.BytesIO(report.forecast_animation(true + 0.01 * torch.rand_like(true), true))).convert("RGB")
    colours = [torch.tensor(colour) for _, colour in shown.getcolors(2**24) or []]
    assert min((colour - torch.tensor([253, 231, 37])).abs().max() for colour in colours) < 10

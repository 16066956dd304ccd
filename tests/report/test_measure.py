"""The picture of a measurement."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn as tnn

import pscnn
from pscnn.groups import D
from pscnn.models import unet
from pscnn.report import measure_figure


def test_kernels_and_responses_are_drawn(tmp_path: Path) -> None:
    plain = unet("cnn", width=4, levels=2)
    x = torch.randn(2, 1, 9, 9)
    figure = measure_figure(pscnn.measure(plain, D(4), x))
    bars, heat, _ = figure.axes
    assert len(bars.patches) == 7 * 5  # convolutions, irreps
    widths = [sum(p.get_width() for p in bars.patches if round(p.get_y() + 0.4) == row) for row in range(7)]  # type: ignore[attr-defined]
    assert all(abs(width - 1) < 1e-6 for width in widths)
    assert heat.images[0].get_array().shape == (10, 7)  # type: ignore[union-attr]
    figure.savefig(tmp_path / "measure.png")
    assert (tmp_path / "measure.png").stat().st_size > 5000


def test_one_of_both_is_enough() -> None:
    only_kernels = measure_figure(pscnn.measure(tnn.Conv2d(1, 2, 3), D(4)))
    assert len(only_kernels.axes) == 1
    only_responses = measure_figure(pscnn.measure(tnn.Conv2d(1, 2, 1), D(4), torch.randn(1, 1, 5, 5)))
    assert len(only_responses.axes) == 2  # with its colours

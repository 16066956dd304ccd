"""Dials for papers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import random_likelihood
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from pscnn import Likelihood
from pscnn.groups import MIRROR, O2, SO2, SO3, C, D, Group, rotation
from pscnn.report import dial_figure
from pscnn.report._dials import RINGS


def bars_of(axis: Axes) -> list[Rectangle]:
    return [patch for patch in axis.patches if isinstance(patch, Rectangle)]


@pytest.mark.parametrize("group", [O2(), SO2(), D(4), C(4), O2().about((0, 0, 1))], ids=lambda g: g.name)
def test_bars_are_as_high_as_the_density(group: Group, tmp_path: Path) -> None:
    lam = random_likelihood(group)
    model = torch.nn.ModuleDict({"a": lam, "b": Likelihood(group)})
    figure = dial_figure(model, columns=1)
    first, second = figure.axes
    highest = lam.density(lam.grid()[0]).max().item()
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_y(), bar.get_height()) for bar in bars_of(first)]
    for place, start, height in bars:
        if start == pytest.approx(RINGS[0][0]):
            h = rotation(place)
        else:  # the line at the place counted from the top, which stays where it is
            along = place + np.pi / 2
            h = rotation(2 * along) @ -MIRROR
            line = np.array([np.cos(along), np.sin(along)])
            np.testing.assert_allclose(h @ line, line, atol=1e-9)
        lifted = group.lift(h[None]) if hasattr(group, "lift") else h[None]
        assert height / RINGS[0][1] == pytest.approx(lam.density(lifted).item() / highest, rel=1e-3)
    assert [bar.get_height() for bar in bars_of(second)] == pytest.approx([RINGS[0][1]] * len(bars), rel=1e-5)
    assert second.get_xlabel().startswith("keeps ")
    figure.savefig(tmp_path / "dials.pdf")
    assert (tmp_path / "dials.pdf").stat().st_size > 5000


def test_networks_in_space_have_maps_and_others_nothing() -> None:
    figure = dial_figure(torch.nn.ModuleDict({"a": random_likelihood(SO3(), 1)}))
    assert any(axis.name == "mollweide" for axis in figure.axes)
    with pytest.raises(ValueError, match="no learnt densities"):
        dial_figure(torch.nn.Linear(1, 1))

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from helpers import random_likelihood

from pscnn import Likelihood
from pscnn._extras import MissingExtraError
from pscnn.groups import MIRROR, O2, O3, SO2, C, D, Group, rotation
from pscnn.report import density_chart, density_curves, density_figure


def stack(*densities: Likelihood) -> torch.nn.ModuleDict:
    return torch.nn.ModuleDict({f"conv{k}": lam for k, lam in enumerate(densities)})


def test_curves_are_values_of_the_density() -> None:
    lam = random_likelihood(O2())
    curves = density_curves(lam, points=5)
    angles, values = curves["reflections"]
    assert angles.tolist() == [-180, -90, 0, 90, 180]
    expected = lam.density(rotation(np.radians(angles)) @ MIRROR).detach()
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert list(density_curves(random_likelihood(C(3)))) == ["rotations"]
    assert list(density_curves(Likelihood(O2(), support=C(4)))) == ["rotations"]
    lifted = random_likelihood(SO2().about((1, 0, 0)))
    assert len(density_curves(lifted)["rotations"][0]) == 181
    with pytest.raises(ValueError, match=r"not for O\(3\)"):
        density_curves(random_likelihood(O3()))


@pytest.mark.parametrize("group", [O2(), SO2(), C(4), D(4)], ids=str)
def test_figure_has_one_panel_per_density(group: Group) -> None:
    figure = density_figure(stack(random_likelihood(group), random_likelihood(group)))
    assert len(figure.axes) == 2
    assert figure.axes[0].get_ylabel() == "density λ"
    assert (figure.axes[0].get_legend() is not None) == (group in (O2(), D(4)))  # colours are named if there are two


def test_a_uniform_density_is_a_line_below_the_edge_of_its_panel() -> None:
    assert density_figure(stack(Likelihood(SO2(), 1))).axes[0].get_ylim() == pytest.approx((0, 1.1))


def test_chart_has_one_line_per_density() -> None:
    lines = density_chart(stack(random_likelihood(O2()), random_likelihood(O2()))).splitlines()
    assert len(lines) == 5
    assert "█" in lines[1] + lines[2]
    assert "no learnt" in density_chart(torch.nn.Linear(1, 1))


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ValueError, match="no learnt densities"):
        density_figure(torch.nn.Linear(1, 1))


def test_a_missing_plotting_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"matplotlib, .*: pip install 'pscnn\[plots\]'"):
        density_figure(stack(random_likelihood(O2())))

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import random_likelihood

import pscnn
from pscnn import FieldType, Likelihood, nn
from pscnn.groups import MIRROR, O2, O3, SO2, SO3, C, D, Group, rotation
from pscnn.measures import Mixture
from pscnn.report import agreement, agreement_figure, degree_figure, plane_elements


def layer(group: Group, likelihood: Likelihood) -> torch.nn.Sequential:
    fields = FieldType(group, 4 * [group.functions(2)])
    return torch.nn.Sequential(nn.Conv2d(FieldType(group, [group.trivial]), fields, 5, likelihood=likelihood))


@pytest.mark.parametrize("group", [C(4), D(3), SO2(), O2()], ids=lambda g: g.name)
def test_elements_have_angles_and_sides(group: Group) -> None:
    elements, degrees, mirrored = plane_elements(group, points=8)
    assert group.contains(elements)
    assert len(elements) == (group.order or (16 if group == O2() else 8))
    for h, angle, flipped in zip(elements, degrees, mirrored, strict=True):
        assert np.linalg.det(h) == pytest.approx(-1 if flipped else 1)
        np.testing.assert_allclose(h, rotation(np.radians(angle)) @ (MIRROR if flipped else np.eye(2)), atol=1e-12)
    with pytest.raises(ValueError, match=r"needs a group of the plane, got SO\(3\)"):
        plane_elements(SO3())


def test_where_the_density_is_low_the_error_is_high() -> None:
    torch.manual_seed(0)
    H = SO2()
    lam = Likelihood(H, 1, initial=lambda h: 1.5 * h[:, 0, 0])
    elements, _, _ = plane_elements(H, points=24)
    model = layer(H, lam)
    errors = pscnn.layer_errors(model, torch.randn(8, 1, 15, 15), elements)["0"]
    assert agreement(lam, errors, elements) < -0.9
    assert np.isnan(agreement(Likelihood(H, 1), errors, elements))


@pytest.mark.parametrize("group", [C(4), D(4), SO2(), O2()], ids=lambda g: g.name)
def test_figures_have_a_row_per_layer_and_a_column_per_domain(group: Group) -> None:
    model = torch.nn.Sequential(*layer(group, random_likelihood(group)), torch.nn.AdaptiveAvgPool2d(1))
    figure = degree_figure(model, torch.randn(2, 1, 9, 9), points=8)
    panels = [axis for axis in figure.axes if axis.get_title()]
    wanted = ["rotations", "reflections"] if group in (D(4), O2()) else ["rotations"]
    assert [axis.get_title() for axis in panels] == wanted
    with pytest.raises(ValueError, match="no learnt densities"):
        degree_figure(torch.nn.Linear(1, 1), torch.randn(1, 1))


def test_layers_without_densities_are_drawn_with_their_errors() -> None:
    torch.manual_seed(0)
    fields = FieldType(O2(), [O2().vector])
    model = torch.nn.Sequential(nn.Conv2d(fields, fields, 3, likelihood=Mixture(O2(), 2)))
    figure = degree_figure(model, torch.randn(2, 2, 9, 9), points=8)
    assert [axis.get_title() for axis in figure.axes] == ["rotations", "reflections"]
    assert "not equivariant" in figure.axes[-1].texts[0].get_text()
    space = FieldType(O3(), [O3().vector])
    model = torch.nn.Sequential(nn.Conv3d(space, space, 3, likelihood=Mixture(O3(), 1)))
    (axis,) = agreement_figure(model, torch.randn(2, 3, 5, 5, 5), points=12).axes
    assert axis.get_xlabel() == "angle (°)"
    assert sum(len(np.asarray(line.get_xdata())) for line in axis.lines) == 12

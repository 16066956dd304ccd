from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import random_likelihood

from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, O3, SO3, Group, axis_angle
from pscnn.report import agreement_figure, density_figure, sphere_figure
from pscnn.report._spheres import ANGLES, sphere_maps


def test_axis_angle_turns_about_the_axis() -> None:
    axes = np.array([[0.0, 0.0, 1.0], [0.6, 0.0, 0.8]])
    turned = axis_angle(axes, 0.3)
    np.testing.assert_allclose(np.einsum("nij,nj->ni", turned, axes), axes, atol=1e-12)
    np.testing.assert_allclose(turned[0, :2, :2], [[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    np.testing.assert_allclose(np.trace(turned[1]), 1 + 2 * np.cos(0.3))
    assert SO3().contains(turned)


@pytest.mark.parametrize("group", [SO3(), O3()], ids=lambda g: g.name)
def test_maps_show_the_density_at_their_axis_and_angle(group: Group) -> None:
    lam = random_likelihood(group)
    longitude, latitude, maps = sphere_maps(lam, points=8)
    assert list(maps) == (["rotations", "with inversion"] if group == O3() else ["rotations"])
    a, b, k = 3, 5, 2
    axis = [np.cos(latitude[a]) * np.cos(longitude[b]), np.cos(latitude[a]) * np.sin(longitude[b]), np.sin(latitude[a])]
    for name, found in maps.items():
        element = axis_angle(np.array([axis]), np.radians(ANGLES[k])) * (1 if name == "rotations" else -1)
        assert found[k][a, b] == pytest.approx(lam.density(element).item(), rel=1e-5)
        assert np.ptp(found[0]) < 1e-5  # a rotation by 0° has no axis


@pytest.mark.parametrize("group", [SO3(), O3()], ids=lambda g: g.name)
@pytest.mark.parametrize("uniform", [True, False])
def test_figures_have_a_row_per_parity(group: Group, uniform: bool) -> None:
    lam = Likelihood(group, 1) if uniform else random_likelihood(group, 1)
    rows = 2 if group == O3() else 1
    maps = [axis for axis in sphere_figure(lam).axes if axis.name == "mollweide"]
    assert len(maps) == rows * len(ANGLES)
    markers = sum(len(axis.lines) for axis in maps)
    assert markers == (0 if uniform else 2 * rows)


def test_other_groups_have_no_maps() -> None:
    with pytest.raises(ValueError, match=r"exist for SO\(3\) and O\(3\), not for O\(2\)"):
        sphere_figure(Likelihood(O2()))


def test_a_network_in_space_is_drawn_layer_by_layer() -> None:
    fields = FieldType(O3(), [O3().vector])
    layers = [nn.Linear(fields, fields, likelihood=random_likelihood(O3(), 1, scale=0.3)) for _ in range(2)]
    model = torch.nn.Sequential(*layers)
    labels = [axis.get_ylabel() for axis in density_figure(model).axes if axis.get_ylabel()]
    assert labels == [f"layer {k}\n{kind}" for k in (1, 2) for kind in ("rotations", "with inversion")] + ["density λ"]
    figure = agreement_figure(model, torch.randn(4, 3), points=20)
    assert [axis.get_title() for axis in figure.axes] == ["layer 1 (0)", "layer 2 (1)"]
    assert sum(len(np.asarray(line.get_xdata())) for line in figure.axes[0].lines) == 20
    assert "ρ = −" in figure.axes[0].texts[0].get_text().replace("-", "−")
    with pytest.raises(ValueError, match="no learnt densities"):
        agreement_figure(torch.nn.Linear(3, 3), torch.randn(4, 3))

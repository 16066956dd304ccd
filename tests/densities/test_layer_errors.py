from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import GROUPS, convolution, grid_elements, irrep_type, random_likelihood

import pscnn
from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, C, Group, rotation
from pscnn.models import Relaxed, advance


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
def test_errors_of_linear_layers_are_those_of_their_matrix(group: Group) -> None:
    fields = irrep_type(group)
    layer = nn.Linear(fields, fields, likelihood=random_likelihood(group), bias=False).double()
    x = torch.randn(5, fields.size, dtype=torch.float64)
    elements = group.sample(4, seed=0)
    errors = pscnn.layer_errors(layer, x, elements)[""]
    kernel = layer.kernel().detach()
    for h, value in zip(elements, errors.error, strict=True):
        rho = torch.as_tensor(fields.matrix(h))
        wrong = (x @ (rho @ kernel - kernel @ rho).T).norm(dim=1) / (x @ kernel.T).norm(dim=1)
        torch.testing.assert_close(value, wrong.mean())
    torch.testing.assert_close(errors.measured, errors.error)
    assert errors.twin.max() < 1e-10
    assert errors.interpolation.max() < 1e-10


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
def test_uniform_densities_add_nothing(group: Group) -> None:
    scalar = FieldType(group, [group.trivial])
    layer = convolution(scalar, irrep_type(group), 3, padding=1, likelihood=Likelihood(group)).double()
    x = torch.randn(2, 1, *[7] * group.dimension, dtype=torch.float64)
    elements = np.concatenate([grid_elements(group), group.sample(3, seed=1)])
    errors = pscnn.layer_errors(layer, x, elements)[""]
    assert errors.difference.abs().max() < 1e-10
    on_grid = len(grid_elements(group))
    assert errors.error.max() < 1e-10
    assert errors.measured[:on_grid].max() < 1e-10
    assert errors.interpolation[:on_grid].max() < 1e-10


def test_what_a_density_keeps_has_no_error_and_the_rest_has() -> None:
    H = O2()
    likelihood = random_likelihood(H, keep=C(2))
    layer = nn.Conv2d(FieldType(H, [H.trivial]), irrep_type(H), 3, padding=1, likelihood=likelihood).double()
    x = torch.randn(4, 1, 9, 9, dtype=torch.float64)
    half_turn, quarter = rotation(np.pi), rotation(np.pi / 2)
    errors = pscnn.layer_errors(layer, x, np.stack([half_turn, quarter]))[""]
    assert errors.error[0] < 1e-10
    assert errors.error[1] > 0.01


def test_layers_are_measured_on_what_they_receive_and_the_mode_is_kept() -> None:
    H = O2()
    gate = nn.GatedNonlinearity(FieldType(H, 2 * [H.irrep(0, 0) + H.irrep(1, 1)]))
    model = torch.nn.Sequential(
        nn.Conv2d(FieldType(H, [H.trivial]), gate.in_type, 3, likelihood=random_likelihood(H)),
        nn.BatchNorm(gate.in_type),
        gate,
        nn.Conv2d(gate.out_type, FieldType(H, [H.trivial]), 3, likelihood=random_likelihood(H)),
    )
    x = torch.randn(3, 1, 11, 11)
    elements = H.sample(3, seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    errors = pscnn.layer_errors(model, x, elements)
    assert list(errors) == ["0", "3"]
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.eval()
    with torch.no_grad():
        received = model[:3](x)
    alone = pscnn.layer_errors(model[3], received, elements)[""]
    torch.testing.assert_close(errors["3"].error, alone.error)


def test_kernels_are_those_of_eval_mode() -> None:
    H = C(4)
    fields = FieldType(H, 2 * [H.vector])
    layer = nn.Conv2d(fields, fields, 3, padding=1, likelihood=Relaxed(H, 2))
    advance(layer, 5, 11)  # in the middle of training free, in eval mode equivariant
    errors = pscnn.layer_errors(layer.train(), torch.randn(2, 4, 9, 9), H.sample(3, seed=1))[""]
    assert layer.training
    assert pscnn.degree(layer)[""] > 0.1
    assert errors.error.max() < 1e-5


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
def test_turning_the_kernel_is_turning_the_image_where_the_grid_allows_it(group: Group) -> None:
    fields = irrep_type(group, 1)
    layer = convolution(fields, fields, 3, padding=1, likelihood=random_likelihood(group)).double()
    x = torch.randn(2, fields.size, *[5] * group.dimension, dtype=torch.float64)
    errors = pscnn.layer_errors(layer, x, grid_elements(group)[:8])[""]
    torch.testing.assert_close(errors.error, errors.measured, atol=1e-10, rtol=1e-8)


def test_the_grid_can_be_left_out() -> None:
    H = C(4)
    fields = FieldType(H, [H.regular])
    layer = nn.Conv2d(fields, fields, 3, likelihood=random_likelihood(H))
    x, elements = torch.randn(2, 4, 9, 9), H.sample(3, seed=0)
    whole = pscnn.layer_errors(layer, x, elements)[""]
    quick = pscnn.layer_errors(layer, x, elements, on_grid=False)[""]
    assert torch.equal(quick.error, whole.error)
    assert quick.measured.isnan().all()
    assert quick.difference.isnan().all()
    assert whole.measured.isfinite().all()

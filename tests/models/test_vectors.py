from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import grid_elements

import pscnn
from pscnn import FieldType
from pscnn.groups import direct_sum, parse
from pscnn.models import DetachedBatchNorm, FreeProjection, build
from pscnn.training import make_settings, refresh_statistics, task_of

GROUPS = ["C1", "C4", "D3", "SO(2)", "O(2)", "SO(3)", "O(3)"]


def settled(model: torch.nn.Module, group: str) -> tuple[torch.nn.Module, torch.Tensor]:
    x = torch.randn(32, parse(group).dimension, dtype=torch.float64)
    model = model.double()
    assert isinstance(model, torch.nn.Sequential)
    bias = model[-1].bias
    assert isinstance(bias, torch.Tensor)
    with torch.no_grad():
        bias.fill_(1.0)  # errors are relative: an answer of zero has none
    model(x)
    return model.eval(), x


@pytest.mark.parametrize("method", ["e-mlp", "pe-mlp", "preliminary"])
@pytest.mark.parametrize("name", GROUPS)
def test_gated_networks_start_invariant(name: str, method: str) -> None:
    group = parse(name)
    model, x = settled(build("vectors", method, name, bandlimit=2), name)
    elements = group.sample(8, seed=0)
    pscnn.testing.assert_equivariant(
        model, x, elements, 1e-9, FieldType(group, [group.vector]), FieldType(group, 2 * [group.trivial])
    )


@pytest.mark.parametrize("name", ["C4", "D3", "SO(2)", "O(2)"])
def test_fourier_networks_start_invariant_where_samples_map_to_samples(name: str) -> None:
    group = parse(name)
    model, x = settled(build("vectors", "pe-mlp", name, nonlinearity="fourier"), name)
    elements = group.sample(4, seed=0) if group.order else grid_elements(group)
    pscnn.testing.assert_equivariant(
        model, x, elements, 1e-9, FieldType(group, [group.vector]), FieldType(group, 2 * [group.trivial])
    )


def test_a_gated_equivariant_network_can_only_answer_with_a_constant() -> None:
    model, x = settled(build("vectors", "e-mlp"), "O(2)")
    assert model(x).std(0).max() < 1e-12
    model, x = settled(build("vectors", "e-mlp", nonlinearity="fourier"), "O(2)")
    assert model(x).std(0).max() > 1e-3


def test_densities_are_one_per_layer_or_shared() -> None:
    assert len(pscnn.likelihoods(build("vectors", "pe-mlp"))) == 3
    model = build("vectors", "pe-mlp", shared=True)
    assert len(pscnn.likelihoods(model)) == 1
    layers = [m for m in model if isinstance(m, pscnn.nn.Linear)]
    assert len({id(layer.likelihood) for layer in layers}) == 1


def test_free_projections_are_a_weight_per_pair_of_copies_times_a_matrix_per_pair_of_irreps() -> None:
    H = parse("O(2)")
    a, b = H.irrep(0, 0) + H.irrep(1, 1), H.irrep(1, 1) + H.irrep(1, 0)
    layer = FreeProjection(FieldType(H, [a, b]), FieldType(H, [b, a, a]), noise=0.5)
    sources, targets = [*a.irreps, *b.irreps], [*b.irreps, *a.irreps, *a.irreps]
    kinds_in, kinds_out = list(dict.fromkeys(sources)), list(dict.fromkeys(targets))
    expected, row = torch.zeros(9, 6), 0
    for j, out in enumerate(targets):
        column = 0
        for i, inn in enumerate(sources):
            matrix = layer.matrices[kinds_out.index(out) * len(kinds_in) + kinds_in.index(inn)]
            expected[row : row + out.size, column : column + inn.size] = layer.weight[j, i] * matrix
            column += inn.size
        row += out.size
    torch.testing.assert_close(layer.kernel(), expected)
    x = torch.randn(4, 6)
    torch.testing.assert_close(layer(x), x @ expected.T)
    assert layer.bias is not None
    with torch.no_grad():
        layer.bias.fill_(1.0)
    constant = layer(torch.zeros(1, 6))[0]
    assert constant.tolist() == [0, 0, 0, 1, 0, 0, 1, 0, 0]


def test_without_noise_the_preliminary_network_stays_stuck_and_with_noise_it_does_not() -> None:
    x = torch.randn(64, 2)
    for noise, stuck in ((0.0, True), (0.01, False)):
        torch.manual_seed(0)
        model = build("vectors", "preliminary", noise=noise)
        angle = model(x)[:, 1]
        (angle.cos() - x[:, 1] / x.norm(dim=1)).square().mean().backward()
        gradient = max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None)
        assert (gradient == 0) == stuck


def test_preliminary_layers_need_irreps() -> None:
    C4 = parse("C4")
    regular = FieldType(C4, [C4.regular])
    with pytest.raises(ValueError, match="must be sums of irreps"):
        FreeProjection(regular, FieldType(C4, [direct_sum([C4.trivial])]))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "scnn"}, ValueError, "unknown method 'scnn' for vectors: use one of mlp, e-mlp"),
        ({"nonlinearity": "relu"}, ValueError, "unknown nonlinearity 'relu'"),
        ({"width": 2}, TypeError, "vectors has no option 'width'; it has bandlimit"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build("vectors", **arguments)


def test_detached_statistics_change_the_gradient_and_not_the_values() -> None:
    H = pscnn.groups.O2()
    norm = pscnn.nn.BatchNorm(pscnn.nn.FieldType(H, [H.trivial + H.irrep(1, 1), H.irrep(1, 2)])).double()
    detached = DetachedBatchNorm(norm.in_type).double()
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(7, 5, dtype=torch.float64)
    y = detached(x)
    assert torch.allclose(y, norm(x))
    assert torch.allclose(detached.running_var, norm.running_var)
    gradient, d_weight = torch.autograd.grad((y * direction).sum(), (x, detached.weight))
    other, other_d_weight = torch.autograd.grad((norm(x) * direction).sum(), (x, norm.weight))
    assert torch.allclose(d_weight, other_d_weight)
    assert not torch.allclose(gradient, other)
    # With the statistics of this batch for good, the layer in eval mode is affine with the same slope.
    frozen = pscnn.nn.BatchNorm(norm.in_type).double()
    refresh_statistics(frozen, x.detach())
    frozen.running_var.mul_(6 / 7)  # running variances are unbiased
    (slope,) = torch.autograd.grad((frozen.eval()(x) * direction).sum(), x)
    assert torch.allclose(gradient, slope)


def test_the_setting_detaches_every_normalisation() -> None:
    for detached in (False, True):
        model = task_of(make_settings({"task": "vectors", "detached": detached})).build()
        kinds = [isinstance(m, DetachedBatchNorm) for m in model.modules() if isinstance(m, pscnn.nn.BatchNorm)]
        assert kinds == [detached] * len(kinds)
        assert kinds

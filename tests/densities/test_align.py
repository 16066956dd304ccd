"""A density can be moved, and the weights with it, without any change of the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers import GROUPS, convolution, irrep_type, random_likelihood

import pscnn
from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, O3, SO2, SO3, C, D, Group


def _layer(likelihood: Likelihood) -> nn.SteerableMap:
    fields = irrep_type(likelihood.group, copies=1)
    return convolution(fields, fields, likelihood=likelihood)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_align_moves_the_peak_and_nothing_else(group: Group) -> None:
    layer = _layer(random_likelihood(group, scale=0.7 if group.dimension == 2 else 0.25))
    layer.double()
    lam = layer.likelihood
    assert isinstance(lam, Likelihood)
    elements = group.sample(50, seed=3)
    kernel, old = layer.kernel(), lam.density(elements)
    (peak,) = pscnn.align(layer).values()
    # In space the quadrature of a density is not exact, and it matters a little which way the density lies on its grid.
    tolerance = 1e-10 if group.dimension == 2 else 1e-7
    assert torch.allclose(layer.kernel(), kernel, atol=tolerance)
    # λ'(g) = λ(g·h): the same values elsewhere.
    moved = lam.density(elements @ np.linalg.inv(peak))
    assert torch.allclose(moved, old, rtol=1e-6)
    dense = group.sample(20_000, seed=4) if group.order is None else group.quadrature(0)[0]
    top = lam.density(group.identity).item()
    assert lam.density(dense).max().item() <= top * (1 + 1e-6)
    assert lam.alignment_error().item() <= 1e-5 * top


@pytest.mark.parametrize("group", [SO2(), O2(), SO3(), O3()], ids=str)
def test_the_peak_is_where_the_logits_were_put(group: Group) -> None:
    element = group.sample(3, seed=1)[2]
    lam = Likelihood(group, 2, initial=lambda g: np.einsum("nij,ij->n", g, element))
    assert np.allclose(lam.peak(), element, atol=1e-4)


def test_a_uniform_density_stays() -> None:
    layer = _layer(Likelihood(O2(), 2))
    before = layer.weight.clone()
    (peak,) = pscnn.align(layer).values()
    assert np.array_equal(peak, np.eye(2))
    assert torch.equal(layer.weight, before)


@pytest.mark.parametrize("options", [{"keep": C(2)}, {"support": SO2()}, {"support": D(4)}, {"lowest": 2}], ids=str)
def test_what_a_density_must_keep_it_keeps(options: dict[str, Any]) -> None:
    def logits(g: np.ndarray) -> np.ndarray:
        return 3 * g[:, 0, 1] + 0.7 * (g[:, 0, 0] ** 2 - g[:, 0, 1] ** 2) - 1.5 * g[:, 0, 0] * g[:, 0, 1]

    layer = _layer(Likelihood(O2(), 2, initial=logits, **options)).double()
    kernel, lam = layer.kernel(), layer.likelihood
    assert isinstance(lam, Likelihood)
    (peak,) = pscnn.align(layer).values()
    assert not np.allclose(peak, np.eye(2))
    assert torch.allclose(layer.kernel(), kernel, atol=1e-10)
    assert lam.alignment_error().item() < 1e-5
    if "keep" in options:
        h = O2().sample(9, seed=0)
        assert torch.allclose(lam.density(-h), lam.density(h))


def test_a_shared_density_moves_once_with_all_its_layers() -> None:
    H = O2()
    lam = random_likelihood(H)
    fields = FieldType(H, 2 * [H.trivial + H.irrep(1, 1)])
    model = torch.nn.Sequential(
        nn.Linear(fields, fields, likelihood=lam),
        nn.NormNonlinearity(fields),
        nn.Linear(fields, fields, likelihood=lam),
    ).double()
    x = torch.randn(5, fields.size, dtype=torch.float64)
    before = model(x)
    assert len(pscnn.align(model)) == 1
    assert torch.allclose(model(x), before)
    assert np.allclose(pscnn.align(model)["0"], np.eye(2), atol=1e-5)


def test_a_density_aligned_by_construction_is_left_alone() -> None:
    lam = Likelihood(SO3(), 2, alignment="construction")
    layer = _layer(lam)
    assert np.array_equal(next(iter(pscnn.align(layer).values())), np.eye(3))
    with pytest.raises(ValueError, match="aligned by construction"):
        lam.translate(np.eye(3))


def test_only_elements_can_move_a_density() -> None:
    with pytest.raises(ValueError, match="one element of SO"):
        Likelihood(SO2(), 2).translate(np.diag([1.0, -1.0]))
    with pytest.raises(ValueError, match="one element of SO"):
        Likelihood(SO2(), 2).translate(np.eye(3))


def test_the_first_density_can_follow_the_uniform_one() -> None:
    first, second, third = densities = [random_likelihood(O2()) for _ in range(3)]
    model = torch.nn.ModuleList(densities)
    with torch.no_grad():
        expected = (first.kl(None) + second.kl(first) + third.kl(second)) / 3
        assert torch.allclose(pscnn.regularization(model, uniform_first=True).kl, expected)
        assert not torch.allclose(pscnn.regularization(model).kl, expected)

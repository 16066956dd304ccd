"""Parts taken from the paper's released code, each against a direct computation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, SO2, C, Group, Irrep, direct_sum
from pscnn.kernels import SteerableBasis, slots
from pscnn.models._released import CoarseLikelihood, DetachedBatchNorm, ThresholdGate, rescale


@pytest.mark.parametrize("group", [SO2(), O2(), C(4)], ids=str)
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_sampling_interpolates_the_density_on_few_nodes(group: Group, level: int) -> None:
    lam = CoarseLikelihood(group, level).double()
    with torch.no_grad():
        lam.coefficients.normal_(0, 0.8)
    nodes, _ = lam.grid()
    if group.order is None:
        angles = 2 * np.pi * np.arange(2 * level + 1) / (2 * level + 1)
        turns = np.stack([[np.cos(a), -np.sin(a), np.sin(a), np.cos(a)] for a in angles]).reshape(-1, 2, 2)
        mirrored = [turns @ np.diag([-1, 1])] if group == O2() else []
        np.testing.assert_allclose(nodes, np.concatenate([turns, *mirrored]), atol=1e-12)
    functions = group.functions(level)
    a = functions.sample(nodes)
    logits = a[:, 1:] @ lam.coefficients.detach().numpy()
    density = np.exp(logits - logits.max())
    density /= density.mean()
    np.testing.assert_allclose(lam.density(nodes).detach(), density, atol=1e-9)
    coefficients = np.linalg.lstsq(a, density, rcond=None)[0]
    fine, fine_weights = group.quadrature(64)
    between = functions.sample(fine) @ coefficients * fine_weights
    for psi, found in lam.moments().items():
        np.testing.assert_allclose(found.detach(), np.einsum("n,nab->ab", between, psi.matrices(fine)), atol=1e-7)
    # The KL divergence in Fourier space: coefficients of the density times those of the logits, minus the normaliser.
    log_mean = np.log(np.exp(logits).mean())
    assert lam.kl().item() == pytest.approx(coefficients[1:] @ lam.coefficients.detach().numpy() - log_mean, abs=1e-7)
    exact = Likelihood(group, level).double()
    exact.coefficients = lam.coefficients
    apart = (exact.flat_moments() - lam.flat_moments()).abs().max().item()
    assert apart < 1e-7 if group.order or level == 0 else apart > 1e-3


def fields() -> FieldType:
    return FieldType(O2(), 5 * [direct_sum(list(O2().irreps(2)))])


def test_gates_have_a_threshold() -> None:
    layer = ThresholdGate(fields())
    assert layer.threshold.numel() == 20  # four irreps in each of five fields
    x = torch.randn(3, layer.in_type.size, 4, 4)
    found = layer(x).view(3, 5, 6, 4, 4)
    for k in range(5):
        gates, features = x.view(3, 5, 10, 4, 4)[:, k].split([4, 6], 1)
        opened = (gates - layer.threshold.view(5, 4)[k, :, None, None]).sigmoid()
        expected = torch.cat(
            [features[:, :2] * opened[:, :2], features[:, 2:4] * opened[:, 2:3], features[:, 4:] * opened[:, 3:]], 1
        )
        torch.testing.assert_close(found[:, k], expected)


def test_batch_statistics_are_constants_of_the_gradient() -> None:
    gated = nn.GatedNonlinearity(fields()).in_type
    layer, ours = DetachedBatchNorm(gated).double(), nn.BatchNorm(gated).double()
    with torch.no_grad():
        for parameter, other in zip(layer.parameters(), ours.parameters(), strict=True):
            other.copy_(parameter.normal_())
    x = torch.randn(6, gated.size, 3, 3, dtype=torch.float64).requires_grad_()
    weights = torch.randn_like(x)

    trivial = torch.tensor([1, 1, 1, 1, 1, 0, 0, 0, 0, 0], dtype=torch.bool).repeat(5)  # four gates and (0, 0)
    mean = x.mean((0, 2, 3)).detach() * trivial
    centred = x - mean.view(-1, 1, 1)
    variance = centred.detach().square().mean((0, 2, 3)).view(5, 10).mean(1).repeat_interleave(10)
    shift = torch.zeros(50, dtype=torch.float64).masked_scatter(trivial, layer.bias)
    scale = layer.weight.repeat_interleave(10) / (variance + layer.eps).sqrt()
    expected = centred * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)
    inputs = [x, layer.weight, layer.bias]
    wanted = torch.autograd.grad((expected * weights).sum(), inputs)
    found = layer(x)
    torch.testing.assert_close(found, expected)
    got = torch.autograd.grad((found * weights).sum(), inputs)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)

    same = ours(x)
    torch.testing.assert_close(same, found)
    through = torch.autograd.grad((same * weights).sum(), [x])[0]
    assert (through - got[0]).abs().max() > 1e-2  # ours has the statistics' share
    assert all(torch.equal(a, b) for a, b in zip(layer.buffers(), ours.buffers(), strict=True))


def one_by_one(layer: nn.SteerableMap) -> Iterator[tuple[int, Tensor]]:
    """Every weight between the first copies, with the kernel that it alone gives when no slot is silenced."""
    weights = layer.weight.detach().clone()
    for k in range(layer.tile_weights()[0].shape[1]):
        with torch.no_grad():
            layer.weight.copy_(torch.nn.functional.one_hot(torch.tensor(k), len(weights)).to(weights))
            yield k, layer.expand(None)
    with torch.no_grad():
        layer.weight.copy_(weights)


def span(irreps: Sequence[Irrep], channel: int) -> Irrep:
    starts = np.cumsum([psi.size for psi in irreps])
    return irreps[int(np.searchsorted(starts, channel, side="right"))]


@pytest.mark.parametrize("size", [1, 3])
def test_weights_follow_the_generalised_he_scheme(size: int) -> None:
    group, copies = O2(), 3
    irreps = group.irreps(2)
    moments = group.irreps(1)
    source = FieldType(group, copies * [direct_sum(list(irreps[:3]))])
    layer = nn.Conv2d(
        source, FieldType(group, 2 * [direct_sum(list(irreps))]), size, likelihood=Likelihood(group, 1)
    ).double()
    before = layer.weight.detach().clone()
    rescale(layer)
    ratio = layer.weight.detach() / before * (1 / math.sqrt(source.size * size**2))

    steerable = SteerableBasis(group, size)
    received = {
        (out, inn): copies * sum(len(slots(out, inn, j, i)) * i.size for j in steerable.irreps for i in moments)
        for out in irreps
        for inn in irreps[:3]
    }
    assert len(layer.bases()) == 1
    for k, kernel in one_by_one(layer):
        row, column = (int(kernel.abs().sum(axes).argmax()) for axes in ((1, 2, 3), (0, 2, 3)))
        out, inn = span(irreps, row), span(irreps[:3], column)
        kinds = sum(received[out, other] > 0 for other in irreps[:3])
        assert ratio[k].item() == pytest.approx(1 / math.sqrt(kinds * received[out, inn]), rel=1e-9)
        if size == 1:  # one harmonic, the constant 1: d_J √d_i
            assert kernel.norm().item() / out.size == pytest.approx(1, abs=1e-9) or kernel.norm().item() / (
                out.size
            ) == pytest.approx(math.sqrt(2), abs=1e-9)


def test_variances_of_the_weights_at_the_start() -> None:
    """From ten copies of one kind of irrep, all weights to an output have the variance 1 / number."""
    group = O2()
    source, target = FieldType(group, 30 * [group.irrep(1, 1)]), FieldType(group, 40 * [group.trivial])
    layer = nn.Conv2d(source, target, 3, likelihood=Likelihood(group, 2))
    rescale(layer)
    assert layer.weight.var().item() == pytest.approx(40 / layer.weight.numel(), rel=0.05)


def test_basis_kernels_are_not_normalised() -> None:
    """The equivariant kernels from a scalar to a vector: d_J = 2 times (cos φ, sin φ)/√2 on a ring."""
    group = O2()
    layer = nn.Conv2d(
        FieldType(group, [group.trivial]), FieldType(group, [group.vector]), 3, likelihood=Likelihood(group, 2)
    )
    rescale(layer)
    found = [kernel[:, 0, 1, 2].norm().item() for k, kernel in one_by_one(layer) if k == 0]  # the pixel to the right
    assert found == [pytest.approx(2 / math.sqrt(2), rel=1e-6)]
    plain = nn.Conv2d(FieldType(group, [group.trivial]), FieldType(group, [group.vector]), 3)
    rescale(plain)
    for _, kernel in one_by_one(plain):
        torch.testing.assert_close(kernel.square().sum((1, 2, 3)), torch.ones(2))  # unit power per channel


@pytest.mark.parametrize("density", [True, False])
def test_bases_that_are_expanded_irrep_by_irrep_are_scaled_alike(
    density: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    powers = []
    for limit in (2**20, 0):
        monkeypatch.setattr("pscnn.nn._slot_kernel.DENSE_LIMIT", limit)
        layer = nn.Conv2d(fields(), fields(), 3, likelihood=Likelihood(O2(), 2) if density else None)
        assert (len(layer.bases()) == 1) == (limit > 0)
        torch.nn.init.constant_(layer.weight, 1 / math.sqrt(layer.in_type.size * 9))
        rescale(layer)
        parts = zip(layer.tile_weights(), layer.constants("basis"), strict=True)
        powers.append(sum((w.square().sum(0) @ b.square().sum(1)).item() for w, b in parts))
    assert powers[0] == pytest.approx(powers[1], rel=1e-5)

"""Forecasting networks: their sizes, their symmetry, and where each loses it."""

from __future__ import annotations

import pytest
import torch
from helpers import FLOW_SIZES
from torch import Tensor

from pscnn import likelihoods, models, nn
from pscnn.groups import SO2, C
from pscnn.models import FLOW_METHODS
from pscnn.models._flows import Lift, LocallyConnected, RelaxedGroupConvolution, RelaxedSteerable


def size(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def turned(field: Tensor) -> Tensor:
    """Vector fields turned from x to y, y pointing up: pixels move, and the components of every frame with them."""
    x, y = field.rot90(1, (2, 3)).unflatten(1, (-1, 2)).unbind(2)
    return torch.stack([-y, x], 2).flatten(1, 2)


def error(model: torch.nn.Module) -> float:
    """How far a quarter turn before is from one after, as a share of the output."""
    x = torch.randn(2, 20, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        one, two = model(turned(x)), turned(model(x))
    return ((one - two).norm() / two.norm()).item()


def penalty(model: torch.nn.Module) -> float:
    found = models.penalty(model)
    assert found is not None
    return found.item()


def network(method: str, group: str = "C4", **options: object) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return models.build("flow", method, group, hidden=4, size=(9, 9), **options).double()


def test_relaxed_kernels_start_as_large_as_plain_ones() -> None:
    torch.manual_seed(0)
    layers = [m for m in models.build("flow", "rsteer", "C4", hidden=40) if isinstance(m, RelaxedSteerable)]
    assert len(layers) == 5
    for layer in layers:
        x = torch.randn(50, layer.in_type.size, 8, 8)
        plain = torch.nn.Conv2d(layer.in_type.size, layer.out_type.size, 3, padding=1)
        assert layer(x).std().item() == pytest.approx(plain(x).std().item(), rel=0.2)


@pytest.mark.parametrize("method", FLOW_SIZES)
def test_sizes_are_those_published(method: str) -> None:
    grids = ((92, (64, 64)), (16, (62, 23)))
    found = tuple(size(models.build("flow", method, "C4", hidden=h, size=grid)) for h, grid in grids)
    assert found == FLOW_SIZES[method]


@pytest.mark.parametrize("method", FLOW_METHODS)
def test_every_method_gives_the_next_frame_and_overfits(method: str) -> None:
    group = "SO(2)" if method in ("fixed", "augerino") else "C4"  # whose angles they need
    model = network(method, group).float()
    x, y = torch.randn(4, 20, 9, 9), torch.randn(4, 2, 9, 9)
    assert model(x).shape == y.shape
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(200):
        optimiser.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimiser.step()
    first = (network(method, group).float()(x) - y).square().mean()
    assert loss < 0.6 * first


def test_equivariant_networks_turn_vector_fields() -> None:
    assert error(network("e2cnn")) < 1e-12
    assert error(network("p-scnn")) < 1e-12
    assert error(network("p-scnn", "SO(2)")) < 1e-12
    assert error(network("cnn")) > 0.1


@pytest.mark.parametrize("group", ["C4", "SO(2)"])
def test_a_learnt_density_breaks_the_symmetry(group: str) -> None:
    model = network("p-scnn", group)
    assert len(likelihoods(model)) == 5
    for likelihood in likelihoods(model).values():
        torch.nn.init.normal_(likelihood.coefficients, 0, 0.5)
    assert error(model) > 0.01


def test_summed_pathways_are_equivariant_without_the_free_one() -> None:
    model = network("rpp")
    assert error(model) > 0.1
    for module in model.modules():
        if isinstance(module, models.ResidualPathway):
            torch.nn.init.zeros_(module.free.weight)
            assert module.free.bias is not None
            torch.nn.init.zeros_(module.free.bias)
    assert error(model) < 1e-12
    assert penalty(model) == 0


def test_relaxed_steerable_is_equivariant_while_pixels_agree() -> None:
    model = network("rsteer")
    assert error(model) > 0.1
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, RelaxedSteerable):
                module.weight.copy_(module.weight[..., :1].expand_as(module.weight))
                module.bias.zero_()  # one per channel, which no symmetry allows
    assert error(model) < 1e-12
    assert penalty(model) < 1e-12


def test_relaxed_group_convolutions_are_equivariant_while_turns_agree() -> None:
    """To turns of scalar images: the published network takes components for scalars."""
    model = network("rgroup")
    x = torch.randn(2, 20, 9, 9, dtype=torch.float64)

    def scalar_error() -> float:
        with torch.no_grad():
            return (model(x.rot90(1, (2, 3))) - model(x).rot90(1, (2, 3))).abs().max().item()

    assert scalar_error() < 1e-12
    for module in model.modules():
        if isinstance(module, RelaxedGroupConvolution):
            torch.nn.init.normal_(module.mixing)
    assert scalar_error() > 1e-3


def test_features_of_the_whole_image_break_the_symmetry_and_nothing_else_does() -> None:
    model = network("lift").eval()
    assert error(model) > 1e-3
    assert isinstance(model[0], Lift)
    last = model[0].encoder[-1]
    assert isinstance(last, torch.nn.Linear)
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.zeros_(last.bias)
    assert error(model) < 1e-12


def test_locally_connected_layers_are_equivariant_while_turned_kernels_agree() -> None:
    model = network("clcnn")
    x = torch.randn(2, 20, 9, 9, dtype=torch.float64)
    assert penalty(model) > 0
    with torch.no_grad():
        assert (model(x.rot90(1, (2, 3))) - model(x).rot90(1, (2, 3))).abs().max() > 1e-3
        for k in range(0, len(model), 2):
            layer = model[k]
            assert isinstance(layer, LocallyConnected)
            w = layer.weight
            w.copy_(torch.stack([w.rot90(g, (2, 3)).rot90(g, (4, 5)) for g in range(4)]).mean(0))
        assert (model(x.rot90(1, (2, 3))) - model(x).rot90(1, (2, 3))).abs().max() < 1e-12
    assert penalty(model) < 1e-20


def test_wrong_requests_are_named() -> None:
    with pytest.raises(ValueError, match="unknown method 'gru' for flows"):
        models.build("flow", "gru", "C4")
    for group in (SO2(), C(4)):
        first = models.build("flow", group=group, hidden=2)[0]
        assert isinstance(first, nn.Conv2d)
        assert first.in_type.group == group

"""Networks for volumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers import grid_elements

import pscnn
from pscnn.groups import O3, SO3, Group, parse
from pscnn.models import ParallelPathway, build, penalty, twin
from pscnn.nn import FieldType


def network(method: str, group: Group | str, **options: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return build("medmnist3d", method, group, **{"width": 1, "size": 16, **options}).double().eval()


def moved(x: torch.Tensor, group: Group, element: np.ndarray) -> torch.Tensor:
    return FieldType(group, [group.trivial]).transform(x, element)


@pytest.mark.parametrize("nonlinearity", ["gated", "fourier"])
@pytest.mark.parametrize("group", [SO3(), O3()], ids=str)
def test_equivariant_networks_are_invariant_to_the_cube(group: Group, nonlinearity: str) -> None:
    model = network("scnn", group, nonlinearity=nonlinearity)
    x = torch.randn(1, 1, 16, 16, 16, dtype=torch.float64)
    elements = grid_elements(group)
    assert len(elements) == (24 if group == SO3() else 48)
    with torch.no_grad():
        batch = torch.cat([moved(x, group, h) for h in elements])
        y = model(batch)
    assert y.std() > 1e-4
    assert torch.allclose(y, y[:1].expand_as(y), atol=1e-10)


@pytest.mark.parametrize("nonlinearity", ["gated", "fourier"])
@pytest.mark.parametrize("name", ["SO(2)@z", "D(4)@x, turn", "C(2)@(1, 1, 0)"])
def test_groups_about_an_axis_are_kept_and_no_more(name: str, nonlinearity: str) -> None:
    model, group = network("scnn", name, nonlinearity=nonlinearity), parse(name)
    x = torch.randn(1, 1, 16, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        y = model(x)
        for h in grid_elements(O3()):
            assert torch.allclose(model(moved(x, O3(), h)), y, atol=1e-10) == group.contains(h)


def test_rotations_alone_do_not_bring_reflections() -> None:
    model = network("scnn", SO3())
    x = torch.randn(2, 1, 16, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        assert not torch.allclose(model(x), model(x.flip(2)), atol=1e-6)


@pytest.mark.parametrize("size", [16, 28, 64])
@pytest.mark.parametrize("method", ["cnn", "scnn", "rpp", "p-scnn", "twin"])
def test_every_method_has_every_size(method: str, size: int) -> None:
    model = network(method, SO3(), size=size, classes=3)
    with torch.no_grad():
        assert model(torch.randn(1, 1, size, size, size, dtype=torch.float64)).shape == (1, 3)


def test_the_yardstick() -> None:
    model = network("resnet18", SO3(), classes=11)
    assert sum(p.numel() for p in model.parameters()) == 33_145_419
    with torch.no_grad():
        assert model(torch.randn(1, 1, 16, 16, 16, dtype=torch.float64)).shape == (1, 11)


def test_the_second_layer_of_a_block_shares_its_density_with_the_skip_connection() -> None:
    model = network("p-scnn", SO3())
    assert len(pscnn.likelihoods(model)) == 3
    owners = [m for m in model.modules() if getattr(m, "likelihood", None) is not None]
    assert len(owners) == 6
    assert len({id(m.likelihood) for m in owners}) == 3
    x = torch.randn(2, 1, 16, 16, 16, dtype=torch.float64)
    h = grid_elements(SO3())[5]
    with torch.no_grad():
        before = model(x)
        assert torch.allclose(model(moved(x, SO3(), h)), before, atol=1e-10)  # uniform at first
        for lam in pscnn.likelihoods(model).values():
            lam.coefficients.normal_(0, 0.5)
        assert not torch.allclose(model(moved(x, SO3(), h)), model(x), atol=1e-4)


def test_residual_pathways_span_blocks() -> None:
    model = network("rpp", O3(), width=2)
    blocks = [m for m in model.modules() if isinstance(m, ParallelPathway)]
    assert len(blocks) == 3
    x = torch.randn(2, 1, 16, 16, 16, dtype=torch.float64)
    h = grid_elements(O3())[7]
    with torch.no_grad():
        assert not torch.allclose(model(moved(x, O3(), h)), model(x), atol=1e-6)
        for block in blocks:
            for parameter in block.free.parameters():
                parameter.zero_()
        assert torch.allclose(model(moved(x, O3(), h)), model(x), atol=1e-10)
    expected = 1e-5 * sum(p.square().sum().item() for b in blocks for p in b.equivariant.parameters())
    found = penalty(model)
    assert found is not None
    assert found.item() == pytest.approx(expected)


def test_a_twin_has_the_same_outputs_at_first() -> None:
    model = network("p-scnn", SO3())
    x = torch.randn(1, 1, 16, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(twin(model)(x), model(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "restricted"}, "unknown method 'restricted' for volumes"),
        ({"group": "O(2)"}, "needs a group of space"),
        ({"size": 20}, "side lengths"),
        ({"width": 0}, "width must be positive"),
        ({"nonlinearity": "relu"}, "unknown nonlinearity"),
    ],
)
def test_bad_requests_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build("medmnist3d", **{"method": "scnn", "group": "SO(3)", **options})

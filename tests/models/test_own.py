"""The network for own data: any size, any method, and little that leaks between right angles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch import nn as tnn

import pscnn
from pscnn import FieldType, nn
from pscnn.groups import O2, Group, parse
from pscnn.models import METHODS, build
from pscnn.testing import leak

SMALL: dict[str, Any] = {"width": 0.1, "outputs": 3}
SHAPES = [(8, 8), (28, 28), (29, 29), (17, 30), (90, 75), (9, 9, 9), (8, 12, 9), (25, 25, 25)]


def settled(model: tnn.Module, x: Tensor) -> tnn.Module:
    """In eval mode with statistics of these data."""
    with torch.no_grad():
        for _ in range(5):
            model.train()(x)
    return model.eval()


def elements(group: Group, shape: tuple[int, ...]) -> Tensor:
    from pscnn.densities import grid_elements

    return torch.as_tensor(grid_elements(group, shape))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("output", ["scalars", "vector", "dense"])
def test_every_method_gives_every_kind_of_output_and_trains(method: str, output: str) -> None:
    torch.manual_seed(0)
    model = build("own", method, "O(2)", shape=(12, 12), output=output, **SMALL)
    y = model(torch.randn(3, 1, 12, 12))
    assert y.shape == {"scalars": (3, 3), "vector": (3, 6), "dense": (3, 3, 12, 12)}[output]
    y.square().mean().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


@pytest.mark.parametrize(("shape", "output"), list(zip(SHAPES, 4 * ["scalars", "vector"], strict=True)))
def test_symmetries_of_the_grid_are_exact_at_every_size(shape: tuple[int, ...], output: str) -> None:
    torch.manual_seed(0)
    group = O2() if len(shape) == 2 else parse("O(3)")
    x = torch.randn(2, 2, *shape)
    made = build("own", "p-scnn", group, shape=shape, output=output, channels=2, **SMALL)
    model = settled(made, x).double()
    types = FieldType(group, 2 * [group.trivial]), FieldType(group, 3 * [group.vector])
    out_type = types[1] if output == "vector" else FieldType(group, 3 * [group.trivial])
    found = pscnn.equivariance_error(model, x.double(), elements(group, shape), types[0], out_type)
    assert found.max() < 1e-10
    assert model(x.double()).std() > 1e-3


def test_a_plain_network_is_not_equivariant() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 1, 16, 16)
    model = settled(build("own", "cnn", shape=(16, 16), **SMALL), x)
    types = FieldType(O2(), [O2().trivial]), FieldType(O2(), 3 * [O2().trivial])
    assert pscnn.equivariance_error(model, x, elements(O2(), (16, 16)), *types).min() > 0.01


@pytest.mark.parametrize(("images", "most"), [("smooth", 0.01), ("plus", 0.05)])
def test_between_right_angles_little_leaks(images: str, most: float) -> None:
    torch.manual_seed(0)
    new, old = build("own", "scnn", "O(2)"), build("images", "scnn", "O(2)", size=28, width=0.25, classes=10)
    assert leak(new, images, shape=(28, 28), count=8).worst < most
    assert leak(old, images, shape=(28, 28), count=8).worst > 0.1


def test_positions_can_be_told_apart() -> None:
    torch.manual_seed(0)
    x = torch.zeros(2, 1, 20, 20)
    x[0, 0, 3:6, 9:11] = 1  # above the middle, and below
    x[1, 0, 14:17, 9:11] = 1
    vector = settled(build("own", "scnn", "O(2)", shape=(20, 20), output="vector", outputs=1, width=0.2), x)(x)
    assert torch.allclose(vector[0], -vector[1], atol=1e-5)
    assert vector[0, 1].abs() > 1e-3 > vector[0, 0].abs()


def test_large_images_meet_a_stride_in_the_first_layer() -> None:
    def first(shape: tuple[int, ...]) -> nn.Conv2d:
        return next(m for m in build("own", "scnn", "C4", shape=shape, **SMALL) if isinstance(m, nn.Conv2d))

    assert [first((n, n)).stride for n in (28, 72, 100, 200, 512, 1000)] == [1, 1, 2, 4, 4, 8]


def test_exported_networks_do_the_same() -> None:
    x = torch.randn(2, 1, 13, 16)
    model = settled(build("own", "p-scnn", "O(2)", shape=(13, 16), **SMALL), x)
    assert torch.allclose(nn.export(model)(x), model(x), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": (7, 28)}, r"sides of 8 pixels or more, got \(7, 28\)"),
        ({"shape": (28, 28, 28)}, r"O\(2\) acts on 2 axes, got images of shape \(28, 28, 28\)"),
        ({"output": "words"}, "unknown output 'words': use one of scalars, vector, dense"),
        ({"outputs": 0}, "outputs must be a whole number of 1 or more, got 0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build("own", "p-scnn", "O(2)", **options)


@pytest.mark.parametrize("method", ["cnn", "scnn", "p-scnn", "augment", "twin"])
def test_residual_networks_are_invariant_as_their_method_says(method: str) -> None:
    torch.manual_seed(0)
    model = build("own", method, "D4", shape=(20, 24), channels=3, outputs=4, width=0.1, residual=True).eval()
    x = torch.randn(2, 3, 20, 24)
    difference = float((model(x) - model(x.flip(3))).detach().abs().max())
    assert (difference < 1e-5) == (method in ("scnn", "p-scnn"))
    with pytest.raises(ValueError, match="residual networks have scalar outputs"):
        build("own", method, "D4", shape=(20, 24), outputs=1, output="vector", residual=True)

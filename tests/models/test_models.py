from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import grid_elements

import pscnn
from pscnn import FieldType
from pscnn.groups import parse
from pscnn.models import METHODS, STEERABLE, FreeConvolution, ResidualPathway, build, penalty, twin

GROUPS = ["C1", "C4", "D1", "D4", "SO(2)", "O(2)"]


@pytest.mark.parametrize("size", [56, 28])
@pytest.mark.parametrize("nonlinearity", ["gated", "fourier"])
@pytest.mark.parametrize("method", ["scnn", "p-scnn"])
@pytest.mark.parametrize("name", GROUPS)
def test_networks_start_exactly_invariant(name: str, method: str, nonlinearity: str, size: int) -> None:
    group = parse(name)
    model = build("ddmnist", method, group, nonlinearity=nonlinearity, size=size, width=0.15).double()
    x = torch.randn(2, 1, size, size, dtype=torch.float64)
    model(x)
    model.eval()
    pscnn.testing.assert_equivariant(model, x, grid_elements(group), 1e-10, FieldType(group, [group.trivial]))


@pytest.mark.parametrize("method", ["cnn", "restricted", "rpp", "twin"])
def test_other_methods_are_not_invariant(method: str) -> None:
    group = parse("O(2)")
    model = build("ddmnist", method, group, size=28, width=0.2)
    x = torch.randn(4, 1, 28, 28)
    model(x)
    model.eval()
    error = pscnn.equivariance_error(model, x, grid_elements(group), FieldType(group, [group.trivial]))
    assert error.max() > 1e-4


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("invariant", [True, False])
def test_every_method_gives_scores_and_gradients(method: str, invariant: bool) -> None:
    group = "SO(2)" if method in ("fixed", "augerino") else "C4"  # whose angles they need
    model = build("ddmnist", method, group, size=28, width=0.2, invariant=invariant, classes=7)
    out = model(torch.randn(3, 1, 28, 28))
    assert out.shape == (3, 7)
    out.sum().backward()
    assert all(p.grad is not None for n, p in model.named_parameters())


def test_paper_sizes_of_the_o2_network() -> None:
    model = build("ddmnist", "scnn", "O(2)")
    channels = [m.out_type.size for m in model if isinstance(m, pscnn.nn.GatedBatchNorm)]
    assert channels == [36, 96, 240, 360, 216]
    assert model[-1].in_features == 48
    assert len(pscnn.likelihoods(build("ddmnist", "p-scnn", "O(2)"))) == 6
    assert build("ddmnist", "scnn", "O(2)", invariant=False)[-1].in_features == 120


@pytest.mark.parametrize("nonlinearity", ["gated", "fourier"])
@pytest.mark.parametrize(("network", "group", "width"), [("images", "O(2)", 0.2), ("volumes", "SO(3)", 1)])
def test_the_free_twin_has_the_channels_of_the_equivariant_network(
    network: str, group: str, width: float, nonlinearity: str
) -> None:
    shape = (28, 28) if network == "images" else (16, 16, 16)
    options: dict[str, Any] = {"width": width, "nonlinearity": nonlinearity, "size": shape[0]}
    equivariant, free = (build(network, method, group, **options) for method in ("scnn", "twin"))
    assert not any(isinstance(m, pscnn.nn.SteerableMap) for m in free.modules())
    layers = dict(free.named_modules())
    plain = {
        name: m for name, m in twin(equivariant).named_modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Conv3d)
    }
    assert plain
    for name, layer in plain.items():  # the same windows, too
        assert repr(layers[f"{name.removesuffix('.convolution')}.convolution"]) == repr(layer)
    others = {name: type(m) for name, m in equivariant.named_modules() if not isinstance(m, pscnn.nn.SteerableMap)}
    assert all(type(layers[name]) is kind for name, kind in others.items() if name)
    free(torch.randn(2, 1, *shape)).sum().backward()
    assert all(p.grad is not None for p in free.parameters())


@pytest.mark.parametrize(
    "settings",
    [
        {"padding": 2},
        {"padding": 1, "padding_mode": "circular", "stride": 2},
        {"padding": "same", "dilation": 2},
        {"padding": "same", "padding_mode": "reflect"},
        {"padding": "valid", "groups": 2},
        {"padding": (1, 0), "stride": (1, 2)},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [3, (2, 3)], ids=str)
def test_free_convolutions_do_what_the_convolution_does(size: Any, settings: dict[str, Any]) -> None:
    plain, x = torch.nn.Conv2d(2, 4, size, **settings), torch.randn(2, 2, 9, 8)
    torch.testing.assert_close(FreeConvolution(plain)(x), plain(x))


@pytest.mark.parametrize("method", ["twin", "rpp"])
def test_free_kernels_have_the_padding_and_precision_of_the_layer(method: str) -> None:
    fields = FieldType(parse("C4"), 2 * [parse("C4").vector])
    layer = pscnn.nn.Conv2d(fields, fields, 3, padding=1, padding_mode="circular", dtype=torch.float64)
    made, x = STEERABLE[method].layer(layer), torch.randn(1, 4, 7, 7, dtype=torch.float64)
    shifted = made(x.roll((2, 3), (2, 3)))
    torch.testing.assert_close(shifted, made(x).roll((2, 3), (2, 3)))
    assert {p.dtype for p in made.parameters()} == {torch.float64}
    torch.testing.assert_close(twin(made)(x), made(x))


def test_restricted_networks_continue_without_symmetry() -> None:
    model = build("ddmnist", "restricted", "O(2)", width=0.2)
    groups = [m.out_type.group.name for m in model if isinstance(m, pscnn.nn.SteerableMap)]
    assert groups == ["O(2)"] * 4 + ["C(1)"] * 2


def test_residual_pathways_sum_two_layers_and_their_penalties() -> None:
    model = build("ddmnist", "rpp", "C4", width=0.2)
    first = next(m for m in model if isinstance(m, ResidualPathway))
    x = torch.randn(2, 1, 57, 57)
    torch.testing.assert_close(first(x), first.equivariant(x) + first.free(x), atol=1e-5, rtol=1e-5)
    squares = [sum(p.square().sum() for p in path.parameters()) for path in (first.equivariant, first.free)]
    expected = 1e-5 * squares[0] + 1e-3 * squares[1]
    torch.testing.assert_close(first.penalty(), expected)
    total = penalty(model)
    assert total is not None
    assert total.item() > first.penalty().item()
    assert penalty(build("ddmnist", "cnn", width=0.2)) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"network": "imagenet"}, "unknown network 'imagenet'"),
        ({"method": "gcnn"}, "unknown method 'gcnn': use one of cnn, scnn"),
        ({"nonlinearity": "relu"}, "unknown nonlinearity 'relu'"),
        ({"group": "SO(3)"}, r"needs a group of the plane, got SO\(3\)"),
        ({"group": "banana"}, "unknown group 'banana'"),
        ({"size": 32}, r"side lengths \(28, 56\), got 32"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**{"network": "images", **arguments})


def test_networks_are_still_known_by_the_names_of_the_papers_data() -> None:
    for former, network, group in (("ddmnist", "images", "C4"), ("medmnist3d", "volumes", "SO(3)")):
        width = 0.1 if network == "images" else 1
        first, second = (build(name, "scnn", group, width=width).state_dict() for name in (former, network))
        assert list(first) == list(second)

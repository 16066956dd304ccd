"""Ready networks: one plain network each, built with every method."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import grid_elements
from torch import Tensor
from torch import nn as tnn

import pscnn
from pscnn import FieldType, nn
from pscnn.groups import O2, SO3, C, D, Group
from pscnn.models import by_method, penalty, resnet, unet

METHODS = ("cnn", *pscnn.models.STEERABLE)
EQUIVARIANT = ("scnn", "p-scnn")
"""Methods whose networks commute with the group at first; others may or may not."""

NETWORKS: dict[str, tuple[Callable[..., tnn.Module], dict[str, Any]]] = {
    "resnet": (resnet, {"depth": 18, "width": 8, "outputs": 3}),
    "unet": (unet, {"width": 8, "outputs": 3, "channels": 3, "levels": 2}),
}


def settled(model: tnn.Module, x: Tensor) -> tnn.Module:
    """In eval mode with statistics of these data: with those at the start, signals would fade behind the biases."""
    with torch.no_grad():
        for _ in range(20):
            model.train()(x)
    return model.eval()


def error(model: tnn.Module, x: Tensor, group: Group) -> float:
    """The largest relative change of outputs, or of output maps, under the group's symmetries of the grid."""
    dense = model(x).ndim > 2
    types = FieldType(group, x.shape[1] * [group.trivial]), FieldType(group, 3 * [group.trivial])
    return pscnn.equivariance_error(model, x, grid_elements(group), types[0], types[1] if dense else None).max().item()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_is_invariant_if_it_should_be_and_exports(name: str, method: str) -> None:
    make, options = NETWORKS[name]
    own = {"keep": C(2)} if method == "fixed" else {}
    model = make(method=method, group=D(4), **options, **own)
    x = torch.randn(2, 3, 33, 33)
    y = model(x)
    assert y.shape == ((2, 3) if name == "resnet" else (2, 3, 33, 33))
    loss = y.square().mean()
    extra = penalty(model)
    (loss if extra is None else loss + extra).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert bool(pscnn.likelihoods(model)) == (method in pscnn.models.DENSITY_METHODS)

    found = error(settled(model.double(), x.double()), x.double(), D(4))
    if method in EQUIVARIANT:
        assert found < 1e-10
    elif method in ("cnn", "restricted", "rpp", "twin"):
        assert found > 1e-3
    model.float()
    exported = nn.export(model)
    torch.testing.assert_close(exported(x), model(x), rtol=1e-3, atol=1e-4)
    assert not [m for m in exported.modules() if type(m).__module__.startswith("pscnn")]
    torch.save(exported, stored := io.BytesIO())
    assert b"pscnn" not in stored.getvalue()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    ("group", "size"),
    [(O2(), (33, 33)), (O2(), (32, 32)), (O2(), (38, 38)), (D(2), (33, 40)), (C(4), (45, 45))],
    ids=lambda value: str(value),
)
def test_any_size_and_number_of_channels(name: str, group: Group, size: tuple[int, int]) -> None:
    make, options = NETWORKS[name]
    model = make(method="p-scnn", group=group, **{**options, "channels": 4}).double()
    x = torch.randn(2, 4, *size, dtype=torch.float64)
    assert error(settled(model, x), x, group) < 1e-10
    with torch.no_grad():
        for likelihood in pscnn.likelihoods(model).values():
            likelihood.coefficients.normal_(0, 0.7)
    assert error(model, x, group) > 1e-4
    assert model(x).shape[2:] == (() if name == "resnet" else size)


@pytest.mark.parametrize("group", [SO3(), D(4).about((0, 0, 1))], ids=str)
def test_volumes(group: Group) -> None:
    x = torch.randn(1, 1, 9, 10, 10) if group.order else torch.randn(1, 1, 9, 9, 9)
    options: dict[str, Any] = {"frequency": 1, "dimension": 3, "channels": 1, "outputs": 3}
    dense = settled(unet("p-scnn", group, width=4, levels=2, **options), x)
    assert dense(x).shape == (1, 3, *x.shape[2:])
    assert error(dense, x, group) < 1e-4
    model = settled(resnet(18, "p-scnn", group, width=4, small=True, **options), x)
    assert model(x).shape == (1, 3)
    assert error(model, x, group) < 1e-4


@pytest.mark.parametrize(("depth", "weights"), [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032)])
def test_plain_resnets_have_the_published_sizes(depth: int, weights: int) -> None:
    assert sum(p.numel() for p in resnet(depth, "cnn", outputs=1000).parameters()) == weights


def test_the_restricted_network_is_free_where_it_says_so() -> None:
    model = resnet(18, "restricted", C(4), width=8, small=True)
    groups = {name: m.in_type.group for name, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    assert groups["layer3.1.conv2"] == C(4)
    assert groups["layer4.0.conv1"] == groups["layer4.0.downsample.0"] == C(1)
    model = unet("restricted", C(4), width=8, levels=2)
    groups = {name: m.in_type.group for name, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    assert groups["down.1.3"] == C(4)
    assert groups["up.0"] == groups["merge.0.0"] == C(1)


def test_vectors_in_and_out() -> None:
    H = C(4)
    vectors = FieldType(H, [H.vector])
    x = torch.randn(2, 2, 16, 16, dtype=torch.float64)
    for method in ("p-scnn", "scnn"):
        model = unet(method, H, channels=2, outputs=2, width=8, levels=2, in_type=vectors, out_type=vectors).double()
        errors = pscnn.equivariance_error(settled(model, x), x, grid_elements(H), vectors, vectors)
        assert errors.max() < 1e-10


def test_methods_on_ones_own_network() -> None:
    plain = tnn.Sequential(
        tnn.Conv2d(1, 8, 3), tnn.BatchNorm2d(8), tnn.ReLU(), nn.RestrictHere(), tnn.Conv2d(8, 8, 3), tnn.ReLU(),
        tnn.AdaptiveAvgPool2d(1), tnn.Flatten(), tnn.Linear(8, 2),
    )  # fmt: skip
    x = torch.randn(2, 1, 9, 9)
    for method in METHODS:
        own = {} if method in pscnn.models.MEASURE_METHODS[1:] else {"alignment": "construction"}
        model = by_method(plain, method, "O(2)", fields="irreps", **own)
        assert model(x).shape == (2, 2)
    copied = by_method(plain, "cnn", "O(2)")
    assert copied is not plain
    assert all(map(torch.equal, copied.state_dict().values(), plain.state_dict().values()))
    assert plain(x).shape == (2, 2)  # the marker does nothing
    assert [name for name, m in by_method(plain, "rpp", "C4").named_modules() if hasattr(m, "penalty")] == [
        "0", "4", "invariant.convolution",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: resnet(19), "depth must be one of 18, 34, 50, got 19"),
        (lambda: resnet(18, "magic"), "unknown method 'magic': use one of cnn, scnn, "),
        (lambda: resnet(18, group="SO3"), r"SO\(3\) acts on 3 axes, give dimension=3"),
        (lambda: unet(dimension=4), "dimension must be 2 for images or 3 for volumes, got 4"),
        (lambda: unet(levels=0), "levels must be a whole number of 1 or more, got 0"),
        (lambda: unet(levels=1000), "levels must be 16 or less, got 1000"),
        (lambda: resnet(18, group=5), "unknown group 5"),  # type: ignore[arg-type]
        (lambda: resnet(18, outputs=10**12), "outputs must be 1000000 or less, got 1000000000000"),
        (
            lambda: resnet(18, width=10**9),
            r"a network of width 1e\+09 would take .* GiB of memory: use a smaller width",
        ),
        (lambda: unet(width=10**5), "a network of width 100000 would take .* GiB"),
        *(
            (
                lambda make=make, name=name, given=given: make(**{name: given}),
                f"{name} must be a whole number of 1 or m",
            )
            for make in (resnet, unet)
            for name in ("channels", "outputs", "width")
            for given in (0, -1, 1.5, "x", None)
        ),
    ],
)
def test_messages(call: Callable[[], tnn.Module], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("method", "own"), [("cnn", "keep"), ("scnn", "keep"), ("p-scnn", "keep"), ("ace", "strength")]
)
def test_an_unknown_option_is_refused_by_all_methods(method: str, own: str) -> None:
    with pytest.raises(TypeError, match=f"unet has no option 'bandwidth'; it has .*outputs, .*bandlimit, .*{own}"):
        unet(method, bandwidth=2)
    with pytest.raises(TypeError, match=r"resnet has no option 'classes'; it has depth, .*outputs, "):
        resnet(18, method, classes=5)

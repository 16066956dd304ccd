"""Kinds of layers that only some networks have, converted: exactly equivariant at even, odd and unequal sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from helpers import grid_elements
from torch import Tensor, fx
from torch import nn as tnn

import pscnn
from pscnn import FieldType, nn
from pscnn.groups import O2, C, D, Group


class Around(tnn.Module):
    """A convolution, what is tested, and another convolution."""

    def __init__(self, middle: tnn.Module, channels: int = 12) -> None:
        super().__init__()
        self.first, self.middle, self.last = tnn.Conv2d(2, 12, 3, padding=1), middle, tnn.Conv2d(channels, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(F.relu(self.first(x))))


class Excited(tnn.Module):
    """Squeeze and excitation by linear layers, in the ways in which people write it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.fc = tnn.Sequential(tnn.Linear(12, 3), tnn.ReLU(), tnn.Linear(3, 12), tnn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        b, c, _, _ = x.size()
        if self.how == "view":
            return x * self.fc(F.adaptive_avg_pool2d(x, 1).view(b, c)).view(b, c, 1, 1).expand_as(x)
        y = self.fc(x.mean((2, 3)))
        return y[:, :, None, None] * x if self.how == "index" else x * y.unsqueeze(2).unsqueeze(3)


class Attention(tnn.Module):
    """A factor for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = tnn.Conv2d(12, 1, 5, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.conv(x))


class Scaled(tnn.Module):
    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.scale = tnn.Parameter(torch.full(shape, 0.3))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * x


class ChannelsLast(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = tnn.LayerNorm(12), tnn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        y = x.movedim(1, -1)
        y = torch.cat([y, F.gelu(self.mix(self.norm(y)))], -1)
        return y.movedim(-1, 1)


class Averaged(tnn.Module):
    """The mean of a map whose channels come last, as a factor and as features for a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mix, self.fc = tnn.Conv2d(1, 12, 3), tnn.Linear(12, 12), tnn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv(x)).permute(0, 2, 3, 1)
        y = y * torch.sigmoid(self.mix(y.mean(dim=(1, 2), keepdim=True)))
        return self.fc(y.mean((1, 2)))


@fx.wrap
def stochastic_depth(x: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    assert not training
    return x


class Dropped(tnn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + stochastic_depth(x, 0.5, "row", self.training)


CASES: dict[str, Callable[[], tnn.Module]] = {
    "fields": lambda: tnn.Conv2d(12, 12, 3, padding=1, groups=12),
    "groups": lambda: tnn.Conv2d(12, 24, 3, 2, 1, groups=4),
    "dilated": lambda: tnn.Conv2d(12, 12, 3, 2, dilation=2, padding=2, padding_mode="circular"),
    "even": lambda: tnn.Conv2d(12, 12, 4, 2, 1),
    "patches": lambda: tnn.Conv2d(12, 12, 4, 4),
    "transposed": lambda: tnn.ConvTranspose2d(12, 12, 3, 2, 1, output_padding=1),
    "transposed-even": lambda: tnn.ConvTranspose2d(12, 12, 4, 2, 1),
    "group-norm": lambda: tnn.GroupNorm(3, 12),
    "instance-norm": lambda: tnn.InstanceNorm2d(12),
    "excited-view": lambda: Excited("view"),
    "excited-index": lambda: Excited("index"),
    "excited-unsqueeze": lambda: Excited("unsqueeze"),
    "attention": Attention,
    "scale-number": lambda: Scaled(1),
    "scale-channels": lambda: Scaled(12, 1, 1),
    "channels-last": ChannelsLast,
    "depth": Dropped,
    "adaptive": lambda: tnn.AdaptiveAvgPool2d(5),
}
CHANNELS = {"groups": 24, "channels-last": 24}


def randomise(model: tnn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # scales and shifts
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        for likelihood in pscnn.likelihoods(model).values():
            likelihood.coefficients.zero_()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("group", "fields"), [(O2(), "irreps"), (O2(), "functions"), (D(4), "regular")])
def test_exactly_equivariant(name: str, group: Group, fields: Any) -> None:
    plain = Around(CASES[name](), CHANNELS.get(name, 12)).eval()
    model = nn.convert(plain, group, fields=fields).double().eval()
    randomise(model)
    gray = FieldType(group, 2 * [group.trivial])
    out = FieldType(group, [group.trivial])
    for sides in ((12, 12), (13, 13), (14, 11)):
        x = torch.randn(2, 2, *sides, dtype=torch.float64)
        assert model(x).shape == plain.double()(x).shape
        square = sides[0] == sides[1] or name != "adaptive"
        elements = grid_elements(group) if square else grid_elements(group)[:1]
        pscnn.testing.assert_equivariant(model, x, elements, 1e-10, gray, out)
        torch.testing.assert_close(nn.export(model)(x), model(x), rtol=1e-10, atol=1e-10)


def test_layers_become_what_they_should() -> None:
    H = O2()
    found = {name: nn.convert(Around(make(), CHANNELS.get(name, 12)), H) for name, make in CASES.items()}
    depthwise = found["fields"].get_submodule("middle")
    assert isinstance(depthwise, nn.Conv2d)
    assert depthwise.groups == 2  # 12 channels are two fields of six
    assert depthwise.kernel().shape == (20 - 8, 6, 3, 3)
    norm = found["group-norm"].get_submodule("middle")
    assert isinstance(norm, nn.GroupNorm)
    assert norm.groups == 2  # as many as there are fields, at most three
    scale = found["scale-channels"].get_submodule("middle.layer_scale")
    assert isinstance(scale, nn.FieldScale)
    torch.testing.assert_close(scale.weight, torch.full((2,), 0.3))
    assert "middle.scale" in dict(found["scale-number"].named_parameters())
    depth = found["depth"].get_submodule("middle.stochastic_depth")
    assert isinstance(depth, nn.StochasticDepth)
    assert (depth.p, depth.mode) == (0.5, "row")


@pytest.mark.parametrize("group", [O2(), C(4)])
def test_means_of_maps_whose_channels_come_last(group: Group) -> None:
    model = nn.convert(Averaged(), group).double().eval()
    x = torch.randn(2, 1, 9, 8, dtype=torch.float64)
    assert model(x).shape == (2, 3)
    for element in grid_elements(group):
        turned = FieldType(group, [group.trivial]).transform(x, element)
        torch.testing.assert_close(model(turned), model(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dropout", [False, True])
def test_linear_layers_on_flattened_maps_become_convolutions(dropout: bool) -> None:
    layers = [tnn.Conv2d(1, 12, 3, padding=1), tnn.ReLU(), tnn.AdaptiveAvgPool2d(6), tnn.Flatten()]
    plain = tnn.Sequential(
        *layers, *([tnn.Dropout()] if dropout else []), tnn.Linear(12 * 36, 7), tnn.ReLU(), tnn.Linear(7, 3)
    )
    model = nn.convert(plain, C(4)).eval()
    last = list(model.children())[-3]
    assert isinstance(last, nn.Conv2d)
    assert last.kernel_size == 6
    x = torch.randn(2, 1, 13, 13)
    assert model(x).shape == (2, 3)
    torch.testing.assert_close(model(x.rot90(1, (2, 3))), model(x), rtol=1e-4, atol=1e-5)
    assert (model(x.roll(3, 2)) - model(x)).abs().max() > 1e-3  # it still knows where things are


@pytest.mark.parametrize("size", [16, 17])
def test_onnx_knows_zeros_before_a_strided_layer(size: int, tmp_path: Path) -> None:
    """Its runtime joins them with an average of neighbours that follows directly, and refuses the result."""
    layers = [tnn.ZeroPad2d(2), tnn.Conv2d(1, 6, 3, 2), tnn.ReLU(), tnn.MaxPool2d(2), tnn.Conv2d(6, 1, 1)]
    model = nn.convert(tnn.Sequential(*layers), C(4)).eval()
    x = torch.randn(2, 1, size, size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        program = torch.onnx.export(nn.export(model), (x,), dynamo=True, input_names=["input"], verbose=False)
    assert program is not None
    program.save(str(tmp_path / "network.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "network.onnx"), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"input": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(np.asarray(got)), model(x).detach(), rtol=1e-4, atol=1e-5)

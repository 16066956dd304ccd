"""Plain networks and their partially equivariant versions."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import grid_elements
from torch import Tensor
from torch import nn as tnn

import pscnn
from pscnn import FieldType, nn
from pscnn._extras import PscnnError
from pscnn.groups import O2, SO2, SO3, C, D, Group


class Block(tnn.Module):
    """The usual residual block, its nonlinearity shared and in place."""

    def __init__(self, source: int, target: int, stride: int) -> None:
        super().__init__()
        self.conv1 = tnn.Conv2d(source, target, 3, stride, 1, bias=False)
        self.bn1 = tnn.BatchNorm2d(target)
        self.relu = tnn.ReLU(inplace=True)
        self.conv2 = tnn.Conv2d(target, target, 3, 1, 1, bias=False)
        self.bn2 = tnn.BatchNorm2d(target)
        self.downsample = None
        if stride > 1 or source != target:
            self.downsample = tnn.Sequential(tnn.Conv2d(source, target, 1, stride, bias=False), tnn.BatchNorm2d(target))

    def forward(self, x: Tensor) -> Tensor:
        skip = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += skip
        return self.relu(out)


class ResNet(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = tnn.Conv2d(3, 8, 5, 2, 2, bias=False)
        self.bn1 = tnn.BatchNorm2d(8)
        self.relu = tnn.ReLU(inplace=True)
        self.maxpool = tnn.MaxPool2d(3, 2, 1)
        self.layer1 = tnn.Sequential(Block(8, 8, 1), Block(8, 8, 1))
        self.layer2 = tnn.Sequential(Block(8, 16, 2))
        self.avgpool = tnn.AdaptiveAvgPool2d((1, 1))
        self.fc = tnn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(x, 1))


class Functional(tnn.Module):
    """Without normalisation, by functions, concatenating, with a head of several layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = tnn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = tnn.Conv2d(8, 8, 3, padding="same", dilation=2)
        self.conv3 = tnn.Conv2d(16, 12, 3, padding=1, padding_mode="reflect")
        self.drop = tnn.Dropout2d(0.2)
        self.fc1, self.norm, self.fc2 = tnn.Linear(12, 7), tnn.BatchNorm1d(7), tnn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.elu(F.max_pool2d(self.conv1(x - 0.5), 3, 2))
        y = F.leaky_relu(self.conv2(x), 0.2)
        x = torch.cat([0.5 * x, F.interpolate(F.avg_pool2d(y, 3, 2, 1), size=x.shape[2:])], dim=1)
        x = F.gelu(self.drop(self.conv3(x))).mean((-2, -1))
        x = F.dropout(x, 0.3, training=self.training)
        return F.log_softmax(self.fc2(F.relu(self.norm(self.fc1(x)))), 1)


class PreActivation(tnn.Module):
    """Nonlinearities that come after no convolution: those need gates of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = tnn.Conv2d(3, 8, 3, padding=1)
        self.norms = tnn.ModuleList([tnn.BatchNorm2d(8), tnn.BatchNorm2d(16)])
        self.convs = tnn.ModuleList([tnn.Conv2d(8, 8, 3, padding=1), tnn.Conv2d(16, 8, 3, padding=1)])
        self.last = tnn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.convs[0](F.silu(self.norms[0](x)))
        x = x + self.convs[1](torch.relu(self.norms[1](torch.cat([x, y], 1))))
        return self.last(x).mean((2, 3))


class Volumes(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = tnn.Sequential(
            tnn.Conv3d(1, 9, 3, stride=2), tnn.BatchNorm3d(9), tnn.ReLU(), tnn.AvgPool3d(2), tnn.Dropout3d(0.1)
        )
        self.skip = tnn.Conv3d(9, 9, 3, padding=1)
        self.head = tnn.Linear(9, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = torch.tanh(x + self.skip(x))
        x = F.adaptive_avg_pool3d(x, 1)
        return self.head(x.view(x.size(0), -1))


def out_type(model: tnn.Module, name: str) -> FieldType:
    found = model.get_submodule(name).out_type
    assert isinstance(found, FieldType)
    return found


def randomise(model: tnn.Module, scale: float) -> None:
    """Running statistics, shifts and scales as after training; densities as after learning."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 1.5)
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_()
        for likelihood in pscnn.likelihoods(model).values():
            likelihood.coefficients.normal_(0, scale)


def errors(model: tnn.Module, x: Tensor, group: Group) -> Tensor:
    """By how much outputs change under the group's symmetries of the grid."""
    return pscnn.equivariance_error(model, x, grid_elements(group))


CASES: list[tuple[Callable[[], tnn.Module], Group, str, int]] = [
    (ResNet, O2(), "irreps", 25),
    (ResNet, SO2(), "irreps", 25),
    (ResNet, C(4), "regular", 25),
    (ResNet, D(4), "regular", 25),
    (ResNet, D(4), "irreps", 25),
    (Functional, O2(), "irreps", 15),
    (Functional, C(4), "regular", 15),
    (PreActivation, O2(), "irreps", 9),
    (Volumes, SO3(), "irreps", 11),
]


@pytest.mark.parametrize(("network", "group", "fields", "size"), CASES)
def test_invariant_until_densities_are_learnt(
    network: Callable[[], tnn.Module], group: Group, fields: str, size: int
) -> None:
    plain = network()
    before = copy.deepcopy(plain.state_dict())
    model = nn.convert(plain, group, fields=fields)  # type: ignore[arg-type]
    assert all(torch.equal(value, before[name]) for name, value in plain.state_dict().items())
    assert model.training
    channels = 1 if group.dimension == 3 else 3
    x = torch.randn(2, channels, *(size,) * group.dimension)
    model(x).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())

    model.double().eval()
    x = x.double()
    assert model(x).shape == plain.eval()(x.float()).shape
    randomise(model, 0)
    assert errors(model, x, group).max() < 1e-10
    randomise(model, 0.7)
    assert errors(model, x, group).max() > 1e-4


def test_the_library_works_on_it() -> None:
    model = nn.convert(ResNet(), O2(), bandlimit=1, alignment="soft")
    randomise(model, 0.5)
    x = torch.randn(2, 3, 17, 17)
    model(x)
    y = model.eval()(x)
    terms = pscnn.regularization(model)
    assert terms.alignment > 0
    assert terms.kl > 0
    names = list(pscnn.likelihoods(model))
    assert names[:3] == ["conv1", "layer1.0.conv1", "layer1.0.conv2"]
    assert "layer2.0.downsample.0" in names
    assert names[-1] == "invariant"
    assert all(likelihood.bandlimit == 1 for likelihood in pscnn.likelihoods(model).values())
    assert "(layer2.0.conv1)" in pscnn.summary(model)
    assert pscnn.layer_errors(model, x, grid_elements(O2())[:2], on_grid=False)["conv1"].error.shape == (2,)

    plain = nn.export(model)
    torch.testing.assert_close(plain(x), y, rtol=1e-4, atol=1e-5)
    assert not [m for m in plain.modules() if type(m).__module__.startswith("pscnn")]
    stored = io.BytesIO()
    torch.save(plain, stored)
    assert b"pscnn" not in stored.getvalue()

    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(x), y)
        assert other.state_dict().keys() == model.state_dict().keys()
    fresh = nn.convert(ResNet(), O2(), bandlimit=1).eval()
    fresh.load_state_dict(model.state_dict())
    torch.testing.assert_close(fresh(x), y)


def test_densities_can_be_aligned() -> None:
    model = nn.convert(PreActivation(), D(4), fields="regular").eval()  # finite: no search between elements
    randomise(model, 0.7)
    x = torch.randn(2, 3, 9, 9)
    y = model(x)
    assert pscnn.regularization(model).alignment > 0.1
    pscnn.align(model)
    assert pscnn.regularization(model).alignment < 1e-6
    torch.testing.assert_close(model(x), y, rtol=1e-4, atol=1e-4)


def test_layers_become_what_they_should() -> None:
    model = nn.convert(ResNet(), O2())
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    assert kinds["bn1"] == "GatedBatchNorm"
    assert "relu" not in kinds
    assert kinds["maxpool"] == "AvgPoolAntialiased"
    assert kinds["layer1.0.bn2"] == "BatchNorm"  # its features are added to others before the nonlinearity
    assert kinds["layer1.0.relu"] == "GatedNonlinearity"
    assert "layer1.0.zero_gates" in kinds
    assert "layer2.0.zero_gates" not in kinds  # the skip connection has gates of its own
    assert kinds["invariant"] == "Linear"
    assert out_type(model, "layer1.0.conv2").size == 6 + 4
    assert out_type(model, "layer2.0.relu").size == 18

    regular = nn.convert(ResNet(), D(4), fields="regular")
    assert isinstance(regular.get_submodule("layer1.0.relu"), tnn.ReLU)
    assert out_type(regular, "layer2.0.conv1") == FieldType(D(4), 2 * [D(4).regular])

    own = nn.convert(PreActivation(), O2())
    assert [name for name in pscnn.likelihoods(own) if name.endswith("gates")] == ["silu.gates", "relu.gates"]
    assert not out_type(own, "last").irreps[0].index[0]
    assert "invariant" not in dict(own.named_modules())  # the last convolution makes scalars already


def test_a_constant_of_the_forward_is_taken_or_named() -> None:
    class WithConstant(tnn.Module):
        def __init__(self, use: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.conv, self.use = tnn.Conv2d(1, 8, 3, padding=1), use

        def forward(self, x: Tensor) -> Tensor:
            return self.use(self.conv(x)).mean((2, 3))

    half = nn.convert(WithConstant(lambda y: y * torch.tensor(0.5)), "O(2)").eval()
    assert half(torch.randn(2, 1, 9, 9)).shape == (2, 8)
    for use, message in (
        (lambda y: torch.cat([y, torch.zeros(1, 8, 9, 9)], 1), "concatenates features with something that does not"),
        (lambda y: torch.zeros(()) + y, "adds something that does not transform"),
    ):
        with pytest.raises(ValueError, match=message):
            nn.convert(WithConstant(use), O2())


def test_the_head_is_kept() -> None:
    plain = Functional().eval()
    model = nn.convert(plain, C(4))
    assert not model.training
    for name in ("fc1", "fc2"):
        torch.testing.assert_close(getattr(model, name).weight, getattr(plain, name).weight)
        assert getattr(model, name).weight is not getattr(plain, name).weight
    x = torch.randn(2, 3, 9, 9)
    torch.testing.assert_close(model(x), model(x))  # no dropout
    model.train()
    assert not torch.allclose(model(x), model(x))


def test_signals_keep_their_size_without_normalisation() -> None:
    layers: list[tnn.Module] = []
    for _ in range(6):
        layers += [tnn.Conv2d(24, 24, 3, padding=1, padding_mode="circular"), tnn.ReLU()]
    x = torch.randn(2, 24, 8, 8)
    for group, fields in ((O2(), "irreps"), (C(4), "regular")):
        model = nn.convert(tnn.Sequential(*layers[:-1]), group, fields=fields)  # type: ignore[arg-type]
        assert 0.2 < model(x).std() < 5


@pytest.mark.parametrize("function", ["sigmoid", "none"])
def test_images_out_are_scalars_or_what_is_asked_for(function: str) -> None:
    layers: list[tnn.Module] = [tnn.Conv2d(2, 12, 3, padding=1), tnn.ReLU(), tnn.Upsample(11)]
    layers += [tnn.Conv2d(12, 2, 3, padding=1)]
    plain = tnn.Sequential(*layers, *([tnn.Sigmoid()] if function == "sigmoid" else []))
    H = O2()
    x = torch.randn(2, 2, 7, 7)
    model = nn.convert(plain, H)
    scalars = FieldType(H, 2 * [H.trivial])
    assert out_type(model, "3") == scalars
    pscnn.testing.assert_equivariant(model, x, grid_elements(H), in_type=scalars, out_type=scalars)
    y = model(x)
    assert y.shape == (2, 2, 11, 11)
    if function == "sigmoid":
        assert y.min() >= 0
        assert y.max() <= 1
    else:
        vectors = FieldType(H, [H.vector])
        model = nn.convert(plain, H, in_type=vectors, out_type=vectors)
        pscnn.testing.assert_equivariant(model, x, grid_elements(H), in_type=vectors, out_type=vectors)


class Denoiser(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = tnn.Sequential(tnn.Conv2d(2, 12, 3, padding=1), tnn.BatchNorm2d(12), tnn.PReLU(12))
        self.up = tnn.Conv2d(12, 2, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.down(x)
        return x - self.up(y), y


class Standardised(tnn.Module):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.std = tnn.Parameter(torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1))
        self.conv = tnn.Conv2d(3, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv((x - self.mean) / self.std)).mean((2, 3))


def test_models_may_scale_their_input() -> None:
    model = nn.convert(Standardised(), O2()).eval()
    x = torch.rand(2, 3, 8, 8)
    assert model.mean.shape == (1, 3, 1, 1)
    torch.testing.assert_close(model(x.rot90(1, (2, 3))), model(x), rtol=1e-4, atol=1e-5)
    vectors = FieldType(O2(), [O2().vector, O2().trivial])
    with pytest.raises(ValueError, match=r"sub\(\) in forward: adds something that does not transform"):
        nn.convert(Standardised(), O2(), in_type=vectors)


def test_residuals_of_the_input_and_several_outputs() -> None:
    x = torch.randn(2, 2, 7, 7)
    model = nn.convert(Denoiser(), SO2()).eval()
    difference, features = model(x)
    assert difference.shape == x.shape
    assert features.shape == (2, 12, 7, 7)
    assert isinstance(model.get_submodule("to_output"), nn.Conv2d)
    for turned, y in zip(model(x.rot90(1, (2, 3))), (difference, features), strict=True):
        torch.testing.assert_close(turned, y.rot90(1, (2, 3)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [15, 16, 17, 18])
def test_maps_have_the_models_sizes(size: int) -> None:
    plain = tnn.Sequential(
        tnn.Conv2d(1, 6, 1), tnn.MaxPool2d(2), tnn.MaxPool2d(3, 2, 1), tnn.AvgPool2d(3, 2, ceil_mode=True)
    )
    model = nn.convert(plain, C(4)).double()
    x = torch.randn(1, 1, size, size + 1, dtype=torch.float64)
    assert model(x).shape == plain.double()(x).shape
    torch.testing.assert_close(model(x.rot90(1, (2, 3))), model(x).rot90(1, (2, 3)), rtol=1e-10, atol=1e-10)


def test_a_relu_of_regular_fields_is_part_of_the_normalisation_before_it() -> None:
    layers = [tnn.Conv2d(1, 8, 3), tnn.BatchNorm2d(8), tnn.ReLU(), tnn.Conv2d(8, 8, 3), tnn.BatchNorm2d(8), tnn.GELU()]
    model = nn.convert(tnn.Sequential(*layers, tnn.Conv2d(8, 1, 1)), "C4", fields="regular").double()
    kinds = [type(module).__name__ for module in model.children()]
    assert kinds == ["Together", "Conv2d", "BatchNorm", "Conv2d", "BatchNorm", "GELU", "Conv2d"]
    relus = [module.relu for module in model.children() if isinstance(module, nn.BatchNorm)]
    assert relus == [True, False]
    x = torch.randn(2, 1, 11, 11, dtype=torch.float64)
    torch.testing.assert_close(model(x.rot90(1, (2, 3))), model(x).rot90(1, (2, 3)), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(nn.export(model)(x), model.eval()(x))
    with pytest.raises(ValueError, match="relu=True needs regular fields or scalars"):
        nn.BatchNorm(FieldType(O2(), [O2().vector]), relu=True)


@pytest.mark.parametrize("size", [15, 16])
def test_maxima_by_norm(size: int) -> None:
    plain = tnn.Sequential(
        tnn.Conv2d(1, 12, 3), tnn.MaxPool2d(3, 2, 1), tnn.ReLU(), tnn.AvgPool2d(2), tnn.Conv2d(12, 1, 1)
    )
    model = nn.convert(plain, O2(), max_pool="norm").double()
    kinds = [type(module).__name__ for module in model.children()]
    assert kinds == ["Together", "Conv2d", "NormMaxPool", "GatedNonlinearity", "AvgPoolAntialiased", "Conv2d"]
    x = torch.randn(1, 1, size, size + 1, dtype=torch.float64)
    assert model(x).shape == plain.double()(x).shape
    torch.testing.assert_close(model(x.rot90(1, (2, 3))), model(x).rot90(1, (2, 3)), rtol=1e-10, atol=1e-10)


class Sums(tnn.Module):
    """Sums and concatenations, each in two ways to write it."""

    def __init__(self, by_list: bool) -> None:
        super().__init__()
        self.stem, self.a, self.b = (tnn.Conv2d(n, 8, 3, padding=1) for n in (1, 8, 8))
        self.last, self.by_list = tnn.Conv2d(16, 2, 1), by_list

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        y: Any = sum([x, self.a(x), self.b(x)]) if self.by_list else x + self.a(x) + self.b(x)
        pair = [x, F.relu(y)]
        return self.last(torch.cat(tensors=pair, dim=1) if self.by_list else torch.cat(pair, 1))


@pytest.mark.parametrize("fields", ["irreps", "functions"])
def test_sums_and_concatenations_of_lists_are_those_of_their_parts(fields: str) -> None:
    x, found = torch.randn(2, 1, 9, 9), []
    for by_list in (True, False):
        torch.manual_seed(0)
        found.append(nn.convert(Sums(by_list), O2(), fields=fields).eval()(x))  # type: ignore[arg-type]
    assert torch.equal(*found)


class Unusual(tnn.Module):
    """Much of what cannot be converted."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = tnn.Conv2d(1, 8, 3)
        self.oblong = tnn.Conv2d(8, 8, (1, 3))
        self.scale = tnn.Parameter(torch.ones(7, 7))
        self.fc = tnn.Linear(8 * 25, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.oblong(self.fine(x)) * self.scale
        x = x[:, :8] + x.permute(0, 1, 3, 2)
        return self.fc(x.flatten(1))


def test_one_sentence_names_the_first_of_what_cannot_be_converted() -> None:
    with pytest.raises(ValueError, match="Unusual cannot be converted") as caught:
        nn.convert(Unusual(), O2())
    assert isinstance(caught.value, PscnnError)
    assert str(caught.value) == (
        "convert: Unusual cannot be converted: oblong (Conv2d): kernel size, stride, padding and dilation must be the "
        "same along all axes (and 3 more)"
    )


class Branches(tnn.Module):
    def __init__(self, on: str) -> None:
        super().__init__()
        self.conv, self.on = tnn.Conv2d(1, 4, 3), on

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if (x.sum() > 0) if self.on == "values" else self.training:
            x = x * 2
        return x


class Squared(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = tnn.Conv2d(1, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.conv(x * x) if self.conv.in_channels == 8 else (x * x).relu() + x.mean((2, 3))


class Chunks(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = tnn.Conv2d(1, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.conv(x).chunk(2, 1), 1)


class CatOfOne(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = tnn.Conv2d(1, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.conv(x), 1)


class Pair(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = tnn.Conv2d(1, 8, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.conv(x) + self.conv(y)


def layers(*parts: tnn.Module) -> tnn.Module:
    return tnn.Sequential(tnn.Conv2d(1, 8, 3), *parts)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Branches("values"), {}, "Branches cannot be traced by torch.fx: .*depends on values"),
        (Branches("mode"), {}, "differs between train and eval"),
        (layers(tnn.Flatten(), tnn.Linear(8 * 20, 3)), {}, r"2 \(Linear\): sees 160 features of 8 channels.*no square"),
        (layers(tnn.Linear(8, 3)), {}, "acts on a feature map"),
        (layers(tnn.Conv2d(6, 8, 3)), {}, r"1 \(Conv2d\): expects 6 channels, gets 8"),
        (layers(tnn.PReLU(8)), {"fields": "regular", "group": C(4), "frequency": 1}, None),
        (layers(tnn.PReLU(8), tnn.Conv2d(8, 2, 1)), {"fields": "regular", "group": C(4)}, "one slope per channel"),
        (layers(tnn.MaxPool2d((1, 2))), {}, "the same along all axes"),
        (layers(tnn.ZeroPad2d((1, 0, 1, 0))), {}, "on all sides"),
        (layers(tnn.Softmax(1), tnn.Conv2d(8, 8, 1)), {}, "needs invariant features"),
        (layers(tnn.BatchNorm2d(8, track_running_stats=False)), {}, "track_running_stats"),
        (layers(tnn.Flatten(2)), {}, r"flatten\(1\)"),
        (tnn.Sequential(tnn.ReLU()), {}, "give in_type"),
        (tnn.Conv2d(1, 8, 2, padding="same"), {}, r"0 \(Conv2d\): .*padding='same' needs an odd kernel"),
        (layers(tnn.MaxPool2d(2, 3, ceil_mode=True)), {}, "with ceil_mode needs windows of at least stride"),
        (layers(tnn.ConvTranspose2d(8, 8, 2, groups=2)), {}, "groups=2 of a transposed convolution"),
        (layers(tnn.InstanceNorm2d(8, track_running_stats=True)), {}, "needs track_running_stats=False"),
        (layers(tnn.LayerNorm(8)), {}, r"1 \(LayerNorm\): normalises over shape \(8,\).*or use GroupNorm"),
        (layers(tnn.LocalResponseNorm(2)), {}, r"1 \(LocalResponseNorm\): has no counterpart; use BatchNorm2d"),
        (layers(nn.FieldDropout(FieldType(O2(), [O2().trivial]))), {}, "is a layer of pscnn already"),
        (Squared(), {}, r"mul\(\) in forward: only products with numbers.*\(and 1 more\)"),
        (Chunks(), {}, r"chunk\(\) in forward: is not known to commute.*\(and 1 more\)"),
        (CatOfOne(), {}, r"cat\(\) in forward: concatenates what is no list of feature maps"),
        (Pair(), {}, "input y: only one input can be converted$"),
        (layers(), {"fields": "regular"}, "infinite"),
        (layers(), {"max_pool": "median"}, "max_pool must be 'average' or 'norm', got 'median'"),
        (
            layers(tnn.MaxPool2d(2, ceil_mode=True)),
            {"max_pool": "norm"},
            "with ceil_mode is not converted to a maximum",
        ),
        (layers(), {"fields": "vectors"}, "'irreps', 'functions' or 'regular'"),
        (layers(), {"group": SO3()}, "acts on R"),
        (layers(), {"in_type": FieldType(C(4), [C(4).trivial])}, r"in_type is over C\(4\)"),
        (layers(), {"out_type": FieldType(O2(), [O2().vector])}, "out_type has 2 channels, the model gives 8"),
    ],
)
def test_messages(model: tnn.Module, options: dict[str, object], message: str | None) -> None:
    options = {"group": O2(), **options}
    if message is None:
        nn.convert(model, **options)  # type: ignore[arg-type]
        return
    with pytest.raises(ValueError, match=message):
        nn.convert(model, **options)  # type: ignore[arg-type]


class Twice(tnn.Module):
    """One layer called on equal and on different features."""

    def __init__(self, different: bool) -> None:
        super().__init__()
        self.stem, self.conv, self.different = tnn.Conv2d(8, 8, 3), tnn.Conv2d(8, 8, 3), different

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x) if self.different else self.stem(x))
        return F.relu(self.conv(F.relu(self.conv(x)))).mean((2, 3))


def test_shared_layers_stay_shared() -> None:
    assert list(pscnn.likelihoods(nn.convert(Twice(False), C(4)))) == ["stem", "conv", "invariant"]
    with pytest.raises(ValueError, match=r"conv \(Conv2d\): is called more than once, on features of different types"):
        nn.convert(Twice(True), C(4))


def test_dtype_is_the_models() -> None:
    model = nn.convert(ResNet().double(), C(4)).eval()
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert np.isfinite(model(torch.randn(1, 3, 9, 9, dtype=torch.float64)).detach().numpy()).all()


class Odds(tnn.Module):
    """Operations that the other networks do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.pad, self.conv, self.up = tnn.ReflectionPad2d(1), tnn.Conv2d(1, 12, 3), tnn.Upsample(scale_factor=3)
        self.conv2, self.pool = tnn.Conv2d(12, 12, 3), tnn.AdaptiveMaxPool2d(3)
        self.offset = tnn.Parameter(torch.zeros(12))
        self.fc = tnn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv2(self.up(self.conv(self.pad(x * x))).contiguous())))
        x = F.pad(x, (1, 1, 1, 1)).mean((2, 3), keepdim=True).squeeze()
        return self.fc(x + self.offset)


@pytest.mark.parametrize(("group", "fields"), [(O2(), "irreps"), (D(4), "regular")])
def test_odds_and_ends(group: Group, fields: str) -> None:
    model = nn.convert(Odds(), group, fields=fields).eval()  # type: ignore[arg-type]
    assert isinstance(model.pool, tnn.AdaptiveAvgPool2d if fields == "irreps" else tnn.AdaptiveMaxPool2d)
    x = torch.randn(1, 1, 5, 5)
    assert model(x).shape == (1, 3)
    assert errors(model, x, group).max() < 1e-4

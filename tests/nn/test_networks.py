"""Networks that people use: converted, at even and odd sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from helpers import grid_elements
from networks import EFFICIENTNET, MOBILENET, VGG, ConvNeXt, DenseNet, MobileNet, ResNet, UNet
from torch import Tensor
from torch import nn as tnn

import pscnn
from pscnn import FieldType, nn
from pscnn.groups import O2, O3, Group

# Narrow and shallow, but with every kind of layer.
NETWORKS: dict[str, tuple[Callable[[], tnn.Module], int, int, int]] = {  # channels, dimension and an even size
    "ResNet-18": (lambda: ResNet((1, 1, 1), width=8, classes=5), 3, 2, 32),
    "ResNet-50": (lambda: ResNet((1, 1, 1), True, 8, classes=5), 3, 2, 32),
    "VGG-11": (lambda: VGG(8, 16, 3, classes=5), 3, 2, 32),
    "DenseNet-121": (lambda: DenseNet((1, 1, 1), 12, classes=5), 3, 2, 32),
    "MobileNetV2": (lambda: MobileNet(MOBILENET[1:5], width=0.25, depth=0.3, classes=5), 3, 2, 32),
    "EfficientNet-B0": (lambda: MobileNet(EFFICIENTNET[1:5], True, 0.25, 0.3, classes=5), 3, 2, 32),
    "ConvNeXt-T": (lambda: ConvNeXt((1, 1, 1), 12, classes=5), 3, 2, 32),
    "U-Net": (lambda: UNet(8, 2), 1, 2, 16),
    "U-Net-3D": (lambda: UNet(4, 1, dimension=3), 1, 3, 8),
    "ResNet-3D": (lambda: ResNet((1, 1), width=4, channels=1, classes=5, dimension=3), 1, 3, 16),
}


def group_of(dimension: int) -> Group:
    return O2() if dimension == 2 else O3()


@pytest.fixture(params=NETWORKS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def converted(name: str, fields: str = "irreps") -> tuple[tnn.Module, tnn.Module, Tensor]:
    """The plain network, its partially equivariant version, and a batch of an even size."""
    make, channels, dimension, size = NETWORKS[name]
    plain = make()
    with torch.no_grad():
        for key, parameter in plain.named_parameters():
            if key.endswith("gamma"):  # layer scale starts so small that what it scales would not show
                parameter.fill_(0.5)
    model = nn.convert(plain, group_of(dimension), fields=fields)  # type: ignore[arg-type]
    return plain, model, torch.randn(2, channels, *(size,) * dimension)


def seeded(model: tnn.Module, x: Tensor) -> Tensor:
    """In training mode: by statistics of the batch, with equal random choices every time."""
    torch.manual_seed(1)
    return model(x)


def change(model: tnn.Module, x: Tensor, group: Group) -> float:
    """By how much outputs change under symmetries of the grid, as a share of how much two samples' outputs differ."""
    y, scalars = seeded(model, x), FieldType(group, x.shape[1] * [group.trivial])
    found = []
    for element in grid_elements(group)[1::5]:
        moved = FieldType(group, y.shape[1] * [group.trivial]).transform(y, element)  # of vectors, nothing moves
        found.append((seeded(model, scalars.transform(x, element)) - moved).norm() / (y[0] - y[1]).norm())
    return float(torch.stack(found).max())


@pytest.mark.parametrize("fields", ["irreps", "functions"])
@pytest.mark.parametrize("odd", [0, 1], ids=["even", "odd"])
@torch.no_grad()
def test_exactly_equivariant_until_densities_are_learnt(name: str, odd: int, fields: str) -> None:
    plain, model, x = converted(name, fields)
    group = group_of(x.ndim - 2)
    x = torch.randn(*x.shape[:2], *(n + odd for n in x.shape[2:]), dtype=torch.float64)
    model.double()
    assert model(x).shape == plain.double()(x).shape
    assert change(model, x, group) < 1e-9
    for likelihood in pscnn.likelihoods(model).values():
        likelihood.coefficients.normal_(0, 0.7)
    assert change(model, x, group) > 1e-2


def test_trains_a_step_and_exports(name: str, tmp_path: Path) -> None:
    _, model, x = converted(name)
    optimiser = torch.optim.SGD(model.parameters(), 1e-3)
    losses = []
    for _ in range(2):
        optimiser.zero_grad()
        loss = (seeded(model, x) - 1).square().mean() + pscnn.regularization(model).kl
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]
    assert all(p.grad is not None for p in model.parameters())

    model.eval()
    with torch.no_grad():
        wanted = model(x)
        plain = nn.export(model)
        assert not [m for m in plain.modules() if type(m).__module__.startswith("pscnn")]
        tolerance = 1e-4 * float(wanted.abs().max())
        torch.testing.assert_close(plain(x), wanted, rtol=0, atol=tolerance)
        program = torch.export.export(plain, (x,))
        torch.testing.assert_close(program.module()(x), wanted, rtol=0, atol=tolerance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch about itself
            onnx = torch.onnx.export(program, (x,), dynamo=True, input_names=["input"], verbose=False)
    assert onnx is not None
    path = str(tmp_path / "network.onnx")
    onnx.save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    got = session.run(None, {"input": x.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(np.asarray(got)), wanted, rtol=0, atol=tolerance)

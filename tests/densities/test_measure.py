"""How equivariant networks are already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch import nn as tnn

import pscnn
from pscnn import nn
from pscnn.groups import O2, C, D
from pscnn.models import Relaxed, advance, unet

TURNS: dict[str, Callable[[Tensor], Tensor]] = {
    "90°": lambda x: x.rot90(1, (-2, -1)),
    "180°": lambda x: x.rot90(2, (-2, -1)),
    "↔": lambda x: x.flip(-1),
    "↕": lambda x: x.flip(-2),
    "╲": lambda x: x.rot90(1, (-2, -1)).flip(-1),
    "╱": lambda x: x.mT,
}
"""Elements by torch's own functions."""


class Small(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = tnn.Conv2d(2, 4, 3, padding=1)
        self.oblong = tnn.Conv2d(4, 4, (1, 3), padding=(0, 1))
        self.norm, self.pool = tnn.BatchNorm2d(4), tnn.MaxPool2d(2)
        self.point = tnn.Conv2d(4, 4, 1)
        self.fc = tnn.Linear(4, 3)

    def features(self, x: Tensor) -> Tensor:
        return self.pool(torch.relu(self.norm(self.oblong(self.first(x)))))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.point(self.point(self.features(x)))
        return {"scores": self.fc(x.mean((2, 3)))}


def relative(a: Tensor, b: Tensor, reference: Tensor) -> float:
    return float(((a - b).flatten(1).norm(dim=1) / reference.flatten(1).norm(dim=1)).mean())


def test_kernels_are_those_of_eval_mode() -> None:
    scalars = nn.FieldType(D(4), 2 * [D(4).trivial])
    layer = nn.Conv2d(scalars, scalars, 3, likelihood=Relaxed(D(4), 2))
    advance(layer, 5, 11)  # in the middle of training free, in eval mode equivariant
    assert pscnn.measure(layer.train(), D(4))[""].kernel == pytest.approx(0, abs=1e-5)
    assert layer.training


def test_kernels_and_responses_by_hand() -> None:
    model, x = Small(), torch.randn(3, 2, 8, 8)
    found = pscnn.measure(model, D(4), x)
    assert model.training
    assert [layer.name for layer in found.layers] == ["first", "oblong", "pool", "point", "fc", "output"]
    assert set(found.labels) == {*TURNS, "270°"}
    model.eval()
    kernel = model.first.weight.detach()
    for label, turn in TURNS.items():
        which = found.labels.index(label)
        changes = found["first"].kernel
        assert changes is not None
        assert changes[which] == pytest.approx(((turn(kernel) - kernel).norm() / kernel.norm()).item(), rel=1e-5)
        for name, function in (("first", model.first), ("pool", model.features)):
            response = found[name].response
            assert response is not None
            with torch.no_grad():
                expected = relative(function(turn(x)), turn(function(x)), function(x))
            assert response[which] == pytest.approx(expected, rel=1e-4)
        with torch.no_grad():
            scores, turned = model(x)["scores"], model(turn(x))["scores"]
        output = found["output"].response
        assert output is not None
        assert output[which] == pytest.approx(relative(turned, scores, scores), rel=1e-3)
    mean = torch.stack([k.rot90(n, (2, 3)) for k in (kernel, kernel.mT) for n in range(4)]).mean(0)
    shares = found["first"].shares
    assert shares is not None
    assert shares["ψ0,0"] == pytest.approx((mean.square().sum() / kernel.square().sum()).item(), rel=1e-5)
    assert sum(shares.values()) == pytest.approx(1)
    assert found["first"].chance == pytest.approx(3 / 9)
    assert found["oblong"].shares is not None  # as the square with zeros around it
    assert found["point"].shares is None
    assert "The output changes least under" in str(found)


def test_random_kernels_have_the_share_of_chance() -> None:
    found = pscnn.measure(tnn.Conv2d(64, 64, 5), D(4))
    (layer,) = found.layers
    assert layer.shares is not None
    assert layer.chance == pytest.approx(6 / 25)
    assert layer.shares["ψ0,0"] == pytest.approx(6 / 25, abs=0.01)
    assert layer.response is None
    assert "Responses" not in str(found)


def test_symmetric_networks_are_found_to_be() -> None:
    x = torch.randn(2, 1, 12, 12)
    found = pscnn.measure(unet("p-scnn", D(4), width=8, levels=2), D(4), x)
    assert max(np.max(layer.response) for layer in found.layers if layer.response is not None) < 1e-4
    assert all(layer.shares is None for layer in found.layers)  # their channels are no scalars
    found = pscnn.measure(unet("p-scnn", O2(), width=8, levels=2), C(4), x)  # a subgroup
    assert max(np.max(layer.response) for layer in found.layers if layer.response is not None) < 1e-4


def test_kept_weights_are_measured_as_plain_ones() -> None:
    plain = tnn.Sequential(tnn.Conv2d(1, 4, 3, padding=1), tnn.ReLU(), tnn.ConvTranspose2d(4, 2, 2, 2))
    x = torch.randn(2, 1, 9, 9)
    before, after = (pscnn.measure(m, D(4), x) for m in (plain, nn.convert(plain, D(4), weights="keep")))
    for name in ("0", "2", "output"):
        np.testing.assert_allclose(before[name].response, after[name].response, rtol=1e-3)  # type: ignore[arg-type]
    np.testing.assert_allclose(list(before["2"].shares.values()), list(after["2"].shares.values()), rtol=1e-3)  # type: ignore[union-attr]


def test_volumes_about_an_axis() -> None:
    model = tnn.Sequential(tnn.Conv3d(1, 2, 3, padding=1), tnn.AvgPool3d(3))
    found = pscnn.measure(model, D(4).about((0, 0, 1)), torch.randn(1, 1, 6, 9, 9))
    assert [layer.name for layer in found.layers] == ["0", "1", "output"]
    assert set(found.labels) == {*TURNS, "270°"}
    model = tnn.Sequential(tnn.Conv3d(1, 2, (1, 2, 3)))
    assert pscnn.measure(model, D(4).about((0, 0, 1)), torch.randn(1, 1, 6, 9, 9))["0"].shares is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((tnn.Conv2d(1, 1, 3), O2()), r"needs a group that maps pixels to pixels, such as D\(4\).*, got O\(2\)"),
        ((tnn.Conv2d(1, 1, 3), D(4), torch.zeros(1, 9, 9)), r"D\(4\) acts on 2 axes of space; .*, got \(1, 9, 9\)"),
        ((tnn.ReLU(), D(4)), r"ReLU has no layer that D\(4\) could act on"),
    ],
)
def test_messages(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pscnn.measure(*arguments)

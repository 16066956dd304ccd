"""Networks that keep their weights: the same function at first, drawn towards symmetry afterwards."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import grid_elements
from torch import Tensor
from torch import nn as tnn
from torch.nn.utils.parametrizations import weight_norm

import pscnn
from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, SO3, C, D, Group


class Mixture(tnn.Module):
    """Much of what networks have, also what has no steerable counterpart."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = tnn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.norm = tnn.BatchNorm2d(8)
        self.oblong = tnn.Sequential(tnn.Conv2d(8, 8, (1, 3), padding=(0, 1)), tnn.Conv2d(8, 8, (3, 1), padding="same"))
        self.depthwise = tnn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8, padding_mode="reflect")
        self.excite = tnn.Conv2d(8, 8, 1)
        self.down = tnn.Conv2d(8, 12, 2, 2)
        self.group_norm = tnn.GroupNorm(3, 12)
        self.up = tnn.ConvTranspose2d(12, 6, 4, 2, 1, groups=2)
        self.shared = tnn.Conv2d(6, 6, 3, padding="same", padding_mode="circular")
        self.again = self.shared
        self.fc = tnn.Linear(6 * 9, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.norm(self.stem(x)))
        x = x + self.depthwise(self.oblong(x))
        x = x * self.excite(x.mean((2, 3), keepdim=True)).sigmoid()
        x = self.up(F.max_pool2d(self.group_norm(self.down(x)), 3, 1, 1), output_size=x.shape)
        x = self.again(torch.relu(self.shared(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 3).flatten(1))


def volumes() -> tnn.Module:
    return tnn.Sequential(
        tnn.Conv3d(1, 4, 3, stride=(1, 2, 2)), tnn.ReLU(), tnn.ConvTranspose3d(4, 2, 2, 2), tnn.Conv3d(2, 2, (3, 1, 1))
    )


def concentrated(group: Group, height: float = 40.0) -> Likelihood:
    """A density on the identity alone, up to rounding."""
    return Likelihood(
        group,
        group.max_frequency or 0,
        initial=lambda h: height * (h == group.identity).all((1, 2)),
        dtype=torch.float64,
    )


@pytest.mark.parametrize("group", [D(4), C(4), D(1), C(1)], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_it_is_the_same_function(group: Group, training: bool) -> None:
    plain = Mixture().train(training)
    before, x = copy.deepcopy(plain.state_dict()), torch.randn(2, 3, 31, 31)
    model = nn.convert(plain, group, weights="keep")
    assert type(model) is Mixture
    assert model.training == training
    torch.testing.assert_close(model(x), plain(x), rtol=1e-5, atol=1e-5)
    learnt = [name for name, _ in plain.named_parameters()]
    assert all(torch.equal(before[name], plain.state_dict()[name]) for name in learnt)
    assert list(pscnn.likelihoods(model)) == ["stem", "oblong.0", "oblong.1", "depthwise", "down", "up", "shared"]
    assert model.shared is model.again
    assert isinstance(model.excite, tnn.Conv2d)  # one pixel: commutes with everything already


@pytest.mark.parametrize("axis", [(0, 0, 1), (1, 0, 0)])
def test_it_is_the_same_function_of_volumes(axis: tuple[int, int, int]) -> None:
    plain, group = volumes(), D(4).about(axis)
    if axis == (1, 0, 0):
        with pytest.raises(ValueError, match=r"0 \(Conv3d\): stride \(1, 2, 2\) differs along axes that D\(4\)@x exch"):
            nn.convert(plain, group, weights="keep")
        return
    x = torch.randn(1, 1, 7, 9, 9)
    torch.testing.assert_close(nn.convert(plain, group, weights="keep")(x), plain(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(3, 3), (4, 4), (3, 1)])
def test_its_kernel_is_the_mean_of_turned_ones(size: tuple[int, int]) -> None:
    """Σ_h λ(h) K(h⁻¹x) by hand, with numpy's turns and mirrors."""
    conv = tnn.Conv2d(2, 3, size).double()
    layer = nn.PixelConv(conv, Likelihood(D(4), initial=lambda h: 3 * h.trace(axis1=1, axis2=2), dtype=torch.float64))
    torch.testing.assert_close(
        layer.kernel()[:, :, :, layer.shape[1] // 2 - size[1] // 2 :][..., : size[1]], conv.weight
    )
    with torch.no_grad():
        layer.likelihood.coefficients.normal_()
    whole = layer.expand(None)
    elements, density = D(4).quadrature(0)[0], layer.likelihood.masses()
    expected = torch.zeros_like(whole)
    for h, mass in zip(elements, density, strict=True):
        turns = round(np.degrees(np.arctan2(h[1, 0], h[0, 0])) / 90)
        if np.linalg.det(h) > 0:
            turned = whole.rot90(turns, (2, 3))
        else:  # h = R(θ) · mirror: the first column of R(θ) is that of h, negated
            turned = whole.flip(3).rot90(round(np.degrees(np.arctan2(-h[1, 0], -h[0, 0])) / 90), (2, 3))
        expected += mass * turned
    torch.testing.assert_close(layer.kernel(), expected)


def test_with_even_densities_it_commutes_with_the_group() -> None:
    plain = tnn.Sequential(
        tnn.Conv2d(2, 6, 5, 2, 2), tnn.BatchNorm2d(6), tnn.ReLU(), tnn.MaxPool2d(3, 2, 1),
        tnn.ConvTranspose2d(6, 4, 3, 2, 1), tnn.Conv2d(4, 3, 3, padding=1),
    ).double().eval()  # fmt: skip
    H = D(4)
    model = nn.convert(plain, H, weights="keep")
    x, elements = torch.randn(2, 2, 17, 17, dtype=torch.float64), grid_elements(H)
    types = FieldType(H, 2 * [H.trivial]), FieldType(H, 3 * [H.trivial])
    assert pscnn.equivariance_error(model, x, elements, *types).max() > 0.1
    for likelihood in pscnn.likelihoods(model).values():
        likelihood.coefficients.data.zero_()
    assert pscnn.equivariance_error(model.eval(), x, elements, *types).max() < 1e-12


def test_the_kl_term_draws_it_towards_symmetry() -> None:
    plain = tnn.Sequential(tnn.Conv2d(1, 4, 3, padding=1), tnn.Tanh(), tnn.Conv2d(4, 2, 3, padding=1)).eval()
    model = nn.convert(plain, D(4), weights="keep")
    densities = pscnn.likelihoods(model)
    assert pscnn.regularization(model).kl == 0  # consecutive ones are equal: only uniform ones are a pull
    x, elements, scalars = torch.randn(4, 1, 9, 9), grid_elements(D(4)), FieldType(D(4), 2 * [D(4).trivial])
    given = {"in_type": FieldType(D(4), [D(4).trivial]), "out_type": scalars}
    errors = [pscnn.equivariance_error(model, x, elements, **given).mean().item()]
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    for _ in range(3):
        for _ in range(15):
            optimizer.zero_grad()
            pscnn.regularization(model, [(name, None) for name in densities]).kl.backward()
            optimizer.step()
        errors.append(pscnn.equivariance_error(model, x, elements, **given).mean().item())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.2 * errors[0]


@pytest.mark.parametrize("kind", ["sgd", "momentum"])
def test_at_the_identity_weights_train_as_plain_ones_do(kind: str) -> None:
    """The basis is orthonormal: a gradient step with weight decay is the same one in other coordinates."""
    conv = tnn.Conv2d(3, 4, 3, padding=1).double()
    layer = nn.PixelConv(conv, concentrated(D(4)).requires_grad_(False))
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    for model in (conv, layer):
        parameters = [p for p in model.parameters() if p.requires_grad]
        options: dict[str, Any] = {"momentum": 0.9, "nesterov": True} if kind == "momentum" else {}
        optimizer = torch.optim.SGD(parameters, 0.1, weight_decay=0.1, **options)
        for _ in range(4):
            optimizer.zero_grad()
            model(x).sin().sum().backward()
            optimizer.step()
    torch.testing.assert_close(layer.kernel(), conv.weight)
    torch.testing.assert_close(layer(x), conv(x))


def test_the_library_works_on_it() -> None:
    plain = Mixture().eval()
    model = nn.convert(plain, D(4), weights="keep")
    x = torch.randn(2, 3, 31, 31)
    with torch.no_grad():
        for likelihood in pscnn.likelihoods(model).values():
            likelihood.coefficients.normal_()
    y = model(x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(x), y)
    fresh = nn.convert(Mixture().eval(), D(4), weights="keep")
    fresh.load_state_dict(model.state_dict())
    torch.testing.assert_close(fresh(x), y)
    exported = nn.export(model)
    torch.testing.assert_close(exported(x), y, rtol=1e-4, atol=1e-5)
    assert not [m for m in exported.modules() if type(m).__module__.startswith("pscnn")]
    torch.save(exported.state_dict(), stored := io.BytesIO())
    assert b"pscnn" not in stored.getvalue()
    assert "(depthwise)" in pscnn.summary(model)
    errors = pscnn.layer_errors(model, x, grid_elements(D(4)))
    assert all(found.error.max() > 0.01 for found in errors.values())
    pscnn.align(model)
    torch.testing.assert_close(model(x), y, rtol=1e-4, atol=1e-4)
    assert pscnn.regularization(model).alignment < 1e-5
    with nn.expand_once(model):
        torch.testing.assert_close(model(x), model(x))


def test_turning_the_kernel_is_turning_the_map() -> None:
    density = Likelihood(D(4), initial=lambda h: h.trace(axis1=1, axis2=2), dtype=torch.float64)
    layer = nn.PixelConv(tnn.Conv2d(2, 3, 3, padding=1).double(), density)
    x = torch.randn(1, 2, 9, 9, dtype=torch.float64)
    found = pscnn.layer_errors(layer, x, grid_elements(D(4)))[""]
    torch.testing.assert_close(found.error, found.measured)
    assert found.twin.max() < 1e-12
    assert found.error.max() > 0.1


def test_gradients_and_compilers() -> None:
    density = Likelihood(C(4), initial=lambda h: 2 * h[:, 0, 0], dtype=torch.float64)
    layer = nn.PixelConv(tnn.ConvTranspose2d(2, 2, 2, 2).double(), density)
    x = torch.randn(1, 2, 3, 3, dtype=torch.float64)

    def outputs(*values: Tensor) -> Tensor:
        names = [name for name, _ in layer.named_parameters()]
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(outputs, tuple(p.detach().requires_grad_() for p in layer.parameters()))
    program = torch.export.export(layer, (x,))
    torch.testing.assert_close(program.module()(x), layer(x))


def test_frozen_layers_dtypes_and_single_layers() -> None:
    plain = tnn.Conv2d(2, 2, 3, dtype=torch.float64)
    plain.weight.requires_grad_(False)
    layer = nn.convert(plain, C(4), weights="keep")
    assert isinstance(layer, nn.PixelConv)
    assert not layer.weight.requires_grad
    assert layer.bias is not None
    assert layer.bias.requires_grad
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    x = torch.randn(1, 2, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(layer(x), plain(x))
    with pytest.raises(ValueError, match=r"expected input of shape \(batch, 2, height, width\), got \(1, 3, 5, 5\)"):
        layer(x.new_zeros(1, 3, 5, 5))
    start = nn.convert(plain, C(4), weights="keep", initial=lambda h: 1.0 * h[:, 0, 0])
    assert isinstance(start, nn.PixelConv)
    assert start.likelihood.effective_size() > 0.5
    torch.testing.assert_close(start(x), plain(x))


@pytest.mark.parametrize(
    ("model", "group", "options", "message"),
    [
        (tnn.Conv2d(1, 1, 3), O2(), {}, r"needs a group that maps pixels to pixels, such as D\(4\).*, got O\(2\)"),
        (tnn.Conv2d(1, 1, 3), C(8), {}, r"maps pixels to pixels"),
        (tnn.Conv3d(1, 1, 3), SO3(), {}, r"maps pixels to pixels"),
        (tnn.Conv3d(1, 1, 3), D(4), {}, r"model \(Conv3d\): D\(4\) acts on the plane, the kernel has 3 axes"),
        (tnn.Conv2d(1, 1, 3), D(4), {"bandlimit": 1}, r"all irreps of D\(4\), bandlimit=2 without lowest"),
        (tnn.Conv2d(1, 1, 3), D(4), {"keep": C(2)}, "without lowest, keep and support"),
        (tnn.Conv2d(1, 1, 3), D(4), {"fields": "regular"}, "all channels are scalars; leave out fields"),
        (tnn.Conv2d(1, 1, 3), D(4), {"weights": "old"}, "weights must be 'new' or 'keep', got 'old'"),
        (tnn.Conv2d(1, 1, 3), D(4), {"alignment": "construction"}, "cannot be combined with initial"),
        (tnn.Conv2d(1, 1, 3), D(4), {"initial": lambda h: 0 * h[:, 0, 0]}, "too even for a kernel without symmetry"),
        (tnn.Conv2d(1, 1, 1), D(4), {}, "has no convolution larger than a pixel"),
        (tnn.Conv2d(1, 1, (2, 3)), D(4), {}, r"kernel size \(2, 3\) is even and odd along axes that D\(4\) exchanges"),
        (tnn.Conv2d(1, 1, 3, dilation=(1, 2)), D(4), {}, r"dilation \(1, 2\) differs along axes that D\(4\) exchanges"),
        (tnn.Sequential(weight_norm(tnn.Conv2d(1, 1, 3))), D(4), {}, r"0 \(.*Conv2d\): computes its kernel"),
    ],
)  # fmt: skip
def test_messages(model: tnn.Module, group: Group, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nn.convert(model, group, **{"weights": "keep", **options})


def test_a_density_with_too_few_irreps_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must have all irreps of D\(4\), use bandlimit=2"):
        nn.PixelConv(tnn.Conv2d(1, 1, 3), Likelihood(D(4), 1))

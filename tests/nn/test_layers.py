"""What single layers compute, against plain torch or by hand."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from helpers import irrep_type, noise, random_likelihood
from torch import nn as tnn

import pscnn
from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, SO2, SO3, C, D, rotation
from pscnn.models import build
from pscnn.nn import _field_norm

F64 = torch.float64
H = O2()
GRAY = FieldType(H, [H.trivial])


def test_scalar_batch_norm_is_torchs() -> None:
    fields = FieldType(H, 3 * [H.trivial])
    ours, theirs = nn.BatchNorm(fields), torch.nn.BatchNorm2d(3)
    with torch.no_grad():
        ours.weight.uniform_(), ours.bias.normal_()
        theirs.weight.copy_(ours.weight), theirs.bias.copy_(ours.bias)
    for _ in range(3):
        x = 2 * torch.randn(4, 3, 5, 5) + 1
        torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_batch_norm_leaves_means_of_other_irreps_alone_and_normalises_fields() -> None:
    fields = FieldType(H, [H.irrep(0, 0) + H.irrep(1, 1), H.irrep(1, 2)])
    layer = nn.BatchNorm(fields).double()
    x = 3 * torch.randn(64, 5, 9, 9, dtype=F64) + torch.arange(1.0, 6, dtype=F64).view(1, 5, 1, 1)
    y = layer(x)
    assert y[:, 0].mean().abs() < 1e-10
    assert (y[:, 1:].mean((0, 2, 3)) > 0.2).all()
    assert y[:, :3].square().mean().item() == pytest.approx(1, abs=1e-4)
    assert y[:, 3:].square().mean().item() == pytest.approx(1, abs=1e-4)


def test_regular_batch_norm_is_the_same_in_either_basis() -> None:
    group = D(4)
    regular = FieldType(group, [group.regular])
    spectral = FieldType(group, [group.functions(2)])
    q = torch.tensor(group.regular.change_of_basis)
    x = torch.randn(8, 8, 3, 3, dtype=F64)
    y = nn.BatchNorm(spectral).double()(x)
    turned = nn.BatchNorm(regular).double()(torch.einsum("ij,bjxy->bixy", q, x))
    torch.testing.assert_close(turned, torch.einsum("ij,bjxy->bixy", q, y))


def test_batch_norms_own_gradient_is_autograds() -> None:
    layer = nn.BatchNorm(irrep_type(H, 3)).double()
    arguments = (*layer.ingredients(layer.weight), layer.field_size)
    x = noise(irrep_type(H, 3)).requires_grad_()
    weights = torch.randn(x.shape, dtype=F64)
    found = []
    for function in (_field_norm.FieldNorm.forward, _field_norm.FieldNorm.apply):
        y = function(x, *arguments)[0]
        found.append(torch.autograd.grad((y * weights).sum(), (x, layer.weight, layer.bias)))
    for slow, fast in zip(*found, strict=True):
        torch.testing.assert_close(fast, slow)


def test_batch_norm_in_low_precision_keeps_its_statistics_in_single() -> None:
    layer = nn.BatchNorm(irrep_type(H))
    x = noise(irrep_type(H), dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x.bfloat16())
    assert y.dtype == torch.bfloat16
    assert layer.running_var.dtype == torch.float32


def test_gate_multiplies_each_irrep_by_the_sigmoid_of_its_scalar() -> None:
    layer = nn.GatedNonlinearity(FieldType(H, [H.irrep(0, 0) + H.irrep(1, 1)]))
    x = torch.tensor([[0.0, 1.0, 5.0, 6.0, 7.0]])
    s = torch.sigmoid(torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(layer(x), torch.stack([5 * s[0], 6 * s[1], 7 * s[1]])[None])


def test_norm_nonlinearity_shrinks_by_the_threshold() -> None:
    layer = nn.NormNonlinearity(FieldType(H, [H.irrep(1, 1), H.trivial]))
    out = layer(torch.tensor([[3.0, 4.0, -0.1]]))
    torch.testing.assert_close(out, torch.tensor([[3.0 * 4.75 / 5, 4.0 * 4.75 / 5, 0.0]]))


def test_fourier_pointwise_is_pointwise_on_the_group() -> None:
    space = H.functions(2)
    layer = nn.FourierPointwise(FieldType(H, [space]), function=torch.square, degree=8, dtype=F64)
    c = torch.randn(1, space.size, dtype=F64)
    elements, weights = H.quadrature(40)
    values = torch.as_tensor(space.sample(elements)) @ c[0] / space.size**0.5
    expected = space.transform(values.square().numpy(), elements, weights) * space.size**0.5
    np.testing.assert_allclose(layer(c)[0], expected, atol=1e-12)


def test_regular_fields_are_activated_channel_by_channel() -> None:
    group = C(4)
    layer = nn.FourierPointwise(FieldType(group, 2 * [group.regular]), function=torch.relu)
    x = torch.randn(3, 8)
    assert torch.equal(layer(x), x.relu())


def test_pool_averages_constants_to_themselves_inside() -> None:
    out = nn.AvgPoolAntialiased(GRAY, stride=2, padding=0)(torch.ones(1, 1, 9, 9))
    torch.testing.assert_close(out, torch.ones(1, 1, 3, 3))


def test_disk_mask_is_one_inside_and_fades_outside() -> None:
    mask = nn.DiskMask(GRAY, 57).mask
    radius = 0.99 * 28
    assert mask[28, 28] == 1
    assert mask[28, 28 + 27] == 1
    assert mask[0, 0].item() == pytest.approx(np.exp(-(2 * 28**2 - radius**2) / 4))


def test_disk_mask_with_an_edge_falls_inwards_and_knows_oblong_images() -> None:
    mask = nn.DiskMask(GRAY, (8, 14), margin=0.0, edge=2.0).mask
    assert mask.shape == (8, 14)
    assert torch.equal(mask, mask.flip(0))
    assert torch.equal(mask, mask.flip(1))
    assert mask[3, 3] == 1  # along the middle line
    assert mask[0, 0] == 0
    distance = np.hypot(0.5, 3.5)  # of the pixel at the upper border from the middle line, whose end is at ±3
    expected = 0.5 - 0.5 * np.cos(np.pi * (4 - 3.5) / 2)
    assert mask[0, 6].item() == pytest.approx(expected)
    assert mask[0, 10].item() == pytest.approx(0.5 - 0.5 * np.cos(np.pi * (4 - distance) / 2))


def test_dropout_drops_whole_fields_and_keeps_the_mean() -> None:
    fields = FieldType(H, 400 * [H.irrep(1, 1)])
    y = nn.FieldDropout(fields, 0.25)(torch.ones(8, 800, 2, 2)).view(8, 400, 2, 2, 2)
    per_field = y.flatten(2)
    assert ((per_field == 0).all(-1) | (per_field == 1 / 0.75).all(-1)).all()
    assert y.mean().item() == pytest.approx(1, abs=0.05)


def test_restriction_to_the_trivial_group_only_renames() -> None:
    fields = irrep_type(H)
    layer = nn.Restriction(fields, C(1))
    x = noise(fields)
    assert torch.equal(layer(x), x)
    assert layer.out_type.group == C(1)
    assert all(psi.is_trivial for psi in layer.out_type.irreps)


def test_restriction_splits_in_space() -> None:
    fields = FieldType(SO3(), [SO3().irrep(2)])
    layer = nn.Restriction(fields, SO2()).double()
    assert [psi.index for psi in layer.out_type.irreps] == [(0,), (1,), (2,)]
    assert "basis" in dict(layer.named_buffers())
    conv = nn.Conv3d(layer.out_type, layer.out_type, 3, padding=1).double()
    model = torch.nn.Sequential(layer, conv)
    quarter = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    error = pscnn.equivariance_error(model, noise(fields, 5), quarter, fields, layer.out_type)
    assert error.max() < 1e-10


def test_convolution_options_are_torchs() -> None:
    fields = irrep_type(H)
    x = noise(fields, 9, dtype=torch.float32)
    for options in (
        {"stride": 2, "padding": 1},
        {"dilation": 2, "padding": "same"},
        {"padding": 2, "padding_mode": "reflect"},
        {"padding": "valid", "bias": False},
    ):
        layer = nn.Conv2d(fields, fields, 3, **options)
        torch.testing.assert_close(layer(x), nn.export(layer)(x))


def test_bias_lives_on_trivial_irreps_only() -> None:
    fields = FieldType(H, [H.irrep(1, 1), H.trivial, H.trivial])
    layer = nn.Linear(GRAY, fields)
    assert layer.bias is not None
    assert layer.bias.shape == (1, 2)
    torch.nn.init.ones_(layer.bias)
    full = layer.full_bias()
    assert full is not None
    assert full.tolist() == [0, 0, 1, 1]
    assert nn.Linear(GRAY, FieldType(H, [H.irrep(1, 0)])).bias is None


def test_equal_layers_share_their_basis() -> None:
    a, b = nn.Conv2d(GRAY, irrep_type(H), 5), nn.Conv2d(GRAY, irrep_type(H), 5)
    assert a.basis0 is b.basis0
    a.double(), b.double()
    assert a.basis0 is b.basis0


def test_shared_density_is_one_object() -> None:
    lam = random_likelihood(H)
    model = torch.nn.Sequential(nn.Linear(GRAY, GRAY, likelihood=lam), nn.Linear(GRAY, GRAY, likelihood=lam))
    assert list(pscnn.likelihoods(model)) == ["0"]
    assert sum(p is lam.coefficients for p in model.parameters()) == 1


def test_network_compiles_and_trains_like_eager() -> None:
    def build() -> torch.nn.Sequential:
        torch.manual_seed(0)
        gate = nn.GatedNonlinearity(irrep_type(H))
        return torch.nn.Sequential(
            nn.Conv2d(GRAY, gate.in_type, 3, likelihood=Likelihood(H, 2)),
            nn.BatchNorm(gate.in_type),
            gate,
            nn.Conv2d(gate.out_type, GRAY, 3, likelihood=Likelihood(H, 2)),
        )

    x = torch.randn(4, 1, 9, 9)
    losses = []
    torch.compiler.reset()  # other sizes seen before would make torch compile for any size
    for compile_it in (False, True):
        model = build()
        run = torch.compile(model, fullgraph=True) if compile_it else model
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            loss = run(x).square().mean() + pscnn.regularization(model).kl
            loss.backward()
            optimiser.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_export_keeps_the_users_class_and_shared_parts() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(GRAY, GRAY)
            self.again = self.first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.again(self.first(x))

    model = Twice()
    plain = nn.export(model)
    assert type(plain) is Twice
    assert plain.first is plain.again
    assert isinstance(model.first, nn.Linear)
    x = torch.randn(3, 1)
    torch.testing.assert_close(plain(x), model(x))


def test_models_made_under_inference_mode_run() -> None:
    with torch.inference_mode():
        layer = nn.Linear(GRAY, GRAY).eval()
        assert layer(torch.ones(1, 1)).shape == (1, 1)


def test_batch_norm_trains_in_half_modules_and_refuses_second_gradients() -> None:
    fields = irrep_type(H)
    x = noise(fields, dtype=torch.float32)
    low = nn.BatchNorm(fields).bfloat16()(x.bfloat16())
    assert (low.float() - nn.BatchNorm(fields)(x)).norm() < 0.02 * low.float().norm()
    x.requires_grad_()
    (first,) = torch.autograd.grad(nn.BatchNorm(fields)(x).pow(3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.square().sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norm_nonlinearity_is_finite_in_half_precision(dtype: torch.dtype) -> None:
    layer = nn.NormNonlinearity(irrep_type(H)).to(dtype)
    x = torch.zeros(2, layer.in_type.size, 3, 3, dtype=dtype)
    x[1] = 300
    assert torch.isfinite(layer(x)).all()
    with torch.autocast("cpu", dtype):
        assert torch.isfinite(nn.NormNonlinearity(irrep_type(H))(x.float())).all()


def test_models_made_under_inference_mode_do_not_spoil_others() -> None:
    group = C(7)
    fields = FieldType(group, [group.trivial, group.irrep(1)])
    with torch.inference_mode():
        first = nn.Linear(fields, fields, likelihood=Likelihood(group))
    second = nn.Linear(fields, fields, likelihood=Likelihood(group))
    second(torch.randn(2, 3)).sum().backward()
    assert second.weight.grad is not None
    assert first is not second


def test_export_drops_densities_and_joins_residual_pathways() -> None:
    class Owner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.density = random_likelihood(H)
            self.layer = nn.Linear(GRAY, GRAY, likelihood=self.density)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    for model, x in (
        (Owner(), torch.randn(2, 1)),
        (build("ddmnist", "rpp", "C4", width=0.1, size=28), torch.randn(2, 1, 28, 28)),
        (build("ddmnist", "p-scnn", "O(2)", width=0.1, size=28), torch.randn(2, 1, 28, 28)),
    ):
        plain = nn.export(model.eval())
        torch.testing.assert_close(plain(x), model(x), atol=1e-5, rtol=1e-4)
        assert not [m for m in plain.modules() if type(m).__module__.startswith("pscnn")]


def test_compiled_layers_under_autocast() -> None:
    H = C(4)
    fields = FieldType(H, 3 * [H.regular])
    torch.manual_seed(0)
    layer = tnn.Sequential(nn.Conv2d(fields, fields, 3, padding=1), nn.BatchNorm(fields))
    x = torch.randn(4, 12, 9, 9)
    found = []
    for run in (layer, torch.compile(layer, backend="aot_eager")):
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            y = run(x)
        y.float().square().mul(torch.arange(12.0).view(-1, 1, 1)).sum().backward()
        gradients = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
        assert len(gradients) == len(list(layer.parameters()))
        found.append((y, gradients))
    (one, slow), (two, fast) = found
    assert one.dtype == two.dtype == torch.bfloat16
    torch.testing.assert_close(two, one)
    for a, b in zip(slow[-2:], fast[-2:], strict=True):  # of the normalisation, in full precision
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-3)


def test_a_module_may_have_a_part_that_is_called_plain() -> None:
    class Own(tnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plain = tnn.Conv2d(2, 2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.plain(x)

    x = torch.randn(1, 2, 5, 5)
    model = Own()
    torch.testing.assert_close(nn.export(model)(x), model(x))


def test_measuring_errors_leaves_frozen_layers_frozen() -> None:
    H = C(4)
    fields = FieldType(H, [H.regular])
    model = tnn.Sequential(nn.Conv2d(fields, fields, 3, padding=1), nn.BatchNorm(fields))
    model[1].eval()
    pscnn.layer_errors(model, torch.randn(2, 4, 9, 9), rotation(0.5 * math.pi)[None])
    assert [module.training for module in model] == [True, False]


def test_an_empty_batch_leaves_running_statistics_alone() -> None:
    H = C(4)
    norm = nn.BatchNorm(FieldType(H, [H.regular]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that there is no variance
        norm(torch.zeros(0, 4, 5, 5))
    assert norm.running_mean.abs().max() == 0
    assert norm.num_batches_tracked == 0

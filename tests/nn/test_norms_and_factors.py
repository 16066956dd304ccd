"""Norms of samples, factors per field, max pooling by norm and stochastic depth, against plain torch or by hand."""

from __future__ import annotations

import pytest
import torch
from helpers import irrep_type, noise
from torch import nn as tnn

from pscnn import FieldType, nn
from pscnn.groups import O2, D

F64 = torch.float64
H = O2()
SCALARS = FieldType(H, 6 * [H.trivial])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (nn.GroupNorm(SCALARS, 3), tnn.GroupNorm(3, 6)),
        (nn.InstanceNorm(SCALARS, affine=True), tnn.InstanceNorm2d(6, affine=True)),
        (nn.InstanceNorm(SCALARS), tnn.InstanceNorm2d(6)),
    ],
)
def test_norms_of_scalars_are_torchs(ours: tnn.Module, theirs: tnn.Module) -> None:
    with torch.no_grad():
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            one.normal_()
            other.copy_(one)
    x = 3 * torch.randn(4, 6, 5, 7) + 2
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_layer_norm_of_scalars_is_torchs_over_channels() -> None:
    x = 3 * torch.randn(4, 6, 5, 7) + 2
    expected = tnn.LayerNorm(6)(x.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(nn.LayerNorm(SCALARS)(x), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(nn.LayerNorm(SCALARS)(x[:, :, 0, 0]), expected[:, :, 0, 0], rtol=1e-4, atol=1e-5)


def test_norms_leave_means_of_other_irreps_alone() -> None:
    fields = FieldType(H, [H.irrep(0, 0) + H.irrep(1, 1), H.irrep(1, 2)])
    x = 3 * torch.randn(2, 5, 9, 9, dtype=F64) + torch.arange(1.0, 6, dtype=F64).view(1, 5, 1, 1)
    y = nn.InstanceNorm(fields).double()(x)
    assert y[:, 0].mean((1, 2)).abs().max() < 1e-10
    assert (y[:, 1:].mean((2, 3)) > 0.2).all()
    for part in (y[:, :3], y[:, 3:]):  # one variance per field and sample
        torch.testing.assert_close(part.square().mean((1, 2, 3)), torch.ones(2, dtype=F64), rtol=1e-4, atol=0)
    y = nn.LayerNorm(fields).double()(x)
    torch.testing.assert_close(y.square().mean(1), torch.ones(2, 9, 9, dtype=F64), rtol=1e-3, atol=0)
    torch.testing.assert_close(y[:, 0], torch.zeros(2, 9, 9, dtype=F64))  # the mean of a single scalar


def test_norms_of_regular_fields_are_the_same_in_either_basis() -> None:
    group = D(4)
    regular, spectral = FieldType(group, 2 * [group.regular]), FieldType(group, 2 * [group.functions(2)])
    q = torch.block_diag(*2 * [torch.tensor(group.regular.change_of_basis)])
    x = noise(spectral, 3)
    for make in (nn.LayerNorm, nn.InstanceNorm):
        turned = make(regular).double()(torch.einsum("ij,bjxy->bixy", q, x))
        torch.testing.assert_close(turned, torch.einsum("ij,bjxy->bixy", q, make(spectral).double()(x)))


def test_norms_calculate_in_single_precision() -> None:
    layer = nn.GroupNorm(irrep_type(H), 2)
    x = 300 * noise(irrep_type(H), dtype=torch.float32)
    y = layer(x.half())
    assert y.dtype == torch.float16
    assert (y.float() - layer(x)).abs().max() < 0.02


def test_max_pooling_takes_each_field_where_it_is_longest() -> None:
    fields = FieldType(H, [H.irrep(1, 1), H.trivial])
    x = torch.zeros(1, 3, 2, 4)
    x[0, :2, 0, 1] = torch.tensor([-3.0, 4.0])
    x[0, :2, 1, 0] = torch.tensor([4.5, 0.0])
    x[0, 2] = torch.tensor([[1.0, -2, 3, 0], [0, 0, 0, -4]])
    y = nn.NormMaxPool(fields, 2)(x)
    torch.testing.assert_close(y[0, :, 0, 0], torch.tensor([-3.0, 4.0, -2.0]))
    torch.testing.assert_close(y[0, :, 0, 1], torch.tensor([0.0, 0.0, -4.0]))


@pytest.mark.parametrize(("window", "size"), [((2, 2, 0), 8), ((3, 2, 1), 9), ((5, 4, 2), 13), ((3, 3, 0), 9)])
def test_max_pooling_of_positive_scalars_is_torchs_where_windows_lie_symmetrically(
    window: tuple[int, int, int], size: int
) -> None:
    x = torch.rand(2, 6, size, size)
    torch.testing.assert_close(nn.NormMaxPool(SCALARS, *window)(x), tnn.MaxPool2d(*window)(x))


def test_factors_by_hand() -> None:
    fields = FieldType(H, [H.irrep(1, 1), H.trivial])
    x = torch.ones(1, 3, 2, 2)
    scale = nn.FieldScale(fields, 0.5)
    with torch.no_grad():
        scale.weight[1] = 3
    torch.testing.assert_close(scale(x)[0, :, 0, 0], torch.tensor([0.5, 0.5, 3.0]))
    product = nn.FieldProduct(fields)
    four = torch.tensor([1.0, 3.0, 5.0, 7.0]).view(1, 4, 1, 1)  # two for each field
    torch.testing.assert_close(product(x, four)[0, :, 1, 1], torch.tensor([2.0, 2.0, 6.0]))
    torch.testing.assert_close(product(x, four[:, :1]), x)

    excite = nn.SqueezeExcitation(fields, 4)
    x = torch.randn(2, 3, 4, 4)
    hidden = (x.mean((2, 3)) @ excite.squeeze.kernel().T).relu()
    factors = torch.sigmoid(hidden @ excite.excite.weight.T + excite.excite.bias)
    torch.testing.assert_close(excite(x), x * factors[:, [0, 0, 1], None, None])


def test_stochastic_depth_drops_whole_samples_and_keeps_the_mean() -> None:
    layer = nn.StochasticDepth(irrep_type(H), 0.25)
    y = layer(torch.ones(4000, 12, 1, 1)).flatten(1)
    assert ((y == 0).all(1) | (y == 1 / 0.75).all(1)).all()
    assert y.mean().item() == pytest.approx(1, abs=0.05)
    assert len(nn.StochasticDepth(irrep_type(H), 0.5, "batch")(torch.ones(50, 12)).unique()) == 1
    x = torch.randn(2, 12, 3, 3)
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.GroupNorm(SCALARS, 4), "GroupNorm: groups must divide the number of fields 6, got 4"),
        (lambda: nn.NormMaxPool(SCALARS, 2, padding=2), "padding of at most half of it, got 2 and 2"),
        (lambda: nn.SqueezeExcitation(SCALARS, 0), "channels must be 1 or more, got 0"),
        (lambda: nn.StochasticDepth(SCALARS, 2), "needs 0 ≤ p ≤ 1 and mode 'row' or 'batch', got 2 and 'row'"),
    ],
)
def test_messages(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match=message):
        build()

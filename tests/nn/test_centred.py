"""Where strided layers sample, which windows they cover, and what groups and transposed convolutions compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import irrep_type, noise
from torch import Tensor
from torch import nn as tnn

from pscnn import FieldType, models, nn
from pscnn.groups import O2, O3

F64 = torch.float64
H = O2()
GRAY = FieldType(H, [H.trivial])


def ramp(height: int, width: int) -> Tensor:
    """Every pixel's own row, counted from the middle."""
    rows = torch.arange(height, dtype=F64) - (height - 1) / 2
    return rows[:, None].expand(height, width)[None, None]


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", range(9, 15))
def test_samples_lie_symmetrically_at_the_strides_distance(size: int, stride: int) -> None:
    """A linear function shows where it was sampled."""
    for kernel in (1, 2, 3, 4):
        conv = nn.Conv2d(GRAY, GRAY, kernel, stride, bias=False).double()
        pool = nn.AvgPoolAntialiased(GRAY, stride, 0, kernel_size=kernel).double()
        y = conv(torch.ones(1, 1, size, 13, dtype=F64))[0, 0, 0, 0]
        for found in (conv(ramp(size, 13)) / y, pool(ramp(size, 13))):
            count = (size - kernel) // stride + 1
            assert found.shape[2:] == (count, (13 - kernel) // stride + 1)
            places = stride * (torch.arange(count, dtype=F64) - (count - 1) / 2)
            torch.testing.assert_close(found[0, 0], places[:, None].expand(found.shape[2:]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pooling_covers_as_many_windows_as_torchs(size: int, ceil_mode: bool) -> None:
    for window in ((2, 2, 0), (3, 2, 1), (3, 2, 0), (5, 4, 1), (4, 3, 1)):
        kernel, stride, padding = window
        x = ramp(size, size + 1)
        pool = nn.AvgPoolAntialiased(GRAY, stride, padding, kernel_size=kernel, ceil_mode=ceil_mode).double()
        assert pool(x).shape == tnn.MaxPool2d(*window, ceil_mode=ceil_mode)(x).shape
        torch.testing.assert_close(pool(x.flip(2)), pool(x).flip(2))
        torch.testing.assert_close(nn.export(pool)(x), pool(x))


def test_maps_that_are_met_symmetrically_are_not_averaged() -> None:
    fields = irrep_type(H)
    layer = nn.Conv2d(fields, fields, 3, 2, 1).double()
    x = noise(fields, 9)
    torch.testing.assert_close(layer(x), F.conv2d(x, *layer.kernel_and_bias(), 2, 1))


@pytest.mark.parametrize("size", [8, 9, 10, 11])
@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect"])
def test_twins_and_exported_layers_give_the_same(mode: Any, size: int) -> None:
    fields = irrep_type(H)
    x = torch.randn(2, fields.size, size, size + 1, dtype=F64)
    for kernel, stride, padding in ((3, 2, 1), (1, 2, 0), (4, 3, 2), (3, 4, 2)):
        layer = nn.Conv2d(fields, fields, kernel, stride, padding, padding_mode=mode).double()
        twin = models.twin(layer)
        assert isinstance(twin, nn.Centred)
        assert layer(x).shape[2:] == tnn.Conv2d(12, 1, kernel, stride, padding).double()(x).shape[2:]
        torch.testing.assert_close(twin(x), layer(x))
        plain = nn.export(layer)
        assert isinstance(plain.get_submodule("convolution"), tnn.Conv2d)
        torch.testing.assert_close(plain(x), layer(x))


def test_compiled_for_any_size_they_still_lie_symmetrically() -> None:
    layer = nn.Conv2d(GRAY, GRAY, 3, 2, 1).double()
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager", dynamic=True)
    for size in (8, 9, 10, 11):
        x = torch.randn(2, 1, size, size, dtype=F64)
        torch.testing.assert_close(compiled(x), layer(x))


def test_several_groups_are_convolutions_of_parts() -> None:
    fields = irrep_type(H, 3)
    layer = nn.Conv2d(fields, fields, 3, 2, 1, groups=3).double()
    x, size = noise(fields, 8), fields.size // 3
    one = irrep_type(H, 1)
    part = nn.Conv2d(one, one, 3, 2, 1).double()
    kernel, bias = layer.kernel_and_bias()
    assert bias is not None
    assert layer.weight.numel() == 3 * part.weight.numel()
    for k in range(3):
        where = slice(k * size, (k + 1) * size)
        torch.testing.assert_close(layer(x)[:, where], part.convolve(x[:, where], kernel[where], bias[where]))


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (4, 2, 1), (3, 1, 1), (5, 3, 0)])
def test_transposed_convolutions_spread_their_kernel_from_every_pixel(kernel: int, stride: int, padding: int) -> None:
    fields = irrep_type(H)
    layer = nn.ConvTranspose2d(fields, GRAY, kernel, stride, padding).double()
    with torch.no_grad():
        assert layer.bias is not None
        layer.bias.normal_()
    x = noise(fields, 5)
    wide = torch.zeros(2, fields.size, 4 * stride + 1, 4 * stride + 1, dtype=F64)
    wide[:, :, ::stride, ::stride] = x
    weight, bias = layer.kernel_and_bias()
    expected = F.conv2d(wide, weight.flip(2, 3), bias, padding=kernel - 1 - padding)
    torch.testing.assert_close(layer(x), expected)


def test_additional_rows_lie_on_both_sides() -> None:
    """With a constant map, an even kernel and no bias, what comes out is symmetric although there is a row more."""
    layer = nn.ConvTranspose2d(GRAY, GRAY, 3, 2, 1, output_padding=1).double()
    y = layer(torch.ones(1, 1, 5, 5, dtype=F64))
    assert y.shape == (1, 1, 10, 10)
    torch.testing.assert_close(y, y.flip(2))
    torch.testing.assert_close(y, y.transpose(2, 3))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: nn.Conv2d(irrep_type(H, 3), GRAY, 3, groups=3),
            "groups=3 needs that many equal parts of whole fields",
        ),
        (lambda: nn.Conv2d(irrep_type(H), GRAY, 3, groups=0), "groups must be a whole number of 1 or more, got 0"),
        (lambda: nn.Conv2d(GRAY, GRAY, 4, padding="same"), "padding='same' needs an odd kernel, got 4"),
        (
            lambda: nn.ConvTranspose2d(GRAY, GRAY, 2, 2, 0, 2),
            "output_padding must be less than stride or dilation, got 2",
        ),
        (lambda: nn.ConvTranspose3d(GRAY, GRAY, 2), r"ConvTranspose3d: needs a group that acts on R\^3, got O\(2\)"),
        (lambda: nn.ConvTranspose2d(GRAY, GRAY, None), "kernel_size must be a number such as 2 or 3, got None"),  # type: ignore[arg-type]
        (lambda: nn.Centred(tnn.Conv2d(1, 1, (1, 3))), "Centred: needs the same window along all axes"),
        (lambda: nn.AvgPoolAntialiased(GRAY, 2, kernel_size=0), "kernel_size must be 1 or more, got 0"),
    ],
)
def test_messages(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match=message):
        build()


def test_signals_keep_their_size_through_transposed_convolutions() -> None:
    for fields, layer in (
        (irrep_type(H, 8), nn.ConvTranspose2d(irrep_type(H, 8), irrep_type(H, 8), 2, 2)),
        (irrep_type(O3(), 4), nn.ConvTranspose3d(irrep_type(O3(), 4), irrep_type(O3(), 4), 4, 2, 1)),
    ):
        assert 0.6 < layer(noise(fields, 8, dtype=torch.float32)).std() < 1.4

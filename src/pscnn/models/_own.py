"""A network for images and volumes of any size that lets through little between right angles."""

import math
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch import nn as tnn

from pscnn._memory import afford
from pscnn.groups import Group, Representation, direct_sum
from pscnn.kernels import Gaussian
from pscnn.models._by_method import check_width
from pscnn.models._kit import PlainKit, SteerableKit, highest_frequency
from pscnn.models._resnet import resnet
from pscnn.models._unet import unet

OUTPUTS = ("scalars", "vector", "dense")
SMALLEST = 8
_FIELDS = (8, 16, 32, 40, 48)
"""Of the stages, at width 1; further ones have as many as the last."""
_PLAIN = 3
"""Channels of the plain network for each field."""
_LARGEST = {2: 72, 3: 24}
"""Sides of maps after the first convolution, at most: larger images and volumes meet a stride in it; twice that from a
stride of 4 on, which drops much."""
_COARSE = 10
"""The shorter side of the last map, at most."""


def own(
    method: str,
    group: Group,
    *,
    shape: Sequence[int] = (28, 28),
    channels: int = 1,
    outputs: int = 10,
    output: str = "scalars",
    bandlimit: int = 2,
    nonlinearity: str = "fourier",
    invariant: bool = True,
    width: float = 0.25,
    density: dict[str, Any] | None = None,
    residual: bool = False,
) -> tnn.Sequential:
    """A frame, convolutions with halved resolutions between them, and moments of the last map; or a ResNet-18.

    What leaks between right angles is what a grid cannot hold. Hence kernels are smooth, functions have more samples
    than their frequencies need, every halving follows a blur, every map is masked by a disk before it meets a square
    border, and the last one is read as a whole.
    """
    sides = _checked(shape, group, output)
    check_width(width, _PLAIN * _FIELDS[2] * width, 5, len(sides))
    if residual:
        return _residual(method, group, sides, channels, outputs, output, bandlimit, width, density or {})
    if output == "dense":
        return _dense(method, group, sides, channels, outputs, bandlimit, width, density or {})
    dimension = len(sides)
    kit: SteerableKit | PlainKit = PlainKit(dimension, channels)
    if method != "cnn":
        kit = SteerableKit(method, group, bandlimit, nonlinearity, channels, density or {}, smooth=True)
    stride = 1
    while max(sides) > _LARGEST[dimension] * stride * (2 if stride >= 4 else 1):
        stride *= 2
    kernel, profile = (7, None) if stride == 1 else (4 * stride + 1, Gaussian(0.6 * stride, 2))

    def copies(stage: int) -> int:
        fields = _FIELDS[min(stage, len(_FIELDS) - 1)] * width
        return max(1, round(fields if method != "cnn" else _PLAIN * fields))

    def block(stage: int, window: tuple[int, int, int], profile: Gaussian | None = None) -> list[tnn.Module]:
        return kit.block(copies(stage), 2, window, likelihood=kit.new_density(), profile=profile)

    sides = tuple(n + 4 * stride for n in sides)
    layers = [
        Frame(dimension, 2 * stride),
        *kit.mask(sides, 4.0 * stride),
        *block(0, (kernel, stride, kernel // 2), profile),
    ]
    sides, stage = tuple(-(-n // stride) for n in sides), 1
    while min(sides) > _COARSE or stage < 3:
        if min(sides) > _COARSE:
            layers += kit.halve()
            sides = tuple(-(-n // 2) for n in sides)
        if min(sides) <= _COARSE and stage >= 2:
            layers += kit.restrict()
        layers += [*kit.mask(sides, 2.0), *block(stage, (5, 1, 2))]
        stage += 1
    layers += kit.mask(sides, 2.0)
    features = max(1, round(96 * width))
    if output == "vector":
        return tnn.Sequential(*layers, *_readout(kit, outputs, True, False, min(sides)), Average())
    layers += _readout(kit, features, False, invariant, min(sides))
    size = features if isinstance(kit, PlainKit) else kit.fields.size
    # Where inputs are alike up to an element of H, what differs is what leaks; a norm would blow it up.
    norm = [tnn.BatchNorm1d(size)] if isinstance(kit, PlainKit) else []
    head = [Average(), *norm, tnn.ELU(), tnn.Linear(size, outputs)]
    return tnn.Sequential(*layers, *head)


def _checked(shape: Sequence[int], group: Group, output: str) -> tuple[int, ...]:
    sides = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if output not in OUTPUTS:
        raise ValueError(f"unknown output {output!r}: use one of {', '.join(OUTPUTS)}")
    if len(sides) != group.dimension:
        raise ValueError(f"{group.name} acts on {group.dimension} axes, got images of shape {sides}")
    if not all(isinstance(n, int) and n >= SMALLEST for n in sides):
        raise ValueError(f"images must have sides of {SMALLEST} pixels or more, got {sides}")
    afford(math.prod(sides), f"an image of shape {sides}", "use smaller ones")
    return sides


def _readout(kit: SteerableKit | PlainKit, count: int, vectors: bool, invariant: bool, kernel: int) -> list[tnn.Module]:
    """The last convolution: to vectors, invariant features, or as many of all irreps."""
    if isinstance(kit, PlainKit):
        return kit.readout(count * kit.dimension if vectors else count)
    group = kit.group
    field: Representation = group.vector if vectors else group.trivial
    if not vectors and not invariant:
        field, count = direct_sum(list(group.irreps(highest_frequency(group)))), max(1, count // 4)
    return kit.readout(count * [field], kernel, likelihood=kit.new_density())


def _dense(
    method: str,
    group: Group,
    sides: tuple[int, ...],
    channels: int,
    outputs: int,
    bandlimit: int,
    width: float,
    density: dict[str, Any],
) -> tnn.Sequential:
    """A U-Net, whose coarsest maps have at least four pixels along each side."""
    levels = 1
    while levels < 4 and min(sides) >> levels >= 4:
        levels += 1
    made: dict[str, Any] = {"dimension": len(sides), "channels": channels, "outputs": outputs, "levels": levels}
    if method != "cnn":
        made |= {"bandlimit": bandlimit, **density}
    return tnn.Sequential(unet(method, group, width=max(1, round(64 * width)), **made))


def _residual(
    method: str,
    group: Group,
    sides: tuple[int, ...],
    channels: int,
    outputs: int,
    output: str,
    bandlimit: int,
    width: float,
    density: dict[str, Any],
) -> tnn.Sequential:
    """A ResNet-18, which at width 1 has 64 channels in its first stage."""
    if output != "scalars":
        raise ValueError(f"residual networks have scalar outputs, such as scores of classes, got output {output!r}")
    made: dict[str, Any] = {"dimension": len(sides), "channels": channels, "outputs": outputs, "small": max(sides) < 64}
    if method != "cnn":
        made |= {"bandlimit": bandlimit, **density}
    return tnn.Sequential(resnet(18, method, group, width=max(1, round(64 * width)), **made))


class Frame(tnn.Module):
    """Pixels around images, like those at the border, so that masks cut off little of the images themselves.

    Args:
        dimension: 2 for images, 3 for volumes.
        pixels: On every side.

    Shape:
        (B, C, H, W[, …]) → (B, C, H + 2·pixels, W + 2·pixels[, …]).
    """

    def __init__(self, dimension: int, pixels: int) -> None:
        super().__init__()
        self.dimension, self.pixels = dimension, pixels

    def forward(self, x: Tensor) -> Tensor:
        """Repeat the border."""
        return F.pad(x, [self.pixels] * (2 * self.dimension), mode="replicate")

    def extra_repr(self) -> str:
        """How many."""
        return f"pixels={self.pixels}"


class Average(tnn.Module):
    """The mean over all places, (B, C, …) → (B, C): one of a square image, more of an oblong one."""

    def forward(self, x: Tensor) -> Tensor:
        """Average."""
        return x.flatten(2).mean(2)

"""ResNets for images and volumes of any size, with any method."""

import math
from typing import Any

from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn.groups import Group
from pscnn.models._by_method import by_method, check_counts, check_options, check_width, default_group, torch_layers

DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}
"""Blocks of each of the four stages."""


def resnet(
    depth: int = 18,
    method: str = "p-scnn",
    group: Group | str | None = None,
    *,
    dimension: int = 2,
    channels: int = 3,
    outputs: int = 10,
    width: int = 64,
    small: bool = False,
    fields: str = "functions",
    **options: Any,
) -> tnn.Module:
    """A ResNet for classification or regression, of images or volumes of any size.

    One network for all methods: written in ``torch.nn``, then converted (``by_method``). Equivariant methods start
    invariant to the group's symmetries of the grid.

    Args:
        depth: 18 or 34 (two 3×3 convolutions per block), or 50 (1×1, 3×3, 1×1).
        method: "cnn" (plain), "p-scnn" (learnt densities) or another one of ``METHODS``; "restricted" is free in the
            last stage.
        group: H, or its name; O(2) by default, SO(3) for volumes.
        dimension: 2 for images, 3 for volumes.
        channels: Of the input: scalars, unless ``in_type`` is given.
        outputs: Scores of classes, or numbers to regress (see ``Rescale``).
        width: Channels of the first stage; they double from stage to stage. Of fields as many as fit.
        small: For inputs of less than about 64 pixels: the first convolution is 3×3 without stride, and no pooling
            follows.
        fields: As in ``nn.convert``: "functions", with Fourier nonlinearities, or "irreps" with gates, or "regular".
        options: Further options of ``nn.convert``: ``bandlimit``, ``frequency``, ``in_type`` and those of densities.

    Shape:
        (B, channels, H, W) or (B, channels, D, H, W) → (B, outputs).

    Example:
        >>> import torch
        >>> model = resnet(18, "p-scnn", "D4", outputs=3, width=8, small=True).eval()
        >>> x = torch.randn(2, 3, 17, 17)
        >>> model(x).shape, bool((model(x) - model(x.rot90(1, (2, 3)))).abs().max() < 1e-4)
        (torch.Size([2, 3]), True)
    """
    if depth not in tuple(DEPTHS):
        raise ValueError(f"resnet: depth must be one of {', '.join(map(str, DEPTHS))}, got {depth!r}")
    group = default_group("resnet", group, dimension)
    check_options(resnet, method, options)
    check_counts(channels=channels, outputs=outputs)
    check_counts(math.inf, width=width)
    check_width(width, 8 * width, 3, dimension)
    return by_method(ResNet(depth, dimension, channels, outputs, width, small), method, group, fields=fields, **options)


class ResNet(tnn.Module):
    """The plain network; ``resnet`` says what its arguments are."""

    def __init__(self, depth: int, dimension: int, channels: int, outputs: int, width: int, small: bool) -> None:
        super().__init__()
        layers = torch_layers(dimension)
        kernel, stride, padding = (3, 1, 1) if small else (7, 2, 3)
        self.conv1 = layers.convolution(channels, width, kernel, stride, padding, bias=False)
        self.bn1 = layers.norm(width)
        self.relu = tnn.ReLU()
        self.maxpool = tnn.Identity() if small else layers.max_pool(3, 2, 1)
        block = Bottleneck if depth >= 50 else Basic
        source, stages = width, []
        for number, blocks in enumerate(DEPTHS[depth]):
            inner, stage = width * 2**number, []
            for k in range(blocks):
                stage.append(block(layers, source, inner, 2 if number and not k else 1))
                source = inner * block.expansion
            stages.append(tnn.Sequential(*stage))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.restrict = nn.RestrictHere()
        self.avgpool = layers.global_pool(1)
        self.fc = tnn.Linear(source, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.restrict(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(self.layer4(x)).flatten(1))


class Residual(tnn.Module):
    """A block: two or three convolutions, plus the input, perhaps convolved to its size."""

    expansion = 1

    def __init__(self, layers: Any, source: int, target: int, stride: int) -> None:
        super().__init__()
        self.relu, self.downsample = tnn.ReLU(), tnn.Sequential()
        if stride > 1 or source != target:
            convolution = layers.convolution(source, target, 1, stride, bias=False)
            self.downsample = tnn.Sequential(convolution, layers.norm(target))


class Basic(Residual):
    """Two 3×3 convolutions."""

    def __init__(self, layers: Any, source: int, inner: int, stride: int) -> None:
        super().__init__(layers, source, inner, stride)
        self.conv1 = layers.convolution(source, inner, 3, stride, 1, bias=False)
        self.bn1 = layers.norm(inner)
        self.conv2 = layers.convolution(inner, inner, 3, 1, 1, bias=False)
        self.bn2 = layers.norm(inner)

    def forward(self, x: Tensor) -> Tensor:
        """The rectified sum."""
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(Residual):
    """A 3×3 convolution of a quarter of the channels."""

    expansion = 4

    def __init__(self, layers: Any, source: int, inner: int, stride: int) -> None:
        super().__init__(layers, source, 4 * inner, stride)
        self.conv1 = layers.convolution(source, inner, 1, bias=False)
        self.bn1 = layers.norm(inner)
        self.conv2 = layers.convolution(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = layers.norm(inner)
        self.conv3 = layers.convolution(inner, 4 * inner, 1, bias=False)
        self.bn3 = layers.norm(4 * inner)

    def forward(self, x: Tensor) -> Tensor:
        """The rectified sum."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.downsample(x))

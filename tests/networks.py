"""Networks that people use, written out in plain torch: full size by default, narrow and shallow for tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv_norm(
    source: int, target: int, kernel: int, stride: int = 1, groups: int = 1, dimension: int = 2
) -> list[nn.Module]:
    conv, norm = (nn.Conv2d, nn.BatchNorm2d) if dimension == 2 else (nn.Conv3d, nn.BatchNorm3d)
    return [conv(source, target, kernel, stride, kernel // 2, groups=groups, bias=False), norm(target)]


# -- residual networks -------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, source: int, width: int, stride: int, bottleneck: bool, dimension: int) -> None:
        super().__init__()
        target = 4 * width if bottleneck else width
        if bottleneck:
            layers = [
                *conv_norm(source, width, 1, dimension=dimension), nn.ReLU(inplace=True),
                *conv_norm(width, width, 3, stride, dimension=dimension), nn.ReLU(inplace=True),
                *conv_norm(width, target, 1, dimension=dimension),
            ]  # fmt: skip
        else:
            layers = [
                *conv_norm(source, width, 3, stride, dimension=dimension), nn.ReLU(inplace=True),
                *conv_norm(width, target, 3, dimension=dimension),
            ]  # fmt: skip
        self.main = nn.Sequential(*layers)
        plain = stride == 1 and source == target
        self.skip = (
            nn.Identity() if plain else nn.Sequential(*conv_norm(source, target, 1, stride, dimension=dimension))
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.main(x)
        out += self.skip(x)
        return self.relu(out)


class ResNet(nn.Module):
    """ResNet-18 (blocks 2, 2, 2, 2), ResNet-50 (bottlenecks 3, 4, 6, 3), and the same for volumes."""

    def __init__(
        self, blocks: Sequence[int] = (2, 2, 2, 2), bottleneck: bool = False, width: int = 64, channels: int = 3,
        classes: int = 1000, dimension: int = 2,
    ) -> None:  # fmt: skip
        super().__init__()
        pool = (nn.MaxPool2d if dimension == 2 else nn.MaxPool3d)(3, 2, 1)
        self.stem = nn.Sequential(*conv_norm(channels, width, 7, 2, dimension=dimension), nn.ReLU(inplace=True), pool)
        stages, source = [], width
        for k, count in enumerate(blocks):
            for b in range(count):
                stages.append(Residual(source, width << k, 2 if k and not b else 1, bottleneck, dimension))
                source = (width << k) * (4 if bottleneck else 1)
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1) if dimension == 2 else nn.AdaptiveAvgPool3d(1)
        self.fc = nn.Linear(source, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.pool(self.stages(self.stem(x))), 1))


# -- VGG and DenseNet --------------------------------------------------------------------------------------------------


class VGG(nn.Module):
    """VGG-11: its head sees a map of 7 × 7 pixels."""

    def __init__(
        self, width: int = 64, hidden: int = 4096, side: int = 7, channels: int = 3, classes: int = 1000
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        source = channels
        for factor in (1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0):
            if factor:
                layers += [nn.Conv2d(source, factor * width, 3, padding=1), nn.ReLU(inplace=True)]
                source = factor * width
            else:
                layers.append(nn.MaxPool2d(2, 2))
        self.features, self.pool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(side)
        self.classifier = nn.Sequential(
            nn.Linear(source * side**2, hidden), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.features(x)).flatten(1))


class DenseLayer(nn.Module):
    def __init__(self, source: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(source), nn.Conv2d(source, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(F.relu(self.norm2(self.conv1(F.relu(self.norm1(x))))))
        return torch.cat([x, y], 1)


class DenseNet(nn.Module):
    """DenseNet-121."""

    def __init__(
        self, blocks: Sequence[int] = (6, 12, 24, 16), growth: int = 32, channels: int = 3, classes: int = 1000
    ) -> None:
        super().__init__()
        source = 2 * growth
        layers: list[nn.Module] = [*conv_norm(channels, source, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        for k, count in enumerate(blocks):
            for _ in range(count):
                layers.append(DenseLayer(source, growth))
                source += growth
            layers += [nn.BatchNorm2d(source), nn.ReLU()]
            if k < len(blocks) - 1:
                layers += [nn.Conv2d(source, source // 2, 1, bias=False), nn.AvgPool2d(2)]
                source //= 2
        self.features, self.classifier = nn.Sequential(*layers), nn.Linear(source, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1))


# -- inverted residuals ------------------------------------------------------------------------------------------------


class DropPath(nn.Module):
    """Stochastic depth, as libraries have it."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep = torch.rand(x.shape[0], *[1] * (x.ndim - 1), device=x.device) >= self.drop_prob
        return x * keep / (1 - self.drop_prob)


class Excitation(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.pool, self.fc1, self.fc2 = (
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, hidden, 1),
            nn.Conv2d(hidden, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.fc2(F.silu(self.fc1(self.pool(x))))) * x


class InvertedResidual(nn.Module):
    def __init__(
        self, source: int, target: int, kernel: int, stride: int, expand: int, act: type[nn.Module], excite: bool,
        drop: float,
    ) -> None:  # fmt: skip
        super().__init__()
        hidden = source * expand
        layers = [*conv_norm(source, hidden, 1), act()] if expand > 1 else []
        layers += [*conv_norm(hidden, hidden, kernel, stride, groups=hidden), act()]
        if excite:
            layers.append(Excitation(hidden, max(1, source // 4)))
        layers += conv_norm(hidden, target, 1)
        self.layers, self.drop = nn.Sequential(*layers), DropPath(drop)
        self.adds = stride == 1 and source == target

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.layers(x)) if self.adds else self.layers(x)


Stages = Sequence[tuple[int, int, int, int, int]]
"""Expansion, channels, blocks, stride and kernel of each."""

MOBILENET: Stages = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)  # fmt: skip
EFFICIENTNET: Stages = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip


class MobileNet(nn.Module):
    """MobileNetV2; with excitation EfficientNet-B0."""

    def __init__(
        self, stages: Stages = MOBILENET, efficient: bool = False, width: float = 1.0, depth: float = 1.0,
        channels: int = 3, classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        act = nn.SiLU if efficient else nn.ReLU6

        def scaled(count: int) -> int:
            return max(8, round(count * width))

        source = scaled(32)
        layers: list[nn.Module] = [*conv_norm(channels, source, 3, 2), act()]
        for expand, target, blocks, stride, kernel in stages:
            for k in range(max(1, round(blocks * depth))):
                first = stride if k == 0 else 1
                drop = 0.1 if efficient else 0.0
                layers.append(InvertedResidual(source, scaled(target), kernel, first, expand, act, efficient, drop))
                source = scaled(target)
        layers += [*conv_norm(source, scaled(1280), 1), act()]
        self.features, self.dropout, self.fc = nn.Sequential(*layers), nn.Dropout(0.2), nn.Linear(scaled(1280), classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.dropout(self.features(x).mean([2, 3])))


# -- ConvNeXt ----------------------------------------------------------------------------------------------------------


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int, drop: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up, self.act, self.down = nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 1e-6))
        self.drop = DropPath(drop)

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.gamma * self.down(self.act(self.up(self.norm(y))))
        return x + self.drop(y.permute(0, 3, 1, 2))


class ChannelNorm(nn.LayerNorm):
    """Of channels in second place."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """ConvNeXt-T."""

    def __init__(
        self, blocks: Sequence[int] = (3, 3, 9, 3), width: int = 96, channels: int = 3, classes: int = 1000
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 4, 4), ChannelNorm(width, eps=1e-6)]
        for k, count in enumerate(blocks):
            if k:
                layers += [ChannelNorm(width, eps=1e-6), nn.Conv2d(width, 2 * width, 2, 2)]
                width *= 2
            layers += [ConvNeXtBlock(width, 0.1) for _ in range(count)]
        self.features, self.norm, self.head = (
            nn.Sequential(*layers),
            nn.LayerNorm(width, eps=1e-6),
            nn.Linear(width, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.features(x).mean((-2, -1))))


# -- U-Net -------------------------------------------------------------------------------------------------------------


class UNet(nn.Module):
    """A U-Net with transposed convolutions, in 2D with batch norm and in 3D with instance norm."""

    def __init__(
        self, width: int = 64, levels: int = 4, channels: int = 1, classes: int = 2, dimension: int = 2
    ) -> None:
        super().__init__()
        plane = dimension == 2
        self.conv = nn.Conv2d if plane else nn.Conv3d
        up = nn.ConvTranspose2d if plane else nn.ConvTranspose3d
        self.pool: nn.Module = nn.MaxPool2d(2) if plane else nn.MaxPool3d(2)
        self.plane = plane
        sizes = [width << k for k in range(levels + 1)]
        self.down = nn.ModuleList([self.pair(a, b) for a, b in zip([channels, *sizes], sizes, strict=False)])
        self.up = nn.ModuleList([up(2 * n, n, 2, 2) for n in sizes[-2::-1]])
        self.join = nn.ModuleList([self.pair(2 * n, n) for n in sizes[-2::-1]])
        self.last = self.conv(width, classes, 1)

    def pair(self, source: int, target: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for given in (source, target):
            layers.append(self.conv(given, target, 3, padding=1, bias=False))
            norm = nn.BatchNorm2d(target) if self.plane else nn.InstanceNorm3d(target, affine=True)
            layers += [norm, nn.ReLU(inplace=True) if self.plane else nn.LeakyReLU(0.01, inplace=True)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        maps = []
        for k, stage in enumerate(self.down):
            x = stage(self.pool(x) if k else x)
            maps.append(x)
        for up, join, skip in zip(self.up, self.join, maps[-2::-1], strict=True):
            x = F.interpolate(up(x), size=skip.shape[2:])  # odd sizes were rounded down
            x = join(torch.cat([skip, x], 1))
        return self.last(x)

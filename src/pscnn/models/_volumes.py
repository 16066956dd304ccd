"""The paper's residual network for volumes."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch import nn as tnn

from pscnn.groups import Group
from pscnn.models._kit import ParallelPathway, PlainKit, SteerableKit

VOLUME_METHODS = ("cnn", "scnn", "rpp", "p-scnn", "resnet18")
# Paddings of the second block's first layer, of its pooling, and of pooling and layer in its skip connection. With them
# every stride meets an odd map symmetrically. 29 → 27, 13, 7, 3, 3, 1 and 17 → 15, 7, 5, 3, 3, 1.
_PADDINGS = {28: (1, 1, 0, 0), 16: (2, 2, 1, 1)}
_PADDINGS[64] = _PADDINGS[28]
VOLUME_SIZES = tuple(sorted(_PADDINGS))


class Residual(tnn.Module):
    """Two paths whose outputs are added; nothing follows the sum."""

    def __init__(self, main: list[tnn.Module], skip: list[tnn.Module]) -> None:
        super().__init__()
        self.main, self.skip = tnn.Sequential(*main), tnn.Sequential(*skip)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both paths."""
        return self.main(x) + self.skip(x)


def volumes(
    method: str,
    group: Group,
    *,
    bandlimit: int = 2,
    nonlinearity: str = "gated",
    invariant: bool = True,
    size: int = 28,
    width: int = 6,
    classes: int = 2,
    channels: int = 1,
    density: dict[str, Any] | None = None,
) -> tnn.Sequential:
    """Three residual blocks and a linear head; 29³ voxels become 27, 13, 7, 3 and 1.

    Args:
        method: "cnn" (plain), "scnn" (fully equivariant), "rpp" (whole blocks with a plain one in parallel) or "p-scnn"
            (the second layer of every residual block has a learnt density, which its skip connection shares);
            "resnet18", another architecture, is the plain network that the MedMNIST collection is measured with.
        group: H, of space, such as SO(3) or SO(2)@z. "cnn" and "resnet18" do not use it; the latter has no options but
            ``classes`` and ``channels``.
        bandlimit: L of the densities.
        nonlinearity: "gated", or "fourier" for functions on the sphere (on the group, if it turns about an axis).
        invariant: Whether the head sees invariant features only.
        size: Side length of the volumes: 28 as in the paper, 16, or 64, which a first pooling brings to 29.
        width: Fields in the first block; with "rpp" half of it, as in the paper.
        classes: Number of classes.
        channels: Of the volumes.
        density: Further options of ``pscnn.Likelihood``.
    """
    if method not in VOLUME_METHODS:
        raise ValueError(f"unknown method {method!r} for volumes: use one of {', '.join(VOLUME_METHODS)}")
    if group.dimension != 3:
        raise ValueError(f"medmnist3d needs a group of space such as SO(3), got {group.name}")
    if size not in VOLUME_SIZES:
        raise ValueError(f"networks for volumes exist for side lengths {VOLUME_SIZES}, got {size}")
    if width < 1:
        raise ValueError(f"width must be 1 or more, got {width}")
    if method == "resnet18":
        return _resnet18(classes, channels)
    c = max(1, width // 2) if method == "rpp" else width
    if method == "cnn":
        layers, features = _plain(c, size, channels)
    else:
        own = "scnn" if method == "rpp" else method
        kit = SteerableKit(own, group, bandlimit, nonlinearity, channels, density or {})
        layers, features = _steerable(kit, c, size, invariant, parallel=method == "rpp")
    head = [tnn.Flatten(), tnn.BatchNorm1d(features), tnn.ELU(), tnn.Linear(features, classes)]
    return tnn.Sequential(*layers, *head)


def _steerable(kit: SteerableKit, c: int, size: int, invariant: bool, parallel: bool) -> tuple[list[tnn.Module], int]:
    """The residual blocks; with ``parallel`` each has a plain one of the same channels beside it."""
    paddings = _PADDINGS[size]
    layers = [*kit.prepare(59), *kit.pool(2, 1)] if size == 64 else kit.prepare(size + 1)
    for number in (1, 2, 3):
        source, lam = kit.fields, kit.new_density()
        if number == 1:
            first = kit.block(c, 2, 7, 1, 2)
            hidden = kit.fields
            main = [*first, *kit.block(2 * c, 3, 5, 1, 2, likelihood=lam)]
            kit.fields = source
            skip = kit.block(2 * c, 3, 7, 1, 2, norm=False, likelihood=lam)
        elif number == 2:
            first = kit.block(4 * c, 3, 3, 2, paddings[0])
            hidden = kit.fields
            main = [*first, *kit.pool(2, paddings[1]), *kit.block(6 * c, 3, 3, 2, 2, likelihood=lam)]
            kit.fields = source
            skip = [*kit.pool(2, paddings[2]), *kit.block(6 * c, 3, 3, 1, paddings[3], norm=False, likelihood=lam)]
        else:
            first = [*kit.block(6 * c, 2, 3, 1, 1), *kit.pool(1, 1)]
            hidden = kit.fields
            final, features = kit.final(8 * c, invariant, likelihood=lam)
            main = [*first, *final]
            kit.fields = source
            skip, _ = kit.final(8 * c, invariant, kernel=3, likelihood=lam)
        block: tnn.Module = Residual(main, skip)
        if parallel:
            free = _plain_block(number, size, source.size, hidden.size, kit.fields.size, activated=True)
            block = ParallelPathway(block, free)
        layers.append(block)
        if number == 1:
            layers += kit.pool(2, 1)
    return layers, features


def _plain(c: int, size: int, channels: int) -> tuple[list[tnn.Module], int]:
    kit = PlainKit(3, channels)
    layers = [*kit.prepare(59), *kit.pool(2, 1)] if size == 64 else kit.prepare(size + 1)
    layers += [_plain_block(1, size, channels, c, 2 * c, activated=False), *kit.pool(2, 1)]
    layers += [_plain_block(2, size, 2 * c, 4 * c, 6 * c, activated=False)]
    layers += [_plain_block(3, size, 6 * c, 6 * c, 8 * c, activated=False)]
    return layers, 8 * c


def _plain_block(number: int, size: int, source: int, hidden: int, target: int, *, activated: bool) -> Residual:
    """A plain residual block with the strides and paddings of a steerable one.

    Args:
        number: Which of the three.
        size: Side length of the network's volumes.
        source: Channels that come in.
        hidden: Channels between its two convolutions.
        target: Channels that go out.
        activated: Whether the skip connections of the first two, and the last convolution, end with a nonlinearity.
    """
    kit = PlainKit(3, channels=source)
    if number == 1:
        main = [*kit.block(hidden, 0, 7, 1, 2), *kit.block(target, 0, 5, 1, 2)]
        skip: list[tnn.Module] = [tnn.Conv3d(source, target, 7, 1, 2)]
    elif number == 2:
        a, b, c, d = _PADDINGS[size]
        main = [*kit.block(hidden, 0, 3, 2, a), *kit.pool(2, b), *kit.block(target, 0, 3, 2, 2)]
        skip = [*kit.pool(2, c), tnn.Conv3d(source, target, 3, padding=d)]
    else:
        main = [*kit.block(hidden, 0, 3, 1, 1), *kit.pool(1, 0, kernel=3)]
        main += kit.block(target, 0, 1, 1, 0) if activated else [tnn.Conv3d(hidden, target, 1, bias=False)]
        skip = [tnn.Conv3d(source, target, 3, bias=False)]
    if activated and number < 3:
        skip.append(tnn.ELU())
    return Residual(main, skip)


class _Rectified(Residual):
    """A residual block with a nonlinearity after the sum."""

    def forward(self, x: Tensor) -> Tensor:
        """The rectified sum."""
        return super().forward(x).relu()


def _resnet18(classes: int, channels: int) -> tnn.Sequential:
    """ResNet-18 with 3×3×3 kernels throughout, as for small images: no stride and no pooling in its first layer."""

    def convolution(source: int, target: int, kernel: int, stride: int) -> list[tnn.Module]:
        padding = kernel // 2
        return [tnn.Conv3d(source, target, kernel, stride, padding, bias=False), tnn.BatchNorm3d(target)]

    layers = [*convolution(channels, 64, 3, 1), tnn.ReLU()]
    source = 64
    for target, strides in ((64, (1, 1)), (128, (2, 1)), (256, (2, 1)), (512, (2, 1))):
        for stride in strides:
            main = [*convolution(source, target, 3, stride), tnn.ReLU(), *convolution(target, target, 3, 1)]
            skip = convolution(source, target, 1, stride) if (stride, source) != (1, target) else []
            layers.append(_Rectified(main, skip))
            source = target
    return tnn.Sequential(*layers, tnn.AdaptiveAvgPool3d(1), tnn.Flatten(), tnn.Linear(512, classes))

"""The paper's residual network for volumes."""

import math
from typing import Any, cast

from torch import Tensor
from torch import nn as tnn

from pscnn.groups import Group
from pscnn.models._by_method import check_counts, check_width
from pscnn.models._kit import PlainKit, SteerableKit, head
from pscnn.models._methods import METHODS, ParallelPathway

VOLUME_METHODS = ("cnn", *(name for name in METHODS if name != "restricted"), "resnet18")
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
    """Three residual blocks and a linear head; 29³ voxels become 27, 13, 7, 3 and 1."""
    if group.dimension != 3:
        raise ValueError(f"medmnist3d needs a group of space such as SO(3), got {group.name}")
    if size not in VOLUME_SIZES:
        raise ValueError(f"networks for volumes exist for side lengths {VOLUME_SIZES}, got {size}")
    check_counts(math.inf, width=width)
    check_width(width, 6 * width, 3, 3)
    if method == "resnet18":
        return _resnet18(classes, channels)
    parallel = method != "cnn" and METHODS[method].parallel_blocks
    c = max(1, width // 2) if parallel else width
    kit: SteerableKit | PlainKit = PlainKit(3, channels)
    if method != "cnn":
        kit = SteerableKit("scnn" if parallel else method, group, bandlimit, nonlinearity, channels, density or {})
    layers = [*kit.prepare(59), *kit.pool(2, 1)] if size == 64 else kit.prepare(size + 1)
    for number, widths in enumerate(((c, 2 * c), (4 * c, 6 * c), (6 * c, 8 * c)), 1):
        source = cast(Any, kit.fields)
        block, middle = _block(kit, number, size, widths, invariant, False)
        final = cast(Any, kit.fields)
        if parallel:  # a plain block of the same channels, with a nonlinearity wherever the steerable one has it
            plain = PlainKit(3, source.size)
            free, _ = _block(plain, number, size, (middle.size, final.size), invariant, True)
            layers.append(ParallelPathway(block, free))
        else:
            layers.append(block)
        if number == 1:
            layers += kit.pool(2, 1)
    return tnn.Sequential(*layers, *head(final if method == "cnn" else final.size, classes))


def _block(
    kit: SteerableKit | PlainKit, number: int, size: int, widths: tuple[int, int], invariant: bool, activated: bool
) -> tuple[Residual, Any]:
    """One of the three residual blocks, and the fields between its two layers.

    With ``activated`` the skip connections of the first two plain blocks, and the last plain layer, end with a
    nonlinearity.
    """
    (hidden, target), source = widths, cast(Any, kit.fields)
    shared: dict[str, Any] = {"likelihood": kit.new_density()}
    if number == 1:
        main = kit.block(hidden, 2, (7, 1, 2))
        middle = kit.fields
        main += kit.block(target, 3, (5, 1, 2), **shared)
        kit.fields = source
        skip = kit.block(target, 3, (7, 1, 2), norm=False, **shared)
    elif number == 2:
        a, b, c, d = _PADDINGS[size]
        main = kit.block(hidden, 3, (3, 2, a))
        middle = kit.fields
        main += [*kit.pool(2, b), *kit.block(target, 3, (3, 2, 2), **shared)]
        kit.fields = source
        skip = [*kit.pool(2, c), *kit.block(target, 3, (3, 1, d), norm=False, **shared)]
    else:
        main = kit.block(hidden, 2, (3, 1, 1))
        middle = kit.fields
        if isinstance(kit, PlainKit):
            main.append(tnn.AvgPool3d(3, 1))
            main += kit.block(target, 0, (1, 1, 0)) if activated else [kit.convolution(target, (1, 1, 0), bias=False)]
            kit.fields = source
            skip = [kit.convolution(target, (3, 1, 0), bias=False)]
        else:
            main += [*kit.pool(1, 1), *kit.final(target, invariant, **shared)[0]]
            kit.fields = source
            skip = kit.final(target, invariant, kernel=3, **shared)[0]
    if number < 3 and isinstance(kit, PlainKit) and not activated:
        skip.pop()
    return Residual(main, skip), middle


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

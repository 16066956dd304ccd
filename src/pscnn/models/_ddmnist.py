"""The paper's network for double digits."""

from typing import Any

from torch import nn as tnn

from pscnn.groups import Group
from pscnn.models._by_method import check_width
from pscnn.models._kit import PlainKit, SteerableKit, head

DIGIT_PADDINGS = {28: (1, 2), 56: (2, 0)}
"""Paddings of blocks 3 and 4 by image size; with these every stride meets an odd map symmetrically.

56 → 57, 55, 55, 27, 15, 7, 3, 3, 1 and 28 → 29, 27, 27, 13, 7, 3, 3, 3, 1.
"""
DIGIT_SIZES = tuple(DIGIT_PADDINGS)


def double_digits(
    method: str,
    group: Group,
    *,
    bandlimit: int = 2,
    nonlinearity: str = "gated",
    invariant: bool = True,
    size: int = 56,
    width: float = 1.0,
    classes: int = 100,
    channels: int = 1,
    density: dict[str, Any] | None = None,
) -> tnn.Sequential:
    """Five blocks, three poolings, a 1×1 convolution and a linear head (paper, Table 7; 7 layers)."""
    if group.dimension != 2:
        raise ValueError(f"ddmnist needs a group of the plane, got {group.name}")
    if size not in DIGIT_SIZES:
        raise ValueError(f"double-digit networks exist for images of side lengths {DIGIT_SIZES}, got {size}")
    check_width(width, 36 * width, 3, 2)
    kit: SteerableKit | PlainKit = PlainKit(2, channels)
    if method != "cnn":
        kit = SteerableKit(method, group, bandlimit, nonlinearity, channels, density or {})
    third, fourth = DIGIT_PADDINGS[size]

    def copies(n: int) -> int:
        return max(1, round(n * width))

    def block(fields: int, frequency: int, *, kernel: int, stride: int, padding: int) -> list[tnn.Module]:
        return kit.block(copies(fields), frequency, (kernel, stride, padding), likelihood=kit.new_density())

    layers = [
        *kit.prepare(size + 1),
        *block(6, 2, kernel=7, stride=1, padding=2),
        *block(12, 3, kernel=5, stride=1, padding=2),
        *kit.pool(2, 1),
        *block(24, 4, kernel=3, stride=2, padding=third),
        *kit.pool(2, 1),
        *block(36, 4, kernel=3, stride=2, padding=fourth),
        *kit.restrict(),
        *block(36, 2, kernel=3, stride=1, padding=1),
        *kit.pool(1, 1),
    ]
    final, features = kit.final(copies(48), invariant, likelihood=kit.new_density())
    return tnn.Sequential(*layers, *final, *head(features, classes))

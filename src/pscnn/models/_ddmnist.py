"""The paper's network for double digits."""

from __future__ import annotations

from torch import nn as tnn

from pscnn.models._kit import PlainKit, SteerableKit

# (padding of block 3, padding of block 4) by image size; with these every stride meets an odd map symmetrically.
# 56 → 57, 55, 55, 27, 15, 7, 3, 3, 1 and 28 → 29, 27, 27, 13, 7, 3, 3, 3, 1.
_PADDINGS = {56: (2, 0), 28: (1, 2)}


def double_digits(
    kit: SteerableKit | PlainKit, *, size: int, width: float, classes: int, invariant: bool
) -> tnn.Sequential:
    """Five blocks, three poolings, a 1×1 convolution and a linear head (paper, Table 7; 7 layers).

    Args:
        kit: The method.
        size: Side length of the images, 56 as in the paper or 28.
        width: Multiplies the numbers of fields, 1 as in the paper.
        classes: Number of classes.
        invariant: Whether the head sees invariant features only.
    """
    if size not in _PADDINGS:
        raise ValueError(f"double-digit networks exist for images of side {sorted(_PADDINGS)}, got {size}")
    third, fourth = _PADDINGS[size]

    def copies(n: int) -> int:
        return max(1, round(n * width))

    layers = [
        *kit.prepare(size + 1),
        *kit.block(copies(6), 2, kernel=7, stride=1, padding=2),
        *kit.block(copies(12), 3, kernel=5, stride=1, padding=2),
        *kit.pool(2, 1),
        *kit.block(copies(24), 4, kernel=3, stride=2, padding=third),
        *kit.pool(2, 1),
        *kit.block(copies(36), 4, kernel=3, stride=2, padding=fourth),
        *kit.restrict(),
        *kit.block(copies(36), 2, kernel=3, stride=1, padding=1),
        *kit.pool(1, 1),
    ]
    final, features = kit.final(copies(48), invariant)
    head = [tnn.Flatten(), tnn.BatchNorm1d(features), tnn.ELU(), tnn.Linear(features, classes)]
    return tnn.Sequential(*layers, *final, *head)

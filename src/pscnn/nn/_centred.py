"""Strided layers whose samples lie symmetrically about the middle of a map, whatever its size."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.fx import Proxy

from pscnn.nn._fast import average


def leftover(x: Tensor, dimension: int, extent: int, stride: int, padding: int, ceil: bool = False) -> list[Any]:
    """Along each axis, by how many pixels a padded map is larger than what windows of that extent cover.

    Of n pixels there are m = ⌊(n + 2p − e) / s⌋ + 1 windows, and r = n + 2p − e − s(m − 1) pixels are left over, on one
    side. Rounded up instead, r is negative or zero.
    """
    over = [x.shape[axis] + 2 * padding - extent for axis in range(2, 2 + dimension)]
    return [-(-n % stride) if ceil else n % stride for n in over]


def centred(
    x: Tensor, dimension: int, extent: int, stride: int, padding: int, mode: str = "zeros", ceil: bool = False
) -> tuple[Tensor, list[Any]]:
    """A map that windows of that extent and stride cover symmetrically, and the zeros to be put around it.

    Half of the pixels that are left over are taken from either side. If their number is odd, the windows' middles lie
    half a pixel off the grid: there the map is the average of its neighbours, with weights ½, ½ along the axis. As many
    windows fit as before, so sizes are those of ``torch.nn``.

    There are no branches on sizes but the first: the rest can be traced, and then holds for all sizes.
    """
    if padding and mode != "zeros":
        x, padding = F.pad(x, (padding, padding) * dimension, mode=mode), 0
    if stride == 1:
        return x, [padding] * dimension
    left = leftover(x, dimension, extent, stride, padding, ceil)
    if not isinstance(x, Proxy) and not any(left):
        return x, [padding] * dimension
    halves, odd = [r // 2 for r in left], [r % 2 for r in left]
    spare = padding - (stride - 1) // 2  # zeros that remain in any case
    if spare < 0 or ceil:
        x = F.pad(x, [padding - half for half in reversed(halves) for _ in range(2)])
        rest: list[Any] = [0] * dimension
    else:
        rest = [padding - half for half in halves]
    within = odd if spare > 0 and not ceil else [0] * dimension  # zeros that take part in the average
    x = average(x, [1 + one for one in odd], within)
    return x, [zeros - one for zeros, one in zip(rest, within, strict=True)]

"""Strided layers whose samples lie symmetrically about the middle of a map, whatever its size."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Proxy

from pscnn.nn._fast import average


def leftover(x: Tensor, dimension: int, extent: int, stride: int, padding: int, ceil: bool = False) -> list[Any]:
    """Along each axis, by how many pixels a padded map is larger than what windows of that extent cover.

    Of n pixels there are m = ⌊(n + 2p − e) / s⌋ + 1 windows, and r = n + 2p − e − s(m − 1) pixels are left over, on one
    side. Rounded up instead, r is negative or zero.
    """
    over = [x.shape[axis] + 2 * padding - extent for axis in range(2, 2 + dimension)]
    return [-(-n % stride) if ceil else n % stride for n in over]


def centred(x: Tensor, dimension: int, extent: int, stride: int, padding: int) -> Tensor:
    """A map that windows of that extent, stride and padding cover symmetrically.

    Half of the pixels that are left over are taken from either side. If their number is odd, the windows' middles lie
    half a pixel off the grid: there the map is the average of its neighbours, with weights ½, ½ along the axis. As many
    windows fit as before, so sizes are those of ``torch.nn``.

    There are no branches on sizes but one: the rest can be traced, and then holds for all sizes.
    """
    if stride == 1:
        return x
    left = leftover(x, dimension, extent, stride, padding)
    if not isinstance(x, Proxy) and not any(left):
        return x
    if stride > 2:
        x = F.pad(x, [-(r // 2) for r in reversed(left) for _ in range(2)])
    return average(x, [1 + r % 2 for r in left])


class Centred(nn.Module):
    """A strided ``torch.nn`` convolution whose samples lie symmetrically about the middle of a map of any size.

    Where pixels would be left over on one side, it sees the averages of neighbours; sizes stay as they are.

    Args:
        convolution: With the same window along all axes, and zeros around the map if any.
        before: Pixels to put around the map before it is averaged.
        mode: Which: "zeros", "reflect", "replicate" or "circular".

    Shape:
        As the convolution.

    Example:
        >>> import torch
        >>> layer = Centred(nn.Conv2d(1, 1, 1, stride=2, bias=False))
        >>> _ = nn.init.ones_(layer.convolution.weight)
        >>> layer(torch.arange(4.0).expand(1, 1, 4, 4))[0, 0, 0].tolist()
        [0.5, 2.5]
    """

    def __init__(self, convolution: nn.Conv2d | nn.Conv3d, before: int = 0, mode: str = "zeros") -> None:
        super().__init__()
        given: tuple[Any, ...] = convolution.kernel_size, convolution.stride, convolution.padding, convolution.dilation
        if any(isinstance(s, str) or len(set(s)) > 1 for s in given) or convolution.padding_mode != "zeros":
            raise ValueError(f"Centred: needs the same window along all axes, and zeros around, got {convolution}")
        kernel, stride, padding, dilation = (s[0] for s in given)
        self.window = convolution.weight.ndim - 2, dilation * (kernel - 1) + 1, stride, padding
        self.convolution, self.before, self.mode = convolution, before, mode

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        out: Tensor = self.convolution(centred(surrounded(x, self.window[0], self.before, self.mode), *self.window))
        return out


def surrounded(x: Tensor, dimension: int, width: int, mode: str) -> Tensor:
    """A map with as many pixels around it."""
    return F.pad(x, (width, width) * dimension, mode="constant" if mode == "zeros" else mode) if width else x

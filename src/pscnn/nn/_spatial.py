"""Layers that act on space and leave the channels' types alone: pooling, masks, upsampling, dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Proxy

from pscnn._memo import memo
from pscnn._types import Array
from pscnn.kernels import grid_points
from pscnn.nn._centred import leftover
from pscnn.nn._fast import blur, depthwise
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Layer


class AvgPoolAntialiased(Layer):
    """A Gaussian blur followed by a stride: average pooling that keeps rotations.

    The kernel is rotationally symmetric, and samples lie symmetrically about the middle of the map: where (size +
    2·padding − kernel_size) is not divisible by the stride, they fall between pixels if need be.

    Args:
        in_type: The fields; the output has the same type.
        stride: Distance between samples.
        padding: Zeros around; (kernel_size − 1) // 2 by default.
        sigma: Width of the Gaussian in pixels.
        kernel_size: Odd or even.
        ceil_mode: Whether to round the number of samples up, not down.

    Shape:
        (B, C, H, W) or (B, C, D, H, W), according to the group's dimension.
    """

    blur: Tensor
    between: Tensor
    along: Tensor

    def __init__(
        self,
        in_type: FieldType,
        stride: int,
        padding: int | None = None,
        sigma: float = 0.66,
        kernel_size: int = 5,
        device: Device = None,
        dtype: DType = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(in_type)
        if kernel_size < 1:
            raise ValueError(f"AvgPoolAntialiased: kernel_size must be 1 or more, got {kernel_size}")
        if not sigma > 0:
            raise ValueError(f"AvgPoolAntialiased: sigma must be positive, got {sigma}")
        if not isinstance(stride, int) or stride < 1:
            raise ValueError(f"AvgPoolAntialiased: stride must be 1 or more, got {stride!r}")
        dimension = in_type.group.dimension
        self.stride, self.kernel_size, self.sigma = stride, kernel_size, sigma
        self.padding, self.ceil_mode = (kernel_size - 1) // 2 if padding is None else padding, ceil_mode
        for name, array in zip(("blur", "between", "along"), _gaussian(kernel_size, sigma, dimension), strict=True):
            self.add_constant(name, array, torch.empty(0, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        dimension, channels = self.in_type.group.dimension, self.in_type.size
        self.check(x, dimension)
        left = leftover(x, dimension, self.kernel_size, self.stride, self.padding, self.ceil_mode)
        if not isinstance(x, Proxy) and left[0] // 2 <= self.padding and len(set(left)) == 1:
            kernel = self.between if left[0] % 2 else self.blur
            return blur(x, channels, kernel, self.stride, self.padding - left[0] // 2)
        # Sides of several kinds, or, traced, of any: what changes from axis to axis are numbers, 0 or 1, not branches.
        odd = [r % 2 for r in left]
        zeros = [(self.padding - r // 2, self.padding - r // 2 + 1 - one) for r, one in zip(left, odd, strict=True)]
        on_pixels, change = (row.clone() for row in self.along)  # whole tensors, which exported files can keep
        kernel = torch.ones_like(on_pixels[:1])
        for axis, one in enumerate(odd):
            shape = [-1 if other == axis else 1 for other in range(dimension)]
            kernel = kernel * (on_pixels + one * change).view(shape)
        x = F.pad(x, [n for pair in reversed(zeros) for n in pair])
        return depthwise(x, channels, kernel, dimension, self.stride)

    def extra_repr(self) -> str:
        window = f"stride={self.stride}, padding={self.padding}, sigma={self.sigma}, kernel_size={self.kernel_size}"
        return window + (", ceil_mode=True" if self.ceil_mode else "")


class DiskMask(Layer):
    """Sets to zero what lies outside the largest disk (ball) of an image (volume), with a soft edge.

    Corners turn out of the picture when it rotates; without them a rotated image holds the same information. Of an
    image that is not square, what is further than half its shorter side from its middle line is outside.

    Args:
        in_type: The fields; the output has the same type.
        size: Side length of the image, or its sides.
        margin: Share of the radius to leave out.
        edge: Pixels over which the mask falls to zero, inwards; by default it falls outwards, within about two.

    Shape:
        (B, C, size, size[, size]) → the same.
    """

    mask: Tensor

    def __init__(
        self,
        in_type: FieldType,
        size: int | Sequence[int],
        margin: float = 0.01,
        device: Device = None,
        dtype: DType = None,
        edge: float | None = None,
    ) -> None:
        super().__init__(in_type)
        dimension = in_type.group.dimension
        sides = (size,) * dimension if isinstance(size, int) else tuple(size)
        if len(sides) != dimension or min(sides) < 2 or not 0 <= margin < 1:
            raise ValueError(f"DiskMask: needs size ≥ 2 and 0 ≤ margin < 1, got {size} and {margin}")
        if edge is not None and not edge > 0:
            raise ValueError(f"DiskMask: edge must be positive, got {edge}")
        self.size, self.margin, self.edge = size, margin, edge
        self.add_constant("mask", _disk(sides, margin, edge), torch.empty(0, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        self.check(x, self.in_type.group.dimension)
        if not isinstance(x, Proxy) and x.shape[2:] != self.mask.shape:
            got = " × ".join(map(str, x.shape[2:]))
            sides = self.size if isinstance(self.size, int) else " × ".join(map(str, self.size))
            raise ValueError(f"DiskMask: expected images of side {sides}, got {got}")
        return x * self.mask.to(x.dtype)

    def extra_repr(self) -> str:
        return f"size={self.size}, margin={self.margin}" + ("" if self.edge is None else f", edge={self.edge}")


class Upsample(Layer):
    """Bi- or trilinear resizing about the image's centre.

    Commutes with right angles and mirrors exactly.

    Args:
        in_type: The fields; the output has the same type.
        size: New side length.

    Shape:
        (B, C, H, W[, …]) → (B, C, size, size[, …]).
    """

    def __init__(self, in_type: FieldType, size: int) -> None:
        super().__init__(in_type)
        if size < 1:
            raise ValueError(f"Upsample: size must be 1 or more, got {size}")
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        self.check(x, self.in_type.group.dimension)
        dimension = self.in_type.group.dimension
        mode = "bilinear" if dimension == 2 else "trilinear"
        return F.interpolate(x, (self.size,) * dimension, mode=mode, align_corners=False)

    def extra_repr(self) -> str:
        return f"size={self.size}"


class FieldDropout(Layer):
    """Drops whole fields, so that what remains still transforms by its type.

    Args:
        in_type: The fields; the output has the same type.
        p: Probability of dropping a field.

    Shape:
        (B, C, …) → the same.
    """

    field_of: Tensor

    def __init__(self, in_type: FieldType, p: float = 0.5) -> None:
        super().__init__(in_type)
        if not 0 <= p < 1:
            raise ValueError(f"FieldDropout: p must be at least 0 and below 1, got {p}")
        self.p = p
        sizes = [rho.size for rho in in_type.representations]
        self.add_constant("field_of", np.repeat(np.arange(len(sizes)), sizes), torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        if not self.training or self.p == 0:
            return x
        fields = len(self.in_type.representations)
        keep = F.dropout(torch.ones(x.shape[0], fields, dtype=x.dtype, device=x.device), self.p)
        return x * keep.index_select(1, self.field_of).view(*x.shape[:2], *([1] * (x.ndim - 2)))

    def extra_repr(self) -> str:
        return f"p={self.p}"


class StochasticDepth(Layer):
    """Drops all fields of a sample at once: a branch of a residual network that is left out at random.

    Args:
        in_type: The fields; the output has the same type.
        p: Probability of dropping a sample.
        mode: "row" for every sample by itself, "batch" for all together.

    Shape:
        (B, C, …) → the same.
    """

    def __init__(self, in_type: FieldType, p: float, mode: Literal["row", "batch"] = "row") -> None:
        super().__init__(in_type)
        if not 0 <= p <= 1 or mode not in ("row", "batch"):
            raise ValueError(f"StochasticDepth: needs 0 ≤ p ≤ 1 and mode 'row' or 'batch', got {p} and {mode!r}")
        self.p, self.mode = p, mode

    def forward(self, x: Tensor) -> Tensor:
        """Drop."""
        self.check(x)
        if not self.training or self.p == 0:
            return x
        ones = torch.ones(x.shape[0] if self.mode == "row" else 1, *[1] * (x.ndim - 1), dtype=x.dtype, device=x.device)
        return x * F.dropout(ones, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}, mode={self.mode}"


@memo
def _gaussian(kernel_size: int, sigma: float, dimension: int) -> tuple[Array, Array, Array]:
    """A Gaussian on the pixels of a window; halfway between them, the average of its neighbours; both along an axis.

    The last are (2, k + 1): the first with a zero behind it, and what to add for the second.
    """
    squared = (grid_points(kernel_size, dimension) ** 2).sum(1)
    weights = np.exp(-squared / (2 * sigma**2))
    on_pixels = between = (weights / weights.sum()).reshape((kernel_size,) * dimension)
    for axis in range(dimension):
        between = np.apply_along_axis(np.convolve, axis, between, [0.5, 0.5])
    along = on_pixels.sum(tuple(range(1, dimension)))
    first, second = np.append(along, 0), np.convolve(along, [0.5, 0.5])
    return on_pixels, between, np.stack([first, second - first])


@memo
def _disk(sides: tuple[int, ...], margin: float, edge: float | None) -> Array:
    """By the distance from the middle: the centre, or of sides of several lengths the points that are no corners'."""
    shortest = min(sides)
    axes = np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in sides), indexing="ij")
    squared = sum(np.maximum(np.abs(x) - (n - shortest) / 2, 0) ** 2 for x, n in zip(axes, sides, strict=True))
    if edge is None:
        radius = (1 - margin) * (shortest - 1) / 2
        return np.asarray(np.exp(-np.maximum(squared - radius**2, 0) / 4))
    inside = np.clip(((1 - margin) * shortest / 2 - np.sqrt(squared)) / edge, 0, 1)
    return np.asarray(0.5 - 0.5 * np.cos(np.pi * inside))

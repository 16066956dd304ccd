"""Layers that act on space and leave the channels' types alone: pooling, masks, upsampling, dropout."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Proxy

from pscnn._memo import memo
from pscnn._types import Array
from pscnn.kernels import grid_points
from pscnn.nn._fast import blur
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Layer


class AvgPoolAntialiased(Layer):
    """A Gaussian blur followed by a stride: average pooling that keeps rotations.

    The kernel is rotationally symmetric. On a grid, equivariance needs (size + 2·padding − kernel_size) divisible by
    the stride, so that the samples left over lie symmetrically.

    Args:
        in_type: The fields; the output has the same type.
        stride: Distance between samples.
        padding: Zeros around; kernel_size // 2 by default.
        sigma: Width of the Gaussian in pixels.
        kernel_size: Odd.

    Shape:
        (B, C, H, W) or (B, C, D, H, W), according to the group's dimension.
    """

    blur: Tensor

    def __init__(
        self,
        in_type: FieldType,
        stride: int,
        padding: int | None = None,
        sigma: float = 0.66,
        kernel_size: int = 5,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        super().__init__(in_type)
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"AvgPoolAntialiased: kernel_size must be odd, got {kernel_size}")
        if not sigma > 0:
            raise ValueError(f"AvgPoolAntialiased: sigma must be positive, got {sigma}")
        if not isinstance(stride, int) or stride < 1:
            raise ValueError(f"AvgPoolAntialiased: stride must be 1 or more, got {stride!r}")
        self.stride, self.kernel_size, self.sigma = stride, kernel_size, sigma
        self.padding = kernel_size // 2 if padding is None else padding
        kernel = _gaussian(kernel_size, sigma, in_type.group.dimension)
        self.add_constant("blur", kernel, torch.empty(0, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        self.check(x, self.in_type.group.dimension)
        return blur(x, self.in_type.size, self.blur, self.stride, self.padding)

    def extra_repr(self) -> str:
        return f"stride={self.stride}, padding={self.padding}, sigma={self.sigma}, kernel_size={self.kernel_size}"


class DiskMask(Layer):
    """Sets to zero what lies outside the largest disk (ball) of an image (volume), with a soft edge.

    Corners turn out of the picture when it rotates; without them a rotated image holds the same information.

    Args:
        in_type: The fields; the output has the same type.
        size: Side length of the image.
        margin: Share of the radius to leave out.

    Shape:
        (B, C, size, size[, size]) → the same.
    """

    mask: Tensor

    def __init__(
        self, in_type: FieldType, size: int, margin: float = 0.01, device: Device = None, dtype: DType = None
    ) -> None:
        super().__init__(in_type)
        if size < 2 or not 0 <= margin < 1:
            raise ValueError(f"DiskMask: needs size ≥ 2 and 0 ≤ margin < 1, got {size} and {margin}")
        self.size, self.margin = size, margin
        mask = _disk(size, margin, in_type.group.dimension)
        self.add_constant("mask", mask, torch.empty(0, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        self.check(x, self.in_type.group.dimension)
        if not isinstance(x, Proxy) and x.shape[2:] != self.mask.shape:
            got = " × ".join(map(str, x.shape[2:]))
            raise ValueError(f"DiskMask: expected images of side {self.size}, got {got}")
        return x * self.mask.to(x.dtype)

    def extra_repr(self) -> str:
        return f"size={self.size}, margin={self.margin}"


class Upsample(Layer):
    """Bi- or trilinear resizing about the image's centre.

    Commutes with right angles and mirrors exactly; odd sizes keep a pixel in the centre for strided layers.

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


@memo
def _gaussian(kernel_size: int, sigma: float, dimension: int) -> Array:
    squared = (grid_points(kernel_size, dimension) ** 2).sum(1)
    weights = np.exp(-squared / (2 * sigma**2))
    return (weights / weights.sum()).reshape((kernel_size,) * dimension)


@memo
def _disk(size: int, margin: float, dimension: int) -> Array:
    squared = (grid_points(size, dimension) ** 2).sum(1)
    radius = (1 - margin) * (size - 1) / 2
    return np.exp(-np.maximum(squared - radius**2, 0) / 4).reshape((size,) * dimension)

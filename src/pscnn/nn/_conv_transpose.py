"""Steerable transposed convolutions, which enlarge maps."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pscnn.measures import Measure
from pscnn.nn._export import trace
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType
from pscnn.nn._steerable import SteerableMap


class _ConvTranspose(SteerableMap):
    dimension: int
    kernel_size: int

    def __init__(
        self,
        in_type: FieldType,
        out_type: FieldType,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        bias: bool = True,
        dilation: int = 1,
        likelihood: Measure | None = None,
        gain: float = 1.0,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        name = type(self).__name__
        if isinstance(in_type, FieldType) and in_type.group.dimension != self.dimension:
            raise ValueError(f"{name}: needs a group that acts on R^{self.dimension}, got {in_type.group.name}")
        if kernel_size is None:
            raise ValueError(f"{name}: kernel_size must be a number such as 2 or 3, got None")
        if not 0 <= output_padding < max(stride, dilation):
            raise ValueError(f"{name}: output_padding must be less than stride or dilation, got {output_padding}")
        self.stride, self.padding, self.dilation, self.output_padding = stride, padding, dilation, output_padding
        # Of the kernel's points only every stride-th along each axis meets a given pixel.
        met = gain * stride ** (self.dimension / 2)
        super().__init__(in_type, out_type, kernel_size, likelihood, bias, met, device, dtype)

    def convolve(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve with a given kernel (C_out, C_in, …) and bias under this layer's stride, padding and dilation."""
        return _enlarged(x, kernel.transpose(0, 1), bias, self._where)

    @property
    def _where(self) -> tuple[int, int, int, int, int]:
        return self.dimension, self.stride, self.padding, self.output_padding, self.dilation

    def plain(self) -> nn.Module:
        """The same map as a ``torch.nn`` transposed convolution with a fixed kernel."""
        cls = nn.ConvTranspose2d if self.dimension == 2 else nn.ConvTranspose3d
        _, stride, padding, output_padding, dilation = self._where
        kernel, bias = self.kernel().transpose(0, 1), self.full_bias()
        made: nn.Module = self._fill(cls, kernel, bias, self.kernel_size, stride, padding, dilation=dilation)
        return trace(_Centred(made, self._where)).train(self.training) if output_padding else made

    def extra_repr(self) -> str:
        window = f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        more = f", output_padding={self.output_padding}" if self.output_padding else ""
        return f"{super().extra_repr()}, {window}{more}"


class _Centred(nn.Module):
    """A ``torch.nn`` transposed convolution with rows added on both sides alike; only ever seen as its trace."""

    def __init__(self, convolution: Any, where: tuple[int, int, int, int, int]) -> None:
        super().__init__()
        self.convolution, self.where = convolution, where

    def forward(self, x: Tensor) -> Tensor:
        return _enlarged(x, self.convolution.weight, self.convolution.bias, self.where)


def _enlarged(x: Tensor, kernel: Tensor, bias: Tensor | None, where: tuple[int, int, int, int, int]) -> Tensor:
    """A transposed convolution by a kernel (C_in, C_out, …) whose additional rows lie on both sides alike.

    If their number is odd, there is one more on either side than needed, and neighbours are averaged.
    """
    spatial, stride, padding, more, dilation = where
    padding -= (more + 1) // 2
    run: Any = F.conv_transpose2d if spatial == 2 else F.conv_transpose3d
    apart = padding < 0 or (bias is not None and torch.compiler.is_compiling())  # as in nn.convolve
    y = run(x, kernel, None if apart else bias, stride, max(padding, 0), dilation=dilation)
    if padding < 0:
        y = F.pad(y, [-padding] * (2 * spatial))
    if more % 2:
        y = (F.avg_pool2d if spatial == 2 else F.avg_pool3d)(y, 2, 1)
    if apart and bias is not None:
        y = y + bias.to(y.dtype).view(-1, *[1] * spatial)
    out: Tensor = y
    return out


class ConvTranspose2d(_ConvTranspose):
    """A steerable transposed convolution of images: y(u) = Σ_x K(sx − u) f(x) + b with the kernels of ``Conv2d``.

    Args:
        in_type: Type of the input.
        out_type: Type of the output, over the same group.
        kernel_size: Odd or even.
        stride: By how much the image grows, s.
        padding: Rows left out on each side.
        output_padding: Additional rows. An odd number of them is made symmetric by averaging neighbours.
        bias: Whether to learn a bias.
        dilation: Spacing of the kernel's points.
        likelihood: The density of elements to average over; None for full equivariance without one.
        gain: The weights start such that the variance of the signal is multiplied by gain².

    Shape:
        (B, in_type.size, H, W) → (B, out_type.size, H', W') with the sizes of ``torch.nn.ConvTranspose2d``.

    Example:
        >>> import torch
        >>> from pscnn import FieldType, nn
        >>> from pscnn.groups import O2
        >>> vectors = FieldType(O2(), 3 * [O2().vector])
        >>> nn.ConvTranspose2d(vectors, vectors, 2, stride=2)(torch.randn(4, 6, 7, 7)).shape
        torch.Size([4, 6, 14, 14])
    """

    dimension = 2


class ConvTranspose3d(_ConvTranspose):
    """A steerable transposed convolution of volumes; see ``ConvTranspose2d``.

    Shape:
        (B, in_type.size, D, H, W) → (B, out_type.size, D', H', W').
    """

    dimension = 3

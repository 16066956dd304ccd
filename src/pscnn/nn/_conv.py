"""Steerable convolutions and linear layers, fully or partially equivariant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Proxy

from pscnn.kernels import Gaussian
from pscnn.measures import Measure
from pscnn.nn._centred import Centred, centred, leftover, surrounded
from pscnn.nn._fast import by_folding, can_fold, convolve
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType
from pscnn.nn._steerable import SteerableMap

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


class _Conv(SteerableMap):
    dimension: int
    kernel_size: int
    _packs = True

    def __init__(
        self,
        in_type: FieldType,
        out_type: FieldType,
        kernel_size: int,
        stride: int = 1,
        padding: int | Literal["same", "valid"] = 0,
        dilation: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        likelihood: Measure | None = None,
        gain: float = 1.0,
        device: Device = None,
        dtype: DType = None,
        groups: int = 1,
        profile: Gaussian | None = None,
    ) -> None:
        name = type(self).__name__
        if isinstance(in_type, FieldType) and in_type.group.dimension != self.dimension:
            hint = "; use group.about(axis) for a plane group in space" if self.dimension == 3 else ""
            raise ValueError(
                f"{name}: needs a group that acts on R^{self.dimension}, "
                f"{in_type.group.name} acts on R^{in_type.group.dimension}{hint}"
            )
        if kernel_size is None:
            raise ValueError(f"{name}: kernel_size must be a number such as 3 or 5, got None")
        super().__init__(in_type, out_type, kernel_size, likelihood, bias, gain, device, dtype, groups, profile)
        for what, value in (("stride", stride), ("dilation", dilation)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: {what} must be 1 or more, got {value!r}")
        extent = dilation * (kernel_size - 1) + 1
        if padding == "same":
            if stride != 1:
                raise ValueError(f"{name}: padding='same' needs stride 1, got {stride}")
            if extent % 2 == 0:
                raise ValueError(f"{name}: padding='same' needs an odd kernel, got {kernel_size}")
            padding = extent // 2
        elif padding == "valid":
            padding = 0
        if not isinstance(padding, int) or padding < 0:
            raise ValueError(f"{name}: padding must be 0 or more, 'same' or 'valid', got {padding!r}")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(f"{name}: unknown padding_mode {padding_mode!r}")
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.padding_mode = padding_mode
        self._before = padding if padding_mode != "zeros" else 0  # put around the map before it is averaged
        self._window = self.dimension, extent, stride, padding - self._before

    def forward(self, x: Tensor) -> Tensor:
        known = not (isinstance(x, Proxy) or torch.compiler.is_compiling())
        if known and x.ndim > 2 and any(n + 2 * self.padding < self._window[1] for n in x.shape[2:]):
            got = " × ".join(map(str, x.shape[2:]))
            extent = f"{self._window[1]} or more with the padding"
            raise ValueError(f"{type(self).__name__}: expected images of {extent}, got {got}")
        return super().forward(x)

    def convolve(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve with a given kernel and bias under this layer's stride, padding and dilation."""
        x = surrounded(x, self.dimension, self._before, self.padding_mode)
        if can_fold(x, kernel, self.stride, self.dilation, self.groups):
            return by_folding(x, kernel, bias, self._window[-1], leftover(x, *self._window))
        x = centred(x, *self._window)
        return convolve(x, kernel, bias, self.stride, self._window[-1], self.dilation, self.groups)

    def plain(self) -> nn.Module:
        """The same map as a ``torch.nn`` convolution with a fixed kernel; if strided, within a ``Centred``."""
        with torch.no_grad():
            return self.plain_with(self.kernel(), self.full_bias())

    def plain_with(self, kernel: Tensor, bias: Tensor | None) -> nn.Module:
        """A ``torch.nn`` convolution with another kernel and bias in this layer's place."""
        cls, strided = nn.Conv2d if self.dimension == 2 else nn.Conv3d, self.stride > 1
        where = self.stride, self._window[-1] if strided else self.padding, self.dilation
        more = {"padding_mode": "zeros" if strided else self.padding_mode, "groups": self.groups}
        made: nn.Module = self._fill(cls, kernel, bias, self.kernel_size, *where, **more)
        return Centred(made, self._before, self.padding_mode) if strided else made  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
            + (f", dilation={self.dilation}" if self.dilation != 1 else "")
            + (f", groups={self.groups}" if self.groups != 1 else "")
        )


class Conv2d(_Conv):
    """A steerable convolution of images.

    y(x) = ∫ K(z) f(x + z) dz + b with K(x) = Σ_slots B_slot(x) (Λ_i w_slot) (paper, Eq. 14). For the uniform density,
    or ``likelihood=None``, K satisfies K(hx) = ρ_out(h) K(x) ρ_in(h)ᵀ and the layer is equivariant; the bias exists on
    trivial irreps only.

    Args:
        in_type: Type of the input.
        out_type: Type of the output, over the same group.
        kernel_size: Odd, with a pixel in its centre, or even.
        stride: As in ``torch.nn.Conv2d``, and as many samples, but centred: where (size + 2·padding − extent) is not
            divisible by the stride, samples that fall between pixels see the average of their neighbours.
        padding: A number, "same" or "valid".
        dilation: Spacing of the kernel's points.
        bias: Whether to learn a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        likelihood: The density, or another measure, of elements to average over; None for full equivariance without
            one.
        gain: The weights start such that the variance of the signal is multiplied by gain².
        groups: As in ``torch.nn.Conv2d``, of whole fields: both types must be that many equal parts.
        profile: By default kernels are harmonics on rings, as in the paper; ``pscnn.kernels.Gaussian.of(kernel_size)``
            gives smoother ones, which lose less between right angles.

    Shape:
        (B, in_type.size, H, W) → (B, out_type.size, H', W').

    Example:
        >>> import torch
        >>> from pscnn import FieldType, Likelihood, nn
        >>> from pscnn.groups import O2
        >>> H = O2()
        >>> gray, feats = FieldType(H, [H.trivial]), FieldType(H, 8 * [H.irrep(0, 0), H.irrep(1, 1)])
        >>> conv = nn.Conv2d(gray, feats, kernel_size=5, padding=2, likelihood=Likelihood(H, bandlimit=2))
        >>> conv(torch.randn(4, 1, 33, 33)).shape
        torch.Size([4, 24, 33, 33])
        >>> conv.kernel().shape
        torch.Size([24, 1, 5, 5])
    """

    dimension = 2


class Conv3d(_Conv):
    """A steerable convolution of volumes; see ``Conv2d``.

    Shape:
        (B, in_type.size, D, H, W) → (B, out_type.size, D', H', W').
    """

    dimension = 3


class Linear(SteerableMap):
    """A linear map between field types: the convolution on a single point (paper, Appendix E.2).

    Args:
        in_type: Type of the input.
        out_type: Type of the output, over the same group.
        bias: Whether to learn a bias, on trivial irreps only.
        likelihood: The density, or another measure, of elements to average over; None for full equivariance without
            one.
        gain: The weights start such that the variance of the signal is multiplied by gain².

    Shape:
        (B, in_type.size) → (B, out_type.size).
    """

    def __init__(
        self,
        in_type: FieldType,
        out_type: FieldType,
        bias: bool = True,
        likelihood: Measure | None = None,
        gain: float = 1.0,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        super().__init__(in_type, out_type, None, likelihood, bias, gain, device, dtype)

    def convolve(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """Multiply with a given matrix and add a given bias."""
        return F.linear(x, kernel, bias)

    def plain(self) -> nn.Module:
        """The same map as a ``torch.nn.Linear``."""
        made: nn.Module = self._fill(nn.Linear, self.kernel(), self.full_bias())
        return made


@contextlib.contextmanager
def expand_once(model: nn.Module) -> Iterator[None]:
    """Let every steerable layer of a network expand its kernel at most once, with its gradient, until the end.

    For networks that are applied several times within one step, as in forecasts from their own output, with one
    backward pass for all of them. Parameters must not change inside, and activation checkpointing cannot recompute
    layers there. Compiled code expands once by itself.

    Args:
        model: Whose layers.

    Example:
        >>> import torch
        >>> from pscnn import FieldType, nn
        >>> from pscnn.groups import C
        >>> H = C(4)
        >>> vectors = FieldType(H, [H.vector])
        >>> conv = nn.Conv2d(vectors, vectors, 3, padding=1)
        >>> x = torch.randn(1, 2, 9, 9)
        >>> with nn.expand_once(conv):
        ...     for _ in range(6):
        ...         x = conv(x)
    """
    layers = [module for module in model.modules() if isinstance(module, SteerableMap)]
    before = [layer._held for layer in layers]
    for layer in layers:
        layer._held = {}
    try:
        yield
    finally:
        for layer, held in zip(layers, before, strict=True):
            layer._held = held

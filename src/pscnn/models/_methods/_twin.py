"""The free twin of the equivariant network: as many channels, and nothing of the symmetry in its kernels."""

import copy
from typing import Any

from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn.models._methods._method import Method
from pscnn.nn import FieldType


class FreeTwin(Method):
    """A free convolution in place of every steerable one; normalisation, nonlinearities and pooling stay."""

    def layer(self, layer: nn.Conv2d | nn.Conv3d) -> tnn.Module:
        """A convolution of the same channels, as ``torch.nn`` makes it."""
        return FreeConvolution(free(layer), layer.in_type, layer.out_type)


def free(layer: nn.Conv2d | nn.Conv3d) -> tnn.Conv2d | tnn.Conv3d:
    """A new ``torch.nn`` convolution of the channels, window and bias of a steerable one."""
    make = tnn.Conv2d if isinstance(layer, nn.Conv2d) else tnn.Conv3d
    window = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, layer.bias is not None
    like: dict[str, Any] = {"device": layer.weight.device, "dtype": layer.weight.dtype}
    return make(layer.in_type.size, layer.out_type.size, *window, padding_mode=layer.padding_mode, **like)


class FreeConvolution(tnn.Module):
    """A ``torch.nn`` convolution in the layout of steerable ones, so that maps need not be copied between layers.

    Args:
        convolution: The convolution, with all its settings.
        in_type: Type of the input, if there is one: it is known to the layers around this one.
        out_type: Type of the output.
    """

    def __init__(
        self,
        convolution: tnn.Conv2d | tnn.Conv3d,
        in_type: FieldType | None = None,
        out_type: FieldType | None = None,
    ) -> None:
        super().__init__()
        self.convolution, self.in_type, self.out_type = convolution, in_type, out_type
        given: list[Any] = [convolution.stride, convolution.padding, convolution.dilation]
        even = not any(isinstance(s, str) or len(set(s)) > 1 for s in [*given, convolution.kernel_size])
        usual = even and convolution.padding_mode == "zeros"
        self._window = (*(s[0] for s in given), convolution.groups) if usual else None

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        return self.convolve(x, *self.kernel_and_bias())

    def kernel_and_bias(self) -> tuple[Tensor, Tensor | None]:
        """Those of the convolution."""
        return self.convolution.weight, self.convolution.bias

    def convolve(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """Apply a given kernel and bias as this layer applies its own."""
        if self._window is None:  # the layout is for windows that are equal in all directions, with zeros around
            return self.convolution._conv_forward(x, kernel, bias)
        return nn.convolve(x, kernel, bias, *self._window)

    def plain(self) -> tnn.Module:
        """A copy of the convolution."""
        return copy.deepcopy(self.convolution)


class FreePool(tnn.Module):
    """``torch.nn.AvgPool2d`` or ``AvgPool3d`` in the layout of steerable layers.

    Args:
        dimension: Of the maps, 2 or 3.
        size: Side of the windows.
        stride: Distance between them.
        padding: Zeros around.
    """

    def __init__(self, dimension: int, size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.dimension, self.size, self.stride, self.padding = dimension, size, stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """Average."""
        return nn.average_pool(x, self.size, self.stride, self.padding)

    def plain(self) -> tnn.Module:
        """Torch's, with the same means."""
        return (tnn.AvgPool2d if self.dimension == 2 else tnn.AvgPool3d)(self.size, self.stride, self.padding)

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"kernel_size={self.size}, stride={self.stride}, padding={self.padding}"

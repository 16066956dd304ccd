"""The free twin of the equivariant network: as many channels, and nothing of the symmetry in its kernels."""

import copy

from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn.models._methods._method import Method


class FreeTwin(Method):
    """A free convolution in place of every steerable one; normalisation, nonlinearities and pooling stay."""

    def layer(self, layer: nn.Conv2d | nn.Conv3d) -> tnn.Module:
        """A convolution of the same channels, as ``torch.nn`` makes it."""
        return FreeConvolution(free(layer))


def free(layer: nn.Conv2d | nn.Conv3d) -> tnn.Conv2d | tnn.Conv3d:
    """A new ``torch.nn`` convolution of the channels, window and bias of a steerable one."""
    if layer.padding_mode != "zeros":
        raise ValueError(f"free kernels need padding_mode 'zeros', got {layer.padding_mode!r}")
    make = tnn.Conv2d if isinstance(layer, nn.Conv2d) else tnn.Conv3d
    window = layer.kernel_size, layer.stride, layer.padding
    return make(layer.in_type.size, layer.out_type.size, *window, bias=layer.bias is not None)


class FreeConvolution(tnn.Module):
    """A ``torch.nn`` convolution in the layout of steerable ones, so that maps need not be copied between layers.

    Args:
        convolution: The convolution; its windows are equal in all directions.
    """

    def __init__(self, convolution: tnn.Conv2d | tnn.Conv3d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        own = self.convolution
        return nn.convolve(x, own.weight, own.bias, own.stride[0], int(own.padding[0]), own.dilation[0])

    def plain(self) -> tnn.Module:
        """A copy of the convolution."""
        return copy.deepcopy(self.convolution)

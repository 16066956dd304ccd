"""The free twin of the equivariant network: as many channels, and nothing of the symmetry in its kernels."""

from torch import nn as tnn

from pscnn import nn
from pscnn.models._methods._method import Method


class FreeTwin(Method):
    """A free convolution in place of every steerable one; normalisation, nonlinearities and pooling stay."""

    def layer(self, layer: nn.Conv2d | nn.Conv3d) -> tnn.Module:
        """A convolution of the same channels, as ``torch.nn`` makes it."""
        return free(layer)


def free(layer: nn.Conv2d | nn.Conv3d) -> tnn.Conv2d | tnn.Conv3d:
    """A new ``torch.nn`` convolution of the channels, window and bias of a steerable one."""
    make = tnn.Conv2d if isinstance(layer, nn.Conv2d) else tnn.Conv3d
    window = layer.kernel_size, layer.stride, layer.padding
    return make(layer.in_type.size, layer.out_type.size, *window, bias=layer.bias is not None)

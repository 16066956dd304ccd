"""Residual pathway priors: an equivariant and a free path, each with its penalty."""

from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn.models._methods._method import Method
from pscnn.models._methods._twin import free

FACTORS = (1e-5, 1e-3)
"""Of the penalties of the equivariant and the free path."""


class ResidualPathways(Method):
    """A free convolution beside every steerable one."""

    parallel_blocks = True

    def layer(self, layer: nn.Conv2d | nn.Conv3d) -> tnn.Module:
        """The sum of both paths."""
        return ResidualPathway(layer, free(layer))


class ParallelPathway(tnn.Module):
    """Residual pathway priors around a whole block: an equivariant block plus a plain one, each with its penalty."""

    def __init__(self, equivariant: tnn.Module, free: tnn.Module, factors: tuple[float, float] = FACTORS) -> None:
        super().__init__()
        self.equivariant, self.free, self.factors = equivariant, free, factors

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both paths."""
        return self.equivariant(x) + self.free(x)

    def penalty(self) -> Tensor:
        """The negative logarithm of the prior, up to a constant."""
        total = next(self.free.parameters()).new_zeros(())
        for factor, path in zip(self.factors, (self.equivariant, self.free), strict=True):
            for parameter in path.parameters():
                total = total + factor * parameter.square().sum()
        return total


class ResidualPathway(ParallelPathway):
    """Residual pathway priors: an equivariant layer plus a free one of the same size, each with its own penalty.

    The penalty is 1e-5·‖equivariant‖² + 1e-3·‖free‖², if no other factors are given: the inverse variances of the
    paper's Gaussian priors, without their factor ½, as in its code. Both paths are linear in their kernels, so one
    convolution with the sum does both.
    """

    equivariant: nn.Conv2d | nn.Conv3d
    free: tnn.Conv2d | tnn.Conv3d

    def __init__(
        self, equivariant: nn.Conv2d | nn.Conv3d, free: tnn.Conv2d | tnn.Conv3d, factors: tuple[float, float] = FACTORS
    ) -> None:
        super().__init__(equivariant, free, factors)
        self.in_type, self.out_type = equivariant.in_type, equivariant.out_type

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both paths."""
        return self.convolve(x, *self.kernel_and_bias())

    def convolve(self, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """Apply a given kernel and bias as this layer applies its own."""
        return self.equivariant.convolve(x, kernel, bias)

    def kernel_and_bias(self) -> tuple[Tensor, Tensor | None]:
        kernel, own = self.equivariant.kernel_and_bias()  # not kernel(): it may have been expanded before
        biases = [b for b in (own, self.free.bias) if b is not None]
        return kernel + self.free.weight, sum(biases[1:], biases[0]) if biases else None

    def plain(self) -> tnn.Module:
        """The same map as one ``torch.nn`` convolution."""
        return self.equivariant.plain_with(*self.kernel_and_bias())

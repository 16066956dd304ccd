"""A method is what layers are built with. One kit builds the layers of one method; architectures know no methods."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn.groups import O2, O3, SO2, C, Group, direct_sum
from pscnn.likelihood import Likelihood
from pscnn.nn import FieldType

METHODS = ("cnn", "scnn", "restricted", "rpp", "p-scnn")
EQUIVARIANT_PENALTY = 1e-5
PLAIN_PENALTY = 1e-3
Window = tuple[int, int, int]
"""Kernel, stride and padding."""


def highest_frequency(group: Group) -> int:
    """The highest frequency of features: 4 in the plane, 3 in space but 2 for O(3), less for small finite groups."""
    limit = 4 if group.dimension == 2 else 2 if group == O3() else 3
    return limit if group.max_frequency is None else min(limit, group.max_frequency)


class ResidualPathway(tnn.Module):
    """Residual pathway priors: an equivariant layer plus a free one of the same size, each with its own penalty.

    The penalty is 1e-5·‖equivariant‖² + 1e-3·‖free‖², if no other factors are given: the inverse variances of the
    paper's Gaussian priors, without their factor ½, as in its code. Both paths are linear in their kernels, so one
    convolution with the sum does both.
    """

    def __init__(
        self,
        equivariant: nn.Conv2d | nn.Conv3d,
        free: tnn.Conv2d | tnn.Conv3d,
        factors: tuple[float, float] = (EQUIVARIANT_PENALTY, PLAIN_PENALTY),
    ) -> None:
        super().__init__()
        self.in_type, self.out_type = equivariant.in_type, equivariant.out_type
        self.equivariant, self.free, self.factors = equivariant, free, factors

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both paths."""
        return self.equivariant.convolve(x, *self._kernel_and_bias())

    def _kernel_and_bias(self) -> tuple[Tensor, Tensor | None]:
        kernel, own = self.equivariant.kernel_and_bias()  # not kernel(): it may have been expanded before
        biases = [b for b in (own, self.free.bias) if b is not None]
        return kernel + self.free.weight, sum(biases[1:], biases[0]) if biases else None

    def plain(self) -> tnn.Module:
        """The same map as one ``torch.nn`` convolution."""
        kernel, bias = self._kernel_and_bias()
        out = copy.deepcopy(self.free)
        with torch.no_grad():
            out.weight.copy_(kernel)
            if out.bias is not None and bias is not None:
                out.bias.copy_(bias)
        return out

    def penalty(self) -> Tensor:
        """The negative logarithm of the prior, up to a constant."""
        return _prior(self.equivariant, self.free, self.factors)


class ParallelPathway(tnn.Module):
    """Residual pathway priors around a whole block: an equivariant block plus a plain one, each with its penalty."""

    def __init__(self, equivariant: tnn.Module, free: tnn.Module) -> None:
        super().__init__()
        self.equivariant, self.free = equivariant, free

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both paths."""
        return self.equivariant(x) + self.free(x)

    def penalty(self) -> Tensor:
        """The negative logarithm of the prior, up to a constant."""
        return _prior(self.equivariant, self.free)


def _prior(
    equivariant: tnn.Module, free: tnn.Module, factors: tuple[float, float] = (EQUIVARIANT_PENALTY, PLAIN_PENALTY)
) -> Tensor:
    total = next(free.parameters()).new_zeros(())
    for factor, path in zip(factors, (equivariant, free), strict=True):
        for parameter in path.parameters():
            total = total + factor * parameter.square().sum()
    return total


class SteerableKit:
    """Builds the layers of the steerable methods; remembers the type of the features built so far."""

    def __init__(
        self, method: str, group: Group, bandlimit: int, nonlinearity: str, channels: int, density: dict[str, Any]
    ) -> None:
        self.method, self.bandlimit, self.nonlinearity, self.density = method, bandlimit, nonlinearity, density
        self.fields = FieldType(group, channels * [group.trivial])

    @property
    def group(self) -> Group:
        """The group of the features built so far."""
        return self.fields.group

    def prepare(self, size: int) -> list[tnn.Module]:
        """Resize to an odd size and, in the plane, cut out the disk."""
        layers: list[tnn.Module] = [nn.Upsample(self.fields, size)]
        if self.group.dimension == 2:
            layers.append(nn.DiskMask(self.fields, size))
        return layers

    def new_density(self) -> Likelihood | None:
        """A density, if the method has them."""
        return Likelihood(self.group, self.bandlimit, **self.density) if self.method == "p-scnn" else None

    def convolution(
        self, out: FieldType, window: Window, bias: bool = True, likelihood: Likelihood | None = None
    ) -> tnn.Module:
        """One convolution of the method."""
        make = nn.Conv2d if self.group.dimension == 2 else nn.Conv3d
        layer = make(self.fields, out, *window, bias=bias, likelihood=likelihood)
        if self.method != "rpp":
            return layer
        plain = tnn.Conv2d if self.group.dimension == 2 else tnn.Conv3d
        return ResidualPathway(layer, plain(self.fields.size, out.size, *window, bias=bias))

    def block(
        self, copies: int, frequency: int, window: Window, norm: bool = True, likelihood: Likelihood | None = None
    ) -> list[tnn.Module]:
        """Convolution, normalisation, nonlinearity."""
        frequency = min(frequency, highest_frequency(self.group))
        activation: nn.GatedBatchNorm | nn.GatedNonlinearity | nn.FourierPointwise | nn.QuotientFourierPointwise
        if self.nonlinearity == "gated":
            fields = FieldType(self.group, copies * [direct_sum(list(self.group.irreps(frequency)))])
            activation = nn.GatedBatchNorm(fields) if norm else nn.GatedNonlinearity(fields)
        elif self.group.planar is not None:  # in the plane or about an axis
            fields = FieldType(self.group, copies * [self.group.functions(frequency)])
            activation = nn.FourierPointwise(fields, degree=2 * frequency)
        else:  # functions on the sphere
            stabiliser = O2() if self.group.has_reflections else SO2()
            fields = FieldType(self.group, copies * [self.group.functions(frequency, stabiliser)])
            activation = nn.QuotientFourierPointwise(fields, degree=2 * frequency)
        # The normalisation takes out what a bias adds.
        layer = self.convolution(activation.in_type, window, bias=not norm, likelihood=likelihood)
        self.fields = activation.out_type
        apart = norm and not isinstance(activation, nn.GatedBatchNorm)
        return [layer, *([nn.BatchNorm(activation.in_type)] if apart else []), activation]

    def pool(self, stride: int, padding: int) -> list[tnn.Module]:
        """Anti-aliased pooling."""
        return [nn.AvgPoolAntialiased(self.fields, stride, padding)]

    def restrict(self) -> list[tnn.Module]:
        """Where the restricted network gives up all symmetry."""
        if self.method != "restricted":
            return []
        layer = nn.Restriction(self.fields, C(1))
        self.fields = layer.out_type
        return [layer]

    def final(
        self, channels: int, invariant: bool, kernel: int = 1, likelihood: Likelihood | None = None
    ) -> tuple[list[tnn.Module], int]:
        """A convolution to invariant features, or to as many of all irreps, and their number."""
        if invariant:
            out = FieldType(self.group, channels * [self.group.trivial])
        else:
            field = direct_sum(list(self.group.irreps(highest_frequency(self.group))))
            out = FieldType(self.group, max(1, channels // 4) * [field])
        layer = self.convolution(out, (kernel, 1, 0), bias=False, likelihood=likelihood)
        self.fields = out
        return [layer], out.size


class PlainKit:
    """Builds the plain CNN's layers: the same stages with free convolutions, batch norm and ELU."""

    def __init__(self, dimension: int, fields: int) -> None:
        self.dimension, self.fields = dimension, fields

    def prepare(self, size: int) -> list[tnn.Module]:
        """Resize to an odd size."""
        return [tnn.Upsample(size=(size,) * self.dimension, mode="nearest")]

    def new_density(self) -> None:
        """There are none."""

    def convolution(self, out: int, window: Window, bias: bool = True) -> tnn.Module:
        """One convolution."""
        make = tnn.Conv2d if self.dimension == 2 else tnn.Conv3d
        layer = make(self.fields, out, *window, bias=bias)
        self.fields = out
        return layer

    def block(
        self, copies: int, frequency: int, window: Window, norm: bool = True, likelihood: object = None
    ) -> list[tnn.Module]:
        """Convolution, normalisation, nonlinearity."""
        make = tnn.BatchNorm2d if self.dimension == 2 else tnn.BatchNorm3d
        return [self.convolution(copies, window), *([make(copies)] if norm else []), tnn.ELU()]

    def pool(self, stride: int, padding: int) -> list[tnn.Module]:
        """Average pooling."""
        return [(tnn.AvgPool2d if self.dimension == 2 else tnn.AvgPool3d)(5, stride, padding)]

    def restrict(self) -> list[tnn.Module]:
        """There is no symmetry to give up."""
        return []

    def final(self, channels: int, invariant: bool, *, likelihood: object = None) -> tuple[list[tnn.Module], int]:
        """A 1×1 convolution."""
        return [self.convolution(channels, (1, 1, 0))], channels


def head(features: int, classes: int) -> list[tnn.Module]:
    """From features at one pixel to scores."""
    return [tnn.Flatten(), tnn.BatchNorm1d(features), tnn.ELU(), tnn.Linear(features, classes)]


def penalty(model: tnn.Module) -> Tensor | None:
    """What a model's layers add to the loss: the sum over those that have a penalty, None if there are none."""
    terms: list[Tensor] = [module.penalty() for module in model.modules() if hasattr(module, "penalty")]  # type: ignore[operator]
    return sum(terms[1:], terms[0]) if terms else None


def twin(model: tnn.Module) -> tnn.Module:
    """The plain twin: a copy with every steerable layer replaced by a free ``torch.nn`` one of the same channels.

    Normalisation, nonlinearities and pooling stay, so the difference in time is what steerability costs. The free
    kernels start as the expanded ones: at first the outputs are the same.

    Example:
        >>> from pscnn.models import build
        >>> plain = twin(build("ddmnist", "p-scnn", "C4", width=0.2))
        >>> type(plain[2])
        <class 'torch.nn.modules.conv.Conv2d'>
    """
    if hasattr(type(model), "plain"):
        return model.plain()  # type: ignore[operator]
    out = copy.deepcopy(model)
    for name, child in model.named_children():
        setattr(out, name, twin(child))
    return out

"""One kit builds the layers of one method; architectures know no methods. And what is done to whole networks."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn.groups import O3, Group, Representation, direct_sum
from pscnn.kernels import Gaussian
from pscnn.measures import Measure
from pscnn.models._by_method import torch_layers
from pscnn.models._methods import METHODS, FreeConvolution, FreePool
from pscnn.nn import FieldType

Window = tuple[int, int, int]
"""Kernel, stride and padding."""


def highest_frequency(group: Group) -> int:
    """The highest frequency of features: 4 in the plane, 3 in space but 2 for O(3), less for small finite groups."""
    limit = 4 if group.dimension == 2 else 2 if group == O3() else 3
    return limit if group.max_frequency is None else min(limit, group.max_frequency)


class SteerableKit:
    """Builds the layers of the steerable methods; remembers the type of the features built so far.

    With ``smooth`` it builds what lets through less between right angles: Gaussian kernels, and a
    smoother function at more samples.
    """

    def __init__(
        self,
        method: str,
        group: Group,
        bandlimit: int,
        nonlinearity: str,
        channels: int,
        density: dict[str, Any],
        smooth: bool = False,
    ) -> None:
        self.method, self.bandlimit, self.nonlinearity, self.density = METHODS[method], bandlimit, nonlinearity, density
        self.smooth = smooth
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

    def mask(self, sides: Sequence[int], edge: float) -> list[tnn.Module]:
        """Cut out the disk or ball, with an edge of some pixels."""
        return [nn.DiskMask(self.fields, sides, margin=0.0, edge=edge)]

    def new_density(self) -> Measure | None:
        """A density, or another measure, if the method has them."""
        return self.method.density(self.group, self.bandlimit, **self.density)

    def convolution(
        self,
        out: FieldType,
        window: Window,
        bias: bool = True,
        likelihood: Measure | None = None,
        profile: Gaussian | None = None,
        gain: float = 1.0,
    ) -> tnn.Module:
        """One convolution of the method."""
        make = nn.Conv2d if self.group.dimension == 2 else nn.Conv3d
        if self.smooth and profile is None:
            profile = Gaussian.of(window[0])
        more: dict[str, Any] = {"likelihood": likelihood, "profile": profile, "gain": gain}
        return self.method.layer(make(self.fields, out, *window, bias=bias, **more))

    def block(
        self,
        copies: int,
        frequency: int,
        window: Window,
        norm: bool = True,
        likelihood: Measure | None = None,
        profile: Gaussian | None = None,
    ) -> list[tnn.Module]:
        """Convolution, normalisation, nonlinearity."""
        frequency = min(frequency, highest_frequency(self.group))
        activation: nn.GatedBatchNorm | nn.GatedNonlinearity | nn.FourierBatchNorm | nn.FourierPointwise
        functions = nn.function_field(self.group, frequency)
        if self.nonlinearity == "fourier":
            fields = FieldType(self.group, copies * [functions])
            apart = nn.FourierPointwise if functions.subgroup is None else nn.QuotientFourierPointwise
            factor, function = (4, nn.softplus) if self.smooth else (2, F.elu)
            activation = (nn.FourierBatchNorm if norm else apart)(fields, degree=factor * frequency, function=function)
        else:
            irreps = functions.irreps if self.nonlinearity == "gated-functions" else self.group.irreps(frequency)
            fields = FieldType(self.group, copies * [direct_sum(list(irreps))])
            gates: nn.Gates = "field" if self.nonlinearity == "gated-fields" else "irrep"
            activation = nn.GatedBatchNorm(fields, gates=gates) if norm else nn.GatedNonlinearity(fields, gates)
        # The normalisation takes out what a bias adds.
        layer = self.convolution(activation.in_type, window, bias=not norm, likelihood=likelihood, profile=profile)
        self.fields = activation.out_type
        return [layer, activation]

    def pool(self, stride: int, padding: int) -> list[tnn.Module]:
        """Anti-aliased pooling."""
        return [nn.AvgPoolAntialiased(self.fields, stride, padding)]

    def halve(self) -> list[tnn.Module]:
        """Half the resolution, after a blur that leaves less than ``pool`` of what the coarser grid cannot hold."""
        return [nn.AvgPoolAntialiased(self.fields, 2, sigma=1.2, kernel_size=7)]

    def restrict(self) -> list[tnn.Module]:
        """Where a method gives up symmetry on purpose."""
        layer = self.method.restriction(self.fields)
        if layer is None:
            return []
        self.fields = layer.out_type
        return [layer]

    def final(
        self, channels: int, invariant: bool, kernel: int = 1, likelihood: Measure | None = None
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

    def readout(self, fields: list[Representation], kernel: int, likelihood: Measure | None = None) -> list[tnn.Module]:
        """Moments of whole maps, up to the second: a convolution with their windows as wide as they are."""
        out = FieldType(self.group, fields)
        # Features of neighbours are alike: they add up.
        more: dict[str, Any] = {"profile": Gaussian(kernel / 4, 2), "gain": kernel ** (-self.group.dimension / 2)}
        layer = self.convolution(out, (kernel, 1, 0), bias=False, likelihood=likelihood, **more)
        self.fields = out
        return [layer]


class PlainKit:
    """Builds the plain CNN's layers: the same stages with free convolutions, batch norm and ELU."""

    def __init__(self, dimension: int, fields: int) -> None:
        self.dimension, self.fields, self.make = dimension, fields, torch_layers(dimension)

    def prepare(self, size: int) -> list[tnn.Module]:
        """Resize to an odd size."""
        return [tnn.Upsample(size=(size,) * self.dimension, mode="nearest")]

    def mask(self, sides: Sequence[int], edge: float) -> list[tnn.Module]:
        """Corners are of use to a plain network."""
        return []

    def new_density(self) -> None:
        """There are none."""

    def convolution(self, out: int, window: Window, bias: bool = True) -> tnn.Module:
        """One convolution, in the memory layout of the steerable ones, so that it is as fast."""
        layer = FreeConvolution(self.make.convolution(self.fields, out, *window, bias=bias))
        self.fields = out
        return layer

    def block(
        self,
        copies: int,
        frequency: int,
        window: Window,
        norm: bool = True,
        likelihood: object = None,
        profile: object = None,
    ) -> list[tnn.Module]:
        """Convolution, normalisation, nonlinearity."""
        return [self.convolution(copies, window), *([self.make.norm(copies)] if norm else []), tnn.ELU()]

    def pool(self, stride: int, padding: int) -> list[tnn.Module]:
        """Average pooling."""
        return [FreePool(self.dimension, 5, stride, padding)]

    def halve(self) -> list[tnn.Module]:
        """Half the resolution."""
        return self.pool(2, 2)

    def restrict(self) -> list[tnn.Module]:
        """There is no symmetry to give up."""
        return []

    def final(self, channels: int, invariant: bool, *, likelihood: object = None) -> tuple[list[tnn.Module], int]:
        """A 1×1 convolution."""
        return [self.convolution(channels, (1, 1, 0))], channels

    def readout(self, channels: int) -> list[tnn.Module]:
        """A convolution of whole maps, at three places along each axis."""
        return [self.make.global_pool(3), self.convolution(channels, (3, 1, 0), bias=False)]


def head(features: int, classes: int) -> list[tnn.Module]:
    """From features at one pixel to scores."""
    return [tnn.Flatten(), tnn.BatchNorm1d(features), tnn.ELU(), tnn.Linear(features, classes)]


def penalty(model: tnn.Module) -> Tensor | None:
    """What a model's layers add to the loss: the sum over those that have a penalty, None if there are none."""
    terms: list[Tensor] = [module.penalty() for module in model.modules() if hasattr(module, "penalty")]  # type: ignore[operator]
    for module in model.modules():
        if isinstance(module, nn.SteerableMap) and hasattr(module.likelihood, "weight_penalty"):
            terms.append(module.likelihood.weight_penalty(*module.energies()))  # type: ignore[union-attr, operator]
    return sum(terms[1:], terms[0]) if terms else None


def advance(model: tnn.Module, step: int, steps: int) -> None:
    """Tell every part of a model that follows the course of training where it is; call it before every step.

    It changes tensors in place and outside of the step: a step that was recorded, or compiled, finds the new values.

    Args:
        model: Any.
        step: From 0.
        steps: How many there will be.
    """
    for module in model.modules():
        if hasattr(module, "advance"):
            module.advance(step, steps)  # type: ignore[operator]


def twin(model: tnn.Module) -> tnn.Module:
    """The plain twin: a copy with every steerable layer replaced by a free ``torch.nn`` one of the same channels.

    Normalisation, nonlinearities and pooling stay, so the difference in time is what steerability costs. The free
    kernels start as the expanded ones: at first the outputs are the same.

    Example:
        >>> from pscnn.models import build
        >>> plain = twin(build("images", "p-scnn", "C4", width=0.2))
        >>> type(plain[2])
        <class 'torch.nn.modules.conv.Conv2d'>
    """
    if hasattr(type(model), "plain"):
        return model.plain()  # type: ignore[operator]
    out = copy.deepcopy(model)
    for name, child in model.named_children():
        setattr(out, name, twin(child))
    return out


class Rescale(tnn.Module):
    """X · deviations + means, the last layer of a regression: a network then works with numbers of order one.

    Args:
        means: Of the training targets.
        deviations: Their standard deviations.

    Shape:
        (B, T) → (B, T).
    """

    means: Tensor
    deviations: Tensor

    def __init__(self, means: Sequence[float], deviations: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("means", torch.tensor(means))
        self.register_buffer("deviations", torch.tensor(deviations))

    def forward(self, x: Tensor) -> Tensor:
        """Undo the standardisation."""
        return x * self.deviations + self.means

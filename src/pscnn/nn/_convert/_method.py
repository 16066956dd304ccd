"""Other methods than learnt densities: what they make of layers, and where they give up symmetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor, fx, nn

from pscnn.groups import Group
from pscnn.measures import Measure
from pscnn.nn._conv import Conv2d, Conv3d, Linear
from pscnn.nn._convert._source import Map, Value
from pscnn.nn._field_type import FieldType
from pscnn.nn._restriction import Restriction

if TYPE_CHECKING:
    from pscnn.nn._convert._writer import Writer


@runtime_checkable
class Method(Protocol):
    """What ``convert`` asks of a method: those of ``pscnn.models`` offer it."""

    def density(self, group: Group, bandlimit: int, **options: Any) -> Measure | None:
        """The density of a layer, or another measure, None for an equivariant one."""
        ...

    def layer(self, layer: Conv2d | Conv3d) -> nn.Module:
        """What a steerable convolution becomes."""
        ...

    def restriction(self, fields: FieldType) -> Restriction | None:
        """A layer after which less symmetry is left, for a ``RestrictHere``; None if the method has none."""
        ...


class RestrictHere(nn.Identity):
    """Where a network may give up symmetry on purpose: does nothing, unless it is converted with a method that does.

    Example:
        >>> import pscnn, torch
        >>> plain = nn.Sequential(nn.Conv2d(1, 8, 3), RestrictHere(), nn.ReLU(), nn.Conv2d(8, 2, 3))
        >>> pscnn.models.by_method(plain, "restricted", "C4")(torch.randn(1, 1, 7, 7)).shape
        torch.Size([1, 2, 3, 3])
    """


def restrict(writer: Writer, node: fx.Node, value: Map) -> Value:
    """To the method's subgroup; left out if it has none. Gates do not come this far."""
    method = writer.recipe.method
    layer = None if method is None or value.fields.group != writer.recipe.group else method.restriction(value.fields)
    if layer is None:
        return writer.skip(node, value)
    return writer.replace(node, layer, Map(layer.out_type, value.channels, sure=value.sure))


def by_method(module: nn.Module, method: Method | None) -> nn.Module:
    """A new module with all its steerable convolutions as a method has them."""
    if method is None:
        return module
    if isinstance(module, Conv2d | Conv3d):
        return method.layer(module)
    if isinstance(module, Linear):
        return OnVectors(module, method)
    for name, child in module.named_children():
        setattr(module, name, by_method(child, method))
    return module


class OnVectors(nn.Module):
    """A convolution in the place of a linear layer, since methods know convolutions only."""

    def __init__(self, linear: Linear, method: Method) -> None:
        super().__init__()
        make = Conv2d if linear.in_type.group.dimension == 2 else Conv3d
        types, bias = (linear.in_type, linear.out_type), linear.bias is not None
        convolution = make(*types, 1, bias=bias, likelihood=linear.likelihood, gain=linear.gain)
        self.axes, self.in_type, self.out_type = convolution.dimension, *types
        self.convolution = method.layer(convolution)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x[(...,) + (None,) * self.axes]).flatten(1)

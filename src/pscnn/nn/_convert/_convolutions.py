"""Layers that make fields, one function for each kind: convolutions, and linear layers on feature maps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from pscnn.measures import Measure
from pscnn.nn._conv import Conv2d, Conv3d
from pscnn.nn._conv_transpose import ConvTranspose2d, ConvTranspose3d
from pscnn.nn._convert._source import Map, NotConvertibleError, Value, Vector
from pscnn.nn._convert._writer import Writer
from pscnn.nn._field_type import FieldType


def convolution(writer: Writer, node: fx.Node, value: Map) -> Value:
    """A steerable one with a density."""
    conv = writer.source.modules[node]
    assert isinstance(conv, nn.Conv2d | nn.Conv3d)
    size, stride, padding, dilation = _window(conv, value)
    out = _made(writer, node, value, conv.out_channels)
    groups = _groups(conv.groups, value.type, out.type)

    def build() -> nn.Module:
        make = Conv2d if isinstance(conv, nn.Conv2d) else Conv3d
        options = conv.bias is not None, conv.padding_mode, writer.recipe.new_density(), writer.plan.gain(node)
        return make(value.type, out.type, size, stride, padding, dilation, *options, groups=groups)

    writer.replace_learnt(node, value, out.type, build)
    return out


def transposed(writer: Writer, node: fx.Node, value: Map) -> Value:
    """A steerable one with a density."""
    conv = writer.source.modules[node]
    assert isinstance(conv, nn.ConvTranspose2d | nn.ConvTranspose3d)
    if conv.groups != 1:
        raise NotConvertibleError(f"groups={conv.groups} of a transposed convolution; use groups=1")
    if len(node.args) + len(node.kwargs) > 1 or len(set(conv.output_padding)) > 1:
        raise NotConvertibleError("needs the same output_padding along all axes, and no output_size")
    size, stride, padding, dilation = _window(conv, value)
    out = _made(writer, node, value, conv.out_channels)

    def build() -> nn.Module:
        make = ConvTranspose2d if isinstance(conv, nn.ConvTranspose2d) else ConvTranspose3d
        options = conv.output_padding[0], conv.bias is not None, dilation
        density, gain = writer.recipe.new_density(), writer.plan.gain(node)
        return make(value.type, out.type, size, stride, padding, *options, density, gain)

    writer.replace_learnt(node, value, out.type, build)
    return out


def linear(writer: Writer, node: fx.Node, value: Map) -> Value:
    """On channels that come last, a 1×1 convolution; on a flattened map, a convolution of the map's size."""
    layer = writer.source.modules[node]
    assert isinstance(layer, nn.Linear)
    if value.flat:
        size = window_of(layer, value, writer.recipe.group.dimension)
        wanted = writer.recipe.seen_by(value.fields.group, writer.recipe.scalars(layer.out_features))
    elif writer.plan.makes_fields(node):
        if value.sure and layer.in_features != value.channels:
            raise NotConvertibleError(f"expects {layer.in_features} channels, gets {value.channels}")
        out = _made(writer, node, value, layer.out_features)
        size, wanted = 1, out.type
    else:
        raise NotConvertibleError("acts on a feature map; pool and flatten it first, or use a 1×1 convolution")

    def build() -> nn.Module:
        make = Conv2d if writer.recipe.group.dimension == 2 else Conv3d
        density, gain = writer.recipe.new_density(), 1.0 if value.flat else writer.plan.gain(node)
        return make(value.type, wanted, size, bias=layer.bias is not None, likelihood=density, gain=gain)

    writer.replace_learnt(node, value, (wanted, size), build)
    if not value.flat:
        return out
    writer.nodes[node] = writer.graph.call_function(torch.flatten, (writer.nodes[node], 1))
    return Vector(layer.out_features, value.sure)


def window_of(layer: nn.Module | None, value: Map, dimension: int) -> int:
    """The side of a square or cubic map that a linear layer sees flattened; 0 if it is one pixel, or no square."""
    if not isinstance(layer, nn.Linear) or layer.in_features % value.channels:
        return 0
    side = round((layer.in_features // value.channels) ** (1 / dimension))
    return side if side > 1 and side**dimension * value.channels == layer.in_features else 0


def sees_positions(found: int, channels: int) -> str:
    """Why a head cannot have more features than channels."""
    return (
        f"sees {found} features of {channels} channels, which is no square or cubic map; pool all of space before it "
        "(AdaptiveAvgPool2d(1)), or to a square (AdaptiveAvgPool2d(7))"
    )


def pointwise_convolution(in_type: FieldType, out_type: FieldType, likelihood: Measure | None) -> nn.Module:
    """A 1×1 convolution in the plane or in space."""
    layer = Conv2d if in_type.group.dimension == 2 else Conv3d
    return layer(in_type, out_type, 1, likelihood=likelihood)


def _made(writer: Writer, node: fx.Node, value: Map, channels: int) -> Map:
    """The feature map that a layer shall make, as fields of what group is left."""
    out = writer.plan.made(node, channels, value.sure)
    return replace(out, fields=writer.recipe.seen_by(value.fields.group, out.fields))


def _window(conv: Any, value: Map) -> list[Any]:
    """Kernel size, stride, padding and dilation, which must be alike along all axes."""
    if value.sure and conv.in_channels != value.channels:
        raise NotConvertibleError(f"expects {conv.in_channels} channels, gets {value.channels}")
    settings: tuple[Any, ...] = conv.kernel_size, conv.stride, conv.padding, conv.dilation
    if any(not isinstance(s, str) and len(set(s)) > 1 for s in settings):
        raise NotConvertibleError("kernel size, stride, padding and dilation must be the same along all axes")
    return [s if isinstance(s, str) else s[0] for s in settings]


def _groups(wanted: int, source: FieldType, target: FieldType) -> int:
    """As many groups of whole fields as come closest to the model's: at most as many, and of equal parts."""
    counts = [len(fields.representations) for fields in (source, target)]

    def fits(groups: int) -> bool:
        parts = (fields.representations[: n // groups] for fields, n in zip((source, target), counts, strict=True))
        wholes = (source.representations, target.representations)
        return all(part * groups == whole for part, whole in zip(parts, wholes, strict=True))

    common = math.gcd(*counts)
    return next(g for g in range(min(wanted, common), 0, -1) if common % g == 0 and fits(g))

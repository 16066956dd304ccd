"""Layers of feature maps, one function for each kind: it writes a node and returns what is known of its value."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from pscnn._constants import ConstantsModule
from pscnn.measures import Measure
from pscnn.nn._convert._convolutions import pointwise_convolution
from pscnn.nn._convert._source import (
    Map,
    NotConvertibleError,
    Value,
    as_tuple,
    function_of,
)
from pscnn.nn._convert._writer import Writer, pointwise
from pscnn.nn._field_type import FieldType, allow_any_function, are_scalars
from pscnn.nn._max_pool import NormMaxPool
from pscnn.nn._nonlinearity import GatedNonlinearity, check_irrep_basis
from pscnn.nn._spatial import AvgPoolAntialiased, FieldDropout, StochasticDepth, Upsample


def activation(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Gates; a function of samples; or the model's own where it commutes with H."""
    function = writer.source.modules[node]
    if node in writer.done_before:
        writer.skip(node)
    elif value.gates:
        writer.replace(node, GatedNonlinearity(value.fields))
    elif allow_any_function(value.fields):
        if isinstance(function, nn.PReLU) and function.num_parameters > 1 and not are_scalars(value.fields):
            raise NotConvertibleError("has one slope per channel, which the group would exchange; use PReLU()")
        function = copy.deepcopy(function)
        assert function is not None
        if hasattr(function, "inplace"):
            function.inplace = False  # type: ignore[assignment]  # what comes in may be a view
        writer.replace(node, function)
    elif function_of(value.fields) is not None:
        writer.replace(node, pointwise(value.fields))
    else:
        writer.replace(node, OwnGates(value.fields, writer.recipe.new_density()))
    return replace(value, gates=False)


def softmax(writer: Writer, node: fx.Node, value: Map) -> Value:
    """As it is, between scalars."""
    if not are_scalars(value.fields):
        raise NotConvertibleError("needs invariant features: use it on the last convolution's output only")
    return writer.copy(node, value)


def pool(writer: Writer, node: fx.Node, value: Map) -> Value:
    """A blur and a stride; or a maximum by norm."""
    layer: Any = writer.source.modules[node]
    sizes = [set(as_tuple(s)) for s in (layer.kernel_size, layer.stride, layer.padding)]
    if (
        any(len(s) > 1 for s in sizes)
        or set(as_tuple(getattr(layer, "dilation", 1))) != {1}
        or getattr(layer, "return_indices", False)
    ):
        raise NotConvertibleError("must be the same along all axes, without dilation and indices")
    size, stride, padding = (s.pop() for s in sizes)
    ceil = bool(layer.ceil_mode) and stride > 1
    if writer.recipe.by_norm and isinstance(layer, nn.MaxPool2d | nn.MaxPool3d):
        if ceil:
            raise NotConvertibleError("with ceil_mode is not converted to a maximum by norm; use max_pool='average'")
        return writer.replace(node, NormMaxPool(value.type, size, stride, padding), value)
    if ceil and size < stride + padding:
        raise NotConvertibleError("with ceil_mode needs windows of at least stride + padding")
    sigma = 0.33 * max(2, stride)  # as wide as the stride needs
    blur = max(2 * math.ceil(3 * sigma) + size % 2, size)
    padding += (blur - size) // 2  # maps come out as large as from the model's window
    pool = AvgPoolAntialiased(value.type, stride, padding, sigma, blur, ceil_mode=ceil)
    return writer.replace(node, pool, value)


def adaptive_pool(writer: Writer, node: fx.Node, value: Map) -> Value:
    """The model's own; averages where a maximum would not commute with H."""
    layer: Any = copy.deepcopy(writer.source.modules[node])
    if isinstance(layer, nn.AdaptiveMaxPool2d | nn.AdaptiveMaxPool3d) and not allow_any_function(value.type):
        average = nn.AdaptiveAvgPool2d if isinstance(layer, nn.AdaptiveMaxPool2d) else nn.AdaptiveAvgPool3d
        layer = average(layer.output_size)
    return writer.replace(node, layer, value)


def dropout(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Of whole fields."""
    layer: Any = writer.source.modules[node]
    return writer.replace(node, FieldDropout(value.type, layer.p), value)


def stochastic_depth(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Of whole samples."""
    layer = writer.source.modules[node]
    p = getattr(layer, "p", getattr(layer, "drop_prob", None))
    if not isinstance(p, int | float):
        raise NotConvertibleError("has no probability p or drop_prob")
    return writer.replace(node, StochasticDepth(value.type, p, getattr(layer, "mode", "row")), value)


def resize(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Linear interpolation: the nearest pixel takes sides."""
    linear = "bilinear" if writer.recipe.group.dimension == 2 else "trilinear"
    layer: Any = writer.source.modules[node]
    if layer is None:
        writer.copy(node)
        options = dict(writer.nodes[node].kwargs)
        if options.get("mode", "nearest").startswith("nearest"):  # type: ignore[union-attr]
            writer.nodes[node].kwargs = {**options, "mode": linear, "align_corners": False}
    elif layer.size is not None and len(set(as_tuple(layer.size))) == 1 and not layer.align_corners:
        writer.replace(node, Upsample(value.type, as_tuple(layer.size)[0]))
    else:
        writer.replace(node, nn.Upsample(layer.size, layer.scale_factor, linear, layer.align_corners))
    return value


def pad(writer: Writer, node: fx.Node, value: Map) -> Value:
    """As it is, if all sides are alike."""
    layer: Any = writer.source.modules[node]
    widths = as_tuple(node.args[1] if layer is None else layer.padding)
    filling = node.kwargs.get("value") if layer is None else getattr(layer, "value", 0)
    if len(set(widths)) > 1 or filling or len(widths) != 2 * writer.recipe.group.dimension:
        raise NotConvertibleError("must add the same number of pixels on all sides, zeros or those of the image")
    return writer.copy(node, value)


def identity(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Left out."""
    return writer.skip(node, value)


# Layers that only converted networks need.


class OwnGates(ConstantsModule):
    """Gates features that come without gates: a 1×1 convolution makes one gate per irrep of them."""

    which: Tensor

    def __init__(self, in_type: FieldType, likelihood: Measure | None) -> None:
        super().__init__()
        check_irrep_basis("convert", in_type)
        irreps = in_type.irreps
        self.in_type = self.out_type = in_type
        gates = FieldType(in_type.group, len(irreps) * [in_type.group.trivial])
        self.gates = pointwise_convolution(in_type, gates, likelihood)
        self.add_constant("which", np.repeat(np.arange(len(irreps)), [psi.size for psi in irreps]), torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gates(x).sigmoid().index_select(1, self.which)


class ZeroGates(ConstantsModule):
    """Puts gates of zero beside features, to add them to features that have gates."""

    places: Tensor

    def __init__(self, in_type: FieldType) -> None:
        super().__init__()
        gates = GatedNonlinearity(in_type)
        self.in_type, self.out_type = in_type, gates.in_type
        places = np.full(gates.in_type.size, in_type.size)
        places[np.setdiff1d(np.arange(len(places)), gates.gate_channels)] = np.arange(in_type.size)
        self.add_constant("places", places, torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, torch.zeros_like(x[:, :1])], 1).index_select(1, self.places)

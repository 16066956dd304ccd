"""Functions and methods of feature maps, one function for each kind: sums, products, concatenation, means, shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from pscnn.nn._conv import Linear
from pscnn.nn._convert._layers import ZeroGates
from pscnn.nn._convert._source import Map, NotConvertibleError, Value, Vector, allow_any_function, as_tuple, operation
from pscnn.nn._convert._writer import Writer
from pscnn.nn._field_type import FieldType


def add(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Sums of equal fields, which get gates if one of them has; on scalar or regular fields, sums with a number."""
    terms = [(term, writer.values.get(term)) for term in node.args[:2] if isinstance(term, fx.Node)]
    maps = [(term, found) for term, found in terms if isinstance(found, Map)]
    if len(maps) < 2:
        if len(node.all_input_nodes) > 1 or not allow_any_function(value.type):
            raise NotConvertibleError(
                "adds something that does not transform; on scalar or regular fields it may be a number"
            )
        return writer.copy(node, value)
    first, second = (found.fields for _, found in maps)
    sure = all(found.sure for _, found in maps)
    if first != second and sure:
        raise NotConvertibleError(
            f"adds {first} and {second}; "
            "put a 1×1 convolution on the way of one of them, with the other's number of channels"
        )
    writer.copy(node)
    gates = any(found.gates for _, found in maps)
    for term, found in maps:
        if gates and not found.gates:
            old = writer.nodes[term]
            with writer.graph.inserting_before(writer.nodes[node]):
                wide = writer.call(writer.name(node, "zero_gates"), ZeroGates(found.fields), old)
            writer.nodes[node].replace_input_with(old, wide)
    return Map(value.fields, value.channels, gates, sure)


def multiply(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Products with numbers; on scalar or regular fields also with each other."""
    factors = [writer.values.get(factor) if isinstance(factor, fx.Node) else factor for factor in node.args[:2]]
    by_number = isinstance(factors[-1], int | float) or (
        isinstance(factors[0], int | float) and "mul" in operation(node)
    )
    if not (by_number or (factors[0] == factors[-1] and allow_any_function(value.type))):
        raise NotConvertibleError("only products with numbers, or of equal scalar or regular fields, commute with H")
    return writer.copy(node, value)


def cat(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Along channels."""
    group = writer.recipe.group
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", node.kwargs.get("axis", 0))
    if dim not in (1, -1 - group.dimension):
        raise NotConvertibleError(f"concatenates along axis {dim}; only channels (axis 1) can be")
    parts = [writer.values[part] for part in node.args[0]]  # type: ignore[union-attr, index]
    maps = [part for part in parts if isinstance(part, Map)]
    if len(maps) < len(parts):
        raise NotConvertibleError("concatenates features with something that does not transform")
    writer.copy(node)
    fields = FieldType(value.fields.group, [rho for part in maps for rho in part.fields.representations])
    return Map(fields, sum(p.channels for p in maps), maps[0].gates, all(p.sure for p in maps))


def mean(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Over all of space."""
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dims is None or not _are_space(writer, dims):
        raise NotConvertibleError(f"reduces axes {dims}; only all axes of space at once can be")
    writer.copy(node)
    return _to_invariants(writer, node, value) if writer.plan.makes_vector(node) else value


def flatten(writer: Writer, node: fx.Node, value: Map) -> Value:
    """After pooling: from here on features are invariant."""
    if not _is_flatten(writer, node, value):
        raise NotConvertibleError("changes the axes in another way than flatten(1)")
    writer.nodes[node] = writer.graph.call_function(torch.flatten, (writer.before(node), 1))
    return _to_invariants(writer, node, value)


def _is_flatten(writer: Writer, node: fx.Node, value: Map) -> bool:
    name, module = operation(node), writer.source.modules[node]
    if isinstance(module, nn.Flatten):
        return (module.start_dim, module.end_dim) == (1, -1)
    if name == "flatten":
        return (*node.args[1:], *node.kwargs.values()) in ((1,), (1, -1))
    if name == "squeeze":
        return len(node.args) == 1 or _are_space(writer, node.args[1])
    shape = node.args[1] if len(node.args) == 2 else node.args[1:]
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        return False
    if isinstance(shape[1], int) and shape[1] not in (-1, value.channels):
        raise NotConvertibleError(sees_positions(shape[1], value.channels))
    return True


def _are_space(writer: Writer, dims: Any) -> bool:
    axes = 2 + writer.recipe.group.dimension
    return sorted(d % axes for d in as_tuple(dims)) == list(range(2, axes))


def _to_invariants(writer: Writer, node: fx.Node, value: Map) -> Vector:
    """After pooling, a map to as many invariant features as the head expects."""
    wanted = writer.recipe.seen_by(value.type.group, writer.recipe.scalars(value.channels))
    if value.fields != wanted:
        layer = Linear(value.fields, wanted, likelihood=writer.recipe.new_density())
        writer.nodes[node] = writer.call(writer.name(node, "invariant"), layer, writer.nodes[node])
    return Vector(value.channels, value.sure)


def size(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Sizes and other properties of the tensor."""
    if node.target is getattr and node.args[1] not in ("shape", "ndim", "device", "dtype"):
        raise NotConvertibleError(f"uses .{node.args[1]} of a feature map")
    return writer.copy(node)


def sees_positions(found: int, channels: int) -> str:
    """Why a head cannot have more features than channels."""
    return (
        f"sees {found} features of {channels} channels, so it looks at single positions of a map; pool all of space "
        "before it (AdaptiveAvgPool2d(1)) or use a convolution of the map's size"
    )

"""Functions and methods of feature maps, one function for each kind: sums, products, concatenation, means, shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from pscnn.nn._conv import Linear
from pscnn.nn._convert._convolutions import sees_positions, window_of
from pscnn.nn._convert._layers import ZeroGates
from pscnn.nn._convert._source import (
    Map,
    NotConvertibleError,
    Value,
    Vector,
    allow_any_function,
    are_scalars,
    as_tuple,
    operand,
    operation,
    permuted,
)
from pscnn.nn._convert._writer import Writer
from pscnn.nn._factors import FieldProduct, FieldScale
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
    """Products with numbers, with invariant factors, with parameters; on scalar or regular fields with each other."""
    factors = [writer.values.get(factor) if isinstance(factor, fx.Node) else factor for factor in node.args[:2]]
    times = "mul" in operation(node)
    if isinstance(factors[-1], int | float) or (isinstance(factors[0], int | float) and times):
        return writer.copy(node, value)
    if factors[0] == factors[-1] and allow_any_function(value.type):
        return writer.copy(node, value)
    # The map, then what multiplies it.
    ordered = sorted(zip(node.args[:2], factors, strict=True), key=lambda pair: _is_factor(pair[1]))
    (source, fields), (other, factor) = ordered
    if times and isinstance(fields, Map) and isinstance(source, fx.Node) and isinstance(other, fx.Node):
        if factor is None and other.op == "get_attr":
            return _scale(writer, node, source, other, fields)
        count = factor.channels if isinstance(factor, Map) else getattr(factor, "features", None)
        if _is_factor(factor) and count in (1, fields.channels):
            writer.add(node, "factors", FieldProduct(fields.type), writer.nodes[source], writer.nodes[other])
            return fields
    raise NotConvertibleError(
        "only products with numbers, with one parameter per channel, with invariant factors (such as the sigmoid of a "
        "convolution), or of equal scalar or regular fields commute with H"
    )


def _is_factor(value: Any) -> bool:
    return not isinstance(value, Map) or are_scalars(value.fields)


def _scale(writer: Writer, node: fx.Node, source: fx.Node, parameter: fx.Node, value: Map) -> Value:
    """A parameter times a map: one number for all, or one per channel, which becomes one per field."""
    parent, _, name = str(parameter.target).rpartition(".")
    given = getattr(writer.source.model.get_submodule(parent), name)
    space = () if source in writer.plan.last else (1,) * writer.recipe.group.dimension
    if given.numel() == 1:
        return writer.copy(node, value)
    if tuple(given.shape) not in ((value.channels, *space), (1, value.channels, *space)):
        raise NotConvertibleError(f"multiplies by a parameter of shape {tuple(given.shape)}, not one per channel")
    scale = FieldScale(value.type, given.mean().item()).requires_grad_(given.requires_grad)
    writer.add(node, "layer_scale", scale, writer.nodes[source])
    return value


def expand(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Left out: factors are expanded where they multiply."""
    return writer.skip(node, writer.values[operand(node)])


def permute(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Left out: channels stay in their place, and layers between know that they came last."""
    was_last = operand(node) in writer.plan.last
    if permuted(node, writer.recipe.group.dimension) != ("first" if was_last else "last"):
        raise NotConvertibleError("exchanges axes; only channels can be put last, and back again")
    return writer.skip(node, value)


def cat(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Along channels."""
    group = writer.recipe.group
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", node.kwargs.get("axis", 0))
    first, last = (1, -1 - group.dimension), (-1, 1 + group.dimension)
    if dim not in (last if node in writer.plan.last else first):
        raise NotConvertibleError(f"concatenates along axis {dim}; only channels (axis 1) can be")
    parts = [writer.values[part] for part in node.args[0]]  # type: ignore[union-attr, index]
    maps = [part for part in parts if isinstance(part, Map)]
    if len(maps) < len(parts):
        raise NotConvertibleError("concatenates features with something that does not transform")
    arguments = [writer.nodes[part] for part in node.args[0]], 1  # type: ignore[union-attr, index]
    writer.nodes[node] = writer.graph.call_function(torch.cat, arguments)
    fields = FieldType(group, [rho for part in maps for rho in part.fields.representations])
    return Map(fields, sum(p.channels for p in maps), maps[0].gates, all(p.sure for p in maps))


def mean(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Over all of space."""
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dims is None or not _are_space(writer, dims, 1 if operand(node) in writer.plan.last else 2):
        raise NotConvertibleError(f"reduces axes {dims}; only all axes of space at once can be")
    writer.copy(node)
    return _to_invariants(writer, node, value) if writer.plan.makes_vector(node) else value


def flatten(writer: Writer, node: fx.Node, value: Map) -> Value:
    """After pooling: from here on features are invariant."""
    if not _is_flatten(writer, node, value):
        raise NotConvertibleError("changes the axes in another way than flatten(1)")
    if value.sure and window_of(_linear_after(writer, node), value, writer.recipe.group.dimension):
        return writer.skip(node, replace(value, flat=True))
    writer.nodes[node] = writer.graph.call_function(torch.flatten, (writer.before(node), 1))
    return _to_invariants(writer, node, value)


def _linear_after(writer: Writer, node: fx.Node) -> nn.Module | None:
    """The linear layer that sees a flattened map, if nothing but dropout and nonlinearities come before it."""
    while len(node.users) == 1:
        node = next(iter(node.users))
        if writer.source.kinds[node].name not in ("dropout", "activation", "identity"):
            break
    module = writer.source.modules[node]
    return module if isinstance(module, nn.Linear) else None


def spread_vector(writer: Writer, node: fx.Node, value: Vector) -> Vector | None:
    """Invariant features with axes of one pixel behind them, as factors of a map; None if that is not what is done.

    Sizes in the model's words may be those of a map, which has other channels in the new network.
    """
    name, space = operation(node), (1,) * writer.recipe.group.dimension
    shape = node.args[1] if len(node.args) == 2 else node.args[1:]
    views = name in ("view", "reshape") and isinstance(shape, tuple | list) and tuple(shape[2:]) == space
    indexed = name == "getitem" and shape == (slice(None), slice(None), *(None,) * len(space))
    if not (views or indexed) or value.features is None:
        return value if name == "unsqueeze" and writer.copy(node) is None else None
    arguments = (writer.before(node), 1, (value.features, *space))
    writer.nodes[node] = writer.graph.call_method("unflatten", arguments)
    return value


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
    if isinstance(shape[1], int) and shape[1] not in (-1, value.channels) and not _linear_after(writer, node):
        raise NotConvertibleError(sees_positions(shape[1], value.channels))
    return True


def _are_space(writer: Writer, dims: Any, first: int = 2) -> bool:
    dimension = writer.recipe.group.dimension
    return sorted(d % (2 + dimension) for d in as_tuple(dims)) == list(range(first, first + dimension))


def _to_invariants(writer: Writer, node: fx.Node, value: Map) -> Vector:
    """After pooling, a map to as many invariant features as the head expects."""
    wanted = writer.recipe.scalars(value.channels)
    if value.fields != wanted:
        layer = Linear(value.fields, wanted, likelihood=writer.recipe.new_density())
        writer.nodes[node] = writer.call(writer.name(node, "invariant"), layer, writer.nodes[node])
    return Vector(value.channels, value.sure)


def size(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Sizes and other properties of the tensor."""
    if node.target is getattr and node.args[1] not in ("shape", "ndim", "device", "dtype"):
        raise NotConvertibleError(f"uses .{node.args[1]} of a feature map")
    return writer.copy(node)

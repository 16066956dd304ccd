"""Functions and methods of feature maps, one function for each kind: sums, concatenation, means, shapes."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from pscnn.nn._conv import Linear
from pscnn.nn._convert._convolutions import sees_positions, window_of
from pscnn.nn._convert._layers import ZeroGates
from pscnn.nn._convert._products import per_scalar
from pscnn.nn._convert._source import (
    Map,
    NotConvertibleError,
    Value,
    Vector,
    as_tuple,
    operand,
    operation,
    permuted,
)
from pscnn.nn._convert._writer import Writer
from pscnn.nn._field_type import FieldType, allow_any_function


def add(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Sums of equal fields, which get gates if one of them has; on scalar or regular fields, sums with a number."""
    if node.target is operator.add and node.args[0] == 0:  # Python's sum begins with it
        writer.nodes[node] = writer.nodes[node.all_input_nodes[0]]
        return value
    terms = [(term, writer.values.get(term)) for term in node.args[:2] if isinstance(term, fx.Node)]
    maps = [(term, found) for term, found in terms if isinstance(found, Map)]
    if len(maps) < 2:
        number = len(node.all_input_nodes) == 1 and allow_any_function(value.type)
        if not number and not per_scalar(writer, node, value):
            raise NotConvertibleError(
                "adds something that does not transform; on scalar or regular fields it may be a number, on scalars "
                "one parameter per channel"
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
    given = node.args[0] if node.args else node.kwargs.get("tensors")
    if not isinstance(given, list | tuple):
        raise NotConvertibleError("concatenates what is no list of feature maps")
    parts = [writer.values[part] for part in given]
    maps = [part for part in parts if isinstance(part, Map)]
    if len(maps) < len(parts):
        raise NotConvertibleError("concatenates features with something that does not transform")
    arguments = [writer.nodes[part] for part in given], 1
    writer.nodes[node] = writer.graph.call_function(torch.cat, arguments)
    fields = FieldType(value.fields.group, [rho for part in maps for rho in part.fields.representations])
    return Map(fields, sum(p.channels for p in maps), maps[0].gates, all(p.sure for p in maps))


def mean(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Over all of space."""
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    last = operand(node) in writer.plan.last
    if dims is None or not _are_space(writer, dims, 1 if last else 2):
        raise NotConvertibleError(f"reduces axes {dims}; only all axes of space at once can be")
    writer.copy(node)
    if last:  # ours are in front
        options = {k: v for k, v in writer.nodes[node].kwargs.items() if k != "dim"}
        space = tuple(range(2, 2 + writer.recipe.group.dimension))
        writer.nodes[node].args = (writer.before(node), space, *writer.nodes[node].args[2:])
        writer.nodes[node].kwargs = options
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
    if name == "unsqueeze":
        writer.copy(node)
        return value
    if not (views or indexed) or value.features is None:
        return None
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

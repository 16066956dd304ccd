"""Products of feature maps with numbers, parameters and invariant factors."""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from pscnn.nn._convert._source import (
    Map,
    NotConvertibleError,
    Value,
    operand,
    operation,
)
from pscnn.nn._convert._writer import Writer
from pscnn.nn._factors import FieldProduct, FieldScale
from pscnn.nn._field_type import allow_any_function, are_scalars


def multiply(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Products with numbers, with invariant factors, with parameters; on scalar or regular fields with each other."""
    factors = [writer.values.get(factor) if isinstance(factor, fx.Node) else factor for factor in node.args[:2]]
    times = "mul" in operation(node)
    if isinstance(factors[-1], int | float) or (isinstance(factors[0], int | float) and times):
        return writer.copy(node, value)
    if (factors[0] == factors[-1] and allow_any_function(value.type)) or per_scalar(writer, node, value):
        return writer.copy(node, value)
    ordered = sorted(zip(node.args[:2], factors, strict=True), key=lambda pair: _invariance(pair[1]))
    (source, fields), (other, factor) = ordered  # the map, then what multiplies it
    if times and isinstance(fields, Map) and isinstance(source, fx.Node) and isinstance(other, fx.Node):
        if factor is None and other.op == "get_attr":
            return _scale(writer, node, source, other, fields)
        count = factor.channels if isinstance(factor, Map) else getattr(factor, "features", None)
        if _invariance(factor) and count in (1, fields.channels):
            writer.add(node, "factors", FieldProduct(fields.type), writer.nodes[source], writer.nodes[other])
            return fields
    raise NotConvertibleError(
        "only products with numbers, with one parameter per channel, with invariant factors (such as the sigmoid of a "
        "convolution), or of equal scalar or regular fields commute with H"
    )


def _invariance(value: Any) -> int:
    """0 for maps that transform, 1 for scalar ones, 2 for all else."""
    return 2 if not isinstance(value, Map) else int(are_scalars(value.fields))


def _scale(writer: Writer, node: fx.Node, source: fx.Node, parameter: fx.Node, value: Map) -> Value:
    """A parameter times a map: one number for all, or one per channel, which becomes one per field."""
    given = _tensor(writer, parameter)
    if given.numel() == 1:
        return writer.copy(node, value)
    if not _is_per_channel(writer, source, given, value):
        raise NotConvertibleError(f"multiplies by a parameter of shape {tuple(given.shape)}, not one per channel")
    scale = FieldScale(value.type, given.mean().item()).requires_grad_(given.requires_grad)
    writer.add(node, "layer_scale", scale, writer.nodes[source])
    return value


def _tensor(writer: Writer, node: fx.Node) -> Tensor:
    """A parameter or buffer of the model."""
    parent, _, name = str(node.target).rpartition(".")
    given = getattr(writer.source.root.get_submodule(parent), name)
    assert isinstance(given, Tensor)
    return given


def _is_per_channel(writer: Writer, source: fx.Node, given: Tensor, value: Map) -> bool:
    """Whether a tensor has one number per channel of a map, and broadcasts along it."""
    space = () if source in writer.plan.last else (1,) * writer.recipe.group.dimension
    return tuple(given.shape) in ((value.channels, *space), (1, value.channels, *space))


def per_scalar(writer: Writer, node: fx.Node, value: Map) -> bool:
    """Whether scalars are combined with one parameter or buffer for each, as in models that scale their input."""
    others = [other for other in node.all_input_nodes if not isinstance(writer.values[other], Map)]
    if len(others) != 1 or others[0].op != "get_attr" or not are_scalars(value.fields) or operand(node) is others[0]:
        return False
    given = _tensor(writer, others[0])
    return given.numel() == 1 or _is_per_channel(writer, operand(node), given, value)


def expand(writer: Writer, node: fx.Node, value: Map) -> Value:
    """Left out: factors are expanded where they multiply."""
    return writer.skip(node, writer.values[operand(node)])

"""The walk through a model's graph: node by node into the new network, with a report of all that has no counterpart."""

from __future__ import annotations

from dataclasses import replace

from torch import fx, nn

from pscnn.nn._convert._convolutions import pointwise_convolution, sees_positions
from pscnn.nn._convert._functions import spread_vector
from pscnn.nn._convert._source import Map, NotConvertibleError, Recipe, Source, Value, Vector, operation, path
from pscnn.nn._convert._writer import JOINS, Writer
from pscnn.nn._field_type import FieldType
from pscnn.nn._pixel_conv import PLAIN


def rewrite(source: Source, recipe: Recipe) -> fx.GraphModule:
    """The new network, or an error that names every problem."""
    writer, problems = Writer(source, recipe), []
    for node in source.graph.nodes:
        try:
            if node is source.unsteady:
                raise NotConvertibleError("differs between train and eval; choose one by modules such as Dropout")
            writer.values[node] = _convert(writer, node)
        except ValueError as error:
            problems.append(f"{_place_of(source, node)}: {error}")
            writer.values[node] = _guess(writer, node)
            writer.nodes[node] = writer.graph.create_node("placeholder", f"problem_{node.name}")
    name = type(source.model).__name__
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise NotConvertibleError(f"convert: {name} cannot be converted: {problems[0]}{more}")
    for node in reversed(writer.graph.nodes):
        if node.op == "get_attr" and not node.users:  # parameters that became a layer
            writer.graph.erase_node(node)
    writer.graph.lint()
    return fx.GraphModule(writer.root, writer.graph, name)


def _convert(writer: Writer, node: fx.Node) -> Value:
    """Write one node; return what is known of its value."""
    if node.op == "output":
        writer.graph.output(fx.map_arg(node.args[0], lambda value: _output(writer, value)))
        return None
    if node.op == "placeholder":
        return _input(writer, node)
    kind, module = writer.source.kinds[node], writer.source.modules[node]
    found = [writer.values[operand] for operand in node.all_input_nodes]
    maps = [value for value in found if isinstance(value, Map)]
    vectors = [value for value in found if isinstance(value, Vector)]
    if maps and vectors and kind.name not in ("multiply", "expand"):
        raise NotConvertibleError(
            "mixes feature maps with invariant features, which have other channels; only products of them can be"
        )
    if maps:
        if kind.convert is None:
            raise NotConvertibleError(_advice(operation(node), module))
        _check_axes(writer, node, maps)
        return kind.convert(writer, node, maps[0])
    if kind.makes_fields:
        raise NotConvertibleError("comes after features were flattened; only a head can")
    if not vectors:
        return writer.copy(node)
    return _head(writer, node, vectors[0])


def _check_axes(writer: Writer, node: fx.Node, maps: list[Map]) -> None:
    """Raise if an operation sees other axes in the model than in the new network, and counts on them."""
    name = writer.source.kinds[node].name
    if any(value.flat for value in maps) and name not in ("linear", "dropout", "activation", "identity"):
        raise NotConvertibleError("acts on a flattened map; only a linear layer can come next")
    beside = ("linear", "sample_norm", "activation", "dropout", "depth", "identity", "permute", *JOINS, "mean")
    if any(operand in writer.plan.last for operand in node.all_input_nodes) and name not in beside:
        raise NotConvertibleError("acts on a map whose channels come last; permute it back first")


def _input(writer: Writer, node: fx.Node) -> Value:
    writer.copy(node)
    if not node.users:
        return None
    if node is not writer.plan.input:
        raise NotConvertibleError("only one input can be converted")
    given = writer.recipe.in_type
    if given is not None:
        return Map(given, given.size)
    channels = writer.plan.input_channels()
    return Map(writer.recipe.scalars(channels), channels)


def _output(writer: Writer, node: fx.Node) -> fx.Node:
    """An output as the model has it: scalars, or what the user wants."""
    value, recipe = writer.values[node], writer.recipe
    if not isinstance(value, Map):
        return writer.nodes[node]
    wanted = recipe.scalars(value.channels) if recipe.out_type is None else recipe.out_type
    wanted = recipe.seen_by(value.type.group, wanted)
    if value.sure and wanted.size != value.channels:
        raise NotConvertibleError(f"out_type has {wanted.size} channels, the model gives {value.channels}")
    if value.fields == wanted:
        return writer.nodes[node]
    layer = pointwise_convolution(value.fields, wanted, recipe.new_density())
    return writer.call(writer.free_name("to_output"), layer, writer.nodes[node])


def _head(writer: Writer, node: fx.Node, value: Vector) -> Value:
    """Invariant features: as in the model."""
    kind, module = writer.source.kinds[node].name, writer.source.modules[node]
    if kind == "linear":
        assert isinstance(module, nn.Linear)
        if value.sure and value.features is not None and module.in_features != value.features:
            raise NotConvertibleError(sees_positions(module.in_features, value.features))
        return writer.copy(node, Vector(module.out_features, value.sure))
    spread = spread_vector(writer, node, value)
    if spread is not None:
        return spread
    if kind == "dropout" and node.op != "call_module":  # a function would keep the mode in which it was traced
        assert module is not None
        writer.replace(node, module)
    elif kind == "depth" and node.op != "call_module":
        raise NotConvertibleError("would keep the mode in which it was traced; use a module for it")
    else:
        writer.copy(node)
    same = kind in ("dropout", "activation", "identity", "depth", "expand") or isinstance(
        module, nn.BatchNorm1d | nn.LayerNorm
    )
    return Vector(value.features if same else None, value.sure)


# -- problems ----------------------------------------------------------------------------------------------------------


def _guess(writer: Writer, node: fx.Node) -> Value:
    """A value to go on with, so that one problem does not hide others."""
    module, recipe = writer.source.modules[node], writer.recipe
    if isinstance(module, PLAIN):
        return Map(recipe.fields(module.out_channels), module.out_channels, sure=False)
    if isinstance(module, nn.Linear) and not writer.plan.makes_fields(node):
        return Vector(module.out_features, sure=False)
    found = [writer.values[operand] for operand in node.all_input_nodes]
    first = next((value for value in found if isinstance(value, Map)), next(iter(found), None))
    if node.op == "placeholder":
        return Map(FieldType(recipe.group, [recipe.field]), 1, sure=False)
    return None if first is None else replace(first, sure=False)


def _place_of(source: Source, node: fx.Node) -> str:
    """What a person looks for: the name of a module, or a function and where it is called."""
    if node.op == "call_module":
        return f"{node.target} ({type(source.modules[node]).__name__})"
    if node.op == "placeholder":
        return f"input {node.target}"
    return f"{'output' if node.op == 'output' else f'{operation(node)}()'} in {path(node) or 'forward'}"


def _advice(name: str, module: nn.Module | None) -> str:
    """Why a module or an operation without a counterpart has none."""
    kind = type(module).__name__
    if module is None and name.startswith(("conv", "batch_norm")):
        return "is a function whose weights are not a layer's; use the module"
    if module is None:
        return "is not known to commute with the group; only sums, concatenation, pooling, … of feature maps are"
    if "Norm" in kind:
        return "has no counterpart; use BatchNorm2d, GroupNorm or InstanceNorm2d, or LayerNorm over the last axis"
    if type(module).__module__.startswith("pscnn."):
        return "is a layer of pscnn already; convert plain models"
    return "has no equivariant counterpart"

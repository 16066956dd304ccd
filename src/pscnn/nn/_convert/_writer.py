"""Writing the new network: which convolutions make what, its graph, and its modules under the model's names."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from pscnn.nn._convert._method import by_method
from pscnn.nn._convert._source import (
    OUT_OF_PLACE,
    Map,
    NotConvertibleError,
    Recipe,
    Source,
    Value,
    function_of,
    operand,
    operation,
    path,
    permuted,
)
from pscnn.nn._field_type import FieldType, allow_any_function, are_scalars
from pscnn.nn._fourier import FourierPointwise, QuotientFourierPointwise
from pscnn.nn._nonlinearity import GatedNonlinearity

JOINS = ("add", "cat", "multiply")
"""Operations on several feature maps."""


def pointwise(fields: FieldType) -> FourierPointwise:
    """ELU of samples of the functions that fields are; of as few samples as the paper's networks have."""
    function = function_of(fields)
    assert function is not None
    make = FourierPointwise if function.subgroup is None else QuotientFourierPointwise
    return make(fields, degree=2 * function.bandlimit)


class Plan:
    """The types of feature maps that follow from what comes after them."""

    def __init__(self, source: Source, recipe: Recipe) -> None:
        self.source, self.recipe = source, recipe
        nodes = source.graph.nodes
        self.input = next((node for node in nodes if node.op == "placeholder" and node.users), None)
        self.last: set[fx.Node] = set()  # feature maps whose channels come last in the model
        for node in nodes:
            comes_last = any(before in self.last for before in node.all_input_nodes)
            if self._name(node) == "permute":
                comes_last = permuted(node, recipe.group.dimension) == "last"
            if comes_last and not self.makes_vector(node):
                self.last.add(node)
        self.final: dict[fx.Node, FieldType | None] = {}  # convolutions that make an output, or invariant features
        self.gated: set[fx.Node] = set()  # feature maps with gates
        for value in [value for node in nodes if node.op == "output" for value in node.all_input_nodes]:
            for origin in self._origins(value, recipe.out_type, True) or ():
                self.final[origin] = recipe.out_type
        for node in nodes:
            if self.makes_vector(node):
                for origin in self._origins(operand(node), None, False) or ():
                    self.final.setdefault(origin, None)
            for origin in self._factor_origins(node):
                self.final.setdefault(origin, None)
        one = FieldType(recipe.group, [recipe.field])
        self._any_function, self._functions = allow_any_function(one), function_of(one) is not None
        if not (self._any_function or self._functions):
            for node in nodes:
                if self._name(node) == "activation":
                    self.gated |= self._gate_path(operand(node))

    def _name(self, node: fx.Node) -> str:
        return self.source.kinds[node].name

    def makes_fields(self, node: fx.Node) -> bool:
        """Whether the type of its output is free to choose."""
        pointwise = self._name(node) == "linear" and operand(node) in self.last
        return self.source.kinds[node].makes_fields or pointwise

    def _factor_origins(self, node: fx.Node) -> set[fx.Node]:
        """The convolutions that make a factor between 0 and 1 of a feature map: one that is invariant."""
        found: set[fx.Node] = set()
        if self._name(node) == "multiply" and len(node.all_input_nodes) == 2:
            for factor in node.all_input_nodes:
                while self._name(factor) == "expand":
                    factor = operand(factor)
                if isinstance(self.source.modules[factor], nn.Sigmoid | nn.Hardsigmoid):
                    found |= self._origins(factor, None, True) or set()
        return found

    def _operands(self, node: fx.Node) -> list[fx.Node]:
        return node.all_input_nodes if self._name(node) in JOINS else [operand(node)]

    def makes_vector(self, node: fx.Node) -> bool:
        """Whether space is gone after this node."""
        if self._name(node) == "mean":
            return not (node.kwargs.get("keepdim") or (len(node.args) > 2 and node.args[2]))
        return self._name(node) == "flatten"

    def _origins(self, node: fx.Node, wanted: FieldType | None, activations: bool) -> set[fx.Node] | None:
        """The convolutions that make a value, if nothing but them decides on the wanted type; None stands for scalars.

        With ``activations`` there may be nonlinearities in between.
        """
        kind, scalars, given = self.source.kinds[node], wanted is None or are_scalars(wanted), self.recipe.in_type
        if kind.name == "placeholder":
            fits = given == wanted or (scalars and (given is None or are_scalars(given)))
            return set() if fits else None
        if len(node.users) != 1:
            return None
        if self.makes_fields(node):
            alone = sum(other.target == node.target for other in self.source.graph.nodes) == 1
            return {node} if alone else None  # its other calls would get another type
        through = kind.channelwise or kind.name in ("add", "mean", "flatten", "multiply")
        pointwise = activations and kind.name in ("activation", "softmax")
        if not (through or (scalars and (kind.name == "cat" or pointwise))):
            return None
        out: set[fx.Node] = set()
        for before in self._operands(node):
            below = None if kind.name == "cat" else wanted
            found = None if before is node else self._origins(before, below, activations)
            if found is None:
                return None
            out |= found
        return out

    def _gate_path(self, node: fx.Node) -> set[fx.Node]:
        """The nodes through which gates come from convolutions to this value; empty if they cannot."""
        kind = self.source.kinds[node]
        if len(node.users) != 1 or node in self.final:
            return set()
        if self.makes_fields(node):
            return {node}
        if not (kind.channelwise or kind.name in ("add", "cat")):
            return set()
        paths = [set() if before is node else self._gate_path(before) for before in self._operands(node)]
        enough = all if kind.name == "cat" else any  # in a sum the gates of one term serve for all
        return set[fx.Node]().union({node}, *paths) if enough(paths) else set()

    def input_channels(self) -> int:
        """Channels of the input, told by the first layer that knows."""
        assert self.input is not None
        queue, seen = [self.input], {self.input}
        for node in queue:
            for user in node.users:
                module, kind = self.source.modules[user], self.source.kinds[user]
                for name in ("in_channels", "num_features", "num_channels"):
                    if isinstance(known := getattr(module, name, None), int):
                        return known
                if user not in seen and (kind.channelwise or kind.name in ("activation", "add", "multiply")):
                    seen.add(user)
                    queue.append(user)
        raise NotConvertibleError("the number of channels is not known from the layers after it; give in_type")

    def made(self, node: fx.Node, channels: int, sure: bool) -> Map:
        """The feature map that a layer shall make for as many channels of the model."""
        fields = self.recipe.fields(channels)
        if node in self.final:
            fields = self.final[node] or self.recipe.scalars(channels)
        return Map(fields, channels, node in self.gated, sure)

    def gain(self, node: fx.Node) -> float:
        """For convolutions without normalisation: what the nonlinearity after it takes from the signal."""
        if node in self.final:
            return 1.0
        while len(node.users) == 1:
            node = next(iter(node.users))
            if self._name(node) == "activation":
                if self._any_function:
                    return math.sqrt(2)  # that of ReLU, about right for its relatives
                one = FieldType(self.recipe.group, [self.recipe.field])
                return pointwise(one).gain if self._functions else GatedNonlinearity(one).gain
            if self._name(node) not in ("pool", "dropout", "identity"):
                break
        return 1.0


class Writer:
    """A new network that grows node by node."""

    def __init__(self, source: Source, recipe: Recipe) -> None:
        self.source, self.recipe, self.plan = source, recipe, Plan(source, recipe)
        self.values: dict[fx.Node, Value] = {}  # what is known of the model's
        self.nodes: dict[fx.Node, fx.Node] = {}  # those of the new graph, by the model's
        self.done_before: set[fx.Node] = set()  # nonlinearities that are part of a layer before them
        self.graph = fx.Graph()
        self.root = nn.Module()
        model = source.model
        parameter = next(model.parameters(), torch.empty(0))
        self._device, self._dtype = parameter.device, parameter.dtype
        self._names = {name for name, _ in model.named_modules()} | {name for name, _ in model.named_parameters()}
        self._built: dict[str, Any] = {}  # modules under the model's names: what each was built from

    # -- names ---------------------------------------------------------------------------------------------------------

    def free_name(self, name: str) -> str:
        """The name, or one like it that is not taken."""
        tries = (name if not k else f"{name}_{k}" for k in range(10**6))
        found = next(candidate for candidate in tries if candidate not in self._names)
        self._names.add(found)
        return found

    def name(self, node: fx.Node, own: str | None = None) -> str:
        """A name in the new network: the module's at its first call, else a new one beside it."""
        if own is None and node.op == "call_module":
            name = str(node.target)
            if name not in self._built:
                self._built[name] = None
                return name
            return self.free_name(name)
        parent = path(node).rpartition(".")[0] if node.op == "call_module" else path(node)
        return self.free_name(f"{parent}.{own or operation(node).rstrip('_')}".lstrip("."))

    def _put(self, name: str, value: Any) -> None:
        parent = self.root
        *parents, last = name.split(".")
        for part in parents:
            if not hasattr(parent, part):
                parent.add_module(part, nn.Module())
            parent = getattr(parent, part)
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            parent.register_buffer(last, value)
        else:
            setattr(parent, last, value)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def before(self, node: fx.Node) -> fx.Node:
        """The new node of what goes into a node of the model."""
        return self.nodes[operand(node)]

    def add(self, node: fx.Node, own: str, module: nn.Module, *inputs: fx.Node) -> None:
        """Call a module that does what a function of several inputs does."""
        self.nodes[node] = self.call(self.name(node, own), module, *inputs)

    def call(self, name: str, module: nn.Module, *inputs: fx.Node) -> fx.Node:
        """Add a module, as the method has it, and a call of it."""
        self._put(name, by_method(module, self.recipe.method).to(self._device, self._dtype))
        return self.graph.call_module(name, inputs)

    # The following write one node and return its value, as it was given.

    def replace(self, node: fx.Node, module: nn.Module, value: Value = None) -> Value:
        """Call another module instead."""
        self.nodes[node] = self.call(self.name(node), module, self.before(node))
        return value

    def replace_learnt(self, node: fx.Node, value: Map, made: Any, build: Callable[[], nn.Module]) -> None:
        """Replace a layer with weights; if it is called again, it must be on the same type and make the same."""
        name, source = str(node.target), (value.type, made)
        if name not in self._built:
            self._built[name] = source
            self.nodes[node] = self.call(name, build(), self.before(node))
        elif self._built[name] == source or not value.sure:
            self.nodes[node] = self.graph.call_module(name, (self.before(node),))
        else:
            raise NotConvertibleError(
                "is called more than once, on features of different types; use one layer for each call"
            )

    def copy(self, node: fx.Node, value: Value = None) -> Value:
        """The same operation in the new graph, not in place: what comes in may be a view."""
        if node.op == "call_module":
            name = str(node.target)
            if self._built.get(name) != "copy":
                name = self.free_name(name) if name in self._built else name
                self._built[name] = "copy"
                self._put(name, copy.deepcopy(self.source.modules[node]))
            arguments = fx.map_arg(node.args, self.nodes.__getitem__)
            self.nodes[node] = self.graph.call_module(name, arguments, dict(node.kwargs))
            return value
        if node.op == "get_attr":
            parent, _, name = str(node.target).rpartition(".")
            self._put(str(node.target), copy.deepcopy(getattr(self.source.root.get_submodule(parent), name)))
        self.nodes[node] = self.graph.node_copy(node, self.nodes.__getitem__)
        self.nodes[node].type = None  # annotations may be strings, which fx cannot write out again
        self.nodes[node].target = OUT_OF_PLACE.get(node.target, node.target)
        return value

    def skip(self, node: fx.Node, value: Value = None) -> Value:
        """Leave the operation out."""
        self.nodes[node] = self.before(node)
        return value

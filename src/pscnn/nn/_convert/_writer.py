"""Writing the new network: its graph, and its modules under the model's names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from pscnn.nn._convert._plan import Plan
from pscnn.nn._convert._trace import OUT_OF_PLACE, Source, operand, operation, path
from pscnn.nn._convert._values import Map, NotConvertibleError, Recipe, Value


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

    def call(self, name: str, module: nn.Module, *inputs: fx.Node) -> fx.Node:
        """Add a module and a call of it."""
        self._put(name, module.to(self._device, self._dtype))
        return self.graph.call_module(name, inputs)

    def replace(self, node: fx.Node, module: nn.Module) -> None:
        """Call another module instead."""
        self.nodes[node] = self.call(self.name(node), module, self.before(node))

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

    def copy(self, node: fx.Node) -> None:
        """The same operation in the new graph, not in place: what comes in may be a view."""
        if node.op == "call_module":
            name = str(node.target)
            if name not in self._built:
                self._built[name] = "copy"
                self._put(name, copy.deepcopy(self.source.modules[node]))
            elif self._built[name] != "copy":
                name = self.free_name(name)
                self._put(name, copy.deepcopy(self.source.modules[node]))
            self.nodes[node] = self.graph.call_module(name, fx.map_arg(node.args, self._new), dict(node.kwargs))
            return
        if node.op == "get_attr":
            parent, _, name = str(node.target).rpartition(".")
            self._put(str(node.target), copy.deepcopy(getattr(self.source.model.get_submodule(parent), name)))
        self.nodes[node] = self.graph.node_copy(node, self._new)
        self.nodes[node].type = None  # annotations may be strings, which fx cannot write out again
        self.nodes[node].target = OUT_OF_PLACE.get(node.target, node.target)

    def skip(self, node: fx.Node) -> None:
        """Leave the operation out."""
        self.nodes[node] = self.before(node)

    def _new(self, node: fx.Node) -> fx.Node:
        return self.nodes[node]

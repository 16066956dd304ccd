"""What is known while a network is converted: the model as ``torch.fx`` reads it, its values, how to replace them."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import fx, nn

from pscnn._extras import PscnnError
from pscnn.groups import FunctionSpace, Group, Representation
from pscnn.measures import Measure
from pscnn.nn._field_type import FieldType
from pscnn.nn._nonlinearity import GatedNonlinearity

if TYPE_CHECKING:
    from pscnn.nn._convert._method import Method
    from pscnn.nn._convert._writer import Writer

# fmt: off
FUNCTIONS: dict[str, Callable[..., nn.Module]] = {
    "relu": nn.ReLU, "relu_": nn.ReLU, "relu6": nn.ReLU6, "leaky_relu": nn.LeakyReLU, "elu": nn.ELU, "celu": nn.CELU,
    "selu": nn.SELU, "gelu": nn.GELU, "silu": nn.SiLU, "mish": nn.Mish, "softplus": nn.Softplus,
    "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "hardswish": nn.Hardswish, "hardsigmoid": nn.Hardsigmoid,
    "hardtanh": nn.Hardtanh, "max_pool2d": nn.MaxPool2d, "max_pool3d": nn.MaxPool3d, "avg_pool2d": nn.AvgPool2d,
    "avg_pool3d": nn.AvgPool3d, "adaptive_avg_pool2d": nn.AdaptiveAvgPool2d,
    "adaptive_avg_pool3d": nn.AdaptiveAvgPool3d, "adaptive_max_pool2d": nn.AdaptiveMaxPool2d,
    "adaptive_max_pool3d": nn.AdaptiveMaxPool3d, "dropout": nn.Dropout, "dropout2d": nn.Dropout2d,
    "dropout3d": nn.Dropout3d, "stochastic_depth": lambda p, mode="row", training=True: DroppedPath(p, mode),
}
"""Functions that are treated as the module of the same meaning."""

OUT_OF_PLACE: dict[Any, Any] = {
    "add_": "add", "sub_": "sub", "mul_": "mul", "div_": "div",
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
# fmt: on


class DroppedPath(nn.Module):
    """What is known of stochastic depth, which torch has no module for."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p, self.mode = p, mode


PATHS = ("DropPath", "StochasticDepth")
"""Names under which libraries have modules for it."""


class NotConvertibleError(PscnnError, ValueError):
    """Some operation has no equivariant counterpart."""


@dataclass(frozen=True)
class Map:
    """What is known of a feature map."""

    fields: FieldType
    channels: int  # in the model
    gates: bool = False  # every field has its gates before it
    sure: bool = True  # False after something that could not be converted: what does not fit is no further problem
    flat: bool = False  # the model has flattened it, and so far we have not

    @property
    def type(self) -> FieldType:
        """The fields, with their gates."""
        return GatedNonlinearity(self.fields).in_type if self.gates else self.fields


@dataclass(frozen=True)
class Vector:
    """Invariant features, (B, features): from here on everything is as in the model."""

    features: int | None
    sure: bool = True


Value = Map | Vector | None  # None is all that is not a feature: sizes, parameters


class Kind(NamedTuple):
    """A kind of operation, and how it is written into the new graph; without ``convert`` there is no counterpart."""

    name: str
    convert: Callable[[Writer, fx.Node, Map], Value] | None = None
    modules: tuple[type[nn.Module], ...] = ()
    operations: tuple[str, ...] = ()  # functions and methods, besides those that stand for one of the modules
    channelwise: bool = False  # it acts on all channels of a field alike: gates pass beside the features
    makes_fields: bool = False  # the type of its output is free to choose


@dataclass(frozen=True)
class Recipe:
    """What new layers are made of: copies of a field, a density each; the types at both ends, if given; a method."""

    field: Representation
    new_density: Callable[[], Measure | None]
    in_type: FieldType | None
    out_type: FieldType | None
    method: Method | None = None
    by_norm: bool = False  # whether maxima are taken by norm

    @property
    def group(self) -> Group:
        """H."""
        return self.field.group

    def fields(self, channels: int) -> FieldType:
        """As many fields as come closest to a number of channels; of functions, as many as fit into it."""
        exact = channels / self.field.size
        copies = max(1, math.floor(exact if isinstance(self.field, FunctionSpace) else exact + 0.5))
        return FieldType(self.group, copies * [self.field])

    def scalars(self, channels: int) -> FieldType:
        """As many invariant channels."""
        return FieldType(self.group, channels * [self.group.trivial])

    def seen_by(self, group: Group, fields: FieldType) -> FieldType:
        """The same channels where a restriction has left a subgroup."""
        if group == self.group or self.method is None:
            return fields
        restriction = self.method.restriction(fields)
        return fields if restriction is None else restriction.out_type


def function_of(fields: FieldType) -> FunctionSpace | None:
    """What all fields are, if they are functions on a group or a quotient of it."""
    first = fields.representations[0]
    same = isinstance(first, FunctionSpace) and all(rho == first for rho in fields.representations)
    return first if same else None  # type: ignore[return-value]


def as_tuple(value: Any) -> tuple[Any, ...]:
    """A number or several as a tuple."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)


@dataclass(frozen=True)
class Source:
    """A model as it was read."""

    model: nn.Module
    root: nn.Module  # its copy that was traced, which has the constants of its forward, too
    graph: fx.Graph  # in training mode
    unsteady: fx.Node | None  # the first node that is not the same in eval mode
    modules: dict[fx.Node, nn.Module | None]  # what a node calls, or what does the same as its function
    kinds: dict[fx.Node, Kind]


def read(model: nn.Module, kind_of: Callable[[fx.Node, nn.Module | None], Kind]) -> Source:
    """Trace a model and tell the kinds of its operations."""
    (_, evaluated), (root, graph) = _trace(model, False), _trace(model, True)
    pairs = zip(evaluated.nodes, graph.nodes, strict=False)
    unsteady = next((b for a, b in pairs if _fingerprint(a) != _fingerprint(b)), None)
    modules = {node: _as_module(model, node) for node in graph.nodes}
    kinds = {node: kind_of(node, module) for node, module in modules.items()}
    return Source(model, root, graph, unsteady, modules, kinds)


class Tracer(fx.Tracer):
    """Looks into the user's modules only."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        # Networks of pscnn.models are plain code.
        known = type(m).__module__.startswith(("pscnn.nn.", "pscnn.likelihood")) or type(m).__name__ in PATHS
        return known or super().is_leaf_module(m, module_qualified_name)


def _trace(model: nn.Module, training: bool) -> tuple[nn.Module, fx.Graph]:
    try:
        root = copy.deepcopy(model).train(training)
        return root, Tracer().trace(root)
    except Exception as error:  # whatever the user's forward raises when it is given no numbers
        raise NotConvertibleError(
            f"convert: {type(model).__name__} cannot be traced by torch.fx: {error}. Its forward must do the same "
            "for every input: move what depends on values or shapes (if, while, len, int) out of it"
        ) from error


def _fingerprint(node: fx.Node) -> str:
    name = operation(node)
    options = {} if "dropout" in name else node.kwargs  # training=self.training
    return f"{node.op} {name} {node.args[:2] if name == 'stochastic_depth' else node.args} {options}"


def _as_module(model: nn.Module, node: fx.Node) -> nn.Module | None:
    if node.op == "call_module":
        return model.get_submodule(str(node.target))
    make = FUNCTIONS.get(operation(node)) if node.op in ("call_function", "call_method") else None
    if make is None:
        return None
    options = dict(node.kwargs)
    options.pop("inplace", None)
    if options.pop("training", True) is False:
        return nn.Identity()
    try:
        return make(*node.args[1:], **options)
    except TypeError:
        return None


def operation(node: fx.Node) -> str:
    """The name of what a node calls."""
    return node.target if isinstance(node.target, str) else node.target.__name__


def operand(node: fx.Node) -> fx.Node:
    """The first argument, or the node itself if that is no node."""
    first = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    return first if isinstance(first, fx.Node) else node


def path(node: fx.Node) -> str:
    """The name of the module in whose forward a node is called."""
    stack = node.meta.get("nn_module_stack") or {}
    return list(stack.values())[-1][0] if stack else ""


def permuted(node: fx.Node, dimension: int) -> str | None:
    """Whether a permutation puts the channels "last" or back in "first" place."""
    dims = node.args[1] if len(node.args) == 2 else node.args[1:]
    given = as_tuple(node.kwargs.get("dims", dims))
    axes = 2 + dimension
    if not all(isinstance(d, int) for d in given):
        return None
    turned = tuple(d % axes for d in given)
    if operation(node) == "movedim":
        return {(1, axes - 1): "last", (axes - 1, 1): "first"}.get(turned)
    return {(0, *range(2, axes), 1): "last", (0, axes - 1, *range(1, axes - 1)): "first"}.get(turned)

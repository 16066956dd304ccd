"""From a ``torch.nn`` CNN to its partially equivariant version."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, fx, nn

from pscnn._constants import ConstantsModule
from pscnn.groups import Group, Representation, direct_sum
from pscnn.likelihood import Likelihood
from pscnn.nn._batch_norm import BatchNorm
from pscnn.nn._conv import Conv2d, Conv3d, Linear
from pscnn.nn._field_type import FieldType
from pscnn.nn._fourier import _is_permuted
from pscnn.nn._gated_batch_norm import GatedBatchNorm
from pscnn.nn._nonlinearity import GatedNonlinearity, _check_irrep_basis
from pscnn.nn._spatial import AvgPoolAntialiased, FieldDropout, Upsample

# fmt: off
MODULES: dict[str, tuple[type[nn.Module], ...]] = {
    "convolution": (nn.Conv2d, nn.Conv3d),
    "norm": (nn.BatchNorm2d, nn.BatchNorm3d),
    "activation": (
        nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish,
        nn.Softplus, nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh,
    ),
    "softmax": (nn.Softmax, nn.LogSoftmax, nn.Softmax2d),
    "pool": (nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool2d, nn.AvgPool3d),
    "adaptive": (nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
    "dropout": (nn.Dropout, nn.Dropout2d, nn.Dropout3d),
    "resize": (nn.Upsample,),
    "pad": (
        nn.ZeroPad2d, nn.ZeroPad3d, nn.ReflectionPad2d, nn.ReflectionPad3d, nn.ReplicationPad2d, nn.ReplicationPad3d,
        nn.CircularPad2d, nn.CircularPad3d,
    ),
    "identity": (nn.Identity,),
    "flatten": (nn.Flatten,),
    "linear": (nn.Linear,),
}

FUNCTIONS: dict[str, Callable[..., nn.Module]] = {
    "relu": nn.ReLU, "relu_": nn.ReLU, "relu6": nn.ReLU6, "leaky_relu": nn.LeakyReLU, "elu": nn.ELU, "celu": nn.CELU,
    "selu": nn.SELU, "gelu": nn.GELU, "silu": nn.SiLU, "mish": nn.Mish, "softplus": nn.Softplus,
    "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "hardswish": nn.Hardswish, "hardsigmoid": nn.Hardsigmoid,
    "hardtanh": nn.Hardtanh, "max_pool2d": nn.MaxPool2d, "max_pool3d": nn.MaxPool3d, "avg_pool2d": nn.AvgPool2d,
    "avg_pool3d": nn.AvgPool3d, "adaptive_avg_pool2d": nn.AdaptiveAvgPool2d,
    "adaptive_avg_pool3d": nn.AdaptiveAvgPool3d, "adaptive_max_pool2d": nn.AdaptiveMaxPool2d,
    "adaptive_max_pool3d": nn.AdaptiveMaxPool3d, "dropout": nn.Dropout, "dropout2d": nn.Dropout2d,
    "dropout3d": nn.Dropout3d,
}
"""Functions that are treated as the module of the same meaning."""

OPERATIONS = {
    "add": "add", "add_": "add", "iadd": "add", "sub": "add", "sub_": "add", "isub": "add",
    "mul": "multiply", "mul_": "multiply", "imul": "multiply", "multiply": "multiply",
    "truediv": "multiply", "itruediv": "multiply", "div": "multiply", "div_": "multiply",
    "cat": "cat", "concat": "cat", "mean": "mean", "sum": "mean", "interpolate": "resize", "pad": "pad",
    "flatten": "flatten", "view": "flatten", "reshape": "flatten", "squeeze": "flatten",
    "softmax": "softmax", "log_softmax": "softmax", "contiguous": "identity", "clone": "identity",
    "size": "size", "dim": "size", "getattr": "size",
}
"""Other functions and methods that are understood."""

OUT_OF_PLACE: dict[Any, Any] = {
    "add_": "add", "sub_": "sub", "mul_": "mul", "div_": "div",
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
# fmt: on

CHANNELWISE = ("norm", "pool", "adaptive", "dropout", "resize", "pad", "identity")
"""Operations that act on all channels of a field alike: gates pass through them beside the features."""


def convert(
    model: nn.Module,
    group: Group,
    bandlimit: int = 2,
    *,
    fields: Literal["irreps", "regular"] = "irreps",
    frequency: int = 2,
    in_type: FieldType | None = None,
    out_type: FieldType | None = None,
    **density: Any,
) -> fx.GraphModule:
    """The partially equivariant version of a plain CNN for images or volumes, layer by layer.

    Convolutions become steerable ones, each with a density of its own; normalisation, nonlinearities, pooling and
    dropout become those that commute with H; residual sums and concatenations stay. Where features are flattened for
    the head, a ``Linear`` with a density first maps them to as many invariant ones as the head expects; the head is
    copied with its weights. Other weights start anew. All densities are uniform at first: the network is equivariant.
    Networks without a head give as many invariant channels as the model has.

    To be exactly equivariant on the grid, strided layers must meet maps that they sample symmetrically: (size +
    2·padding − kernel_size) divisible by the stride, for instance odd sizes with padding kernel_size // 2. Pooling
    with an even window n is centred on pixels, like a window of n − 1, and rounds odd sizes up.

    Args:
        model: A CNN that ``torch.fx`` can trace; it is not changed.
        group: H, acting on the plane for 2D networks and on space for 3D ones.
        bandlimit: L of the densities.
        fields: "irreps" for copies of all irreps up to ``frequency`` with gates for nonlinearities; "regular" for
            copies of the regular representation of a finite group, on which the model's own nonlinearities act.
            As many copies as come closest to the model's channels, at least one.
        frequency: The highest frequency of "irreps" fields.
        in_type: Type of the input; scalars by default.
        out_type: Type of an output that is an image or volume; as many scalars as the model has channels by default.
        density: Further options of ``Likelihood``, such as ``alignment="construction"``.

    Returns:
        A ``torch.fx.GraphModule`` with the model's names of modules, in the model's mode.

    Raises:
        ValueError: If the model cannot be traced, or some of its operations have no equivariant counterpart; the
            message names each with a reason.

    Shape:
        As the model; sizes may differ by one after pooling with even windows.

    Example:
        >>> import pscnn
        >>> from pscnn.groups import O2
        >>> plain = nn.Sequential(
        ...     nn.Conv2d(1, 12, 5, padding=2), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        ...     nn.Conv2d(12, 24, 3), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        ...     nn.Linear(24, 10),
        ... )
        >>> model = convert(plain, O2()).eval()
        >>> x = torch.randn(2, 1, 29, 29)
        >>> model(x).shape
        torch.Size([2, 10])
        >>> torch.allclose(model(x), model(x.rot90(1, (2, 3))), atol=1e-5)
        True
        >>> list(pscnn.likelihoods(model))
        ['0', '4', 'invariant']
    """
    if not isinstance(group, Group):
        raise TypeError(f"convert: group must be a group such as O2(), got {group!r}")
    if fields not in ("irreps", "regular"):
        raise ValueError(f"convert: fields must be 'irreps' or 'regular', got {fields!r}")
    if fields == "regular" and group.order is None:
        raise ValueError(f"convert: {group.name} is infinite and has no regular fields; use fields='irreps'")
    for name, given in (("in_type", in_type), ("out_type", out_type)):
        if given is not None and given.group != group:
            raise ValueError(f"convert: {name} is over {given.group.name}, the network over {group.name}")
    field = group.regular if fields == "regular" else direct_sum(list(group.irreps(frequency)))

    def new_density() -> Likelihood:
        return Likelihood(group, bandlimit, **density)

    new_density()  # so that wrong options are not put down to the model
    if _Tracer().is_leaf_module(model, ""):
        model = nn.Sequential(model).train(model.training)  # one layer: called, not looked into
    graph, unsteady = _trace(model)
    converted = _Converter(model, graph, field, new_density, in_type, out_type, unsteady).run()
    return converted.train(model.training)


# -- reading the model -------------------------------------------------------------------------------------------------


class _Tracer(fx.Tracer):
    """Looks into the user's modules only."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m).__module__.startswith("pscnn.") or super().is_leaf_module(m, module_qualified_name)


def _trace(model: nn.Module) -> tuple[fx.Graph, fx.Node | None]:
    """The graph in training mode, and its first node that is not the same in eval mode."""
    graphs = []
    for mode in (False, True):
        try:
            graphs.append(_Tracer().trace(copy.deepcopy(model).train(mode)))
        except Exception as error:  # whatever the user's forward raises when it is given no numbers
            raise ValueError(
                f"convert: {type(model).__name__} cannot be traced by torch.fx: {error}. Its forward must do the same "
                "for every input: move what depends on values or shapes (if, while, len, int) out of it"
            ) from error
    evaluated, graph = graphs
    pairs = zip(evaluated.nodes, graph.nodes, strict=False)
    unsteady = next((b for a, b in pairs if _fingerprint(a) != _fingerprint(b)), None)
    return graph, unsteady


def _fingerprint(node: fx.Node) -> str:
    options = {} if "dropout" in _operation(node) else node.kwargs  # training=self.training
    return f"{node.op} {_operation(node)} {node.args} {options}"


def _operation(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else node.target.__name__


def _as_module(model: nn.Module, node: fx.Node) -> nn.Module | None:
    """The module that a node calls, or that does what its function does."""
    if node.op == "call_module":
        return model.get_submodule(str(node.target))
    make = FUNCTIONS.get(_operation(node)) if node.op in ("call_function", "call_method") else None
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


def _kind(node: fx.Node, module: nn.Module | None) -> str:
    if module is not None:
        return next((kind for kind, classes in MODULES.items() if type(module) in classes), "other")
    if node.op in ("call_function", "call_method"):
        return OPERATIONS.get(_operation(node), "other")
    return node.op


# -- layers that only converted networks need --------------------------------------------------------------------------


class _OwnGates(ConstantsModule):
    """Gates features that come without gates: a 1×1 convolution makes one gate per irrep of them."""

    which: Tensor

    def __init__(self, in_type: FieldType, likelihood: Likelihood) -> None:
        super().__init__()
        _check_irrep_basis("convert", in_type)
        irreps = in_type.irreps
        self.in_type = self.out_type = in_type
        gates = FieldType(in_type.group, len(irreps) * [in_type.group.trivial])
        self.gates = _pointwise_convolution(in_type, gates, likelihood)
        self.add_constant("which", np.repeat(np.arange(len(irreps)), [psi.size for psi in irreps]), torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gates(x).sigmoid().index_select(1, self.which)


class _ZeroGates(ConstantsModule):
    """Puts gates of zero beside features, to add them to features that have gates."""

    places: Tensor

    def __init__(self, in_type: FieldType) -> None:
        super().__init__()
        self.in_type, self.out_type = in_type, _with_gates(in_type)
        places, start = [], 0
        for rho in in_type.representations:
            places += len(rho.irreps) * [in_type.size] + list(range(start, start + rho.size))
            start += rho.size
        self.add_constant("places", np.array(places), torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, torch.zeros_like(x[:, :1])], 1).index_select(1, self.places)


def _with_gates(fields: FieldType) -> FieldType:
    return GatedNonlinearity(fields).in_type


def _pointwise_convolution(in_type: FieldType, out_type: FieldType, likelihood: Likelihood) -> nn.Module:
    layer = Conv2d if in_type.group.dimension == 2 else Conv3d
    return layer(in_type, out_type, 1, likelihood=likelihood)


def _is_scalar(rho: Representation) -> bool:
    return all(psi.is_trivial for psi in rho.irreps)


def _are_scalars(fields: FieldType) -> bool:
    return all(map(_is_scalar, set(fields.representations)))


def _allows_any_function(fields: FieldType) -> bool:
    """Whether functions of single channels commute with H."""
    return all(_is_scalar(rho) or _is_permuted(rho) for rho in set(fields.representations))


# -- the conversion ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Map:
    """What is known of a feature map.

    Attributes:
        fields: Its features.
        channels: How many channels it has in the model.
        gates: Whether every field has its gates before it.
        sure: False after something that could not be converted: what does not fit is then no further problem.
    """

    fields: FieldType
    channels: int
    gates: bool = False
    sure: bool = True

    @property
    def type(self) -> FieldType:
        return _with_gates(self.fields) if self.gates else self.fields


@dataclass(frozen=True)
class _Vector:
    """Invariant features, (B, features): from here on everything is as in the model."""

    features: int | None
    sure: bool = True


_Value = _Map | _Vector | None  # None is all that is not a feature: sizes, parameters


class _NotConvertibleError(ValueError):
    pass


class _Converter:
    """Walks through the graph of a model once and writes a new one."""

    def __init__(
        self,
        model: nn.Module,
        graph: fx.Graph,
        field: Representation,
        new_density: Callable[[], Likelihood],
        in_type: FieldType | None,
        out_type: FieldType | None,
        unsteady: fx.Node | None,
    ) -> None:
        self.model, self.graph, self.field, self.new_density = model, graph, field, new_density
        self.group: Group = field.group
        self.in_type, self.out_type, self.unsteady = in_type, out_type, unsteady
        parameter = next(model.parameters(), torch.empty(0))
        self.device, self.dtype = parameter.device, parameter.dtype
        self.modules = {node: _as_module(model, node) for node in graph.nodes}
        self.kinds = {node: _kind(node, module) for node, module in self.modules.items()}
        self.problems: list[str] = []
        self.values: dict[fx.Node, _Value] = {}
        self.nodes: dict[fx.Node, fx.Node] = {}  # those of the new graph
        self.new = fx.Graph()
        self.root = nn.Module()
        self.names = {name for name, _ in model.named_modules()} | {name for name, _ in model.named_parameters()}
        self.shared: dict[str, tuple[Any, str]] = {}  # by name in the model: what it was built from, its new name
        self.done_before: set[fx.Node] = set()  # nonlinearities that are part of a layer before them

        self.input = next((node for node in graph.nodes if node.op == "placeholder" and node.users), None)
        self.final: dict[fx.Node, FieldType | None] = {}  # convolutions that make an output, or invariant features
        self.gated: set[fx.Node] = set()  # feature maps with gates
        for node in graph.nodes:
            if self.kinds[node] == "output":
                self._plan_outputs(node)
        for node in graph.nodes:
            if self._makes_vector(node):
                for origin in self._origins(self._operand(node), None, False) or ():
                    self.final.setdefault(origin, None)
        if not _allows_any_function(FieldType(self.group, [field])):
            for node in graph.nodes:
                if self.kinds[node] == "activation":
                    self.gated |= self._gate_path(self._operand(node))

    # -- plans: which convolutions make what ---------------------------------------------------------------------------

    def _operand(self, node: fx.Node) -> fx.Node:
        first = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
        return first if isinstance(first, fx.Node) else node

    def _operands(self, node: fx.Node) -> list[fx.Node]:
        return node.all_input_nodes if self.kinds[node] in ("add", "cat", "multiply") else [self._operand(node)]

    def _makes_vector(self, node: fx.Node) -> bool:
        if self.kinds[node] == "mean":
            return not (node.kwargs.get("keepdim") or (len(node.args) > 2 and node.args[2]))
        return self.kinds[node] == "flatten"

    def _plan_outputs(self, node: fx.Node) -> None:
        for value in node.all_input_nodes:
            for origin in self._origins(value, self.out_type, True) or ():
                self.final[origin] = self.out_type

    def _origins(self, node: fx.Node, wanted: FieldType | None, activations: bool) -> set[fx.Node] | None:
        """The convolutions that make a value, if nothing but them decides on its type; None stands for scalars.

        Args:
            node: The value.
            wanted: Its type.
            activations: Whether there may be nonlinearities in between.
        """
        kind, scalars = self.kinds[node], wanted is None or _are_scalars(wanted)
        if kind == "placeholder":
            fits = self.in_type == wanted or (scalars and (self.in_type is None or _are_scalars(self.in_type)))
            return set() if fits else None
        if len(node.users) != 1:
            return None
        if kind == "convolution":
            alone = sum(other.target == node.target for other in self.graph.nodes) == 1
            return {node} if alone else None  # its other calls would get another type
        through = kind in (*CHANNELWISE, "add", "mean", "flatten", "multiply")
        if not (through or (scalars and (kind == "cat" or (activations and kind in ("activation", "softmax"))))):
            return None
        out: set[fx.Node] = set()
        for operand in self._operands(node):
            found = None if operand is node else self._origins(operand, None if kind == "cat" else wanted, activations)
            if found is None:
                return None
            out |= found
        return out

    def _gate_path(self, node: fx.Node) -> set[fx.Node]:
        """The nodes through which gates come from convolutions to this value; empty if they cannot."""
        kind = self.kinds[node]
        if len(node.users) != 1 or node in self.final:
            return set()
        if kind == "convolution":
            return {node}
        if kind not in (*CHANNELWISE, "add", "cat"):
            return set()
        paths = [set() if operand is node else self._gate_path(operand) for operand in self._operands(node)]
        enough = all if kind == "cat" else any  # in a sum the gates of one term serve for all
        return set[fx.Node]().union({node}, *paths) if enough(paths) else set()

    def _input_channels(self) -> int:
        """Channels of the input, told by the first layer that knows."""
        assert self.input is not None
        queue, seen = [self.input], {self.input}
        for node in queue:
            for user in node.users:
                module = self.modules[user]
                if isinstance(module, nn.Conv2d | nn.Conv3d):
                    return module.in_channels
                if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
                    return module.num_features
                if user not in seen and self.kinds[user] in (*CHANNELWISE, "activation", "add", "multiply"):
                    seen.add(user)
                    queue.append(user)
        raise _NotConvertibleError("the number of channels is not known from the layers after it; give in_type")

    def _gain(self, node: fx.Node) -> float:
        """For convolutions without normalisation: what the nonlinearity after it takes from the signal."""
        while len(node.users) == 1:
            node = next(iter(node.users))
            if self.kinds[node] == "activation":
                if _allows_any_function(FieldType(self.group, [self.field])):
                    return math.sqrt(2)  # that of ReLU, about right for its relatives
                return GatedNonlinearity(FieldType(self.group, [self.field])).gain
            if self.kinds[node] not in ("pool", "dropout", "identity"):
                break
        return 1.0

    # -- writing the new graph -----------------------------------------------------------------------------------------

    def run(self) -> fx.GraphModule:
        for node in self.graph.nodes:
            try:
                if node is self.unsteady:
                    raise _NotConvertibleError("differs between train and eval; choose one by modules such as Dropout")
                self.values[node] = self._convert(node)
            except ValueError as error:
                self.problems.append(f"{self._place_of(node)}: {error}")
                self.values[node] = self._guess(node)
                self.nodes[node] = self.new.create_node("placeholder", f"problem_{node.name}")
        if self.problems:
            raise ValueError(
                f"convert: {type(self.model).__name__} cannot be converted:\n- " + "\n- ".join(self.problems)
            )
        self.new.lint()
        return fx.GraphModule(self.root, self.new, type(self.model).__name__)

    def _place_of(self, node: fx.Node) -> str:
        """What a person looks for: the name of a module, or a function and where it is called."""
        if node.op == "call_module":
            return f"{node.target} ({type(self.modules[node]).__name__})"
        path = self._path(node)
        what = "input" if node.op == "placeholder" else "output" if node.op == "output" else f"{_operation(node)}()"
        return f"{what} {node.target}" if node.op == "placeholder" else f"{what} in {path or 'forward'}"

    def _path(self, node: fx.Node) -> str:
        stack = node.meta.get("nn_module_stack") or {}
        return list(stack.values())[-1][0] if stack else ""

    def _guess(self, node: fx.Node) -> _Value:
        """A value to go on with, so that one problem does not hide others."""
        module = self.modules[node]
        if isinstance(module, nn.Conv2d | nn.Conv3d):
            return _Map(self._fields(module.out_channels), module.out_channels, sure=False)
        if isinstance(module, nn.Linear):
            return _Vector(module.out_features, sure=False)
        found = [self.values[operand] for operand in node.all_input_nodes]
        first = next((value for value in found if isinstance(value, _Map)), next(iter(found), None))
        if node.op == "placeholder":
            return _Map(FieldType(self.group, [self.field]), 1, sure=False)
        return None if first is None else replace(first, sure=False)

    def _fields(self, channels: int) -> FieldType:
        copies = max(1, math.floor(channels / self.field.size + 0.5))
        return FieldType(self.group, copies * [self.field])

    def _scalars(self, channels: int) -> FieldType:
        return FieldType(self.group, channels * [self.group.trivial])

    def _free_name(self, name: str) -> str:
        tries = (name if not k else f"{name}_{k}" for k in range(10**6))
        found = next(candidate for candidate in tries if candidate not in self.names)
        self.names.add(found)
        return found

    def _name(self, node: fx.Node, own: str | None = None) -> str:
        """A name in the new network: the module's at its first call, else a new one beside it."""
        if own is None and node.op == "call_module":
            name = str(node.target)
            if name not in self.shared:
                self.shared[name] = (None, name)
                return name
            return self._free_name(name)
        path = self._path(node)
        parent = path.rpartition(".")[0] if node.op == "call_module" else path
        return self._free_name(f"{parent}.{own or _operation(node).rstrip('_')}".lstrip("."))

    def _put(self, name: str, value: Any) -> None:
        parent = self.root
        *path, last = name.split(".")
        for part in path:
            if not hasattr(parent, part):
                parent.add_module(part, nn.Module())
            parent = getattr(parent, part)
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            parent.register_buffer(last, value)
        else:
            setattr(parent, last, value)

    def _call(self, name: str, module: nn.Module, *inputs: fx.Node) -> fx.Node:
        self._put(name, module.to(self.device, self.dtype))
        return self.new.call_module(name, inputs)

    def _replace(self, node: fx.Node, module: nn.Module) -> None:
        self.nodes[node] = self._call(self._name(node), module, self.nodes[self._operand(node)])

    def _learnt(self, node: fx.Node, source: tuple[Any, ...], build: Callable[[], nn.Module], sure: bool) -> None:
        """Replace a layer with weights; if it is called again, it must be built from the same."""
        target = str(node.target)
        before, name = self.shared.get(target, (None, target))
        if target not in self.shared:
            self.shared[target] = (source, name)
            self.nodes[node] = self._call(name, build(), self.nodes[self._operand(node)])
        elif before == source or not sure:
            self.nodes[node] = self.new.call_module(name, (self.nodes[self._operand(node)],))
        else:
            raise _NotConvertibleError(
                "is called more than once, on features of different types; use one layer for each call"
            )

    def _copy(self, node: fx.Node) -> None:
        """The same operation in the new graph, not in place: what comes in may be a view."""
        if node.op == "call_module":
            name = str(node.target)
            if name not in self.shared:
                self.shared[name] = ("copy", name)
                module = copy.deepcopy(self.model.get_submodule(name))
                self._put(name, module)
            elif self.shared[name][0] != "copy":
                name = self._free_name(name)
                self._put(name, copy.deepcopy(self.modules[node]))
            self.nodes[node] = self.new.call_module(name, fx.map_arg(node.args, self._new), dict(node.kwargs))
            return
        if node.op == "get_attr":
            parent, _, name = str(node.target).rpartition(".")
            self._put(str(node.target), copy.deepcopy(getattr(self.model.get_submodule(parent), name)))
        self.nodes[node] = self.new.node_copy(node, self._new)
        self.nodes[node].type = None  # annotations may be strings, which fx cannot write out again
        self.nodes[node].target = OUT_OF_PLACE.get(node.target, node.target)

    def _new(self, node: fx.Node) -> fx.Node:
        return self.nodes[node]

    def _convert(self, node: fx.Node) -> _Value:
        """Write one node; return what is known of its value."""
        kind = self.kinds[node]
        if kind == "output":
            self.new.output(fx.map_arg(node.args[0], self._output))
            return None
        if kind == "placeholder":
            return self._input(node)
        found = [self.values[operand] for operand in node.all_input_nodes]
        maps = [value for value in found if isinstance(value, _Map)]
        vectors = [value for value in found if isinstance(value, _Vector)]
        if maps and vectors:
            raise _NotConvertibleError(
                "mixes feature maps with invariant features, which have other channels (squeeze and excitation does); "
                "leave it out"
            )
        if maps:
            method = getattr(self, f"_{kind}", None)
            if method is None:
                raise _NotConvertibleError(_advice(_operation(node), self.modules[node]))
            return method(node, maps[0])
        if kind == "convolution":
            raise _NotConvertibleError("comes after features were flattened; only a head can")
        if not vectors:
            self._copy(node)
            return None
        return self._head(node, vectors[0])

    # -- one method for each kind of operation on feature maps ---------------------------------------------------------

    def _input(self, node: fx.Node) -> _Value:
        self._copy(node)
        if not node.users:
            return None
        if node is not self.input:
            raise _NotConvertibleError("only one input can be converted")
        if self.in_type is not None:
            return _Map(self.in_type, self.in_type.size)
        channels = self._input_channels()
        return _Map(self._scalars(channels), channels)

    def _convolution(self, node: fx.Node, value: _Map) -> _Value:
        conv = self.modules[node]
        assert isinstance(conv, nn.Conv2d | nn.Conv3d)
        if value.sure and conv.in_channels != value.channels:
            raise _NotConvertibleError(f"expects {conv.in_channels} channels, gets {value.channels}")
        if conv.groups != 1:
            raise _NotConvertibleError(f"groups={conv.groups} would split fields; use groups=1")
        settings = [conv.kernel_size, conv.stride, conv.padding, conv.dilation]
        if any(not isinstance(s, str) and len(set(s)) > 1 for s in settings):
            raise _NotConvertibleError("kernel size, stride, padding and dilation must be the same along all axes")
        size, stride, padding, dilation = (s if isinstance(s, str) else s[0] for s in settings)
        assert isinstance(size, int)
        if size % 2 == 0:
            raise _NotConvertibleError(f"kernel size {size} has no centre; use {size - 1} or {size + 1}")
        fields = self._fields(conv.out_channels)
        if node in self.final:
            fields = self.final[node] or self._scalars(conv.out_channels)
        out = _Map(fields, conv.out_channels, node in self.gated, value.sure)

        def build() -> nn.Module:
            return (Conv2d if isinstance(conv, nn.Conv2d) else Conv3d)(
                value.type,
                out.type,
                size,
                stride,  # type: ignore[arg-type]
                padding,  # type: ignore[arg-type]
                dilation,  # type: ignore[arg-type]
                conv.bias is not None,
                conv.padding_mode,
                self.new_density(),
                1.0 if node in self.final else self._gain(node),
            )

        self._learnt(node, (value.type, out.type), build, value.sure)
        return out

    def _norm(self, node: fx.Node, value: _Map) -> _Value:
        norm = self.modules[node]
        assert isinstance(norm, nn.BatchNorm2d | nn.BatchNorm3d)
        if not norm.track_running_stats or norm.momentum is None:
            raise _NotConvertibleError("needs track_running_stats=True and a momentum")
        eps, momentum = norm.eps, norm.momentum
        following = next(iter(node.users), None)
        fused = value.gates and following is not None and self.kinds[following] == "activation"  # the only one, then

        def build() -> nn.Module:
            layer = GatedBatchNorm(value.fields, eps, momentum) if fused else BatchNorm(value.type, eps, momentum)
            return layer.requires_grad_(norm.affine)

        self._learnt(node, (value.type, fused), build, value.sure)
        if not fused or following is None:
            return value
        self.done_before.add(following)
        return replace(value, gates=False)

    def _activation(self, node: fx.Node, value: _Map) -> _Value:
        function = self.modules[node]
        if node in self.done_before:
            self.nodes[node] = self.nodes[self._operand(node)]
        elif value.gates:
            self._replace(node, GatedNonlinearity(value.fields))
        elif _allows_any_function(value.fields):
            if isinstance(function, nn.PReLU) and function.num_parameters > 1 and not _are_scalars(value.fields):
                raise _NotConvertibleError("has one slope per channel, which the group would exchange; use PReLU()")
            function = copy.deepcopy(function)
            assert function is not None
            if hasattr(function, "inplace"):
                function.inplace = False  # type: ignore[assignment]  # what comes in may be a view
            self._replace(node, function)
        else:
            self._replace(node, _OwnGates(value.fields, self.new_density()))
        return replace(value, gates=False)

    def _softmax(self, node: fx.Node, value: _Map) -> _Value:
        if not _are_scalars(value.fields):
            raise _NotConvertibleError("needs invariant features: use it on the last convolution's output only")
        self._copy(node)
        return value

    def _pool(self, node: fx.Node, value: _Map) -> _Value:
        pool: Any = self.modules[node]
        sizes = [set(_tuple(s)) for s in (pool.kernel_size, pool.stride, pool.padding)]
        if (
            any(len(s) > 1 for s in sizes)
            or set(_tuple(getattr(pool, "dilation", 1))) != {1}
            or getattr(pool, "return_indices", False)
        ):
            raise _NotConvertibleError("must be the same along all axes, without dilation and indices")
        size, stride, padding = (s.pop() for s in sizes)
        sigma = 0.33 * max(2, stride)  # as wide as the stride needs
        blur = max(2 * math.ceil(3 * sigma) + 1, size - 1 + size % 2)
        padding += (blur - (size - 1 + size % 2)) // 2  # maps come out as large as from the model's window
        self._replace(node, AvgPoolAntialiased(value.type, stride, padding, sigma, blur))
        return value

    def _adaptive(self, node: fx.Node, value: _Map) -> _Value:
        pool: Any = copy.deepcopy(self.modules[node])
        if isinstance(pool, nn.AdaptiveMaxPool2d | nn.AdaptiveMaxPool3d) and not _allows_any_function(value.type):
            average = nn.AdaptiveAvgPool2d if isinstance(pool, nn.AdaptiveMaxPool2d) else nn.AdaptiveAvgPool3d
            pool = average(pool.output_size)
        self._replace(node, pool)
        return value

    def _dropout(self, node: fx.Node, value: _Map) -> _Value:
        dropout: Any = self.modules[node]
        self._replace(node, FieldDropout(value.type, dropout.p))
        return value

    def _resize(self, node: fx.Node, value: _Map) -> _Value:
        linear = "bilinear" if self.group.dimension == 2 else "trilinear"  # nearest takes sides
        module: Any = self.modules[node]
        if module is None:
            self._copy(node)
            options = dict(self.nodes[node].kwargs)
            if options.get("mode", "nearest").startswith("nearest"):  # type: ignore[union-attr]
                self.nodes[node].kwargs = {**options, "mode": linear, "align_corners": False}
        elif module.size is not None and len(set(_tuple(module.size))) == 1 and not module.align_corners:
            self._replace(node, Upsample(value.type, _tuple(module.size)[0]))
        else:
            self._replace(node, nn.Upsample(module.size, module.scale_factor, linear, module.align_corners))
        return value

    def _pad(self, node: fx.Node, value: _Map) -> _Value:
        module: Any = self.modules[node]
        widths = node.args[1] if module is None else module.padding
        filling = node.kwargs.get("value") if module is None else getattr(module, "value", 0)
        if len(set(_tuple(widths))) > 1 or filling or len(_tuple(widths)) != 2 * self.group.dimension:
            raise _NotConvertibleError("must add the same number of pixels on all sides, zeros or those of the image")
        self._copy(node)
        return value

    def _identity(self, node: fx.Node, value: _Map) -> _Value:
        self.nodes[node] = self.nodes[self._operand(node)]
        return value

    def _add(self, node: fx.Node, value: _Map) -> _Value:
        operands = [operand for operand in node.args[:2] if isinstance(self.values.get(operand), _Map)]  # type: ignore[arg-type]
        values: list[_Map] = [self.values[operand] for operand in operands]  # type: ignore[misc, index]
        if len(values) < 2:
            return self._with_number(node, value, "adds")
        if values[0].fields != values[1].fields and all(v.sure for v in values):
            raise _NotConvertibleError(
                f"adds {values[0].fields} and {values[1].fields}; "
                "put a 1×1 convolution on the way of one of them, with the other's number of channels"
            )
        self._copy(node)
        gates = any(v.gates for v in values)
        for operand, v in zip(operands, values, strict=True):
            if gates and not v.gates:
                old = self.nodes[operand]  # type: ignore[index]
                with self.new.inserting_before(self.nodes[node]):
                    wide = self._call(self._name(node, "zero_gates"), _ZeroGates(v.fields), old)
                self.nodes[node].replace_input_with(old, wide)
        return _Map(value.fields, value.channels, gates, all(v.sure for v in values))

    def _multiply(self, node: fx.Node, value: _Map) -> _Value:
        factors = [self.values.get(factor) if isinstance(factor, fx.Node) else factor for factor in node.args[:2]]
        by_number = isinstance(factors[-1], int | float) or (
            isinstance(factors[0], int | float) and "mul" in _operation(node)
        )
        if by_number or (factors[0] == factors[-1] and _allows_any_function(value.type)):
            self._copy(node)
            return value
        raise _NotConvertibleError("only products with numbers, or of equal scalar or regular fields, commute with H")

    def _with_number(self, node: fx.Node, value: _Map, what: str) -> _Value:
        if len(node.all_input_nodes) > 1 or not _allows_any_function(value.type):
            raise _NotConvertibleError(
                f"{what} something that does not transform; on scalar or regular fields it may be a number"
            )
        self._copy(node)
        return value

    def _cat(self, node: fx.Node, value: _Map) -> _Value:
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", node.kwargs.get("axis", 0))
        if dim not in (1, -1 - self.group.dimension):
            raise _NotConvertibleError(f"concatenates along axis {dim}; only channels (axis 1) can be")
        parts = [self.values[operand] for operand in node.args[0]]  # type: ignore[union-attr, index]
        maps = [part for part in parts if isinstance(part, _Map)]
        if len(maps) < len(parts):
            raise _NotConvertibleError("concatenates features with something that does not transform")
        self._copy(node)
        fields = FieldType(self.group, [rho for part in maps for rho in part.fields.representations])
        return _Map(fields, sum(p.channels for p in maps), maps[0].gates, all(p.sure for p in maps))

    def _mean(self, node: fx.Node, value: _Map) -> _Value:
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if dims is None or not self._are_space(dims):
            raise _NotConvertibleError(f"reduces axes {dims}; only all axes of space at once can be")
        self._copy(node)
        return self._to_invariants(node, value) if self._makes_vector(node) else value

    def _are_space(self, dims: Any) -> bool:
        axes = 2 + self.group.dimension
        return sorted(d % axes for d in _tuple(dims)) == list(range(2, axes))

    def _flatten(self, node: fx.Node, value: _Map) -> _Value:
        name, module = _operation(node), self.modules[node]
        if isinstance(module, nn.Flatten):
            fits = (module.start_dim, module.end_dim) == (1, -1)
        elif name == "flatten":
            given = (*node.args[1:], *node.kwargs.values())
            fits = given in ((1,), (1, -1))
        elif name == "squeeze":
            fits = len(node.args) == 1 or self._are_space(node.args[1])
        else:
            shape = node.args[1] if len(node.args) == 2 else node.args[1:]
            fits = isinstance(shape, tuple | list) and len(shape) == 2
            if fits and isinstance(shape[1], int) and shape[1] not in (-1, value.channels):  # type: ignore[index]
                raise _NotConvertibleError(_too_large(shape[1], value.channels))  # type: ignore[index]
        if not fits:
            raise _NotConvertibleError("changes the axes in another way than flatten(1)")
        self.nodes[node] = self.new.call_function(torch.flatten, (self.nodes[self._operand(node)], 1))
        return self._to_invariants(node, value)

    def _to_invariants(self, node: fx.Node, value: _Map) -> _Vector:
        """After pooling, a map to as many invariant features as the head expects."""
        wanted = self._scalars(value.channels)
        if value.fields != wanted:
            layer = Linear(value.fields, wanted, likelihood=self.new_density())
            self.nodes[node] = self._call(self._name(node, "invariant"), layer, self.nodes[node])
        return _Vector(value.channels, value.sure)

    def _linear(self, node: fx.Node, value: _Map) -> _Value:
        raise _NotConvertibleError("acts on a feature map; pool and flatten it first, or use a 1×1 convolution")

    def _size(self, node: fx.Node, value: _Map) -> _Value:
        if node.target is getattr and node.args[1] not in ("shape", "ndim", "device", "dtype"):
            raise _NotConvertibleError(f"uses .{node.args[1]} of a feature map")
        self._copy(node)
        return None

    def _output(self, node: fx.Node) -> fx.Node:
        """An output as the model has it: scalars, or what the user wants."""
        value = self.values[node]
        if not isinstance(value, _Map):
            return self.nodes[node]
        wanted = self._scalars(value.channels) if self.out_type is None else self.out_type
        if value.sure and wanted.size != value.channels:
            raise _NotConvertibleError(f"out_type has {wanted.size} channels, the model gives {value.channels}")
        if value.fields == wanted:
            return self.nodes[node]
        name = self._free_name("to_output")
        return self._call(name, _pointwise_convolution(value.fields, wanted, self.new_density()), self.nodes[node])

    def _head(self, node: fx.Node, value: _Vector) -> _Value:
        """Invariant features: as in the model."""
        kind, module = self.kinds[node], self.modules[node]
        if kind == "linear":
            assert isinstance(module, nn.Linear)
            if value.sure and value.features is not None and module.in_features != value.features:
                raise _NotConvertibleError(_too_large(module.in_features, value.features))
            self._copy(node)
            return _Vector(module.out_features, value.sure)
        if kind == "dropout" and node.op != "call_module":  # a function would keep the mode in which it was traced
            assert module is not None
            self._replace(node, module)
        else:
            self._copy(node)
        same = kind in ("dropout", "activation", "identity") or isinstance(module, nn.BatchNorm1d | nn.LayerNorm)
        return _Vector(value.features if same else None, value.sure)


def _too_large(found: int, channels: int) -> str:
    return (
        f"sees {found} features of {channels} channels, so it looks at single positions of a map; pool all of space "
        "before it (AdaptiveAvgPool2d(1)) or use a convolution of the map's size"
    )


def _advice(operation: str, module: nn.Module | None) -> str:
    """Why a module or an operation without a counterpart has none."""
    name = type(module).__name__
    if module is None and operation.startswith(("conv", "batch_norm")):
        return "is a function whose weights are not a layer's; use the module"
    if module is None:
        return "is not known to commute with the group; only sums, concatenation, pooling, … of feature maps are"
    if "ConvTranspose" in name:
        return "has no counterpart; use Upsample and a convolution"
    if "Norm" in name:
        return "has no counterpart; use BatchNorm2d or BatchNorm3d"
    if type(module).__module__.startswith("pscnn."):
        return "is a layer of pscnn already; convert plain models"
    return "has no equivariant counterpart"


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)

"""From a ``torch.nn`` CNN to its partially equivariant version: the table of what can be converted, and the entry."""

from __future__ import annotations

import math
from typing import Any, Literal

from torch import fx, nn

from pscnn._memory import TooLargeError
from pscnn.groups import Group, Representation, direct_sum, parse
from pscnn.likelihood import Likelihood
from pscnn.measures import Measure
from pscnn.nn._convert import _convolutions, _functions, _layers, _norms, _products
from pscnn.nn._convert._keep import keep_weights
from pscnn.nn._convert._method import Method, RestrictHere, restrict
from pscnn.nn._convert._source import PATHS, DroppedPath, Kind, Recipe, Tracer, operation, read
from pscnn.nn._convert._walk import rewrite
from pscnn.nn._field_type import FieldType
from pscnn.nn._fourier import function_field
from pscnn.nn._together import expand_together

__all__ = ["Method", "RestrictHere", "convert"]

# fmt: off
ACTIVATIONS: tuple[type[nn.Module], ...] = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish,
    nn.Softplus, nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh,
)
ADAPTIVE = (nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
PADS = (
    nn.ZeroPad2d, nn.ZeroPad3d, nn.ReflectionPad2d, nn.ReflectionPad3d, nn.ReplicationPad2d, nn.ReplicationPad3d,
    nn.CircularPad2d, nn.CircularPad3d,
)
SUMS = ("add", "add_", "iadd", "sub", "sub_", "isub")
PRODUCTS = ("mul", "mul_", "imul", "multiply", "truediv", "itruediv", "div", "div_")

SAMPLE_NORMS = (nn.GroupNorm, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.LayerNorm)

KINDS = (
    Kind("convolution", _convolutions.convolution, (nn.Conv2d, nn.Conv3d), makes_fields=True),
    Kind("transposed", _convolutions.transposed, (nn.ConvTranspose2d, nn.ConvTranspose3d), makes_fields=True),
    Kind("linear", _convolutions.linear, (nn.Linear,)),
    Kind("norm", _norms.batch_norm, (nn.BatchNorm2d, nn.BatchNorm3d), channelwise=True),
    Kind("sample_norm", _norms.sample_norm, SAMPLE_NORMS, ("layer_norm",), channelwise=True),
    Kind("activation", _layers.activation, ACTIVATIONS),
    Kind("softmax", _layers.softmax, (nn.Softmax, nn.LogSoftmax, nn.Softmax2d), ("softmax", "log_softmax")),
    Kind("pool", _layers.pool, (nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool2d, nn.AvgPool3d), channelwise=True),
    Kind("adaptive", _layers.adaptive_pool, ADAPTIVE, channelwise=True),
    Kind("dropout", _layers.dropout, (nn.Dropout, nn.Dropout2d, nn.Dropout3d), channelwise=True),
    Kind("depth", _layers.stochastic_depth, (DroppedPath,), channelwise=True),
    Kind("resize", _layers.resize, (nn.Upsample,), ("interpolate",), channelwise=True),
    Kind("pad", _layers.pad, PADS, ("pad",), channelwise=True),
    Kind("identity", _layers.identity, (nn.Identity,), ("contiguous", "clone"), channelwise=True),
    Kind("restrict", restrict, (RestrictHere,)),
    Kind("flatten", _functions.flatten, (nn.Flatten,), ("flatten", "view", "reshape", "squeeze")),
    Kind("add", _functions.add, operations=SUMS),
    Kind("multiply", _products.multiply, operations=PRODUCTS),
    Kind("expand", _products.expand, operations=("expand_as",), channelwise=True),
    Kind("permute", _functions.permute, operations=("permute", "movedim"), channelwise=True),
    Kind("cat", _functions.cat, operations=("cat", "concat")),
    Kind("mean", _functions.mean, operations=("mean", "sum")),
    Kind("size", _functions.size, operations=("size", "dim", "getattr")),
)
# fmt: on

HIGHEST = {2: 64, 3: 6}
"""Frequencies of fields, where the group acts in a plane or about an axis, and in space: more take minutes to build."""

_BY_MODULE = {module: kind for kind in KINDS for module in kind.modules}
_BY_OPERATION = {name: kind for kind in KINDS for name in kind.operations}


def kind_of(node: fx.Node, module: nn.Module | None) -> Kind:
    """The kind of a node that calls a module, or does what one does; without a converter if it is not known."""
    if module is not None:
        known = DroppedPath if type(module).__name__ in PATHS else type(module)
        return _BY_MODULE.get(known, Kind("other"))
    if node.op in ("call_function", "call_method"):
        return _BY_OPERATION.get(operation(node), Kind("other"))
    return Kind(node.op)


def convert(
    model: nn.Module,
    group: Group | str,
    bandlimit: int = 2,
    *,
    weights: Literal["new", "keep"] = "new",
    fields: Literal["irreps", "functions", "regular"] = "irreps",
    frequency: int = 2,
    max_pool: Literal["average", "norm"] = "average",
    in_type: FieldType | None = None,
    out_type: FieldType | None = None,
    method: Method | str | None = None,
    **density: Any,
) -> nn.Module:
    """The partially equivariant version of a plain CNN for images or volumes, layer by layer.

    Convolutions become steerable ones, each with a density of its own; normalisation, nonlinearities, pooling and
    dropout become those that commute with H; residual sums and concatenations stay. Where features are flattened for
    the head, a ``Linear`` with a density first maps them to as many invariant ones as the head expects; the head is
    copied with its weights. Other weights start anew. All densities are uniform at first: the network is equivariant.
    Networks without a head give as many invariant channels as the model has.

    Strided layers and pooling sample maps of any size symmetrically, so the network is exactly equivariant to the
    grid's own symmetries, right angles and mirrors; maps have the model's sizes.

    With ``weights="keep"`` the result is the model itself, as a copy of the same class and the same function: all
    channels are scalars, every convolution larger than a pixel becomes a ``PixelConv`` with the model's kernel, and
    nothing else changes. Its densities start with probability 0.99 on the identity. KL divergence from the uniform
    density then draws kernels towards their mean over H, which commutes with H. This needs a finite group that maps
    pixels to pixels (quarter turns and mirrors along the axes).

    Args:
        model: A CNN that ``torch.fx`` can trace; it is not changed.
        group: H, or its name, acting on the plane for 2D networks and on space for 3D ones.
        bandlimit: L of the densities.
        weights: "new" for steerable layers that start anew, "keep" for the model's own kernels between scalars; then
            the following six have no meaning.
        fields: "irreps" for copies of all irreps up to ``frequency`` with gates for nonlinearities; "functions" for
            functions on H (in space, on the sphere) up to ``frequency``, with ELU of their samples for nonlinearities,
            which takes fewer channels and is faster on a GPU; "regular" for copies of the regular representation of a
            finite group, on which the model's own nonlinearities act. As many copies as come closest to the model's
            channels, of functions as many as fit into them, at least one.
        frequency: The highest frequency of "irreps" and "functions" fields: at most 64, in space 6.
        max_pool: "average" for ``AvgPoolAntialiased`` in place of max pooling, "norm" for ``NormMaxPool``.
        in_type: Type of the input; scalars by default.
        out_type: Type of an output that is an image or volume; as many scalars as the model has channels by default.
        method: Another way to relax equivariance than by learnt densities, such as "projection": a name of
            ``pscnn.models.METHODS``, or what it stands for. With "cnn", "augment" and "augerino" the result is a copy
            of the model with its weights, the latter two with inputs transformed; then no other options have a meaning
            but types. Some need ``models.penalty`` and ``models.advance`` in training: see ``models.by_method``.
        density: Further options of ``Likelihood``, such as ``alignment="construction"``, or of the method.

    Returns:
        A ``torch.fx.GraphModule`` with the model's names of modules, in the model's mode; with ``weights="keep"`` a
        module of the model's class.

    Raises:
        ValueError: If the model cannot be traced, or some of its operations have no equivariant counterpart; the
            message names the first with a reason, and says how many more there are.

    Shape:
        As the model.

    Example:
        >>> import pscnn, torch
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
    if not isinstance(model, nn.Module):
        raise TypeError(f"convert: model must be a torch.nn.Module, got {model!r}")
    group = parse(group) if isinstance(group, str) else group
    if not isinstance(group, Group):
        raise TypeError(f"convert: group must be a group such as O2(), got {group!r}")
    if fields not in ("irreps", "functions", "regular"):
        raise ValueError(f"convert: fields must be 'irreps', 'functions' or 'regular', got {fields!r}")
    if method is not None and not isinstance(method, Method | str):
        raise TypeError(f"convert: method must be a name such as 'projection', got {method!r}")
    if max_pool not in ("average", "norm"):
        raise ValueError(f"convert: max_pool must be 'average' or 'norm', got {max_pool!r}")
    if fields == "regular" and group.order is None:
        raise ValueError(f"convert: {group.name} is infinite and has no regular fields; use fields='functions'")
    if weights not in ("new", "keep"):
        raise ValueError(f"convert: weights must be 'new' or 'keep', got {weights!r}")
    if weights == "keep":
        if (fields, frequency, max_pool, in_type, out_type, method) != ("irreps", 2, "average", None, None, None):
            raise ValueError(
                "convert: with weights='keep' all channels are scalars; leave out fields, frequency, max_pool, "
                "in_type, out_type and method"
            )
        return keep_weights(model, group, bandlimit, density)
    for name, given in (("in_type", in_type), ("out_type", out_type)):
        if given is not None and not isinstance(given, FieldType):
            raise TypeError(f"convert: {name} must be a pscnn.FieldType, got {given!r}")
        if given is not None and given.group != group:
            raise ValueError(f"convert: {name} is over {given.group.name}, the network over {group.name}")
    if isinstance(method, str):
        from pscnn.models import by_method  # names are a later room's, which calls this with what they stand for

        options = {"fields": fields, "frequency": frequency, "max_pool": max_pool}
        types = {"in_type": in_type, "out_type": out_type}
        return by_method(model, method, group, bandlimit=bandlimit, **types, **options, **density)
    if not isinstance(frequency, int) or frequency < 0:
        raise ValueError(f"convert: frequency must be a whole number of 0 or more, got {frequency!r}")
    own = math.inf if group.max_frequency is None else group.max_frequency
    highest, most = own if fields == "regular" else min(frequency, own), HIGHEST[3 if group.planar is None else 2]
    if highest > most:
        raise TooLargeError(
            f"convert: fields over {group.name} may have frequencies up to {most}, got {highest}: use a lower frequency"
            + (" and fields='functions'" if fields == "regular" else "")
        )
    field: Representation = direct_sum(list(group.irreps(frequency)))
    if fields != "irreps":
        field = group.regular if fields == "regular" else function_field(group, frequency)

    def new_density() -> Measure | None:
        make = Likelihood if method is None else method.density
        return make(group, bandlimit, **density)

    if new_density() is None:  # so that wrong options are not put down to the model, nor overlooked
        Likelihood(group, bandlimit, **density)
    if Tracer().is_leaf_module(model, ""):
        model = nn.Sequential(model).train(model.training)  # one layer: called, not looked into
    recipe = Recipe(field, new_density, in_type, out_type, method, max_pool == "norm")
    converted = rewrite(read(model, kind_of), recipe)
    return expand_together(converted.train(model.training))

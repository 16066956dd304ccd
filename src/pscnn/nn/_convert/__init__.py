"""From a ``torch.nn`` CNN to its partially equivariant version: the table of what can be converted, and the entry."""

from __future__ import annotations

from typing import Any, Literal

from torch import fx, nn

from pscnn.groups import Group, direct_sum
from pscnn.likelihood import Likelihood
from pscnn.nn._convert import _functions, _layers
from pscnn.nn._convert._source import Kind, Recipe, Tracer, operation, read
from pscnn.nn._convert._walk import rewrite
from pscnn.nn._field_type import FieldType

__all__ = ["convert"]

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

KINDS = (
    Kind("convolution", _layers.convolution, (nn.Conv2d, nn.Conv3d), makes_fields=True),
    Kind("norm", _layers.norm, (nn.BatchNorm2d, nn.BatchNorm3d), channelwise=True),
    Kind("activation", _layers.activation, ACTIVATIONS),
    Kind("softmax", _layers.softmax, (nn.Softmax, nn.LogSoftmax, nn.Softmax2d), ("softmax", "log_softmax")),
    Kind("pool", _layers.pool, (nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool2d, nn.AvgPool3d), channelwise=True),
    Kind("adaptive", _layers.adaptive_pool, ADAPTIVE, channelwise=True),
    Kind("dropout", _layers.dropout, (nn.Dropout, nn.Dropout2d, nn.Dropout3d), channelwise=True),
    Kind("resize", _layers.resize, (nn.Upsample,), ("interpolate",), channelwise=True),
    Kind("pad", _layers.pad, PADS, ("pad",), channelwise=True),
    Kind("identity", _layers.identity, (nn.Identity,), ("contiguous", "clone"), channelwise=True),
    Kind("linear", _layers.linear, (nn.Linear,)),
    Kind("flatten", _functions.flatten, (nn.Flatten,), ("flatten", "view", "reshape", "squeeze")),
    Kind("add", _functions.add, operations=SUMS),
    Kind("multiply", _functions.multiply, operations=PRODUCTS),
    Kind("cat", _functions.cat, operations=("cat", "concat")),
    Kind("mean", _functions.mean, operations=("mean", "sum")),
    Kind("size", _functions.size, operations=("size", "dim", "getattr")),
)
# fmt: on

_BY_MODULE = {module: kind for kind in KINDS for module in kind.modules}
_BY_OPERATION = {name: kind for kind in KINDS for name in kind.operations}


def kind_of(node: fx.Node, module: nn.Module | None) -> Kind:
    """The kind of a node that calls a module, or does what one does; without a converter if it is not known."""
    if module is not None:
        return _BY_MODULE.get(type(module), Kind("other"))
    if node.op in ("call_function", "call_method"):
        return _BY_OPERATION.get(operation(node), Kind("other"))
    return Kind(node.op)


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
    if Tracer().is_leaf_module(model, ""):
        model = nn.Sequential(model).train(model.training)  # one layer: called, not looked into
    converted = rewrite(read(model, kind_of), Recipe(field, new_density, in_type, out_type))
    return converted.train(model.training)

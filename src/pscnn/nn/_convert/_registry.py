"""The table of what can be converted: one line for each kind of operation."""

from __future__ import annotations

from torch import fx, nn

from pscnn.nn._convert import _functions, _layers
from pscnn.nn._convert._trace import operation
from pscnn.nn._convert._values import Kind

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

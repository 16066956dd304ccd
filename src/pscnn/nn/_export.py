"""Plain torch networks without pscnn."""

from __future__ import annotations

import copy

import torch.nn.functional as F
from torch import Tensor, fx, nn

from pscnn.measures import Measure
from pscnn.nn._batch_norm import BatchNorm
from pscnn.nn._centred import Centred
from pscnn.nn._together import Together


class _Normalise(nn.Module):
    """Batch normalisation in eval mode for any number of axes; only ever seen as its trace."""

    mean: Tensor
    var: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, layer: BatchNorm) -> None:
        super().__init__()
        for name, value in zip(("mean", "var", "scale", "shift"), layer.channel_statistics(), strict=True):
            self.register_buffer(name, value.detach().clone())
        self.eps, self.relu = layer.eps, layer.relu

    def forward(self, x: Tensor) -> Tensor:
        y = F.batch_norm(x, self.mean, self.var, self.scale, self.shift, False, 0.0, self.eps)
        return F.relu(y) if self.relu else y


def export(model: nn.Module) -> nn.Module:
    """A copy of the model in eval mode with the same outputs, made of plain torch parts.

    Convolutions and linear layers become ``torch.nn`` ones with their kernels expanded; other pscnn layers become
    ``torch.fx`` graphs of torch functions. A model whose own class is not from pscnn keeps it. The result can be saved
    with ``torch.save`` and loaded where pscnn is not installed.

    Args:
        model: Any module with pscnn layers in it, or one such layer.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, got {model!r}")
    return _plain(model, {})


def _plain(module: nn.Module, done: dict[int, nn.Module]) -> nn.Module:
    if id(module) in done:
        return done[id(module)]
    out: nn.Module
    if hasattr(type(module), "plain"):  # one torch layer with an expanded kernel
        out = module.plain()  # type: ignore[operator]
        out = trace(out) if isinstance(out, Centred) else out
    elif isinstance(module, Measure | Together):  # is in the kernels now; makes none
        out = nn.Identity()
    elif isinstance(module, BatchNorm):
        out = trace(_Normalise(module))
    else:
        out = copy.copy(module)
        out._modules = {name: None if child is None else _plain(child, done) for name, child in module._modules.items()}
        out._parameters = {name: copy.deepcopy(p) for name, p in module._parameters.items()}
        out._buffers = {name: None if b is None else b.clone() for name, b in module._buffers.items()}
        if type(module).__module__.split(".")[0] == "pscnn":
            out = trace(out.eval())
    done[id(module)] = out
    return out.eval()


def trace(module: nn.Module) -> nn.Module:
    """The module as a graph of torch functions, without its class."""
    out = fx.symbolic_trace(module)
    for node in out.graph.nodes:
        node.type = None  # annotations are strings here, which fx cannot write out again
    out.recompile()
    return out

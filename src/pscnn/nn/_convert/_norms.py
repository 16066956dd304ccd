"""Normalisation of feature maps: it writes a node and returns what is known of its value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import fx, nn

from pscnn.nn._batch_norm import BatchNorm
from pscnn.nn._convert._source import Map, NotConvertibleError, Value, as_tuple, function_of, operand
from pscnn.nn._convert._writer import Writer
from pscnn.nn._field_type import allow_any_function
from pscnn.nn._fourier import FourierBatchNorm
from pscnn.nn._gated_batch_norm import GatedBatchNorm
from pscnn.nn._sample_norm import GroupNorm, InstanceNorm, LayerNorm


def batch_norm(writer: Writer, node: fx.Node, value: Map) -> Value:
    """One that commutes with H, together with the nonlinearity if it follows and nothing else does."""
    layer = writer.source.modules[node]
    assert isinstance(layer, nn.BatchNorm2d | nn.BatchNorm3d)
    if not layer.track_running_stats or layer.momentum is None:
        raise NotConvertibleError("needs track_running_stats=True and a momentum")
    eps, momentum = layer.eps, layer.momentum
    following = next(iter(node.users)) if len(node.users) == 1 else None
    function = function_of(value.fields)
    plain = not value.gates and allow_any_function(value.fields)
    fused = following is not None and writer.source.kinds[following].name == "activation"
    if following is not None and plain:  # functions of single channels are the model's own
        fused = type(writer.source.modules[following]) is nn.ReLU
    elif function is None:
        fused = fused and value.gates

    def build() -> nn.Module:
        made: GatedBatchNorm | FourierBatchNorm | BatchNorm
        if not fused or plain:
            made = BatchNorm(value.type, eps, momentum, relu=fused)
        elif function is None:
            made = GatedBatchNorm(value.fields, eps, momentum)
        else:
            made = FourierBatchNorm(value.fields, 2 * function.bandlimit, eps, momentum)
        return made.requires_grad_(layer.affine)

    writer.replace_learnt(node, value, fused, build)
    if not fused or following is None:
        return value
    writer.done_before.add(following)
    return replace(value, gates=False)


def sample_norm(writer: Writer, node: fx.Node, value: Map) -> Value:
    """One that commutes with H; of groups, as many of whole fields as come closest to the model's."""
    layer: Any = writer.source.modules[node]
    if layer is None or isinstance(layer, nn.LayerNorm):
        return _layer_norm(writer, node, value, layer)
    if getattr(layer, "track_running_stats", False):
        raise NotConvertibleError("needs track_running_stats=False")

    def build() -> nn.Module:
        if not isinstance(layer, nn.GroupNorm):
            return InstanceNorm(value.type, layer.eps, layer.affine)
        count = len(value.type.representations)
        groups = next(g for g in range(min(layer.num_groups, count), 0, -1) if count % g == 0)
        return GroupNorm(value.type, groups, layer.eps, layer.affine)

    writer.replace_learnt(node, value, "sample_norm", build)
    return value


def _layer_norm(writer: Writer, node: fx.Node, value: Map, layer: nn.LayerNorm | None) -> Value:
    """Over channels that come last, by a module or a function."""
    options = dict(zip(("normalized_shape", "weight", "bias", "eps"), node.args[1:], strict=False), **node.kwargs)
    shape: Any = options.get("normalized_shape") if layer is None else layer.normalized_shape
    if operand(node) not in writer.plan.last or as_tuple(shape) != (value.channels,):
        raise NotConvertibleError(
            f"normalises over shape {tuple(as_tuple(shape))}; only over channels that come last, or use GroupNorm"
        )
    if layer is None:
        eps: Any = options.get("eps", 1e-5)
        made = LayerNorm(value.type, eps, options.get("weight") is not None)
        writer.add(node, "layer_norm", made, writer.before(node))
    else:
        eps, affine = layer.eps, layer.elementwise_affine
        writer.replace_learnt(node, value, "layer_norm", lambda: LayerNorm(value.type, eps, affine))
    return value

"""Checks with messages that say what was expected and what came."""

from __future__ import annotations

from torch import Tensor
from torch.fx import Proxy

from pscnn.nn._field_type import FieldType


def check_types(layer: str, in_type: FieldType, out_type: FieldType | None = None) -> None:
    """Raise unless the arguments are field types over one group."""
    for name, given in (("in_type", in_type), ("out_type", in_type if out_type is None else out_type)):
        if not isinstance(given, FieldType):
            raise TypeError(f"{layer}: {name} must be a pscnn.FieldType, got {given!r}")
    if out_type is not None and in_type.group != out_type.group:
        raise ValueError(
            f"{layer}: in_type is over {in_type.group.name}, out_type over {out_type.group.name}; "
            "both must be over one group"
        )


def check_input(layer: str, x: Tensor, channels: int, spatial: int | None) -> None:
    """Raise unless x is (batch, channels, and ``spatial`` more axes); None allows any number."""
    if isinstance(x, Proxy):  # exported layers are traced symbolically
        return
    if x.ndim < 2 or x.shape[1] != channels or (spatial is not None and x.ndim != 2 + spatial):
        axes = {None: ", …", 0: "", 1: ", length", 2: ", height, width", 3: ", depth, height, width"}[spatial]
        raise ValueError(f"{layer}: expected input of shape (batch, {channels}{axes}), got {tuple(x.shape)}")

"""The yardstick of every speed claim."""

from __future__ import annotations

import copy

from torch import nn as tnn


def twin(model: tnn.Module) -> tnn.Module:
    """The plain twin: a copy with every steerable layer replaced by a free ``torch.nn`` one of the same channels.

    Normalisation, nonlinearities and pooling stay, so the difference in time is what steerability costs. The free
    kernels start as the expanded ones: at first the outputs are the same.

    Example:
        >>> from pscnn.models import build
        >>> plain = twin(build("ddmnist", "p-scnn", "C4", width=0.2))
        >>> type(plain[2])
        <class 'torch.nn.modules.conv.Conv2d'>
    """
    if hasattr(type(model), "plain"):
        return model.plain()  # type: ignore[operator]
    out = copy.deepcopy(model)
    for name, child in model.named_children():
        setattr(out, name, twin(child))
    return out

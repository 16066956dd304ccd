"""Modules between training and evaluation."""

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def kept_modes(model: nn.Module) -> Iterator[None]:
    """Afterwards every module is in the mode it was in, also those that differ from the whole, such as frozen ones."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training

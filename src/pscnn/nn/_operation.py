"""Functions that a compiler sees as operations of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_LIBRARY = torch.library.Library("pscnn", "FRAGMENT")


class Operation:
    """A function that a compiler sees as an operation of its own, without looking inside; others just call it.

    Args:
        schema: Its arguments and what it returns, as torch writes them; torch 2.4 cannot read them off annotations.
        function: On tensors and numbers; what it returns is new.
        fake: The same for tensors without values: what is returned has the right shape and layout.
    """

    def __init__(self, schema: str, function: Callable[..., Any], fake: Callable[..., Any]) -> None:
        self.function = function
        name = function.__name__
        # Not torch.library.custom_op, which looks at every call whether outputs are new: that takes twice as long.
        _LIBRARY.define(name + schema)
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"pscnn::{name}", fake, lib=_LIBRARY)
        self.known = getattr(torch.ops.pscnn, name).default

    def __call__(self, *arguments: Any) -> Any:
        # Not for tensors without values, for instance.
        if torch.compiler.is_compiling() or type(arguments[0]) not in (Tensor, nn.Parameter):
            return self.known(*arguments)
        return self.function(*arguments)  # torch's way to an operation takes longer than many a kernel

"""Functions that a compiler sees as operations of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Operation:
    """A function that a compiler sees as an operation of its own, without looking inside; others just call it.

    Args:
        function: On tensors and numbers; what it returns is new.
        fake: The same for tensors without values: what is returned has the right shape and layout.
    """

    def __init__(self, function: Callable[..., Tensor], fake: Callable[..., Tensor]) -> None:
        self.function = function
        self.known = torch.library.custom_op(f"pscnn::{function.__name__}", function, mutates_args=())
        self.known.register_fake(fake)

    def __call__(self, *arguments: Any) -> Tensor:
        if torch.compiler.is_compiling() or type(arguments[0]) is not Tensor:  # a tensor without values, for instance
            return self.known(*arguments)
        return self.function(*arguments)  # torch's way to an operation takes longer than many a kernel

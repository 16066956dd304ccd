"""Functions with a gradient of their own, called with little work in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def differentiable(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """A function of autograd that transforms of ``torch.func`` know, started with less work where there are none.

    Torch binds the arguments of functions that set up their context apart at every call, which takes longer than
    the rest.
    """

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = function.forward(*inputs)
        function.setup_context(ctx, inputs, output)
        ctx.set_materialize_grads(False)  # not zeros, but None for outputs without a gradient
        return output

    def backward(ctx: Any, *gradients: Any) -> Any:
        if all(gradient is None for gradient in gradients):
            return (None,) * len(ctx.needs_input_grad)
        return function.backward(ctx, *gradients)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    direct: Any = type(function.__name__, (torch.autograd.Function,), members)  # the name is what profilers show

    def apply(*inputs: Any) -> Any:
        known = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
        return (function if known else direct).apply(*inputs)

    return apply

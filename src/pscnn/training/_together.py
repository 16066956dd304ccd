"""Several small networks trained at once: their weights are stacked, and one step moves them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from pscnn._modes import kept_modes

Batches = Callable[[int], Iterable[tuple[Tensor, ...]]]


def fit_together(
    objectives: Sequence[nn.Module],
    batches: Batches,
    *,
    epochs: int,
    lr: float,
) -> list[dict[str, list[float]]]:
    """Train networks that differ in their weights and data only, each as if it were alone, with Adam.

    Args:
        objectives: Modules of one structure whose forward takes a batch and returns its terms: a dictionary of scalars,
            among them "loss". They are trained in place.
        batches: Called with the number of the epoch; gives tuples of tensors whose first axis counts the networks.
        epochs: How many.
        lr: Learning rate.

    Returns:
        For every epoch, the mean of every term over its batches, one number per network.
    """
    for module in objectives:
        module.train()
    owned = [p for module in objectives[0].modules() for p in module.parameters(recurse=False)]
    if len(owned) != len({id(p) for p in owned}):
        raise ValueError("fit_together: one parameter belongs to two modules; share the module instead")
    parameters, buffers = stack_module_state(list(objectives))
    optimizer = torch.optim.Adam(parameters.values(), lr=lr)
    first = objectives[0]

    def terms(own: dict[str, Tensor], own_buffers: dict[str, Tensor], *batch: Tensor) -> dict[str, Tensor]:
        # A density shared by layers is one module and has one name; torch would swap its parameters once per layer.
        out: dict[str, Tensor] = functional_call(first, (own, own_buffers), batch, tie_weights=False)
        return out

    history: list[dict[str, list[float]]] = []
    for epoch in range(epochs):
        found: list[dict[str, Tensor]] = []
        for batch in batches(epoch):
            optimizer.zero_grad(set_to_none=True)
            values = vmap(terms)(parameters, buffers, *batch)
            values["loss"].sum().backward()  # the networks share nothing, so their gradients do not mix
            optimizer.step()
            found.append({name: value.detach() for name, value in values.items()})
        history.append({name: torch.stack([f[name] for f in found]).mean(0).tolist() for name in found[0]})
    with torch.no_grad():
        for k, module in enumerate(objectives):
            for name, own in [*module.named_parameters(), *module.named_buffers()]:
                stacked = parameters if name in parameters else buffers
                own.copy_(stacked[name][k])
    return history


def refresh_statistics(model: nn.Module, x: Tensor) -> None:
    """Replace the running statistics of batch normalisation by those of a whole data set.

    Running averages follow the last few batches. Where a layer divides by a small standard deviation their noise can
    outweigh what was learnt.

    Args:
        model: Any network with normalisation layers that have a ``momentum``.
        x: All training inputs.
    """
    layers: list[Any] = [module for module in model.modules() if hasattr(module, "momentum")]
    old = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.momentum = 1.0
        with kept_modes(model), torch.no_grad():
            model.train()(x)
    finally:
        for layer, momentum in zip(layers, old, strict=True):
            layer.momentum = momentum

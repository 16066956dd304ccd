"""Several small networks trained at once: their weights are stacked, and one step moves them all."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from pscnn._modes import kept_modes
from pscnn.densities import align, likelihoods
from pscnn.training import _run as files
from pscnn.training._environment import device_name, kept_random_state
from pscnn.training._run import LAST, RunError, load, read_result, read_task, write_result
from pscnn.training._settings import Settings
from pscnn.training._store import alone
from pscnn.training._task import Objective, Task, make_optimizer

Batches = Callable[[int], Iterable[tuple[Tensor, ...]]]


class _Network(nn.Module):
    """A network whose forward pass is the objective of its task."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        torch.manual_seed(task.settings.seed)
        self.model = task.build()
        self.task, self._objective = task, Objective.of(task)
        self._densities = bool(likelihoods(self.model))

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return self._objective(self.model, self.task.loss(self.model, x, y), densities=self._densities)


def check_stacked(task: Task, accelerator: str, devices: int = 1, epochs: int | None = None) -> None:
    """Refuse what networks that are trained at once cannot do."""
    settings = task.settings
    if accelerator == "gpu" or devices != 1:
        raise RunError(
            f"the networks of {settings.task} are so small that they are trained and tested on the CPU, in one process"
        )
    if epochs is not None and epochs < settings.epochs:
        raise RunError(f"runs of {settings.task} are not continued: train all {settings.epochs} epochs, got {epochs}")


def train_stacked(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Train and test runs that differ in their seeds only. They take a minute and are not continued."""
    started = time.monotonic()
    tasks = [read_task(folder) for folder in folders]
    settings = tasks[0].settings
    with contextlib.ExitStack() as stack:
        for folder in folders:
            stack.enter_context(alone(folder))
        stack.enter_context(kept_random_state())
        networks = [_Network(task) for task in tasks]
        data = [task.load(None) for task in tasks]
        x, y = (torch.stack([getattr(one["train"], name) for one in data]) for name in ("x", "y"))

        def batches(epoch: int) -> Iterable[tuple[Tensor, ...]]:
            seeds = (1_000_003 * task.settings.seed + epoch for task in tasks)
            generators = (torch.Generator().manual_seed(seed) for seed in seeds)
            orders = [torch.randperm(x.shape[1], generator=generator) for generator in generators]
            for rows in torch.stack(orders).split(settings.batch_size, 1):
                yield tuple(t.gather(1, rows[:, :, None].expand(-1, -1, t.shape[2])) for t in (x, y))

        history = fit_stacked(networks, batches, settings)
        seconds = round((time.monotonic() - started) / len(folders), 1)
        return [
            _finish(folder, network, one, [{n: v[k] for n, v in row.items()} for row in history], seconds)
            for k, (folder, network, one) in enumerate(zip(folders, networks, data, strict=True))
        ]


def test_stacked(folder: Path) -> dict[str, Any]:
    """Test a trained run again."""
    task, model = load(folder)
    with torch.no_grad():
        found = task.measure(model, task.load(None))
    result = {**(read_result(folder) or {}), **found}
    write_result(folder, model, result)
    return result


def _finish(
    folder: Path, network: _Network, data: Any, history: list[dict[str, float]], seconds: float
) -> dict[str, Any]:
    """Test a trained network and write everything into its folder."""
    model, task = network.model, network.task
    refresh_statistics(model, data["train"].x)
    if task.settings.alignment == "exact":
        align(model)
    rows = [{"epoch": k, **{f"train/{name}": value for name, value in row.items()}} for k, row in enumerate(history)]
    with torch.no_grad():
        found = task.measure(model.eval(), data)
    result = {
        **found,
        "train_task": history[-1]["task"],
        "best_epoch": len(rows) - 1,
        "epochs": len(rows),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": seconds,
        "device": device_name(torch.device("cpu")),
    }
    files.write_history(folder, rows)
    state = {f"model.{name}": value for name, value in model.state_dict().items()}
    files.write_saved(folder / LAST, {"state_dict": state})
    write_result(folder, model, result)
    return result


def fit_stacked(networks: Sequence[nn.Module], batches: Batches, settings: Settings) -> list[dict[str, list[float]]]:
    """Train networks that differ in their weights and data only, each as if it were alone, with Adam.

    Args:
        networks: Modules of one structure whose forward takes a batch and returns its terms: a dictionary of scalars,
            among them "loss". They are trained in place.
        batches: Called with the number of the epoch; gives tuples of tensors whose first axis counts the networks.
        settings: Epochs, learning rate and weight decay.

    Returns:
        For every epoch, the mean of every term over its batches, one number per network.
    """
    first = networks[0]
    for module in networks:
        module.train()
    owned = [p for module in first.modules() for p in module.parameters(recurse=False)]
    if len(owned) != len({id(p) for p in owned}):
        raise ValueError("fit_stacked: one parameter belongs to two modules; share the module instead")
    parameters, buffers = stack_module_state(list(networks))
    of_densities = {id(p) for lam in likelihoods(first).values() for p in lam.parameters()}
    spared = {name for name, p in first.named_parameters() if id(p) in of_densities}
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in parameters.items() if name not in spared], "weight_decay": settings.weight_decay}
    ]
    if spared:
        groups.append({"params": [parameters[name] for name in parameters if name in spared], "weight_decay": 0.0})
    optimizer = make_optimizer(groups, settings, adamw=False)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, settings.lr_decay)

    def terms(own: dict[str, Tensor], own_buffers: dict[str, Tensor], *batch: Tensor) -> dict[str, Tensor]:
        # A density shared by layers is one module and has one name; torch would swap its parameters once per layer.
        out: dict[str, Tensor] = functional_call(first, (own, own_buffers), batch, tie_weights=False)
        return out

    history: list[dict[str, list[float]]] = []
    for epoch in range(settings.epochs):
        found: list[dict[str, Tensor]] = []
        for batch in batches(epoch):
            optimizer.zero_grad(set_to_none=True)
            values = vmap(terms)(parameters, buffers, *batch)
            values["loss"].sum().backward()  # the networks share nothing, so their gradients do not mix
            optimizer.step()
            found.append({name: value.detach() for name, value in values.items()})
        schedule.step()
        history.append({name: torch.stack([f[name] for f in found]).mean(0).tolist() for name in found[0]})
    with torch.no_grad():
        for k, module in enumerate(networks):
            for name, own in [*module.named_parameters(), *module.named_buffers()]:
                stacked = parameters if name in parameters else buffers
                own.copy_(stacked[name][k])
    return history


def refresh_statistics(model: nn.Module, x: Tensor) -> None:
    """Replace the running statistics of batch normalisation by those of a whole data set.

    Running averages follow the last few batches. Where a layer divides by a small standard deviation their noise can
    outweigh what was learnt.
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

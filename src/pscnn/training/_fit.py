"""Trains and tests a run epoch by epoch."""

import contextlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import ProcessException, spawn

from pscnn.densities import align
from pscnn.training import _run as files
from pscnn.training._graph import GraphedStep, prepare, set_rate
from pscnn.training._learner import Classification, Data, Learner
from pscnn.training._progress import Progress
from pscnn.training._run import LAST, RunError, history, precision, read_task
from pscnn.training._settings import rate
from pscnn.training._stacked import test_stacked, train_stacked
from pscnn.training._store import alone
from pscnn.training._task import Metric
from pscnn.training._workers import stay_with_parent

Step = Callable[[Tensor, Tensor], dict[str, Tensor]]


class Place(NamedTuple):
    """Where a process trains, and which of how many it is."""

    device: torch.device
    rank: int = 0
    processes: int = 1

    def summed(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.processes > 1:
            dist.all_reduce(values)
        return values


def train(
    folder: str | Path,
    data_dir: str | Path | None = None,
    *,
    data: Data | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    progress: bool = True,
    epochs: int | None = None,
) -> dict[str, Any]:
    """Train a run to its end, from its last complete epoch if it has one, test its best epoch, and save the result.

    Args:
        folder: A run's folder, from ``start``.
        data_dir: Data folder.
        data: The run's data, if they are loaded already.
        accelerator: "auto", "cpu" or "gpu".
        devices: How many; several train in parallel, each with batches of ``batch_size``.
        progress: Whether to show how far it is.
        epochs: Stop after this many epochs instead of the configuration's; the run can be continued.
    """
    folder = Path(folder)
    task = read_task(folder)
    if task.stacked:
        return train_stacked([folder])[0]
    settings = task.settings
    device = _device(accelerator)
    with alone(folder), precision(settings.precision), files.kept_random_state():
        data = data or Data(task, data_dir)
        until = settings.epochs if epochs is None else min(epochs, settings.epochs)
        if devices > 1:
            _fit_together(devices, folder, data, device.type, until, progress)
            learner = task.learner().to(device)
        else:
            learner = _fit(folder, data, Place(device), until, progress)
        return _test(folder, learner, data, device) if until == settings.epochs else {}


def evaluate(folder: str | Path, data_dir: str | Path | None = None, *, accelerator: str = "auto") -> dict[str, Any]:
    """Test the selected epoch of a run; write ``result.json``, ``densities.npz`` and, of classes, ``confusion.npy``.

    Of a run that is not trained to its end nothing is written: it is not finished.
    """
    folder = Path(folder)
    task = read_task(folder)
    files.selected(folder, task)
    if task.stacked:
        return test_stacked(folder)
    device = _device(accelerator)
    with precision(task.settings.precision), files.kept_random_state():
        return _test(folder, task.learner().to(device), Data(task, data_dir), device)


def _device(accelerator: str) -> torch.device:
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise RunError("no GPU is available: use --accelerator cpu or auto")
    return torch.device("cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu")


def _fit_together(processes: int, *how: Any) -> None:
    """Train the epochs that are missing, in several processes, which end with this one and with its interruption."""
    with tempfile.TemporaryDirectory() as meeting:
        started = spawn(_in_process, (processes, f"file://{meeting}/point", *how), processes, join=False, daemon=True)
        try:
            while not started.join():
                pass
        except ProcessException as error:
            raise RunError(f"a process failed: {str(error).strip().splitlines()[-1]}") from error
        finally:
            for process in started.processes:
                process.terminate()


def _in_process(
    rank: int, processes: int, meeting: str, folder: Path, data: Data, kind: str, until: int, progress: bool
) -> None:
    """One of several processes that train a run; the first one writes."""
    stay_with_parent()
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    dist.init_process_group("nccl" if kind == "cuda" else "gloo", meeting, rank=rank, world_size=processes)
    try:
        with precision(data.task.settings.precision):
            _fit(folder, data, Place(device, rank, processes), until, progress and rank == 0)
        dist.barrier()  # nobody leaves while others still talk to it
    finally:
        dist.destroy_process_group()


def _fit(folder: Path, data: Data, place: Place, until: int, progress: bool) -> Learner:
    """Train the epochs that are missing."""
    task = data.task
    settings = task.settings
    torch.manual_seed(settings.seed)
    learner = task.learner()
    if isinstance(learner, Classification):
        learner.class_weights.copy_(data.class_weights())
    learner.to(place.device)
    fit = _Fit(folder, learner, place)
    steps = data.steps(place.processes)
    step = fit.make_step()
    with contextlib.ExitStack() as stack:
        shown = Progress(until, task.metric.name, len(fit.history))
        if progress:
            stack.enter_context(shown)
        board = stack.enter_context(_board(folder)) if place.rank == 0 else None
        for epoch in range(len(fit.history), until):
            started = time.monotonic()
            learner.train()
            totals, images = torch.zeros(0, device=place.device), 0
            for k, (x, y) in enumerate(data.batches("train", *_where(place, epoch))):
                number = epoch * steps + k
                set_rate(fit.optimizer, rate(settings, number, settings.epochs * steps))
                values = step(x, y)
                fit.average(number + 1)
                # Nothing is read from the device before the epoch ends: it has other steps to do meanwhile.
                stacked = torch.stack([value.detach() for value in values.values()]) * len(y)
                totals, images = (totals + stacked if images else stacked), images + len(y)
            sums = place.summed(torch.cat([totals.double(), totals.new_tensor([images], dtype=torch.float64)]))
            names = [f"train/{name}" for name in values]
            if settings.alignment == "exact":
                align(learner.model)
            fit.join_statistics()
            with fit.averaged():
                found = _measured(learner, data, "validation", place)
            means = dict(zip(names, (sums[:-1] / sums[-1]).tolist(), strict=True))
            row = {"epoch": epoch, "seconds": round(time.monotonic() - started, 3), **found, **means}
            if place.rank == 0:
                fit.save(row)
                if board is not None:
                    board(row)
            if progress:
                shown.epoch(row)
    if place.rank == 0 and fit.history:
        files.write_history(folder, fit.history)  # a run killed after its last checkpoint has not done so
    return learner


def _where(place: Place, epoch: int = 0) -> tuple[torch.device, int, int, int]:
    return place.device, epoch, place.rank, place.processes


class _Fit:
    """A run under way: what is learnt, with what, and how it went so far."""

    def __init__(self, folder: Path, learner: Learner, place: Place) -> None:
        self.folder, self.learner, self.place = folder, learner, place
        self.settings = learner.settings
        self.optimizer = learner.make_optimizer()
        self.best: float | None = None
        self.history: list[dict[str, Any]] = []
        self._average: dict[str, Tensor] = {}
        files.check_has_network(folder)
        if (folder / LAST).exists():
            self._continue(folder / LAST)
        elif (folder / "metrics.jsonl").exists():
            raise RunError(f"{folder} has metrics but no {LAST}: it cannot be continued. Start a new run")

    # -- steps ----------------------------------------------------------------------------------------------------

    def make_step(self) -> Step:
        """What does one step, and gives the loss and its terms before it.

        On a GPU it is recorded and replayed, unless it is compiled or shared by processes.
        """
        own = self.settings
        graphed = self.place.device.type == "cuda" and self.place.processes == 1 and not own.compile
        prepare(self.optimizer, self.place.device if graphed else None)
        if graphed:
            return GraphedStep(self.learner.objective, self.optimizer, own.precision == "bf16")
        # The whole objective is compiled, not only the network: the densities are many small operations, and on a GPU
        # CUDA graphs launch them at once.
        compiled: Any = None
        if own.compile:
            torch.compiler.reset()  # compiled code of earlier runs in this process counts against torch's limit
            compiled = torch.compile(self.learner.objective, mode="reduce-overhead", dynamic=False)

        def step(x: Tensor, y: Tensor) -> dict[str, Tensor]:
            # A smaller last batch would be compiled once more, for any size, and slow down the others.
            objective = compiled if compiled is not None and len(y) == own.batch_size else self.learner.objective
            with autocast(self.learner, self.place.device):
                values: dict[str, Tensor] = objective(x, y)
            self.optimizer.zero_grad(set_to_none=True)
            values["loss"].backward()
            for parameter in self.learner.parameters() if self.place.processes > 1 else ():
                if parameter.grad is not None:
                    self.place.summed(parameter.grad).div_(self.place.processes)
            self.optimizer.step()
            return values

        return step

    def join_statistics(self) -> None:
        """Average the running statistics of normalisations over the processes, which have seen different images."""
        if self.place.processes == 1:
            return
        learnt = dict(self.learner.model.named_parameters())
        for name, value in (*self._weights().items(), *self._average.items()):
            if name not in learnt:
                self.place.summed(value).div_(self.place.processes)

    # -- the average of the weights -------------------------------------------------------------------------------

    def average(self, steps: int) -> None:
        """Let the average follow the weights after so many steps, faster in the first ones."""
        if not self.settings.average:
            return
        weights = self._weights()
        self._average = self._average or {name: torch.clone(weight) for name, weight in weights.items()}
        kept = min(self.settings.average, (1 + steps) / (10 + steps))
        torch._foreach_lerp_([*self._average.values()], [*weights.values()], 1 - kept)

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it the network has its average weights, if there are any."""
        if self._average:
            self._exchange()
        try:
            yield
        finally:
            if self._average:
                self._exchange()

    def _weights(self) -> dict[str, Tensor]:
        """What is averaged: all that a checkpoint has of the network and that is no counter."""
        return {name: value for name, value in self.learner.model.state_dict().items() if value.is_floating_point()}

    def _exchange(self) -> None:
        """The weights for their average, or back; in place, since recorded steps know where they are."""
        for name, weight in self._weights().items():
            kept = torch.clone(weight)
            weight.copy_(self._average[name])
            self._average[name].copy_(kept)

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def save(self, row: dict[str, Any]) -> None:
        """After an epoch: its metrics, the best network so far, and what is needed to go on."""
        self.history.append(row)
        metric = self.learner.task.metric
        trained = {f"model.{name}": value for name, value in self.learner.model.state_dict().items()}
        tested = {**trained, **{f"model.{name}": value for name, value in self._average.items()}}
        if better(row[f"validation/{metric.name}"], self.best, metric):
            self.best = row[f"validation/{metric.name}"]
            files.write_saved(self.folder / files.BEST, {"state_dict": tested})
        optimizer = self.optimizer.state_dict()
        for group in optimizer["param_groups"]:  # such that any device can go on
            group["lr"], group["capturable"] = float(group["lr"]), False
        state = {"state_dict": tested, "optimizer": optimizer, "best": self.best, "history": self.history}
        files.write_saved(self.folder / LAST, {**state, **({"trained": trained} if self._average else {})})
        files.write_history(self.folder, self.history)  # also in the checkpoint: it can be made again

    def _continue(self, path: Path) -> None:
        """Take up what a checkpoint has: tensors and what happened; all else is in the run's settings."""
        model, own = self.learner.model, self.settings
        state = files.read_training(path)
        if ("trained" in state) != bool(own.average):
            raise RunError(f"{path} does not match its config.yaml: one has an average of the weights, the other not")
        if own.average:
            files.put_weights(model, state["state_dict"], path)
            self._average = {name: torch.clone(weight) for name, weight in self._weights().items()}
        files.put_weights(model, state.get("trained", state["state_dict"]), path)
        try:
            groups = zip(self.optimizer.state_dict()["param_groups"], state["optimizer"]["param_groups"], strict=True)
            parts = {
                "state": state["optimizer"]["state"],
                "param_groups": [g | {"params": s["params"]} for g, s in groups],
            }
            self.optimizer.load_state_dict(parts)
            for parameter, kept in self.optimizer.state.items():
                if any(kept[name].shape != parameter.shape for name in ("exp_avg", "exp_avg_sq")) or "step" not in kept:
                    raise ValueError("the optimiser's averages have other shapes than the weights")
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise RunError(f"{path} does not match its config.yaml: {error}") from None
        self.best, self.history = state["best"], state["history"]
        wanted = {f"validation/{self.learner.task.metric.name}", "train/loss", "seconds"}
        if not 0 < len(self.history) <= own.epochs or any(not wanted <= row.keys() for row in self.history):
            raise RunError(f"{path} does not match its config.yaml: its history is that of another run")


def better(score: float, best: float | None, metric: Metric) -> bool:
    """Whether a score is better than the best so far; any number is better than none."""
    if best is None or math.isnan(best):
        return True
    return score > best if metric.more_is_better else score < best


def autocast(learner: Learner, device: torch.device) -> Any:
    """Half precision where it is safe, if the run asks for it."""
    return torch.autocast(device.type, torch.bfloat16, enabled=learner.settings.precision == "bf16")


@torch.no_grad()
def _measured(learner: Learner, data: Data, split: str, place: Place) -> dict[str, float]:
    """The means of what the learner measures over a split."""
    learner.eval()
    totals, images = torch.zeros(0), 0
    for x, y in data.batches(split, *_where(place)):
        with autocast(learner, place.device):
            values = learner.measure(x, y, split)
        stacked = torch.stack([value.float() for value in values.values()]).double() * len(y)
        totals, images = (totals + stacked if images else stacked), images + len(y)
    sums = place.summed(torch.cat([totals, totals.new_tensor([images])]))
    return dict(zip([f"{split}/{name}" for name in values], (sums[:-1] / sums[-1]).tolist(), strict=True))


def _test(folder: Path, learner: Learner, data: Data, device: torch.device) -> dict[str, Any]:
    task = learner.task
    settings = task.settings
    files.load_weights(learner.model, files.selected(folder, task))
    learner.tested = {split: [] for split in task.tests}
    metrics: dict[str, float] = {}
    for split in task.tests:
        metrics |= _measured(learner, data, split, Place(device))
    epochs = history(folder)
    key = f"validation/{task.metric.name}"
    if not epochs or any(key not in row for row in epochs):
        raise RunError(f"{folder}/metrics.jsonl lacks {key}; continue the run with: pscnn train --resume {folder}")
    sign = -1 if task.metric.more_is_better else 1
    best = min(epochs, key=lambda row: (math.isnan(row[key]), sign * row[key], row["epoch"]))
    if settings.select == "last":
        best = epochs[-1]
    result = {
        **learner.results(metrics),
        f"validation_{task.metric.name}": best[key],
        "best_epoch": best["epoch"],
        "epochs": len(epochs),
        "parameters": sum(p.numel() for p in learner.model.parameters()),
        "seconds": round(sum(row["seconds"] for row in epochs), 1),
        "device": files.device_name(device),
    }
    if len(epochs) < settings.epochs:
        return result
    if isinstance(learner, Classification):
        np.save(folder / "confusion.npy", learner.confusion().numpy())
    files.write_result(folder, learner.model, result)
    return result


@contextlib.contextmanager
def _board(folder: Path) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Writes an epoch's metrics for TensorBoard, if that is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    with SummaryWriter(folder / "tensorboard") as writer:

        def write(row: dict[str, Any]) -> None:
            for name, value in row.items():
                if name != "epoch":
                    writer.add_scalar(name, value, row["epoch"])

        yield write

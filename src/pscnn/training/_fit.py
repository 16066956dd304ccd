"""Trains and tests a run epoch by epoch."""

import contextlib
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessException, spawn

from pscnn import models
from pscnn._files import reported
from pscnn.densities import align, equivariance_error, grid_elements
from pscnn.training import _run as files
from pscnn.training._environment import device_name, kept_random_state, precision
from pscnn.training._graph import set_rate
from pscnn.training._learner import Classification, Data, Learner
from pscnn.training._place import Place, awake, choose_device, suitable_threads, wake
from pscnn.training._progress import Progress
from pscnn.training._run import RunError, history, read_result, read_task
from pscnn.training._settings import rate
from pscnn.training._stacked import check_stacked, test_stacked, train_stacked
from pscnn.training._store import alone
from pscnn.training._under_way import UnderWay
from pscnn.training._workers import stay_with_parent


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
        check_stacked(task, accelerator, devices, epochs)
        with alone(folder):
            files.check_has_network(folder)
            return read_result(folder) or train_stacked([folder])[0]
    settings = task.settings
    device = choose_device(accelerator)
    most = torch.cuda.device_count() if device.type == "cuda" else max(2, os.cpu_count() or 1)
    if not 1 <= devices <= most:
        what = "GPUs" if device.type == "cuda" else "processes on its cores"
        raise RunError(f"this machine has room for 1 to {most} {what}, got {devices} devices")
    if devices == 1:
        wake(device)
    with alone(folder), precision(settings.precision), kept_random_state():
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
        check_stacked(task, accelerator)
        return test_stacked(folder)
    device = choose_device(accelerator)
    with precision(task.settings.precision), kept_random_state():
        return _test(folder, task.learner().to(device), Data(task, data_dir), device)


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
    awake()
    learner.to(place.device)
    fit = UnderWay(folder, learner, place)
    steps = data.steps(place.processes)
    step = fit.make_step()
    with contextlib.ExitStack() as stack:
        stack.enter_context(suitable_threads(learner))
        shown = Progress(until, task.metric.name, len(fit.history))
        if progress:
            stack.enter_context(shown)
        board = stack.enter_context(_board(folder)) if place.rank == 0 else None
        if len(fit.history) < until:
            fit.compile_kernels(data)
        for epoch in range(len(fit.history), until):
            started = time.monotonic()
            learner.train()
            totals, images = torch.zeros(0, device=place.device), 0
            for k, (x, y) in enumerate(data.batches("train", place, epoch)):
                number = epoch * steps + k
                set_rate(fit.optimizer, rate(settings, number, settings.epochs * steps))
                models.advance(learner.model, number, settings.epochs * steps)
                values = step(x, y)
                fit.average(number + 1)
                # Nothing is read from the device before the epoch ends: it has other steps to do meanwhile.
                stacked = torch.stack([value.detach() for value in values.values()]) * len(y)
                totals, images = (totals + stacked if images else stacked), images + len(y)
            sums = place.summed(torch.cat([totals.double(), totals.new_tensor([images], dtype=torch.float64)]))
            names = [f"train/{name}" for name in values]
            means = dict(zip(names, (sums[:-1] / sums[-1]).tolist(), strict=True))  # waits for the device
            step_ms = 1000 * (time.monotonic() - started) / steps
            if settings.alignment == "exact":
                align(learner.model)
            fit.join_statistics()
            with fit.averaged():
                found = measured(learner, data, "validation", place)
            times = {"seconds": round(time.monotonic() - started, 3), "step_ms": round(step_ms, 3)}
            row = {"epoch": epoch, **times, **found, **means}
            if place.rank == 0:
                fit.save(row)
                if board is not None:
                    board(row)
            if progress:
                shown.epoch(row)
    if place.rank == 0 and fit.history:
        files.write_history(folder, fit.history)  # a run killed after its last checkpoint has not done so
    return learner


@torch.no_grad()
def measured(learner: Learner, data: Data, split: str, place: Place) -> dict[str, float]:
    """The means of what the learner measures over a split."""
    learner.eval()
    totals, images = torch.zeros(0), 0
    for x, y in data.batches(split, place):
        with place.autocast(learner.settings.precision):
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
    with suitable_threads(learner):
        for split in task.tests:
            metrics |= measured(learner, data, split, Place(device))
        where = device_name(device)
    epochs = history(folder)
    key = f"validation/{task.metric.name}"
    if not epochs or any(key not in row for row in epochs):
        raise RunError(f"{folder}/metrics.jsonl lacks {key}; continue the run with: pscnn train --resume {folder}")
    if len(epochs) > settings.epochs:
        raise RunError(f"{folder} has {len(epochs)} epochs, but its config.yaml says {settings.epochs}: it was changed")
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
        **_equivariance(learner, data, device),
        "seconds": round(sum(row["seconds"] for row in epochs), 1),
        **_step_time(epochs),
        "device": where,
        "data": data.digest,
    }
    if len(epochs) < settings.epochs:
        return result
    if isinstance(learner, Classification):
        files.write_arrays(folder / "confusion.npy", learner.confusion().numpy())
    files.write_result(folder, learner.model, result)
    return result


@torch.no_grad()
def _equivariance(learner: Learner, data: Data, device: torch.device) -> dict[str, float]:
    """How far the network is from equivariance on test examples, in full precision, for tasks that say what turns."""
    task = learner.task
    types = task.field_types()
    if types is None:
        return {}
    split = data.splits[task.tests[0]]
    count = min(len(split), 64 if len(task.input_shape) == 3 else 8)
    rows = torch.linspace(0, len(split) - 1, count).long().to(device)
    x, _ = task.batch(task.tests[0], split, rows, 0)
    elements = grid_elements(types[0].group, task.input_shape[1:])
    with precision("fp32", search=False):
        errors = equivariance_error(learner.model.eval(), x, elements, *types)
    return {"equivariance_error": errors.mean().item()}


def _step_time(epochs: list[dict[str, Any]]) -> dict[str, float]:
    """The median over the epochs but the first, in which algorithms are chosen, of the time that a step takes."""
    times = [row["step_ms"] for row in epochs if "step_ms" in row]
    return {"step_ms": statistics.median(times[1:] or times)} if times else {}


@contextlib.contextmanager
def _board(folder: Path) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Writes an epoch's metrics for TensorBoard, if that is installed; in this thread, which a full disk must stop."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        yield None
        return
    now, place = time.time(), folder / "tensorboard"

    def add(**what: Any) -> None:
        with reported(f"cannot write into {place}", RunError):
            writer.write(Event(wall_time=time.time(), **what).SerializeToString())
            writer.flush()

    def write(row: dict[str, Any]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != "epoch"]
        add(step=row["epoch"], summary=Summary(value=values))

    with contextlib.ExitStack() as stack:
        with reported(f"cannot write into {place}", RunError):
            place.mkdir(exist_ok=True)
            # Unbuffered: closing it has nothing left to write, and so nothing to complain about.
            name = f"events.out.tfevents.{int(now)}.{platform.node()}.{os.getpid()}"
            writer = RecordWriter(stack.enter_context((place / name).open("ab", buffering=0)))
        add(file_version="brain.Event:2")
        yield write

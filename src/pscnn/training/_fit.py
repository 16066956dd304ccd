"""Trains and tests a run epoch by epoch, with Lightning."""

import contextlib
import logging
import math
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch import callbacks, loggers
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import nn

from pscnn.densities import likelihoods
from pscnn.training import _run as files
from pscnn.training._learner import Classification, Data, Learner
from pscnn.training._run import LAST, RunError, history, precision, read_task
from pscnn.training._stacked import test_stacked, train_stacked
from pscnn.training._store import alone
from pscnn.training._task import Metric, Task

Draw = Callable[[nn.Module], Any]


class _AtomicFiles(TorchCheckpointIO):
    """Writes a checkpoint beside its place and moves it there, so that a killed run never leaves half a file."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        target = Path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            super().save_checkpoint(checkpoint, partial, storage_options)
            os.replace(partial, target)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
            partial.unlink(missing_ok=True)
            raise RunError(
                f"cannot write {target}: {error}. Free some disk space; the last complete epoch is saved, "
                f"continue with: pscnn train --resume {target.parent}"
            ) from error

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        return files.read_saved(Path(path))


class _Recorder(callbacks.Callback):
    """After each epoch: one line of metrics, the best and the last checkpoint, densities for TensorBoard."""

    def __init__(self, folder: Path, metric: Metric, draw: Draw | None) -> None:
        self.folder, self.metric, self.draw = folder, metric, draw
        self.best: float | None = None
        self.started = time.monotonic()
        self.history: list[dict[str, Any]] = []

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "history": self.history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.history = state["best"], state["history"]

    def on_train_epoch_start(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        self.started = time.monotonic()

    # Validation ends before the training epoch does; the averages of both are complete here.
    def on_train_epoch_end(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        row = {"epoch": trainer.current_epoch, "seconds": round(time.monotonic() - self.started, 3), **metrics}
        self.history.append(row)
        score = metrics[f"validation/{self.metric.name}"]
        better = self.best is None or (score > self.best if self.metric.more_is_better else score < self.best)
        if better or math.isnan(self.best or 0.0):
            self.best = score
            trainer.save_checkpoint(self.folder / files.BEST, weights_only=True)
        trainer.save_checkpoint(self.folder / LAST)  # with the history: whatever comes after it can be made again
        self.write(trainer)
        self._draw(trainer, module)

    def write(self, trainer: lightning.Trainer) -> None:
        """The metrics of all epochs."""
        if trainer.is_global_zero:
            files.write_history(self.folder, self.history)

    def _draw(self, trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        last = trainer.current_epoch + 1 == trainer.max_epochs
        due = trainer.is_global_zero and (last or trainer.current_epoch % 10 == 0)
        if self.draw is None or not due or not likelihoods(module):
            return
        try:
            figure = self.draw(module)
        except ImportError:
            return  # training goes on without pictures
        for logger in trainer.loggers:
            if isinstance(logger, loggers.TensorBoardLogger):
                logger.experiment.add_figure("densities", figure, trainer.current_epoch)


def train(
    folder: str | Path,
    data_dir: str | Path | None = None,
    *,
    data: Data | None = None,
    accelerator: str = "auto",
    devices: int | str = 1,
    progress: bool = True,
    epochs: int | None = None,
    draw: Draw | None = None,
) -> dict[str, Any]:
    """Train a run to its end, from its last complete epoch if it has one, test its best epoch, and save the result.

    Args:
        folder: A run's folder, from ``start``.
        data_dir: Data folder.
        data: The run's data, if they are loaded already.
        accelerator: "auto", "cpu" or "gpu".
        devices: How many; several train in parallel (DDP).
        progress: Whether to show a progress bar.
        epochs: Stop after this many epochs instead of the configuration's; the run can be continued.
        draw: Makes a picture of the network for TensorBoard every ten epochs, such as ``report.density_figure``.
    """
    folder = Path(folder)
    task = read_task(folder)
    if task.stacked:
        return train_stacked([folder])[0]
    settings = task.settings
    with alone(folder), precision(settings.precision), files.kept_random_state():
        data = data or Data(task, data_dir)
        torch.manual_seed(settings.seed)
        if settings.compile:
            torch.compiler.reset()  # compiled code of earlier runs in this process counts against torch's limit
        module = task.learner()
        if isinstance(module, Classification):
            module.class_weights.copy_(data.class_weights())
        recorder = _Recorder(folder, task.metric, draw)
        with _quiet():
            trainer = _trainer(
                task,
                folder,
                accelerator,
                devices=devices,
                strategy="auto" if devices in (1, "1") else "ddp_spawn",
                max_epochs=epochs or settings.epochs,
                callbacks=[recorder, *([callbacks.RichProgressBar(leave=False)] if progress else [])],
                logger=loggers.TensorBoardLogger(folder, name="", version="tensorboard"),
                enable_progress_bar=progress,
            )
        last = folder / LAST
        files.check_has_network(folder)
        if last.exists():
            files.load_weights(module.model, last, "callbacks", "loops")  # says at once if it does not fit
        elif (folder / "metrics.jsonl").exists():
            raise RunError(f"{folder} has metrics but no {LAST}: it cannot be continued. Start a new run")
        with _interruptible(), _quiet():
            trainer.fit(module, datamodule=data, ckpt_path=str(last) if last.exists() else None)
            if recorder.history:  # it is elsewhere if processes trained
                recorder.write(trainer)  # a run killed after its last checkpoint has not done so
        if epochs is not None and epochs < settings.epochs:
            return {}
        return _test(folder, module, data, accelerator)


def evaluate(folder: str | Path, data_dir: str | Path | None = None, *, accelerator: str = "auto") -> dict[str, Any]:
    """Test the selected epoch of a run; write ``result.json``, ``densities.npz`` and, of classes, ``confusion.npy``.

    Of a run that is not trained to its end nothing is written: it is not finished.
    """
    folder = Path(folder)
    task = read_task(folder)
    files.selected(folder, task)
    if task.stacked:
        return test_stacked(folder)
    with precision(task.settings.precision), files.kept_random_state():
        return _test(folder, task.learner(), Data(task, data_dir), accelerator)


def _test(folder: Path, module: Learner, data: Data, accelerator: str) -> dict[str, Any]:
    task = module.task
    settings = task.settings
    files.load_weights(module.model, files.selected(folder, task))
    with _interruptible(), _quiet():
        trainer = _trainer(task, folder, accelerator, devices=1, logger=False, enable_progress_bar=False)
        found = trainer.test(module, datamodule=data, verbose=False)
    metrics = {name: value for part in found for name, value in part.items()}
    epochs = history(folder)
    key = f"validation/{task.metric.name}"
    sign = -1 if task.metric.more_is_better else 1
    best = min(epochs, key=lambda row: (math.isnan(row[key]), sign * row[key], row["epoch"]))
    if settings.select == "last":
        best = epochs[-1]
    result = {
        **module.results(metrics),
        f"validation_{task.metric.name}": best[key],
        "best_epoch": best["epoch"],
        "epochs": len(epochs),
        "parameters": sum(p.numel() for p in module.model.parameters()),
        "seconds": round(sum(row["seconds"] for row in epochs), 1),
        "device": files.device_name(trainer.strategy.root_device),
    }
    if len(epochs) < settings.epochs:
        return result
    if isinstance(module, Classification):
        np.save(folder / "confusion.npy", module.confusion.compute().cpu().numpy())
    files.write_result(folder, module.model, result)
    return result


def _trainer(task: Task, folder: Path, accelerator: str, **options: Any) -> lightning.Trainer:
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise RunError("no GPU is available: use --accelerator cpu or auto")
    return lightning.Trainer(
        accelerator=accelerator,
        precision="bf16-mixed" if task.settings.precision == "bf16" else "32-true",
        plugins=[_AtomicFiles()],
        enable_checkpointing=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        benchmark=True,
        default_root_dir=folder,
        **options,
    )


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C be an exception."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit:  # what Lightning makes of it, after it has told the system to ignore further ones
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning's greetings, and warnings about its own internals, off the screen."""
    names = ("lightning.pytorch", "lightning.fabric", "pytorch_lightning")
    levels = [logging.getLogger(name).level for name in names]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning.*")
        warnings.filterwarnings("ignore", message=".*(LeafSpec|does not have many workers|torch.jit).*")
        for name in names:
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            for name, level in zip(names, levels, strict=True):
                logging.getLogger(name).setLevel(level)

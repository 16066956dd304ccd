"""A run and its folder: configuration, versions, metrics, checkpoints, densities, result."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import pickle
import platform
import signal
import subprocess
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
import yaml
from filelock import Timeout
from lightning.pytorch import callbacks, loggers
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import nn

from pscnn._errors import PscnnError
from pscnn._files import write_whole
from pscnn.densities import likelihoods
from pscnn.training._config import Config, ConfigError
from pscnn.training._data import Data
from pscnn.training._lock import run_lock
from pscnn.training._module import Classification, Learner, learner

LAST, BEST = "last.ckpt", "best.ckpt"
_TAKEN = "{} has results but no network: it was taken from a file of results"


class RunError(PscnnError):
    """A run's folder cannot be used; the message says why and what to do."""


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
                f"cannot write {target}: {error}. Free some space; the last complete epoch is kept, "
                f"continue with: pscnn train --resume {target.parent}"
            ) from error


class _Recorder(callbacks.Callback):
    """After each epoch: one line of metrics, the best and the last checkpoint, densities for TensorBoard."""

    def __init__(self, folder: Path, config: Config, draw: Callable[[nn.Module], Any] | None) -> None:
        self.folder, self.config, self.draw = folder, config, draw
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
        judged_by, more = self.config.judged_by
        score = metrics[f"validation/{judged_by}"]
        if self.best is None or math.isnan(self.best) or (score > self.best if more else score < self.best):
            self.best = score
            trainer.save_checkpoint(self.folder / BEST, weights_only=True)
        trainer.save_checkpoint(self.folder / LAST)  # with the history: whatever comes after it can be made again
        self.write(trainer)
        self._draw(trainer, module)

    def write(self, trainer: lightning.Trainer) -> None:
        """The metrics of all epochs."""
        if trainer.is_global_zero:
            _write_text(self.folder / "metrics.jsonl", "".join(json.dumps(r) + "\n" for r in self.history))

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


def new_folder(root: str | Path, name: str) -> Path:
    """A folder that did not exist: ``root/name``, or with a number behind it."""
    root = Path(root)
    for number in range(1, 10000):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(f"cannot make the folder {folder}: {error.strerror}. Choose another with --runs") from None
        return folder
    raise RunError(f"{root} holds too many runs named {name}")


def start(config: Config, root: str | Path = "runs", name: str | None = None) -> Path:
    """Make a run's folder with its configuration and versions, and return it."""
    name = name or f"{config.family}-{config.task}"
    if Path(name).name != name:
        raise RunError(f"the name of a run is that of one folder, got {name!r}. Choose where it is with --runs")
    return describe(new_folder(Path(root) / config.experiment, f"{name}-seed{config.seed}"), config)


def describe(folder: Path, config: Config) -> Path:
    """Write a run's configuration and the versions it is made with into its folder, and return that."""
    _write_text(folder / "environment.json", json.dumps(_environment(), indent=2) + "\n")
    _write_text(folder / "config.yaml", yaml.safe_dump(config.to_dict(), sort_keys=False))
    return folder


def read_config(folder: str | Path) -> Config:
    """The configuration of a run."""
    path = Path(folder) / "config.yaml"
    if not path.exists():
        raise RunError(f"{folder} is not a run: it has no config.yaml")
    try:
        return Config.from_dict(Config.read(path))
    except ConfigError as error:
        raise RunError(f"{path}: {error}") from None


def train(
    folder: str | Path,
    data_dir: str | Path | None = None,
    *,
    accelerator: str = "auto",
    devices: int | str = 1,
    progress: bool = True,
    epochs: int | None = None,
    draw: Callable[[nn.Module], Any] | None = None,
) -> dict[str, Any]:
    """Train a run to its end, from its last complete epoch if it has one, test its best epoch, and save the result.

    Args:
        folder: A run's folder, from ``start``.
        data_dir: Data folder.
        accelerator: "auto", "cpu" or "gpu".
        devices: How many; several train in parallel (DDP).
        progress: Whether to show a progress bar.
        epochs: Stop after this many epochs instead of the configuration's; the run can be continued.
        draw: Makes a picture of the network for TensorBoard every ten epochs, such as ``report.density_figure``.
    """
    folder = Path(folder)
    config = read_config(folder)
    with _alone(folder):
        data = Data(config, data_dir)
        data.setup()
        lightning.seed_everything(config.seed, verbose=False)
        if config.compile:
            torch.compiler.reset()  # compiled code of earlier runs in this process counts against torch's limit
        module = learner(config)
        if isinstance(module, Classification):
            module.class_weights.copy_(data.class_weights())
        recorder = _Recorder(folder, config, draw)
        with _quiet():
            trainer = _trainer(config, folder, recorder, accelerator, devices, progress, epochs)
        last = folder / LAST
        if last.exists():
            _check_readable(last)
        elif (folder / "result.json").exists():
            raise RunError(_TAKEN.format(folder))
        elif (folder / "metrics.jsonl").exists():
            raise RunError(f"{folder} has metrics but no {LAST}: it cannot be continued. Start a new run")
        with _interruptible(), _quiet():
            trainer.fit(module, datamodule=data, ckpt_path=str(last) if last.exists() else None)
            if recorder.history:  # it is elsewhere if processes trained
                recorder.write(trainer)  # a run killed after its last checkpoint has not done so
        if epochs is not None and epochs < config.epochs:
            return {}
        return evaluate(folder, data_dir, accelerator=accelerator)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a run's lock, or say that somebody does."""
    try:
        lock = run_lock(folder).acquire(timeout=0)
    except Timeout:
        raise RunError(f"another process works on {folder}: wait for it, or stop it") from None
    except OSError as error:
        raise RunError(f"cannot write into {folder.parent}: {error.strerror}") from None
    with lock:
        yield


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C be an exception."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit:  # what Lightning makes of it, after it has told the system to ignore further ones
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None


def history(folder: str | Path) -> list[dict[str, Any]]:
    """The metrics of a run's complete epochs."""
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


def load(folder: str | Path) -> Learner:
    """The trained network of a run, in eval mode on the CPU: its best epoch or its last, as the run selects."""
    folder = Path(folder)
    config = read_config(folder)
    path = folder / (BEST if config.select == "best" else LAST)
    if not path.exists() and (folder / "result.json").exists():
        raise RunError(_TAKEN.format(folder))
    if not path.exists():
        raise RunError(f"{folder} has no finished epoch yet: train it with: pscnn train --resume {folder}")
    state = _check_readable(path)
    module = learner(config)
    module.load_state_dict(state["state_dict"])
    return module.eval()


def evaluate(
    folder: str | Path,
    data_dir: str | Path | None = None,
    *,
    accelerator: str = "auto",
) -> dict[str, Any]:
    """Test the selected epoch of a run; write ``result.json``, ``densities.npz`` and, of classes, ``confusion.npy``.

    Of a run that is not trained to its end nothing is written: it is not finished.
    """
    folder = Path(folder)
    module = load(folder)
    config = module.config
    data = Data(config, data_dir)
    data.setup()
    with _interruptible(), _quiet():
        trainer = _trainer(config, folder, None, accelerator, 1, False, None)
        found = trainer.test(module, datamodule=data, verbose=False)
    metrics = {name: value for part in found for name, value in part.items()}
    epochs = history(folder)
    judged_by, more = config.judged_by
    key = f"validation/{judged_by}"
    best = min(epochs, key=lambda row: (math.isnan(row[key]), -row[key] if more else row[key], row["epoch"]))
    if config.select == "last":
        best = epochs[-1]
    result = {
        **module.results(metrics),
        f"validation_{judged_by}": best[key],
        "best_epoch": best["epoch"],
        "epochs": len(epochs),
        "parameters": sum(p.numel() for p in module.model.parameters()),
        "seconds": round(sum(row["seconds"] for row in epochs), 1),
        "device": _device_name(trainer),
    }
    if len(epochs) < config.epochs:
        return result
    if isinstance(module, Classification):
        np.save(folder / "confusion.npy", module.confusion.compute().cpu().numpy())
    densities = {name: lam.coefficients.detach().cpu().numpy() for name, lam in likelihoods(module.model).items()}
    np.savez(folder / "densities.npz", **densities)  # type: ignore[arg-type]
    _write_text(folder / "result.json", json.dumps(result, indent=2) + "\n")
    return result


def _trainer(
    config: Config,
    folder: Path,
    recorder: _Recorder | None,
    accelerator: str,
    devices: int | str,
    progress: bool,
    epochs: int | None,
) -> lightning.Trainer:
    torch.set_float32_matmul_precision("highest" if config.precision == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = config.precision != "fp32"
    several = devices not in (1, "1")
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise RunError("no GPU was found: use --accelerator cpu or auto")
    found: list[Any] = [recorder] if recorder else []
    if progress:
        found.append(callbacks.RichProgressBar(leave=False))
    logger = loggers.TensorBoardLogger(folder, name="", version="tensorboard") if recorder else False
    return lightning.Trainer(
        accelerator=accelerator,
        devices=devices,
        strategy="ddp_spawn" if several else "auto",
        max_epochs=epochs or config.epochs,
        precision="bf16-mixed" if config.precision == "bf16" else "32-true",
        callbacks=found,
        logger=logger,
        plugins=[_AtomicFiles()],
        enable_checkpointing=False,
        enable_progress_bar=progress,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        benchmark=True,
        default_root_dir=folder,
    )


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


def _check_readable(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise RunError(
            f"{path} is damaged and cannot be read ({type(error).__name__}). This run cannot be continued; "
            "its metrics and other checkpoints are untouched. Start a new run"
        ) from error
    return state


def _device_name(trainer: lightning.Trainer) -> str:
    if trainer.strategy.root_device.type == "cuda":
        return torch.cuda.get_device_name(trainer.strategy.root_device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def _environment() -> dict[str, Any]:
    from pscnn import __version__

    versions = {"pscnn": __version__}
    for package in ("torch", "lightning", "numpy", "scipy", "torchmetrics"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    here = Path(__file__).parent
    try:
        git = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        revision = git.stdout.strip() or None
    except OSError:
        revision = None
    return {
        "versions": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git": revision,
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _write_text(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None

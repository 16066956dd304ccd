"""Trains a run for a given time instead of a given number of epochs."""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pscnn import models
from pscnn.densities import align
from pscnn.training import _run as files
from pscnn.training._environment import kept_random_state, precision
from pscnn.training._fit import evaluate, measured
from pscnn.training._graph import set_rate
from pscnn.training._learner import Classification, Data
from pscnn.training._place import Place, choose_device, suitable_threads
from pscnn.training._settings import ConfigError, TrainerSettings, rate
from pscnn.training._store import Store, new_folder, run_name
from pscnn.training._task import task_of

FINE = 10_000
"""Parts into which the time is divided for the learning rate."""


def train_for(
    seconds: float, settings: TrainerSettings, store: Store, *, accelerator: str = "auto", most: int = 10**6
) -> Path:
    """Train a run until the time is up, or so many epochs are done, and test its last epoch.

    The learning rate follows the clock, so that it ends where its schedule ends, however busy the machine is. The run
    is stored as one of the epochs that were done, in a folder of its own: another time may end after as many of them.

    Args:
        seconds: From now; building the network and testing it come on top.
        settings: Of the run, whose ``epochs`` do not matter and which selects its last epoch; without ``average`` and
            ``compile``.
        store: Where.
        accelerator: "auto", "cpu" or "gpu".
        most: Epochs at most.

    Returns:
        The run's folder.
    """
    learner, rows = _trained(seconds, settings, accelerator, most, store.root)
    done = replace(settings, epochs=len(rows), select="last")
    folder = new_folder(store.root / settings.task, run_name(done))
    files.describe(folder, done)
    state = {f"model.{name}": value.cpu() for name, value in learner.model.state_dict().items()}
    advice = "Free some disk space, and do the same again"
    files.write_saved(folder / files.LAST, {"state_dict": state}, advice)
    files.write_history(folder, rows)
    evaluate(folder, accelerator=accelerator)
    return folder


def trial_loss(seconds: float, settings: TrainerSettings, root: Path, *, accelerator: str = "auto") -> float:
    """The training loss of the last epoch of a short training; infinite if it diverges.

    Args:
        seconds: From now.
        settings: Of the run.
        root: A folder that holds the data of its task.
        accelerator: "auto", "cpu" or "gpu".
    """
    _, rows = _trained(seconds, settings, accelerator, 10**6, root)
    loss = float(rows[-1]["train/loss"])
    return loss if math.isfinite(loss) else math.inf


def _trained(
    seconds: float, settings: TrainerSettings, accelerator: str, most: int, root: Path
) -> tuple[Any, list[dict[str, Any]]]:
    if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ConfigError(f"seconds must be a positive number, got {seconds!r}")
    if not isinstance(settings, TrainerSettings):
        raise ConfigError(f"runs of {settings.task} are trained for a number of epochs, not for a time")
    for name in ("average", "compile"):
        if getattr(settings, name):
            raise ConfigError(f"{name} applies to runs that are trained for a number of epochs, not for a time")
    task = task_of(settings)
    task.folder = root / settings.task / "run"  # beside which its data are looked for
    device = choose_device(accelerator)
    data, place = Data(task), Place(device)
    rows: list[dict[str, Any]] = []
    with precision(settings.precision), kept_random_state():
        torch.manual_seed(settings.seed)
        learner = task.learner().to(device)
        if isinstance(learner, Classification):
            learner.class_weights.copy_(data.class_weights())
        with suitable_threads(learner):
            _train(learner, data, place, seconds, most, rows)
    return learner, rows


def _train(learner: Any, data: Data, place: Place, seconds: float, most: int, rows: list[dict[str, Any]]) -> None:
    """Epoch by epoch, each a row."""
    settings = learner.settings
    optimizer = learner.make_optimizer()
    began = time.monotonic()
    progress = 0.0
    while progress < 1 and len(rows) < most:
        learner.train()
        started, total, count = time.monotonic(), 0.0, 0
        for x, y in data.batches("train", place, len(rows)):
            progress = min(1.0, max((time.monotonic() - began) / seconds, len(rows) / most))
            where = min(FINE - 1, int(FINE * progress))
            set_rate(optimizer, rate(settings, where, FINE))
            models.advance(learner.model, where, FINE)
            with place.autocast(settings.precision):
                loss = learner.objective(x, y)["loss"]
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * len(y), count + len(y)
            if progress >= 1:
                break
        if settings.alignment == "exact":
            align(learner.model)
        found = measured(learner, data, "validation", place)
        spent = {"epoch": len(rows), "seconds": round(time.monotonic() - started, 3)}
        rows.append({**spent, **found, "train/loss": total / count})
        progress = (time.monotonic() - began) / seconds

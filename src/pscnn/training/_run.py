"""A run's folder: settings, versions, metrics, checkpoints, densities, result."""

from __future__ import annotations

import contextlib
import json
import pickle
import platform
import subprocess
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from torch import nn

from pscnn.densities import likelihoods
from pscnn.training._files import RunError, history, write_text
from pscnn.training._settings import ConfigError, Settings
from pscnn.training._task import Task, read_settings, task_of

LAST, BEST = "last.ckpt", "best.ckpt"


class Trained(NamedTuple):
    """A task and its trained network, in eval mode on the CPU."""

    task: Task
    model: nn.Module


def describe(folder: Path, settings: Settings) -> Path:
    """Write a run's settings and the versions it is made with into its folder, and return that."""
    write_text(folder / "environment.json", json.dumps(_environment(), indent=2) + "\n")
    write_text(folder / "config.yaml", yaml.safe_dump(settings.to_dict(), sort_keys=False))
    return folder


def read_task(folder: str | Path) -> Task:
    """What a run is about."""
    path = Path(folder) / "config.yaml"
    if not path.exists():
        raise RunError(f"{folder} is not a run: it has no config.yaml")
    try:
        return task_of(read_settings(path))
    except ConfigError as error:
        raise RunError(f"{path}: {error}") from None


def last_epoch(folder: Path) -> dict[str, Any] | None:
    """The metrics of a run's last complete epoch, or None."""
    return next(reversed(history(folder)), None)


def write_result(folder: Path, model: nn.Module, result: Mapping[str, Any]) -> None:
    """The densities and the result; with it a run is finished."""
    densities = {name: lam.coefficients.detach().cpu().numpy() for name, lam in likelihoods(model).items()}
    np.savez(folder / "densities.npz", **densities)  # type: ignore[arg-type]
    write_text(folder / "result.json", json.dumps(result, indent=2) + "\n")


def load(folder: str | Path) -> Trained:
    """The trained network of a run: its best epoch or its last, as the run selects."""
    folder = Path(folder)
    task = read_task(folder)
    path = selected(folder, task)
    with kept_random_state():
        model = task.build()
    load_weights(model, path)
    return Trained(task, model.eval())


def load_weights(model: nn.Module, path: Path, *parts: str) -> None:
    """Put the weights of a checkpoint into a network, if they fit.

    Args:
        model: The network.
        path: The checkpoint.
        parts: What else it must have, to be continued.
    """
    state = read_saved(path, "state_dict", *parts)["state_dict"]
    try:
        model.load_state_dict({str(name).removeprefix("model."): value for name, value in state.items()})
    except (RuntimeError, AttributeError, TypeError) as error:
        why = str(error).splitlines()[0]
        raise RunError(f"{path} does not match its config.yaml: {why}") from None


def selected(folder: Path, task: Task) -> Path:
    """The checkpoint of the epoch that a run selects."""
    path = folder / (BEST if getattr(task.settings, "select", "last") == "best" else LAST)
    if not path.exists():
        check_has_network(folder)
        raise RunError(f"{folder} has no complete epoch yet; continue it with: pscnn train --resume {folder}")
    return path


def check_has_network(folder: Path) -> None:
    """Raise an error if a run has a result and no checkpoint."""
    if (folder / "result.json").exists() and not (folder / LAST).exists():
        raise RunError(f"{folder} was imported from a results file; it has no checkpoint")


def read_saved(path: Path, *parts: str) -> dict[str, Any]:
    """What torch saved, with mappings of some names in it: tensors, numbers and text, never code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about files that are not its own
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        for name in parts:
            if not isinstance(state[name], dict):
                raise TypeError(f"{name} is not a mapping")
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, zipfile.BadZipFile, *_MALFORMED) as error:
        raise RunError(
            f"{path} is damaged and cannot be read ({type(error).__name__}). This run cannot be continued; "
            "its metrics and other checkpoints are untouched. Start a new run"
        ) from error
    return state


_MALFORMED = (TypeError, KeyError, ValueError, AttributeError, IndexError)  # of files that are something else


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


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """Within it matrix products and convolutions have this precision; afterwards that of before."""
    backends = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), backends.allow_tf32, backends.benchmark
    torch.set_float32_matmul_precision("highest" if name == "fp32" else "high")
    backends.allow_tf32, backends.benchmark = name != "fp32", True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        backends.allow_tf32, backends.benchmark = before[1:]


def kept_random_state() -> Any:
    """Within it random numbers can be seeded; afterwards they go on as if nothing had happened."""
    return torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ())


def device_name(device: torch.device) -> str:
    """In words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"

"""A run's folder: settings, versions, metrics, checkpoints, densities, result.

A folder may come from anybody: everything is checked before it is used.
"""

import contextlib
import io
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from torch import Tensor, nn

from pscnn._extras import PscnnError
from pscnn._files import DAMAGED, from_json, plain_file, reported, to_json, write_whole
from pscnn._types import AnyArray
from pscnn.densities import likelihoods
from pscnn.training._environment import environment, kept_random_state
from pscnn.training._settings import ConfigError, Settings
from pscnn.training._task import Task, make_settings, task_of
from pscnn.training._yaml import read_yaml

LAST, BEST = "last.ckpt", "best.ckpt"


class Trained(NamedTuple):
    """A task and its trained network, in eval mode on the CPU."""

    task: Task
    model: nn.Module


def describe(folder: Path, settings: Settings) -> None:
    """Write a run's settings and the versions it is made with into its folder."""
    write_text(folder / "environment.json", to_json(environment(), indent=2) + "\n")
    write_settings(folder, settings)


def write_settings(folder: Path, settings: Settings) -> None:
    """Of a run."""
    write_text(folder / "config.yaml", yaml.safe_dump(settings.to_dict(), sort_keys=False))


def read_task(folder: str | Path) -> Task:
    """What a run is about."""
    path = Path(folder) / "config.yaml"
    if not path.exists():
        raise RunError(f"{folder} is not a run: it has no config.yaml")
    try:
        task = task_of(make_settings(read_yaml(path), stored=True))
    except ConfigError as error:
        raise RunError(f"{path}: {error}") from None
    task.folder = Path(folder)
    return task


def last_epoch(folder: Path) -> dict[str, Any] | None:
    """The metrics of a run's last complete epoch, or None."""
    return next(reversed(history(folder)), None)


def write_result(folder: Path, model: nn.Module, result: Mapping[str, Any]) -> None:
    """The densities and the result; with it a run is finished."""
    densities = {name: lam.coefficients.detach().cpu().numpy() for name, lam in likelihoods(model).items()}
    write_arrays(folder / "densities.npz", densities)
    write_text(folder / "result.json", to_json(result, indent=2) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, AnyArray] | AnyArray) -> None:
    """One array as an ``.npy`` file, or several as an ``.npz``; whole or not at all."""
    buffer = io.BytesIO()
    if isinstance(arrays, np.ndarray):
        np.save(buffer, arrays)
    else:
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
    with reported(f"cannot write {path}", RunError):
        write_whole(path, buffer.getvalue())


def load(folder: str | Path) -> Trained:
    """The trained network of a run: its best epoch or its last, as the run selects."""
    folder = Path(folder)
    task = read_task(folder)
    path = selected(folder, task)
    with kept_random_state():
        model = task.build()
    load_weights(model, path)
    return Trained(task, model.eval())


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the weights of a checkpoint into a network, if they fit."""
    put_weights(model, read_saved(path, "state_dict")["state_dict"], path)


def put_weights(model: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Put the weights that a file has into a network, if they fit."""
    try:
        model.load_state_dict(
            renamed({str(name).removeprefix("model."): value for name, value in state.items()}, model.state_dict())
        )
    except (RuntimeError, AttributeError, TypeError) as error:
        why = str(error).splitlines()[0]
        raise RunError(f"{path} does not match its config.yaml: {why}") from None


def renamed(saved: Mapping[str, Tensor], today: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Saved tensors by the names of today, if only the modules that they are in are called differently.

    Earlier versions had normalisation and nonlinearity in layers of their own; tensors and their order are the same.
    """

    def kinds(state: Mapping[str, Tensor]) -> list[tuple[str, torch.Size]]:
        return [(name.rpartition(".")[2], value.shape) for name, value in state.items()]

    if saved.keys() == today.keys() or kinds(saved) != kinds(today):
        return dict(saved)
    return dict(zip(today, saved.values(), strict=True))


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
            state: dict[str, Any] = torch.load(plain_file(path), map_location="cpu", weights_only=True)
        for name in parts:
            if not isinstance(state[name], dict):
                raise TypeError(f"{name} is not a mapping")
    except Exception as error:  # torch raises many kinds for what is not its own
        raise RunError(
            f"{path} is damaged and cannot be read ({type(error).__name__}). This run cannot be continued; "
            "its metrics and other checkpoints are untouched. Start a new run"
        ) from error
    return state


def trained_for_a_time(folder: Path) -> bool:
    """Whether a run was trained for a time, and not for a number of epochs: then it has nothing to go on with."""
    if read_task(folder).stacked or (folder / BEST).exists() or not (folder / LAST).exists():
        return False
    return read_saved(folder / LAST, "state_dict").keys() == {"state_dict"}


def read_training(path: Path) -> dict[str, Any]:
    """What is needed to continue a run; earlier versions had it elsewhere in the file."""
    state = read_saved(path, "state_dict")
    try:
        if "callbacks" in state:
            recorded = state.pop("callbacks")["_Recorder"]
            state |= {
                "best": recorded["best"],
                "history": recorded["history"],
                "optimizer": state["optimizer_states"][0],
            }
        if not isinstance(state["history"], list) or not isinstance(state["best"], float | None):
            raise TypeError("its history is none")
        check_history(state["history"])
        for name in ("optimizer", *(["trained"] if "trained" in state else [])):
            if not isinstance(state[name], dict):
                raise TypeError(f"{name} is not a mapping")
    except _MALFORMED as error:
        raise RunError(f"{path} is damaged and cannot be continued ({error}). Start a new run") from None
    return state


def write_saved(path: Path, state: Mapping[str, Any], advice: str | None = None) -> None:
    """Write a checkpoint, whole or not at all."""
    buffer = io.BytesIO()  # torch reports a full disk in words of its own
    torch.save(state, buffer)
    if advice is None:
        begun = (path.parent / LAST).exists()
        saved = "the last complete epoch is saved" if begun else "no epoch was complete yet"
        advice = f"Free some disk space; {saved}, continue with: pscnn train --resume {path.parent}"
    with reported(f"cannot write {path}", RunError, f". {advice}"):
        write_whole(path, buffer.getvalue())


_MALFORMED = (TypeError, KeyError, ValueError, AttributeError, IndexError)  # of files that are something else


class RunError(PscnnError):
    """A run's folder cannot be used; the message says why and what to do."""


RESULT = {"epochs": int, "best_epoch": int, "parameters": int, "seconds": float, "device": str}
"""What every result has."""


def write_text(path: Path, text: str) -> None:
    """Write a file whole, or raise an error for people."""
    with reported(f"cannot write {path}", RunError):
        write_whole(path, text)


@contextlib.contextmanager
def _received(path: Path) -> Iterator[None]:
    """Refuse a file that cannot be read; whether there is one is the caller's affair."""
    try:
        yield
    except DAMAGED as error:
        raise RunError(f"{path} is damaged or not a file of pscnn: {error}") from None


_IF_THERE = contextlib.suppress(FileNotFoundError, NotADirectoryError)


def read_json(path: Path) -> dict[str, Any] | None:
    """An object of a JSON file; None if there is no such file."""
    with _received(path), _IF_THERE:
        return _object(from_json(plain_file(path).read_text(encoding="utf-8")))
    return None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


def read_environment(folder: Path) -> dict[str, Any] | None:
    """What a run was made with, as ``environment`` gives it; None if that was not received."""
    path = folder / "environment.json"
    found = read_json(path)
    with _received(path):
        return None if found is None else check_environment(found)


def check_environment(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same, if it tells a version and a revision."""
    versions, revision = found.get("versions"), found.get("git")
    version = versions.get("pscnn") if isinstance(versions, dict) else None
    if not isinstance(version, str) or not isinstance(revision, str | None):
        raise ValueError(f"expected a version and a revision, got {version!r} and {revision!r}")
    return dict(found)


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None for others."""
    path = folder / "result.json"
    found = read_json(path)
    with _received(path):
        return None if found is None else check_result(found)


def check_result(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same, if it is what a finished run writes: known entries of their types, scores that are numbers."""
    for name, kind in RESULT.items():
        value = found.get(name)
        if not isinstance(value, int | float if kind is float else kind) or isinstance(value, bool):
            raise ValueError(f"{name} must be of type {kind.__name__}, got {value!r}")
        least = 1 if name == "epochs" else 0
        if isinstance(value, int | float) and not least <= value < 2**53:
            raise ValueError(f"{name} must be {least} or more, got {value!r}")
    out = dict(found)
    for name, value in found.items():
        if name.startswith(("test_", "other_", "future_", "domain_", "validation_", "train_")):
            numbers = value if isinstance(value, list) and name.endswith("_by_step") else [value]
            for number in numbers:
                if not isinstance(number, int | float | None) or isinstance(number, bool):
                    raise ValueError(f"{name} must be a number, got {number!r}")
                if name.endswith("_accuracy") and number is not None and (number < 0 or number > 1):
                    raise ValueError(f"{name} must lie between 0 and 1, got {number!r}")
            out[name] = [_number(one) for one in numbers] if numbers is value else _number(value)
    return out


def _number(value: float | None) -> float:
    """What JSON has, which knows no other word for what is not a number than null."""
    return math.nan if value is None else value


def history(folder: str | Path) -> list[dict[str, Any]]:
    """The metrics of a run's complete epochs; none if it has not begun."""
    path = Path(folder) / "metrics.jsonl"
    with _received(path), _IF_THERE:
        read = (_object(from_json(line)) for line in plain_file(path).read_text(encoding="utf-8").splitlines())
        rows = [{name: _number(value) for name, value in row.items()} for row in read]
        check_history(rows)
        return rows
    return []


def check_history(rows: list[dict[str, Any]]) -> None:
    """Raise a ValueError unless each row has the metrics of an epoch."""
    for number, row in enumerate(rows):
        numbers = all(isinstance(v, float) or (isinstance(v, int) and abs(v) < 2**53) for v in row.values())
        if row.get("epoch") != number or not numbers or not all(isinstance(name, str) for name in row):
            raise ValueError(f"line {number + 1} is not an epoch's metrics")


def write_history(folder: Path, rows: list[dict[str, Any]]) -> None:
    """The metrics of all epochs."""
    write_text(folder / "metrics.jsonl", "".join(to_json(row) + "\n" for row in rows))


def read_confusion(folder: Path, classes: int) -> AnyArray | None:
    """How often each class (row) was given each label (column); None for tasks without classes."""
    path = folder / "confusion.npy"
    if not path.exists():
        return None
    with _received(path):
        with plain_file(path).open("rb") as handle:  # its header first: it can claim any size
            version = np.lib.format.read_magic(handle)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(handle)
        if shape != (classes, classes) or dtype.kind not in "iu":
            raise ValueError(f"expected whole numbers of shape {(classes, classes)}, got {dtype} of shape {shape}")
        counts = np.asarray(np.load(path, allow_pickle=False))
        if counts.min() < 0 or not 0 < counts.astype(float).sum() < 2**53:
            raise ValueError("its numbers are no counts")
        return counts


def diverged(result: Mapping[str, Any]) -> bool:
    """Whether a result has numbers that are none."""
    return not all(math.isfinite(value) for value in result.values() if isinstance(value, float))

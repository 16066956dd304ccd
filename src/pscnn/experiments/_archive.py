"""Finished runs in one file of text, to be kept beside code and taken up again anywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from filelock import Timeout

from pscnn._extras import PscnnError
from pscnn._files import from_json, plain_file, to_json, write_whole
from pscnn._words import short
from pscnn.data import read_arrays
from pscnn.training import (
    ConfigError,
    Settings,
    Store,
    check_environment,
    check_result,
    make_settings,
    read_environment,
    read_result,
    read_yaml,
    write_arrays,
)

LARGEST = 2**24
"""Bytes of a run's densities."""
_Run = tuple[Settings, dict[str, Any], dict[str, Any], dict[str, Any]]
"""Settings, result, versions and densities."""


def save_runs(folders: Sequence[str | Path], path: str | Path) -> None:
    """Write finished runs into one JSON file, a run per line: settings, result, versions and densities.

    Args:
        folders: Of the runs.
        path: The file; one that exists is not replaced.
    """
    path = Path(path)
    if path.exists():
        raise ConfigError(f"{path} exists: choose another name")
    lines = []
    for folder in folders:
        try:
            lines.append(to_json(_read(Path(folder))))
        except (OSError, ValueError, PscnnError) as error:
            raise ConfigError(f"{folder} is not complete: {error}") from None
    try:
        write_whole(path, '{"runs": [\n' + ",\n".join(lines) + "\n]}\n", new=True)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _read(folder: Path) -> dict[str, Any]:
    densities = read_arrays(folder / "densities.npz", largest=LARGEST)
    if any(array.dtype.kind not in "iuf" or array.ndim != 1 for array in densities.values()):
        raise ValueError("densities.npz does not hold densities")
    result, environment = read_result(folder), read_environment(folder)
    if result is None or environment is None:
        raise ValueError(f"it has no {'result' if result is None else 'environment'}.json")
    return {
        "config": read_yaml(folder / "config.yaml"),
        "result": result,
        "environment": environment,
        "densities": {name: array.astype(np.float64).round(6).tolist() for name, array in densities.items()},
    }


def take_runs(path: str | Path, root: str | Path) -> int:
    """Put the runs of a file into a store, as if they had been made there; those that it has or began are left alone.

    Settings that did not exist when the file was made have their defaults.

    Args:
        path: A file of ``save_runs``.
        root: Folder of the store.

    Returns:
        How many were put there.
    """
    try:
        runs = from_json(plain_file(Path(path)).read_text(encoding="utf-8"))["runs"]
        found = [_checked(run) for run in runs]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a file of runs, as pscnn results --save makes them: {error}") from None
    store = Store(root)
    try:
        return sum(_put(store, run) for run in found)
    except OSError as error:
        raise ConfigError(f"cannot write into {root}: {error.strerror}") from None


def _checked(run: dict[str, Any]) -> _Run:
    """One run of a file; whatever is wrong with it is raised here."""
    settings, result, environment = (
        make_settings(run["config"], stored=True),
        check_result(run["result"]),
        check_environment(run["environment"]),
    )
    densities = {str(name): np.array(values, dtype=np.float32) for name, values in run["densities"].items()}
    for name, values in densities.items():
        # numpy takes "file" for the archive
        if not re.fullmatch(r"[\w.]{0,500}", name) or name == "file" or values.ndim != 1:
            raise ValueError(f"densities must be lists of numbers by name of the layer, got {short(name)}")
    return settings, result, environment, densities


def _put(store: Store, run: _Run) -> bool:
    settings, result, environment, densities = run
    try:
        lock = store.lock(settings).acquire(timeout=0)
    except Timeout:  # somebody works on it
        return False
    with lock:
        folder = store.folder(settings)
        if (folder / "result.json").exists() or (folder / "metrics.jsonl").exists():
            return False
        folder.mkdir(exist_ok=True)
        (folder / "failure.json").unlink(missing_ok=True)
        write_whole(folder / "config.yaml", yaml.safe_dump(settings.to_dict(), sort_keys=False))
        write_whole(folder / "environment.json", to_json(environment, indent=2) + "\n")
        write_arrays(folder / "densities.npz", densities)
        write_whole(folder / "result.json", to_json(result, indent=2) + "\n")  # last: now it is finished
        return True

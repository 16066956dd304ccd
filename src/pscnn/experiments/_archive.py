"""Finished runs in one file of text, to be kept beside code and taken up again anywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pscnn._files import write_whole
from pscnn.experiments._store import Store
from pscnn.training._config import Config, ConfigError


def save_runs(folders: Sequence[str | Path], path: str | Path) -> None:
    """Write finished runs into one JSON file, a run per line: settings, result, versions and densities.

    Args:
        folders: Of the runs.
        path: The file; one that exists is not replaced.
    """
    path = Path(path)
    if path.exists():
        raise ConfigError(f"{path} exists: choose another name")
    lines = [json.dumps(_read(Path(folder))) for folder in folders]
    try:
        write_whole(path, '{"runs": [\n' + ",\n".join(lines) + "\n]}\n")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _read(folder: Path) -> dict[str, Any]:
    with np.load(folder / "densities.npz") as found:
        densities = {name: np.asarray(found[name], dtype=np.float64).round(6).tolist() for name in found.files}
    return {
        "config": Config.read(folder / "config.yaml"),
        "result": json.loads((folder / "result.json").read_text()),
        "environment": json.loads((folder / "environment.json").read_text()),
        "densities": densities,
    }


def take_runs(path: str | Path, root: str | Path) -> int:
    """Put the runs of a file into a store, as if they had been made there; those that it has are left alone.

    Settings that did not exist when the file was made have their defaults.

    Args:
        path: A file of ``save_runs``.
        root: Folder of the store.

    Returns:
        How many were put there.
    """
    try:
        runs = json.loads(Path(path).read_text())["runs"]
        found = [(Config.from_dict(run["config"]), run["result"], run["environment"], run["densities"]) for run in runs]
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not a file of runs, as pscnn results --save makes them: {error}") from None
    store = Store(root)
    try:
        return sum(_put(store, *run) for run in found)
    except OSError as error:
        raise ConfigError(f"cannot write into {root}: {error.strerror}") from None


def _put(
    store: Store, config: Config, result: dict[str, Any], environment: dict[str, Any], densities: dict[str, Any]
) -> bool:
    with store.lock(config):
        folder = store.folder(config)
        if (folder / "result.json").exists():
            return False
        folder.mkdir(exist_ok=True)
        write_whole(folder / "config.yaml", yaml.safe_dump(config.to_dict(), sort_keys=False))
        write_whole(folder / "environment.json", json.dumps(environment, indent=2) + "\n")
        arrays: dict[str, Any] = {name: np.array(values, dtype=np.float32) for name, values in densities.items()}
        np.savez(folder / "densities.npz", **arrays)
        write_whole(folder / "result.json", json.dumps(result, indent=2) + "\n")  # last: now it is finished
        return True

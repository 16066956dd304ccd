"""A run's files of text and numbers. A folder may come from anybody: everything is checked before it is used."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._errors import PscnnError
from pscnn._files import write_whole
from pscnn._types import AnyArray


class RunError(PscnnError):
    """A run's folder cannot be used; the message says why and what to do."""


RESULT = {"epochs": int, "best_epoch": int, "parameters": int, "seconds": float, "device": str}
"""What every result has."""


def write_text(path: Path, text: str) -> None:
    """Write a file whole, or raise an error for people."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any] | None:
    """An object of a JSON file; None if there is no such file."""
    try:
        return _object(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged or not a file of pscnn: {error}") from None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return value


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a finished run; None for others."""
    path = folder / "result.json"
    found = read_json(path)
    if found is None:
        return None
    try:
        return check_result(found)
    except ValueError as error:
        raise RunError(f"{path} is damaged or not a file of pscnn: {error}") from None


def check_result(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same, if it is what a finished run writes: known entries of their types, scores that are numbers."""
    for name, kind in RESULT.items():
        value = found.get(name)
        if not isinstance(value, int | float if kind is float else kind) or isinstance(value, bool):
            raise ValueError(f"{name} must be of type {kind.__name__}, got {value!r}")
    for name, value in found.items():
        if name.startswith(("test_", "other_", "future_", "domain_", "validation_", "train_")):
            for number in value if isinstance(value, list) else [value]:
                if not isinstance(number, int | float) or isinstance(number, bool):
                    raise ValueError(f"{name} must be a number, got {number!r}")
    return dict(found)


def history(folder: str | Path) -> list[dict[str, Any]]:
    """The metrics of a run's complete epochs; none if it has not begun."""
    path = Path(folder) / "metrics.jsonl"
    try:
        rows = [_object(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
        for number, row in enumerate(rows):
            if row.get("epoch") != number or not all(isinstance(value, int | float) for value in row.values()):
                raise ValueError(f"line {number + 1} is not an epoch's metrics")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged or not a file of pscnn: {error}") from None
    return rows


def write_history(folder: Path, rows: list[dict[str, Any]]) -> None:
    """The metrics of all epochs."""
    write_text(folder / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def read_confusion(folder: Path, classes: int) -> AnyArray | None:
    """How often each class (row) was given each label (column); None for tasks without classes."""
    path = folder / "confusion.npy"
    if not path.exists():
        return None
    try:
        with path.open("rb") as handle:  # its header first: it can claim any size
            version = np.lib.format.read_magic(handle)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(handle)
        if shape != (classes, classes) or dtype.kind not in "iu":
            raise ValueError(f"expected whole numbers of shape {(classes, classes)}, got {dtype} of shape {shape}")
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise RunError(f"{path} is damaged or not a file of pscnn: {error}") from None


def diverged(result: Mapping[str, Any]) -> bool:
    """Whether a result has numbers that are none."""
    return not all(math.isfinite(value) for value in result.values() if isinstance(value, float))

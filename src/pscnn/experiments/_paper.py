"""The published numbers."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _paper() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files("pscnn.experiments").joinpath("paper.json").read_text(encoding="utf-8"))
    return found


@cache
def published(table: str) -> dict[str, dict[str, tuple[float, float]]]:
    """A table of the paper: for every row and column, mean and standard deviation.

    Example:
        >>> published("vectors")["E-MLP, Gated"]["angle"]
        (1.486, 0.044)
    """
    rows = _paper()["tables"][table]["rows"]
    return {row["label"]: {name: (mean, std) for name, (mean, std) in row["values"].items()} for row in rows}


def published_sizes() -> dict[str, dict[str, str]]:
    """How many parameters the paper's Table 3 prints: by method, for "smoke" and "jetflow"; and why ours differ."""
    sizes: dict[str, dict[str, str]] = _paper()["sizes"]
    return sizes

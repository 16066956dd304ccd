"""The published numbers."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files


@cache
def published(table: str) -> dict[str, dict[str, tuple[float, float]]]:
    """A table of the paper: for every row and column, mean and standard deviation.

    Example:
        >>> published("vectors")["E-MLP, Gated"]["angle"]
        (1.486, 0.044)
    """
    tables = json.loads(files("pscnn.experiments").joinpath("paper.json").read_text(encoding="utf-8"))["tables"]
    return {
        row["label"]: {column: (mean, std) for column, (mean, std) in row["values"].items()}
        for row in tables[table]["rows"]
    }

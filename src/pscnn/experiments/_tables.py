"""Tables as data: which experiments fill them, and how to read the cells."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pscnn._processes import in_processes
from pscnn.data.vectors import TARGETS
from pscnn.experiments._paper import published
from pscnn.experiments._vectors import VectorConfig, run_vectors

NOISE = 0.01
"""Of the preliminary approach; the paper says "a small amount"."""


@dataclass(frozen=True)
class Table:
    """Rows of experiments over the columns' targets.

    Attributes:
        title: What it compares.
        paper: Name of the published table, or None.
        rows: Label and experiment; the columns set its target.
        columns: Targets.
    """

    title: str
    paper: str | None
    rows: tuple[tuple[str, VectorConfig], ...]
    columns: tuple[str, ...] = ("angle", "norm")

    def cell(self, row: VectorConfig, column: str) -> VectorConfig:
        """The experiment of a cell."""
        return replace(row, target=column)


def vector_tables(**changes: Any) -> dict[str, Table]:
    """The tables of ``pscnn reproduce vectors``, with settings changed for all of them, such as ``seeds=2``."""
    base = VectorConfig(**changes)
    methods: list[tuple[str, VectorConfig]] = [("MLP, ELU", replace(base, method="mlp"))]
    for name, settings in (
        ("E-MLP", {"method": "e-mlp"}),
        ("PE-MLP (preliminary)", {"method": "preliminary"}),
        ("PE-MLP (preliminary + noise)", {"method": "preliminary", "noise": NOISE}),
        ("PE-MLP (probabilistic)", {"method": "pe-mlp"}),
    ):
        for label, nonlinearity in (("Gated", "gated"), ("FourierELU", "fourier")):
            methods.append((f"{name}, {label}", replace(base, nonlinearity=nonlinearity, **settings)))
    tables = {"methods": Table("Methods", "vectors", tuple(methods))}
    released = replace(base, uniform_first=True, detached=True)
    for suffix, how, one in (("", "", base), ("-released", ", trained as the released code does", released)):
        for name, title, paper, rows in (
            (
                "shared",
                "One density for all layers, or one each",
                "shared",
                (("shared", replace(one, shared=True)), ("individual", one)),
            ),
            (
                "alignment",
                "Alignment loss",
                "align_vectors",
                (("with", one), ("without", replace(one, align_weight=0.0))),
            ),
            ("kl", "KL divergence", "kl_vectors", (("with", one), ("without", replace(one, kl_weight=0.0)))),
        ):
            tables[name + suffix] = Table(title + how, paper, rows)
    return tables


def space_tables(**changes: Any) -> dict[str, Table]:
    """The table of ``pscnn reproduce vectors-3d``: the same tasks in space, which the paper leaves out."""
    base = VectorConfig(**{"bandlimit": 2, **changes})
    rows = [("MLP", replace(base, method="mlp", group="SO(3)"))]
    for group in ("SO(3)", "O(3)"):
        for name, method in (("E-MLP", "e-mlp"), ("PE-MLP", "pe-mlp")):
            rows.append((f"{name}, {group}", replace(base, method=method, group=group)))
    return {"space": Table("Vectors in space", None, tuple(rows), TARGETS)}


def configurations(tables: dict[str, Table]) -> list[VectorConfig]:
    """The distinct experiments of some tables, the longest first."""
    found = {table.cell(row, column) for table in tables.values() for _, row in table.rows for column in table.columns}
    return sorted(found, key=lambda c: (c.group == "O(2)", c.nonlinearity != "fourier", c.method == "mlp", c.key))


def run_all(
    found: list[VectorConfig],
    folder: str | Path,
    *,
    workers: int | None = None,
    on_done: Callable[[VectorConfig, dict[str, Any]], None] | None = None,
) -> dict[VectorConfig, dict[str, Any]]:
    """Run experiments in parallel, in processes that share the cores; finished ones are read.

    Args:
        found: The experiments.
        folder: Where their folders are.
        workers: Processes; one per core by default.
        on_done: Called with each experiment and its result when it is there.
    """
    results = {}

    def keep(number: int, result: Any) -> None:
        if isinstance(result, BaseException):
            raise result
        results[found[number]] = result
        if on_done is not None:
            on_done(found[number], result)

    in_processes(run_vectors, [(config, folder) for config in found], workers or os.cpu_count() or 1, keep)
    return results


@dataclass(frozen=True)
class Cell:
    """A number of ours beside the paper's.

    Attributes:
        mean: Over the seeds.
        std: Standard deviation over the seeds.
        paper: Mean and standard deviation, or None.
    """

    mean: float
    std: float
    paper: tuple[float, float] | None

    @property
    def differs(self) -> bool:
        """Whether ours is more than two of the paper's standard deviations away."""
        return self.paper is not None and abs(self.mean - self.paper[0]) > 2 * self.paper[1]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; both are not a number if a value is not, as after training that diverged."""
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def cells(table: Table, results: dict[VectorConfig, dict[str, Any]]) -> dict[str, dict[str, Cell]]:
    """The numbers of a table: row label, column, cell."""
    theirs = published(table.paper) if table.paper else {}
    out: dict[str, dict[str, Cell]] = {}
    for label, row in table.rows:
        out[label] = {}
        for column in table.columns:
            errors = results[table.cell(row, column)]["errors"]
            out[label][column] = Cell(*spread(errors), theirs.get(label, {}).get(column))
    return out

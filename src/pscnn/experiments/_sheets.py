"""A table or figure as data: for every cell the settings of its runs, and which of their results it shows."""

from __future__ import annotations

import json
import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import nn

from pscnn.training import ConfigError, Settings, diverged, task_of

Place = tuple[str, str]
"""Row and column of a cell."""
Cells = dict[Place, tuple[Settings, str]]
METHODS = {"Free twin": "twin", "SCNN": "scnn", "R-SCNN": "restricted", "RPP": "rpp", "P-SCNN": "p-scnn"}


@cache
def paper() -> dict[str, Any]:
    """The published numbers: tables, and how many parameters Table 3 prints for each method, and why ours differ."""
    return dict(json.loads(files("pscnn.experiments").joinpath("paper.json").read_text(encoding="utf-8")))


@cache
def published(table: str) -> dict[str, dict[str, tuple[float, float]]]:
    """A table of the paper: for every row and column, mean and standard deviation.

    Example:
        >>> published("vectors")["E-MLP, Gated"]["angle"]
        (1.486, 0.044)
    """
    rows = paper()["tables"][table]["rows"]
    return {row["label"]: {name: (mean, std) for name, (mean, std) in row["values"].items()} for row in rows}


@dataclass(frozen=True)
class Cell:
    """A number of ours beside the paper's.

    Attributes:
        mean: Over the seeds.
        std: Standard deviation over the seeds.
        count: How many there are.
        paper: Mean and standard deviation, or None.
        diverged: How many of them diverged; then there is no mean.
    """

    mean: float
    std: float
    count: int
    paper: tuple[float, float] | None
    diverged: int = 0

    @property
    def differs(self) -> bool:
        """Whether ours is more than two of the paper's standard deviations away."""
        return self.paper is not None and abs(self.mean - self.paper[0]) > 2 * self.paper[1]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation; both are not a number if a value is not, as after training that diverged."""
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class Sheet:
    """A table, or a figure.

    Attributes:
        title: What it compares.
        paper: Name of the published table, or None.
        cells: The settings of every cell, of the first seed, and the result that it shows.
        picture: For a figure, its kind: a name of ``report.PICTURES``.
        options: Of the figure.
        seeds: How many networks a figure shows at most; None for all.
        digits: After the decimal point.
        column_digits: The same for columns that differ; where there are none, thousands are set apart.
    """

    title: str
    paper: str | None
    cells: Mapping[Place, tuple[Settings, str]]
    picture: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seeds: int | None = None
    digits: int = 3
    column_digits: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> list[str]:
        """Labels, in order."""
        return list(dict.fromkeys(row for row, _ in self.cells))

    @property
    def columns(self) -> list[str]:
        """Labels, in order."""
        return list(dict.fromkeys(column for _, column in self.cells))

    def names(self, words: Iterable[str]) -> bool:
        """Whether a row or column is called so, or like it."""
        return any(fnmatchcase(label, word) for word in words for label in (*self.rows, *self.columns))

    def only(self, words: Iterable[str]) -> Sheet:
        """The cells in rows and columns of these names or patterns (*, ?); all rows, or columns, if none is named."""
        chosen = list(words)
        rows, columns = (
            [label for label in labels if any(fnmatchcase(label, word) for word in chosen)] or labels
            for labels in (self.rows, self.columns)
        )
        kept = {place: cell for place, cell in self.cells.items() if place[0] in rows and place[1] in columns}
        return replace(self, cells=kept)

    def changed(self, settings: Mapping[str, Any]) -> Sheet:
        """With settings replaced in every cell that uses them; what the table compares cannot be replaced."""
        for name in settings:
            values = {(one.task, getattr(one, name, None)) for one, _ in self.cells.values()}
            if len(values) > len({task for task, _ in values}):
                raise ConfigError(f"{name} is what this table compares, or differs between its runs: use --only")
        cells = {}
        for place, (one, result) in self.cells.items():
            used = {name: value for name, value in settings.items() if name in one.options() and one.uses(name)}
            cells[place] = type(one)(**{**one.differing(), **used}), result  # defaults may depend on what is replaced
        return replace(self, cells=cells)

    def of_seeds(self, one: Settings, seeds: int) -> list[Settings]:
        """The settings of a cell with every seed."""
        return [replace(one, seed=one.seed + k) for k in range(min(seeds, self.seeds or seeds))]

    def runs(self, seeds: int) -> list[Settings]:
        """All distinct settings, every cell with its seeds."""
        return list(dict.fromkeys(run for one, _ in self.cells.values() for run in self.of_seeds(one, seeds)))

    def fill(self, seeds: int, result: Callable[[Settings], Mapping[str, Any] | None]) -> dict[Place, Cell | None]:
        """Every cell; None where no run is finished."""
        theirs = published(self.paper) if self.paper else {}
        out: dict[Place, Cell | None] = {}
        for (row, column), (one, key) in self.cells.items():
            found = [r for r in map(result, self.of_seeds(one, seeds)) if r is not None and r.get(key) is not None]
            values = [math.nan if diverged(r) else float(r[key]) for r in found]
            printed, lost = theirs.get(row, {}).get(column), sum(map(diverged, found))
            out[row, column] = Cell(*spread(values), len(values), printed, lost) if values else None
        return out


def select(sheets: Sequence[Sheet], words: Iterable[str]) -> list[Sheet]:
    """What remains of several sheets with the rows and columns that are named, or fit a pattern.

    If columns are named, a sheet without any of them is left out, whatever its rows are called.
    """
    chosen = list(words)
    if not chosen:
        return list(sheets)

    def has_column(sheet: Sheet) -> bool:
        return any(fnmatchcase(column, word) for column in sheet.columns for word in chosen)

    named = any(map(has_column, sheets))
    return [sheet.only(chosen) for sheet in sheets if sheet.names(chosen) and (has_column(sheet) or not named)]


def check_words(sheets: Sequence[Sheet], words: Iterable[str]) -> None:
    """Raise an error for a word that names no row and no column."""
    known = list(dict.fromkeys(label for sheet in sheets for label in (*sheet.rows, *sheet.columns)))
    for word in words:
        if not any(sheet.names([word]) for sheet in sheets):
            raise ConfigError(f"no row or column is called {word!r}; there are {', '.join(known)}")


def check_settings(sheets: Sequence[Sheet], settings: Iterable[str]) -> None:
    """Raise an error for a setting that no run has."""
    known = {name for sheet in sheets for one, _ in sheet.cells.values() for name in one.options()}
    for name in settings:
        if name not in known:
            raise ConfigError(f"no run of this table has a setting {name!r}")


def weights_of(network: nn.Module) -> int:
    """How many there are."""
    return sum(p.numel() for p in network.parameters())


def parameter_count(settings: Settings) -> int:
    """Of the network that is trained with some settings."""
    return weights_of(task_of(settings).build())


@cache
def equal_width(settings: Settings) -> float:
    """The width, to a hundredth if it need not be whole, at which the plain network has as many weights as another.

    Args:
        settings: Of the other.
    """

    def plain(width: float) -> nn.Module:
        changes: dict[str, Any] = {"method": "cnn", "width": width}
        return task_of(replace(settings, **changes)).build()

    whole = settings.options()["width"].kind is int or getattr(settings, "counts_fields", False)
    with torch.random.fork_rng(()):
        return closest_width(plain, parameter_count(settings), whole)


def closest_width(build: Callable[[float], nn.Module], wanted: int, whole: bool) -> float:
    """The width, to a hundredth if it need not be whole, at which a network has so many weights, or nearly.

    Args:
        build: Makes it.
        wanted: Weights.
        whole: Whether it needs a whole number.
    """
    unit = 1 if whole else 100

    def count(parts: int) -> int:
        with torch.device("meta"):  # some of those that are tried are too large
            return weights_of(build(parts / unit))

    enough = 1
    while count(enough) < wanted:
        enough *= 2
    above = 1 + bisect_left(range(1, enough), wanted, key=count)
    return min(max(above - 1, 1), above, key=lambda width: abs(count(width) - wanted)) / unit


def measured(rows: Mapping[str, Settings], results: Mapping[str, str]) -> Cells:
    """Cells whose columns show several results of the same runs, by label."""
    return {(row, name): (one, result) for row, one in rows.items() for name, result in results.items()}


def varied(
    rows: Mapping[str, Settings], setting: str, values: Iterable[str | float], result: str = "test_accuracy"
) -> Cells:
    """Cells whose columns are values of one setting, which no other depends on."""
    changes: dict[str, dict[str, Any]] = {v if isinstance(v, str) else f"{v:g}": {setting: v} for v in values}
    return {(row, name): (replace(one, **changes[name]), result) for row, one in rows.items() for name in changes}


def method_rows(base: Settings, groups: Iterable[str], labels: Iterable[str]) -> dict[str, Settings]:
    """The plain network, and all methods over all groups."""
    pairs = [(group, label) for group in groups for label in labels]
    rows = {f"{group} {label}": replace(base, method=METHODS[label], group=group) for group, label in pairs}
    return {"CNN": replace(base, method="cnn"), **rows}


def bandlimit_rows(base: Settings, levels: Mapping[str, Iterable[int]]) -> dict[str, Settings]:
    """For every group the equivariant network, and P-SCNN for several band-limits."""
    rows: dict[str, Settings] = {}
    for group, several in levels.items():
        rows[f"{group} SCNN"] = replace(base, group=group, method="scnn")
        rows |= {f"{group} L = {level}": replace(base, group=group, bandlimit=level) for level in several}
    return rows


def picture(kind: str, title: str, rows: Mapping[str, Settings]) -> Sheet:
    """A figure of single networks."""
    return Sheet(title, None, measured(rows, {"": "test_accuracy"}), kind, seeds=1)

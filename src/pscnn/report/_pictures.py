"""Figures of trained networks, drawn from the runs of a sheet. A new kind is a case and a line in ``PICTURES``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pscnn import training
from pscnn._extras import require
from pscnn.data import read_arrays
from pscnn.densities import likelihoods
from pscnn.experiments import Sheet
from pscnn.likelihood import Likelihood
from pscnn.report._degree import degree_figure
from pscnn.report._density import seeds_figure
from pscnn.report._html import examples_of
from pscnn.report._results import (
    ablation_figure,
    asymmetry_figure,
    confusion_figure,
    counts_figure,
    kl_figure,
    tradeoff_figure,
    training_figure,
)
from pscnn.report._spheres import sphere_figure
from pscnn.training import RunError, Store, new_folder

Figures = dict[str, Any]
PICTURES = {
    "confusion": "confusion.npy",
    "degrees": "last.ckpt",
    "training": "metrics.jsonl",
    "spheres": "last.ckpt",
    "seeds": "last.ckpt",
    "kl": "metrics.jsonl",
    "fractions": "result.json",
    "counts": "result.json",
    "trade-off": "result.json",
    "asymmetry": "densities.npz",
}
"""The file that every run must have for a picture."""


def _draw(sheet: Sheet, folders: dict[tuple[str, str], list[Path]], data_dir: str | Path | None) -> Figures:
    """The figures of a sheet; in ``folders`` are the finished runs of every row's and column's seeds."""
    rows = {row: found for (row, _), found in folders.items()}
    firsts = {row: found[0] for row, found in rows.items()}
    match sheet.picture:
        case "training":
            return {"training": training_figure({row: training.history(run) for row, run in firsts.items()})}
        case "kl":
            return {sheet.title: kl_figure({row: [*map(training.history, found)] for row, found in rows.items()})}
        case "confusion":
            names = {row: training.read_task(run).class_names or () for row, run in firsts.items()}
            counts = {row: training.read_confusion(run, len(names[row])) for row, run in firsts.items()}
            return {row: confusion_figure(table, names[row]) for row, table in counts.items() if table is not None}
        case "fractions":
            return _fractions(sheet, folders)
        case "asymmetry":
            return _asymmetry(sheet, folders)
        case "counts":
            found: dict[str, dict[int, list[float]]] = {}
            for (row, column), done in folders.items():
                found.setdefault(row, {})[int(column.split()[-1])] = _results(sheet, row, column, done)
            return {sheet.title: counts_figure(found)}
        case "trade-off":
            points = _tradeoffs(sheet, folders)  # none of runs from before errors were measured
            return {sheet.title: tradeoff_figure(points)} if points else {}
    loaded = {row: [training.load(run) for run in found] for row, found in rows.items()}
    models = {row: [one.model for one in several] for row, several in loaded.items()}
    if sheet.picture == "seeds":
        return {sheet.title: seeds_figure(models, **sheet.options)}
    if sheet.picture == "spheres":
        return {"spheres": sphere_figure({row: [*likelihoods(m[0]).values()][1] for row, m in models.items()})}
    images = {row: examples_of(*several[0], data_dir)[0] for row, several in loaded.items()}
    return {row: degree_figure(models[row][0], images[row]) for row in models}


def _fractions(sheet: Sheet, folders: dict[tuple[str, str], list[Path]]) -> Figures:
    """Accuracy over the columns, one figure per data set; rows are named "method, data set"."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for (row, column), done in folders.items():
        method, dataset = row.rsplit(", ", 1)
        found.setdefault(dataset, {}).setdefault(method, {})[float(column)] = _results(sheet, row, column, done)
    return {dataset: ablation_figure(methods) for dataset, methods in found.items()}


def _tradeoffs(sheet: Sheet, folders: dict[tuple[str, str], list[Path]]) -> dict[str, list[tuple[float, float]]]:
    """Equivariance error and score of every finished run of every row."""
    found = {}
    for row in sheet.rows:
        runs = dict.fromkeys(folder for place in folders if place[0] == row for folder in folders[place])
        results = [training.read_result(folder) or {} for folder in runs]
        pairs = [(r.get("equivariance_error"), r["test_accuracy"]) for r in results if not training.diverged(r)]
        found[row] = [(error, score) for error, score in pairs if error is not None]
    return {row: pairs for row, pairs in found.items() if pairs}


def _asymmetry(sheet: Sheet, folders: dict[tuple[str, str], list[Path]]) -> Figures:
    """Errors and densities over the strength of each kind of asymmetry; what has none belongs to all kinds."""
    settings: dict[tuple[str, str], Any] = {place: sheet.cells[place][0] for place in folders}
    kinds = list(dict.fromkeys(one.asymmetry for one in settings.values()))
    errors: dict[str, dict[str, dict[float, list[float]]]] = {}
    departures: dict[str, dict[str, dict[float, list[float]]]] = {}
    for (row, column), done in folders.items():
        one = settings[row, column]
        for kind in [one.asymmetry] if one.asymmetry_strength else kinds:
            errors.setdefault(row, {}).setdefault(kind, {})[one.asymmetry_strength] = _results(sheet, row, column, done)
            if one.uses("bandlimit"):
                found = [_departure(folder, one) for folder in done]
                departures.setdefault(row, {}).setdefault(kind, {})[one.asymmetry_strength] = found
    return {sheet.title: asymmetry_figure(errors, departures)}


@torch.no_grad()
def _departure(folder: Path, settings: Any) -> float:
    """How far the density of a run that is farthest from uniform is from it: ½ ∫ |λ − 1|."""
    found = []
    for values in read_arrays(folder / "densities.npz").values():
        likelihood = Likelihood(settings.parsed_group, settings.bandlimit)
        likelihood.coefficients.copy_(torch.as_tensor(values))
        nodes, weights = likelihood.grid()
        found.append(0.5 * float((weights * np.abs(likelihood.density(nodes).numpy() - 1)).sum()))
    return max(found)


def _results(sheet: Sheet, row: str, column: str, folders: list[Path]) -> list[float]:
    """What a cell shows, of every finished run."""
    key = sheet.cells[row, column][1]
    return [(training.read_result(folder) or {})[key] for folder in folders]


def check_drawable(sheet: Sheet, store: Store) -> None:
    """Raise an error if a figure could not be drawn although all runs are finished."""
    require("matplotlib", "plots", "Drawing figures")
    for settings in sheet.runs(1):
        folder = store.folder(settings)
        if store.result(settings) is not None and not (folder / PICTURES[str(sheet.picture)]).exists():
            raise RunError(
                f"{folder} was imported from a results file; this figure needs more than its result: "
                "use another folder for runs"
            )


def draw_sheets(
    sheets: list[Sheet], store: Store, name: str, seeds: int = 1, data_dir: str | Path | None = None
) -> list[Path]:
    """Draw figures from finished runs into a new folder of the store, and return the files.

    Args:
        sheets: With a picture each.
        store: Where their runs are.
        name: Of the folder, in ``figures/``.
        seeds: How many runs there are of each cell.
        data_dir: Data folder, to measure equivariance errors on test images.
    """
    figures: Figures = {}
    for sheet in sheets:
        check_drawable(sheet, store)
        every = {place: sheet.of_seeds(one, seeds) for place, (one, _) in sheet.cells.items()}
        done = {place: [store.folder(o) for o in some if store.result(o) is not None] for place, some in every.items()}
        folders = {place: found for place, found in done.items() if found}
        if not folders:
            raise RunError(f"no run of {sheet.title!r} is finished")
        figures |= _draw(sheet, folders, data_dir)
    if not figures:
        return []
    folder = new_folder(store.root / "figures", name)
    out = []
    for label, figure in figures.items():
        for suffix in ("png", "svg"):
            out.append(folder / f"{re.sub('[^A-Za-z0-9]+', '-', label).strip('-')}.{suffix}")
            figure.savefig(out[-1], dpi=200)
    return out

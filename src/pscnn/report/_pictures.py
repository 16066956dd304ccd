"""Figures of trained networks, drawn from the runs of a sheet. A new kind is a function and a line in ``PICTURES``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pscnn import training
from pscnn._extras import require
from pscnn.densities import likelihoods
from pscnn.experiments import Sheet
from pscnn.report._degree import degree_figure
from pscnn.report._density import seeds_figure
from pscnn.report._html import read_run
from pscnn.report._results import ablation_figure, confusion_figure, kl_figure, training_figure
from pscnn.report._spheres import sphere_figure
from pscnn.training import RunError, Store, new_folder

Folders = dict[tuple[str, str], list[Path]]
"""For every row and column, the finished runs of its seeds."""
Figures = dict[str, Any]


class Picture(NamedTuple):
    """How a sheet is drawn, and the file that every run must have for it."""

    draw: Callable[[Sheet, Folders, str | Path | None], Figures]
    needs: str = "last.ckpt"


def _confusion(sheet: Sheet, folders: Folders, data_dir: str | Path | None) -> Figures:
    figures: Figures = {}
    for (row, _), (first, *_) in folders.items():
        names = training.read_task(first).class_names or ()
        counts = training.read_confusion(first, len(names))
        if counts is not None:
            figures[row] = confusion_figure(counts, names)
    return figures


def _degrees(sheet: Sheet, folders: Folders, data_dir: str | Path | None) -> Figures:
    read = {row: read_run(first, data_dir) for (row, _), (first, *_) in folders.items()}
    return {row: degree_figure(run["model"], run["images"]) for row, run in read.items()}


def _training(sheet: Sheet, folders: Folders, data_dir: str | Path | None) -> Figures:
    return {"training": training_figure({row: training.history(first) for (row, _), (first, *_) in folders.items()})}


def _spheres(sheet: Sheet, folders: Folders, data_dir: str | Path | None) -> Figures:
    models = {row: training.load(first).model for (row, _), (first, *_) in folders.items()}
    return {"spheres": sphere_figure({row: [*likelihoods(model).values()][1] for row, model in models.items()})}


def _seeds(sheet: Sheet, folders: Folders, data_dir: str | Path | None) -> Figures:
    models = {row: [training.load(folder).model for folder in found] for (row, _), found in folders.items()}
    return {sheet.title: seeds_figure(models, **sheet.options)}


def _kl(sheet: Sheet, folders: Folders, data_dir: str | Path | None) -> Figures:
    return {sheet.title: kl_figure({row: [training.history(f) for f in found] for (row, _), found in folders.items()})}


def _fractions(sheet: Sheet, folders: Folders, data_dir: str | Path | None) -> Figures:
    """Accuracy over the columns, one figure per data set; rows are named "method, data set"."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for (row, column), done in folders.items():
        method, dataset = row.rsplit(", ", 1)
        key = sheet.cells[row, column][1]
        values = [(training.read_result(folder) or {})[key] for folder in done]
        found.setdefault(dataset, {}).setdefault(method, {})[float(column)] = values
    return {dataset: ablation_figure(methods) for dataset, methods in found.items()}


PICTURES = {
    "confusion": Picture(_confusion, "confusion.npy"),
    "degrees": Picture(_degrees),
    "training": Picture(_training, "metrics.jsonl"),
    "spheres": Picture(_spheres),
    "seeds": Picture(_seeds),
    "kl": Picture(_kl, "metrics.jsonl"),
    "fractions": Picture(_fractions, "result.json"),
}


def check_drawable(sheet: Sheet, store: Store) -> None:
    """Raise an error if a figure could not be drawn although all runs are finished."""
    require("matplotlib", "plots", "Drawing figures")
    for settings in sheet.runs(1):
        folder = store.folder(settings)
        if store.result(settings) is not None and not (folder / PICTURES[str(sheet.picture)].needs).exists():
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
        folders = _folders(sheet, store, seeds)
        if not folders:
            raise RunError(f"no run of {sheet.title!r} is finished")
        figures |= PICTURES[str(sheet.picture)].draw(sheet, folders, data_dir)
    folder = new_folder(store.root / "figures", name)
    out = []
    for label, figure in figures.items():
        for suffix in ("png", "svg"):
            out.append(folder / f"{re.sub('[^A-Za-z0-9]+', '-', label).strip('-')}.{suffix}")
            figure.savefig(out[-1], dpi=200)
    return out


def _folders(sheet: Sheet, store: Store, seeds: int) -> Folders:
    out: Folders = {}
    for place, (one, _) in sheet.cells.items():
        runs = [replace(one, seed=one.seed + k) for k in range(min(seeds, sheet.seeds or seeds))]
        finished = [store.folder(run) for run in runs if store.result(run) is not None]
        if finished:
            out[place] = finished
    return out

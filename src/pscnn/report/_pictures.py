"""The paper's figures, drawn from the runs of ``experiments.SHEETS``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pscnn import training
from pscnn._extras import require
from pscnn.densities import likelihoods
from pscnn.experiments import Sheet, Store
from pscnn.report._degree import degree_figure
from pscnn.report._html import read_run
from pscnn.report._results import ablation_figure, confusion_figure, training_figure
from pscnn.report._spheres import sphere_figure
from pscnn.training._run import LAST, new_folder

_NEEDED = {"fractions": "result.json", "confusion": "confusion.npy", "training": "metrics.jsonl"}
"""What a run's folder must have for a picture; a checkpoint for the others."""


def check_drawable(sheet: Sheet, store: Store) -> None:
    """Raise an error if a figure could not be drawn although all runs are finished."""
    require("matplotlib", "plots", "Drawing figures")
    for config in sheet.runs(1):
        folder = store.folder(config)
        if store.result(config) is not None and not (folder / _NEEDED.get(str(sheet.picture), LAST)).exists():
            raise training.RunError(f"{folder} has a result only, from a file of results: use another folder for runs")


def draw_sheet(sheet: Sheet, store: Store, name: str, seeds: int = 1, data_dir: str | Path | None = None) -> list[Path]:
    """Draw a sheet's figures from its finished runs into a new folder of the store, and return the files.

    Args:
        sheet: One with a picture.
        store: Where its runs are.
        name: Of the folder, in ``figures/``.
        seeds: How many runs a point of "fractions" has; the others show the first seed.
        data_dir: Data folder, to measure equivariance errors on test images.
    """
    check_drawable(sheet, store)
    runs = {
        row: (config, store.folder(config))
        for (row, _), (config, _) in sheet.cells.items()
        if store.result(config) is not None
    }
    if not runs:
        raise training.RunError(f"no run of {sheet.title!r} is finished")
    if sheet.picture == "fractions":
        figures = _fractions(sheet, store, seeds)
    elif sheet.picture == "confusion":
        figures = {row: confusion_figure(np.load(f / "confusion.npy"), c.class_names) for row, (c, f) in runs.items()}
    elif sheet.picture == "degrees":
        read = {row: read_run(folder, data_dir) for row, (_, folder) in runs.items()}
        figures = {row: degree_figure(run["model"], run["images"]) for row, run in read.items()}
    elif sheet.picture == "training":
        figures = {"training": training_figure({row: training.history(folder) for row, (_, folder) in runs.items()})}
    else:
        models = {row: training.load(folder).model for row, (_, folder) in runs.items()}
        figures = {"spheres": sphere_figure({row: [*likelihoods(m).values()][1] for row, m in models.items()})}
    folder = new_folder(store.root / "figures", name)
    out = []
    for label, figure in figures.items():
        out.append(folder / f"{re.sub('[^A-Za-z0-9]+', '-', label).strip('-')}.png")
        figure.savefig(out[-1], dpi=200)
    return out


def _fractions(sheet: Sheet, store: Store, seeds: int) -> Mapping[str, Any]:
    """One figure per data set; rows are named "method, data set"."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for (row, column), (config, key) in sheet.cells.items():
        method, dataset = row.rsplit(", ", 1)
        values = [store.result(replace(config, seed=config.seed + k)) for k in range(seeds)]
        done = [value[key] for value in values if value is not None]
        if done:
            found.setdefault(dataset, {}).setdefault(method, {})[float(column)] = done
    return {dataset: ablation_figure(methods) for dataset, methods in found.items()}

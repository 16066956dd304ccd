"""The report of the experiments on vectors: tables beside the paper's, densities, KL divergence per epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from pscnn._extras import require
from pscnn.densities import likelihoods
from pscnn.experiments import Cell, Table, VectorConfig, cells, load_vectors
from pscnn.report._density import REFLECTIONS, ROTATIONS, density_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def cell_texts(cell: Cell) -> tuple[str, str]:
    """Ours and the paper's, as text; a star where they differ by more than two of its standard deviations."""
    paper = "" if cell.paper is None else f"{cell.paper[0]:.3f} ({cell.paper[1]:.3f})"
    return f"{cell.mean:.4f} ({cell.std:.4f}){' *' if cell.differs else ''}", paper


def _grid(table: Table, results: Mapping[VectorConfig, dict[str, Any]]) -> list[list[str]]:
    """The heads and the rows of a table as texts."""
    width = 2 if table.paper else 1
    out = [[table.title, *(head for column in table.columns for head in (column, "paper")[:width])]]
    for label, row in cells(table, dict(results)).items():
        out.append([label, *(text for column in table.columns for text in cell_texts(row[column])[:width])])
    return out


def markdown(table: Table, results: Mapping[VectorConfig, dict[str, Any]]) -> str:
    """A table as Markdown."""
    heads, *rows = (f"| {' | '.join(row)} |" for row in _grid(table, results))
    return "\n".join([heads, "|---" * (heads.count("|") - 1) + "|", *rows]) + "\n"


def text_table(table: Table, results: Mapping[VectorConfig, dict[str, Any]]) -> str:
    """A table for the terminal."""
    grid = _grid(table, results)
    widths = [max(len(row[k]) for row in grid) for k in range(len(grid[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in grid]
    return "\n".join(lines) + "\n"


def seeds_figure(networks: Mapping[str, Sequence[nn.Module]], layer: int = 0) -> Figure:
    """The density of one layer: a panel per entry, a line per network; rotations and reflections in two colours."""
    require("matplotlib", "plots", "Drawing densities")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.0 * len(networks) + 0.4, 2.6), layout="constrained")
    axes = figure.subplots(1, len(networks), squeeze=False)[0]
    for axis, (title, models) in zip(axes, networks.items(), strict=True):
        for number, model in enumerate(models):
            lam = list(likelihoods(model).values())[layer]
            for (kind, (angles, values)), colour in zip(
                density_curves(lam).items(), (ROTATIONS, REFLECTIONS), strict=False
            ):
                style = "-" if kind == "rotations" else "--"
                axis.plot(angles, values, color=colour, lw=1.0, ls=style, label=kind if number == 0 else None)
        axis.axhline(1, color="0.6", lw=0.8, ls=":")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("angle (°)", fontsize=8)
        axis.set_xticks([-180, -90, 0, 90, 180])
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("density λ", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def kl_figure(histories: Mapping[str, list[dict[str, list[float]]]]) -> Figure:
    """KL divergence between consecutive layers per epoch: the mean over the seeds, and their range."""
    require("matplotlib", "plots", "Drawing curves")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 2.8), layout="constrained")
    axis = figure.subplots()
    for (label, history), colour, style in zip(histories.items(), (ROTATIONS, REFLECTIONS), ("-", "--"), strict=False):
        values = np.array([epoch["kl"] for epoch in history])
        epochs = np.arange(1, len(values) + 1)
        axis.plot(epochs, values.mean(1), color=colour, ls=style, label=label)
        axis.fill_between(epochs, values.min(1), values.max(1), color=colour, alpha=0.2, lw=0)
    axis.set_yscale("log")
    axis.set_xlabel("epoch", fontsize=8)
    axis.set_ylabel("KL divergence (mean of the pairs)", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7, frameon=False)
    return figure


def vectors_report(
    tables: Mapping[str, Table], results: Mapping[VectorConfig, dict[str, Any]], folder: Path, place: Path
) -> list[Path]:
    """Write the tables as Markdown and the pictures as SVG and PNG; returns the files.

    Args:
        tables: From ``experiments.vector_tables``.
        results: Of all their experiments.
        folder: Where the experiments are.
        place: Where to write; files of an earlier report are replaced.
    """
    place.mkdir(parents=True, exist_ok=True)
    out = [place / "tables.md"]
    out[0].write_text("\n".join(markdown(table, results) for table in tables.values()), encoding="utf-8")
    if "kl" not in tables:
        return out
    base = dict(tables["kl"].rows)["with"]

    def networks(**changes: Any) -> list[nn.Module]:
        return load_vectors(replace(base, **changes), folder)

    pictures = {
        "shared": seeds_figure(
            {f"{t}, one density for all layers": networks(shared=True, target=t) for t in ("angle", "norm")}
        ),
        "second-layer": seeds_figure(
            {f"{t}, {n}": networks(target=t, nonlinearity=n) for t in ("angle", "norm") for n in ("gated", "fourier")},
            layer=1,
        ),
        "alignment": seeds_figure(
            {
                "with the alignment loss": networks(),
                "without": networks(align_weight=0.0),
            },
            layer=2,
        ),
        "kl": kl_figure(
            {
                "with the KL term": results[replace(base, target="norm")]["history"],
                "without": results[replace(base, target="norm", kl_weight=0.0)]["history"],
            }
        ),
    }
    for name, figure in pictures.items():
        for suffix in ("svg", "png"):
            out.append(place / f"{name}.{suffix}")
            figure.savefig(out[-1], dpi=150)
    return out

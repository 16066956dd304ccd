"""Pictures of results for print: confusion, training curves, accuracy over the amount of training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pscnn._extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Distinguishable with any kind of colour vision (Okabe and Ito); markers tell apart what colours cannot."""
MARKERS = "osD^vPX"
WRITTEN = 12
"""Up to this many classes the shares are written into the squares."""


def confusion_figure(counts: ArrayLike, names: Sequence[str] | None = None) -> Figure:
    """The share of each true class (row) that was given each label (column).

    Args:
        counts: Shape (classes, classes), rows are true classes.
        names: Of the classes; numbers by default.
    """
    require("matplotlib", "plots", "Drawing confusion matrices")
    from matplotlib.figure import Figure

    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"confusion_figure: needs a square table, got shape {table.shape}")
    if names is not None and len(names) != len(table):
        raise ValueError(f"confusion_figure: {len(table)} classes but {len(names)} names")
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    figure = Figure(figsize=(3.5, 3.1), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    size = len(table)
    ticks = range(0, size, next(step for step in (1, 2, 5, 10, 10 * size) if size <= WRITTEN * step))
    labels = [names[k] if names else str(k) for k in ticks]
    axis.set_xticks(ticks, labels, rotation=90 if names else 0, fontsize=7)
    axis.set_yticks(ticks, labels, fontsize=7)
    axis.set_xlabel("predicted class", fontsize=8)
    axis.set_ylabel("true class", fontsize=8)
    if size <= WRITTEN:
        for (row, column), share in np.ndenumerate(shares):
            if share >= 0.005:
                colour = "white" if share > 0.5 else "black"
                text = f"{100 * share:.0f}"
                axis.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
    bar = figure.colorbar(image, ax=axis, shrink=0.8)
    bar.set_label("share of the true class", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def training_figure(histories: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Accuracy, loss, and, of networks with densities, KL divergence and alignment error, per epoch.

    Args:
        histories: For each run's label, its epochs' metrics, as in ``metrics.jsonl``.
    """
    require("matplotlib", "plots", "Drawing curves")
    from matplotlib.figure import Figure

    panels = {
        "validation accuracy": "validation/accuracy",
        "training loss (task)": "train/task",
        "KL divergence": "train/kl",
        "alignment error": "train/alignment",
    }
    shown = {title: key for title, key in panels.items() if any(h and key in h[0] for h in histories.values())}
    if not shown:
        raise ValueError("training_figure: the histories have none of " + ", ".join(panels.values()))
    rows = -(-len(shown) // 2)
    figure = Figure(figsize=(7, 2.1 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, 2, squeeze=False).ravel()
    for axis, (title, key) in zip(grid, shown.items(), strict=False):
        for (label, history), colour in zip(histories.items(), COLOURS * 9, strict=False):
            rows_with = [row for row in history if key in row]
            epochs = [row["epoch"] + 1 for row in rows_with]
            axis.plot(epochs, [row[key] for row in rows_with], color=colour, lw=1.2, label=label)
        axis.set_ylim(bottom=0)
        axis.set_ylabel(title, fontsize=8)
        axis.set_xlabel("epoch", fontsize=8)
        _plain(axis)
    for axis in grid[len(shown) :]:
        axis.set_axis_off()
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    return figure


def ablation_figure(results: Mapping[str, Mapping[float, Sequence[float]]], examples: int | None = None) -> Figure:
    """Test accuracy over the share of the training data: the mean of the seeds, bars one standard deviation.

    Args:
        results: For each method's label, for each share in (0, 1], the accuracies of its seeds.
        examples: The size of the whole training set; the axis then counts examples.
    """
    require("matplotlib", "plots", "Drawing curves")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.5, 2.6), layout="constrained")
    axis = figure.subplots()
    for (label, found), colour, marker in zip(results.items(), COLOURS * 9, MARKERS * 9, strict=False):
        shares = sorted(found)
        if not shares or not all(found[share] for share in shares):
            raise ValueError(f"ablation_figure: {label} has no accuracies for some share")
        means = [np.mean(found[share]) for share in shares]
        spread = [float(np.std(found[share], ddof=1)) if len(found[share]) > 1 else 0.0 for share in shares]
        x = [share * (examples or 1) for share in shares]
        style: dict[str, Any] = {"marker": marker, "ms": 4, "lw": 1.2, "capsize": 2}
        axis.errorbar(x, means, spread, color=colour, label=label, **style)
    axis.set_xscale("log", base=2)
    ticks = sorted({share for found in results.values() for share in found})
    axis.set_xticks(
        [share * (examples or 1) for share in ticks],
        [f"{share * examples:.0f}" if examples else f"{share:g}" for share in ticks],
    )
    axis.minorticks_off()
    axis.set_xlabel("training examples" if examples else "share of the training data", fontsize=8)
    axis.set_ylabel("test accuracy", fontsize=8)
    axis.legend(fontsize=7, frameon=False)
    _plain(axis)
    return figure


def _plain(axis: Any) -> None:
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)

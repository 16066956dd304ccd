"""Pictures of results for print: confusion, training curves, accuracy over the amount of training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pscnn.report._style import ABOVE, COLOURS, Figure, label, panels

MARKERS = "osD^vPX"
WRITTEN = 12
"""Up to this many classes the shares are written into the squares."""


def confusion_figure(counts: ArrayLike, names: Sequence[str] | None = None) -> Figure:
    """The share of each true class (row) that was given each label (column).

    Args:
        counts: Shape (classes, classes), rows are true classes.
        names: Of the classes; numbers by default.
    """
    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"confusion_figure: needs a square table, got shape {table.shape}")
    if names is not None and len(names) != len(table):
        raise ValueError(f"confusion_figure: {len(table)} classes but {len(names)} names")
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    figure, ((axis,),) = panels("Drawing confusion matrices", 3.5, 3.1)
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
                style: dict[str, Any] = {"ha": "center", "va": "center", "color": "white" if share > 0.5 else "black"}
                axis.text(column, row, f"{100 * share:.0f}", fontsize=6, **style)
    bar = figure.colorbar(image, ax=axis, shrink=0.8)
    bar.set_label("share of the true class", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def training_figure(histories: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Accuracy, loss, and, of networks with densities, KL divergence and alignment error, per epoch.

    Args:
        histories: For each run's label, its epochs' metrics, as in ``metrics.jsonl``.
    """
    titles = {
        "validation accuracy": "validation/accuracy",
        "training loss (task)": "train/task",
        "KL divergence": "train/kl",
        "alignment error": "train/alignment",
    }
    shown = {title: key for title, key in titles.items() if any(h and key in h[0] for h in histories.values())}
    if not shown:
        raise ValueError("training_figure: the histories have none of " + ", ".join(titles.values()))
    rows = -(-len(shown) // 2)
    figure, grid = panels("Drawing curves", 7, 2.1 * rows + 0.3, rows, 2)
    for axis, (title, key) in zip(grid.flat, shown.items(), strict=False):
        for (name, history), colour in zip(histories.items(), COLOURS * 9, strict=False):
            points = {row["epoch"] + 1: row[key] for row in history if key in row}
            axis.plot([*points], [*points.values()], color=colour, lw=1.2, label=name)
        axis.set_ylim(bottom=0)
        label(axis, "epoch", title)
    for axis in grid.flat[len(shown) :]:
        axis.set_axis_off()
    figure.legend(*grid[0, 0].get_legend_handles_labels(), ncols=4, **ABOVE)
    return figure


def kl_figure(histories: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]) -> Figure:
    """KL divergence between consecutive layers per epoch: the mean over the seeds, and their range.

    Args:
        histories: For each label, of every seed its epochs' metrics, as in ``metrics.jsonl``.
    """
    figure, ((axis,),) = panels("Drawing curves", 4.2, 2.8)
    for (name, seeds), colour, style in zip(histories.items(), COLOURS, ("-", "--"), strict=False):
        values = np.array([[epoch["train/kl"] for epoch in history] for history in seeds])
        epochs = np.arange(1, values.shape[1] + 1)
        axis.plot(epochs, values.mean(0), color=colour, ls=style, label=name)
        axis.fill_between(epochs, values.min(0), values.max(0), color=colour, alpha=0.2, lw=0)
    axis.set_yscale("log")
    axis.legend(fontsize=7, frameon=False)
    label(axis, "epoch", "KL divergence (mean of the pairs)")
    return figure


def counts_figure(results: Mapping[str, Mapping[int, Sequence[float]]]) -> Figure:
    """Test accuracy over the number of training images per class: the mean of the seeds as a line, each as a point.

    A line has a gap where there is no run.

    Args:
        results: For each method's label, for each number, the accuracies of its seeds.
    """
    figure, ((axis,),) = panels("Drawing curves", 5, 2.8)
    ticks = sorted({count for found in results.values() for count in found})
    for (name, found), colour, marker in zip(results.items(), COLOURS * 9, MARKERS * 9, strict=False):
        axis.plot(ticks, [np.mean(found.get(count, np.nan)) for count in ticks], color=colour, lw=1.2)
        points = [(count, value) for count in ticks for value in found.get(count, ())]
        axis.plot(*zip(*points, strict=True), marker, color=colour, ms=3.5, alpha=0.7, mew=0)
        axis.plot([], [], marker=marker, color=colour, lw=1.2, ms=3.5, mew=0, label=name)
    axis.set_xscale("log")
    axis.set_xticks(ticks, map(str, ticks))
    axis.minorticks_off()
    figure.legend(loc="outside right center", fontsize=7, frameon=False)
    label(axis, "training images per class", "test accuracy")
    return figure


NEAR = 0.08
"""So far below the best accuracy a panel of its own goes."""


def tradeoff_figure(results: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Test accuracy against equivariance error: a point per run, a colour and a marker per method.

    Where some are far behind, the best are shown once more in a panel of their own.

    Args:
        results: For each method's label, the equivariance error and the accuracy of its runs.
    """
    if not results:
        raise ValueError("tradeoff_figure: no run has both an accuracy and an equivariance error")
    best = max(score for pairs in results.values() for _, score in pairs)
    near = {name: [pair for pair in pairs if pair[1] > best - NEAR] for name, pairs in results.items()}
    shown = [results, near] if near != dict(results) else [results]
    figure, (axes,) = panels("Drawing points", 2 + 3.2 * len(shown), 3.4, columns=len(shown))
    marks = [(colour, marker) for marker in MARKERS for colour in COLOURS]
    for axis, points in zip(axes, shown, strict=True):
        for k, (name, pairs) in enumerate(points.items()):
            colour, marker = marks[(k * (len(COLOURS) + 1)) % len(marks)]  # both change from one to the next
            found = tuple(zip(*pairs, strict=True)) or ((), ())
            name = name if axis is axes[0] else "_"  # once in the legend
            axis.plot(*found, marker, color=colour, ms=5, alpha=0.8, mew=0, label=name)
        label(axis, "equivariance error", "test accuracy")
    axes[0].set_xlim(left=-0.02 * axes[0].get_xlim()[1])
    for axis in axes[1:]:
        axis.set_title("the best of them", fontsize=8)
    figure.legend(loc="outside right center", fontsize=7, frameon=False)
    return figure


def ablation_figure(results: Mapping[str, Mapping[float, Sequence[float]]], examples: int | None = None) -> Figure:
    """Test accuracy over the share of the training data: the mean of the seeds, bars one standard deviation.

    Args:
        results: For each method's label, for each share in (0, 1], the accuracies of its seeds.
        examples: The size of the whole training set; the axis then counts examples.
    """
    figure, ((axis,),) = panels("Drawing curves", 3.5, 2.6)
    whole = examples or 1
    for (name, found), colour, marker in zip(results.items(), COLOURS * 9, MARKERS * 9, strict=False):
        shares = sorted(found)
        if not shares or not all(found[share] for share in shares):
            raise ValueError(f"ablation_figure: {name} has no accuracies for some share")
        means = [np.mean(found[share]) for share in shares]
        spread = [float(np.std(found[share], ddof=1)) if len(found[share]) > 1 else 0.0 for share in shares]
        style: dict[str, Any] = {"marker": marker, "ms": 4, "lw": 1.2, "capsize": 2, "color": colour}
        axis.errorbar([share * whole for share in shares], means, spread, label=name, **style)
    axis.set_xscale("log", base=2)
    ticks = [share * whole for share in sorted({share for found in results.values() for share in found})]
    axis.set_xticks(ticks, [f"{tick:.0f}" if examples else f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.legend(fontsize=7, frameon=False)
    label(axis, "training examples" if examples else "share of the training data", "test accuracy")
    return figure


def asymmetry_figure(
    errors: Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]],
    departures: Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]],
) -> Figure:
    """Errors over the strength of asymmetries, and below how far learnt densities depart from uniform ones.

    Lines are means over the seeds, points are seeds.

    Args:
        errors: For each method's label, kind of asymmetry and strength, the errors of its seeds.
        departures: The same of the densities: 0 for uniform ones, at most 1.
    """
    kinds = list(dict.fromkeys(kind for found in errors.values() for kind in found))
    figure, grid = panels("Drawing curves", 2.3 * len(kinds) + 0.6, 4.2, 2, len(kinds), sharey="row")
    looks = dict(zip(errors, zip(COLOURS * 9, MARKERS * 9, strict=True), strict=False))
    for column, kind in zip(grid.T, kinds, strict=True):
        strengths = sorted({strength for found in errors.values() for strength in found.get(kind, {})})
        places = {strength: k for k, strength in enumerate(strengths)}
        for axis, shown in zip(column, (errors, departures), strict=True):
            for name, found in shown.items():
                colour, marker = looks[name]
                known = [strength for strength in strengths if found.get(kind, {}).get(strength)]
                if not known:
                    continue
                means = [np.mean(found[kind][strength]) for strength in known]
                axis.plot([places[strength] for strength in known], means, color=colour, lw=1.2)
                points = [(places[strength], value) for strength in known for value in found[kind][strength]]
                axis.plot(*zip(*points, strict=True), marker, color=colour, ms=3.5, alpha=0.7, mew=0)
                axis.plot([], [], marker=marker, color=colour, lw=1.2, ms=3.5, mew=0, label=name)
            axis.set_xticks(range(len(strengths)), [f"{100 * strength:g}" for strength in strengths])
            label(axis)
        column[0].set_title(kind, fontsize=9)
        label(column[1], "strength (%)")
    for axis in grid[:, 0]:  # which all panels of a row share, when all is drawn
        axis.set_ylim(bottom=0)
    label(grid[0, 0], "", "relative error")
    label(grid[1, 0], "strength (%)", "density: largest departure\nof a layer from uniform")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), ncols=4, **ABOVE)
    return figure

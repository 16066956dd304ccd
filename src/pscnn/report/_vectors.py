"""Pictures of the experiments on vectors: densities of many seeds, KL divergence per epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from pscnn._extras import require
from pscnn.densities import likelihoods
from pscnn.report._density import REFLECTIONS, ROTATIONS, density_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def kl_figure(histories: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]) -> Figure:
    """KL divergence between consecutive layers per epoch: the mean over the seeds, and their range.

    Args:
        histories: For each label, of every seed its epochs' metrics, as in ``metrics.jsonl``.
    """
    require("matplotlib", "plots", "Drawing curves")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 2.8), layout="constrained")
    axis = figure.subplots()
    for (label, seeds), colour, style in zip(histories.items(), (ROTATIONS, REFLECTIONS), ("-", "--"), strict=False):
        values = np.array([[epoch["train/kl"] for epoch in history] for history in seeds])
        epochs = np.arange(1, values.shape[1] + 1)
        axis.plot(epochs, values.mean(0), color=colour, ls=style, label=label)
        axis.fill_between(epochs, values.min(0), values.max(0), color=colour, alpha=0.2, lw=0)
    axis.set_yscale("log")
    axis.set_xlabel("epoch", fontsize=8)
    axis.set_ylabel("KL divergence (mean of the pairs)", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7, frameon=False)
    return figure

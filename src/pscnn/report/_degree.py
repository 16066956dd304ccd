"""Density and measured error side by side: is what the network says about itself true?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._extras import require
from pscnn._types import AnyArray, Array
from pscnn.densities import LayerError, layer_errors, likelihoods
from pscnn.groups import MIRROR, Group, rotation
from pscnn.likelihood import Likelihood
from pscnn.nn import SteerableMap
from pscnn.report._density import REFLECTIONS, ROTATIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plane_elements(group: Group, points: int = 48) -> tuple[Array, Array, AnyArray]:
    """Elements of a group of the plane with their angles in degrees and whether they reflect.

    Finite groups give all elements; continuous ones ``points`` rotations and, if they have them, as many reflections.
    """
    if group.dimension != 2:
        raise ValueError(f"needs a group of the plane, got {group.name}")
    count = group.rotations.order or points
    angles = 2 * np.pi * np.arange(count) / count
    elements, degrees, mirrored = rotation(angles), np.degrees(angles), np.zeros(count, dtype=bool)
    if group.has_reflections:
        elements = np.concatenate([elements, elements @ MIRROR])
        degrees, mirrored = np.tile(degrees, 2), np.repeat([False, True], count)
    return elements, degrees, mirrored


@torch.no_grad()
def agreement(likelihood: Likelihood, errors: LayerError, elements: Array) -> float:
    """Spearman's rank correlation of density and error: −1 where the density is the lower, the larger the error.

    Not a number where one of them is constant, as for a uniform density.
    """
    from scipy.stats import spearmanr  # takes longer to import than all of pscnn

    density, error = likelihood.density(elements).cpu().numpy(), errors.error.cpu().numpy()
    if np.ptp(density) < 1e-6 or np.ptp(error) < 1e-6:
        return float("nan")
    return float(spearmanr(density, error).statistic)


def degree_figure(model: nn.Module, x: Tensor, points: int = 48) -> Figure:
    """One row per layer: the learnt density (solid) and the equivariance error (dashed).

    Rotations are on the left, reflections (a rotation after the left–right mirror) on the right. The number in the
    corner is their rank correlation.

    Args:
        model: A network with densities on groups of the plane.
        x: A batch of its inputs.
        points: Angles per domain for continuous groups.
    """
    require("matplotlib", "plots", "Drawing densities")
    from matplotlib.figure import Figure

    owners = {id(lam): name for name, lam in likelihoods(model).items()}
    layers = {name: m for name, m in model.named_modules() if id(getattr(m, "likelihood", None)) in owners}
    if not layers:
        raise ValueError("this model has no learnt densities to draw")
    group = next(iter(layers.values())).likelihood.group
    elements, degrees, mirrored = plane_elements(group, points)
    errors = layer_errors(model, x, elements, on_grid=False)
    domains = [(~mirrored, "rotations")] + ([(mirrored, "reflections")] if mirrored.any() else [])
    figure = Figure(figsize=(3.5 * len(domains), 1.25 * len(errors) + 0.6), layout="constrained")
    grid = figure.subplots(len(errors), len(domains), squeeze=False, sharex=True, sharey="row")
    for number, (row, (name, error)) in enumerate(zip(grid, errors.items(), strict=True), 1):
        lam = layers[name].likelihood
        with torch.no_grad():
            density = lam.density(elements).cpu().numpy()
        measured = error.error.cpu().numpy()
        highest = max(1.15 * measured.max(), 1e-3)
        for axis, (where, title) in zip(row, domains, strict=True):
            marker = "o" if group.order is not None else None
            axis.plot(degrees[where], density[where], color=ROTATIONS, lw=1.5, marker=marker, ms=4)
            axis.axhline(1, color="0.6", lw=0.8, ls=":")
            axis.set_ylim(0, 1.1 * max(density.max(), 1))
            axis.tick_params(labelsize=7)
            other = axis.twinx()
            other.plot(degrees[where], measured[where], color=REFLECTIONS, lw=1.2, ls="--", marker=marker, ms=3)
            other.set_ylim(0, highest)
            other.tick_params(labelsize=7, labelright=axis is row[-1])
            for panel in (axis, other):
                panel.spines["top"].set_visible(False)
            if axis is grid[0][list(row).index(axis)]:
                axis.set_title(title, fontsize=9)
        row[0].set_ylabel(f"layer {number} ({name})", fontsize=8)
        value = agreement(lam, error, elements)
        text = "uniform" if np.isnan(value) else f"ρ = {value:.2f}"
        row[-1].annotate(text, (0.98, 0.06), xycoords="axes fraction", ha="right", fontsize=7)
    for axis in grid[-1]:
        axis.set_xlabel("angle (°)", fontsize=8)
        axis.set_xticks([0, 90, 180, 270])
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=ROTATIONS, lw=1.5, label="density λ (left axes)"),
        Line2D([], [], color=REFLECTIONS, lw=1.2, ls="--", label="equivariance error (right axes)"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(domains), fontsize=8, frameon=False)
    return figure


def agreement_figure(model: nn.Module, x: Tensor, points: int = 48) -> Figure:
    """One panel per layer: the equivariance error against the density, a point per random element of any group.

    Elements that keep orientation are dots, the others crosses. The number in the corner is the rank correlation.

    Args:
        model: A network with densities.
        x: A batch of its inputs.
        points: How many elements.
    """
    require("matplotlib", "plots", "Drawing densities")
    from matplotlib.figure import Figure

    layers = {
        name: module.likelihood
        for name, module in model.named_modules()
        if isinstance(module, SteerableMap) and module.likelihood is not None
    }
    if not layers:
        raise ValueError("this model has no learnt densities to draw")
    group = next(iter(layers.values())).group
    elements = group.sample(points, seed=0)
    errors = layer_errors(model, x, elements, on_grid=False)
    kept = np.linalg.det(elements) > 0
    columns = min(3, len(errors))
    rows = -(-len(errors) // columns)
    figure = Figure(figsize=(2.35 * columns, 2.1 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for number, (axis, (name, error)) in enumerate(zip(grid, errors.items(), strict=False), 1):
        with torch.no_grad():
            density = layers[name].density(elements).cpu().numpy()
        measured = error.error.cpu().numpy()
        for which, colour, marker, label in (
            (kept, ROTATIONS, "o", "rotations"),
            (~kept, REFLECTIONS, "x", "with a reflection"),
        ):
            if which.any():
                axis.plot(density[which], measured[which], marker, color=colour, ms=3, ls="", label=label)
        axis.set_title(f"layer {number} ({name})", fontsize=8)
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel("density λ", fontsize=8)
        value = agreement(layers[name], error, elements)
        text = "uniform" if np.isnan(value) else f"ρ = {value:.2f}"
        axis.annotate(text, (0.05, 0.06), xycoords="axes fraction", fontsize=7)
    for axis in grid[len(errors) :]:
        axis.set_axis_off()
    grid[0].set_ylabel("equivariance error", fontsize=8)
    legend = {"loc": "outside upper center", "ncols": 2 if columns > 1 else 1, "fontsize": 8, "frameon": False}
    figure.legend(*grid[0].get_legend_handles_labels(), **legend)
    return figure

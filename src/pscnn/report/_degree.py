"""Density and measured error side by side: is what the network says about itself true?"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._types import AnyArray, Array
from pscnn.densities import LayerError, layer_errors
from pscnn.groups import MIRROR, Group, rotation
from pscnn.likelihood import Likelihood
from pscnn.nn import SteerableMap
from pscnn.report._style import ABOVE, COLOURS, Figure, label, panels


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


def _densities(model: nn.Module) -> dict[str, Likelihood]:
    """Of every layer that has one."""
    modules = model.named_modules()
    found = {name: m.likelihood for name, m in modules if isinstance(m, SteerableMap) and m.likelihood is not None}
    if not found:
        raise ValueError("this model has no learnt densities to draw")
    return found


@torch.no_grad()
def _measure(
    model: nn.Module, densities: dict[str, Likelihood], x: Tensor, elements: Array
) -> list[tuple[str, AnyArray, AnyArray, str]]:
    """Of every layer its name, density and error at some elements, and their rank correlation in words."""
    out = []
    for number, (name, errors) in enumerate(layer_errors(model, x, elements, on_grid=False).items(), 1):
        value = agreement(densities[name], errors, elements)
        both = densities[name].density(elements).cpu().numpy(), errors.error.cpu().numpy()
        out.append((f"layer {number} ({name})", *both, "uniform" if np.isnan(value) else f"ρ = {value:.2f}"))
    return out


def degree_figure(model: nn.Module, x: Tensor, points: int = 48) -> Figure:
    """One row per layer: the learnt density (solid) and the equivariance error (dashed).

    Rotations are on the left, reflections (a rotation after the left–right mirror) on the right. The number in the
    corner is their rank correlation.

    Args:
        model: A network with densities on groups of the plane.
        x: A batch of its inputs.
        points: Angles per domain for continuous groups.
    """
    densities = _densities(model)
    group = next(iter(densities.values())).group
    elements, degrees, mirrored = plane_elements(group, points)
    layers = _measure(model, densities, x, elements)
    domains = {"rotations": ~mirrored} | ({"reflections": mirrored} if mirrored.any() else {})
    size, shape = (3.5 * len(domains), 1.25 * len(layers) + 0.6), (len(layers), len(domains))
    figure, grid = panels("Drawing densities", *size, *shape, sharex=True, sharey="row")
    marker = "o" if group.order is not None else None
    solid, dashed = {"color": COLOURS[0], "lw": 1.5}, {"color": COLOURS[1], "lw": 1.2, "ls": "--"}
    for row, (name, density, error, correlation) in zip(grid, layers, strict=True):
        for axis, where in zip(row, domains.values(), strict=True):
            axis.plot(degrees[where], density[where], marker=marker, ms=4, **solid)
            axis.axhline(1, color="0.6", lw=0.8, ls=":")
            axis.set_ylim(0, 1.1 * max(density.max(), 1))
            axis.tick_params(labelsize=7)
            other = axis.twinx()
            other.plot(degrees[where], error[where], marker=marker, ms=3, **dashed)
            other.set_ylim(0, max(1.15 * error.max(), 1e-3))
            other.tick_params(labelsize=7, labelright=axis is row[-1])
            for panel in (axis, other):
                panel.spines["top"].set_visible(False)
        row[0].set_ylabel(name, fontsize=8)
        row[-1].annotate(correlation, (0.98, 0.06), xycoords="axes fraction", ha="right", fontsize=7)
    for top, bottom, title in zip(grid[0], grid[-1], domains, strict=True):
        top.set_title(title, fontsize=9)
        bottom.set_xlabel("angle (°)", fontsize=8)
        bottom.set_xticks([0, 90, 180, 270])
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **solid), Line2D([], [], **dashed)]  # type: ignore[arg-type]
    names = ["density λ (left axes)", "equivariance error (right axes)"]
    figure.legend(handles, names, ncols=len(domains), **ABOVE)
    return figure


def agreement_figure(model: nn.Module, x: Tensor, points: int = 48) -> Figure:
    """One panel per layer: the equivariance error against the density, a point per random element of any group.

    Elements that keep orientation are dots, the others crosses. The number in the corner is the rank correlation.

    Args:
        model: A network with densities.
        x: A batch of its inputs.
        points: How many elements.
    """
    densities = _densities(model)
    elements = next(iter(densities.values())).group.sample(points, seed=0)
    layers = _measure(model, densities, x, elements)
    kept = np.linalg.det(elements) > 0
    columns = min(3, len(layers))
    rows = -(-len(layers) // columns)
    figure, grid = panels("Drawing densities", 2.35 * columns, 2.1 * rows + 0.3, rows, columns)
    kinds = ((kept, COLOURS[0], "o", "rotations"), (~kept, COLOURS[1], "x", "with a reflection"))
    for axis, (title, density, error, correlation) in zip(grid.flat, layers, strict=False):
        for which, colour, marker, name in kinds:
            if which.any():
                axis.plot(density[which], error[which], marker, color=colour, ms=3, ls="", label=name)
        axis.set_title(title, fontsize=8)
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
        label(axis, "density λ")
        axis.annotate(correlation, (0.05, 0.06), xycoords="axes fraction", fontsize=7)
    for axis in grid.flat[len(layers) :]:
        axis.set_axis_off()
    grid[0, 0].set_ylabel("equivariance error", fontsize=8)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), ncols=min(2, columns), **ABOVE)
    return figure

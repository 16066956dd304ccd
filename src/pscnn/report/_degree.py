"""Measured errors of layers, beside their densities: is what the network says about itself true?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._types import AnyArray, Array
from pscnn.densities import LayerError, degree, layer_errors, typed_layers
from pscnn.groups import MIRROR, Group, rotation
from pscnn.likelihood import Likelihood
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


class _Layer(NamedTuple):
    """What is drawn of a layer: its name, its density, if it has one, and its error at some elements, and a remark."""

    title: str
    density: AnyArray | None
    error: AnyArray
    remark: str


def _group(model: nn.Module) -> Group:
    """Of the layers that can be drawn."""
    for layer in typed_layers(model).values():
        return layer.in_type.group
    raise ValueError("this model has no learnt densities, and no layers between fields, to draw")


@torch.no_grad()
def _measure(model: nn.Module, x: Tensor, elements: Array) -> list[_Layer]:
    """Layers with their errors; beside a density, their rank correlation, else the share that is not equivariant."""
    out, modules, shares = [], dict(model.named_modules()), degree(model)
    for number, (name, errors) in enumerate(layer_errors(model, x, elements, on_grid=False).items(), 1):
        title, error = f"layer {number} ({name})", errors.error.cpu().numpy()
        likelihood = getattr(modules[name], "likelihood", None)
        if isinstance(likelihood, Likelihood):
            value, density = agreement(likelihood, errors, elements), likelihood.density(elements).cpu().numpy()
            out.append(_Layer(title, density, error, "uniform" if np.isnan(value) else f"ρ = {value:.2f}"))
        else:
            out.append(_Layer(title, None, error, f"{shares[name]:.0%} not equivariant"))
    return out


def degree_figure(model: nn.Module, x: Tensor, points: int = 48) -> Figure:
    """One row per layer: the learnt density (solid), if there is one, and the equivariance error (dashed).

    Rotations are on the left, reflections (a rotation after the left–right mirror) on the right. The number in the
    corner is their rank correlation; without densities, the share of the kernel that is not equivariant.

    Args:
        model: A network with layers between fields of a group of the plane.
        x: A batch of its inputs.
        points: Angles per domain for continuous groups.
    """
    group = _group(model)
    elements, degrees, mirrored = plane_elements(group, points)
    layers = _measure(model, x, elements)
    learnt = any(layer.density is not None for layer in layers)
    domains = {"rotations": ~mirrored} | ({"reflections": mirrored} if mirrored.any() else {})
    size, shape = (3.5 * len(domains), 1.25 * len(layers) + 0.6), (len(layers), len(domains))
    figure, grid = panels("Drawing densities", *size, *shape, sharex=True, sharey="row")
    marker = "o" if group.order is not None else None
    solid, dashed = {"color": COLOURS[0], "lw": 1.5}, {"color": COLOURS[1], "lw": 1.2, "ls": "--"}
    for row, layer in zip(grid, layers, strict=True):
        for axis, where in zip(row, domains.values(), strict=True):
            other = axis
            if learnt and layer.density is not None:
                axis.plot(degrees[where], layer.density[where], marker=marker, ms=4, **solid)
                axis.axhline(1, color="0.6", lw=0.8, ls=":")
                axis.set_ylim(0, 1.1 * max(layer.density.max(), 1))
                axis.tick_params(labelsize=7)
                other = axis.twinx()
            other.plot(degrees[where], layer.error[where], marker=marker, ms=3, **dashed)
            other.set_ylim(0, max(1.15 * layer.error.max(), 1e-3))
            other.tick_params(labelsize=7, labelright=axis is row[-1] and other is not axis)
            for panel in (axis, other):
                panel.spines["top"].set_visible(False)
                panel.spines["right"].set_visible(other is not axis)
        row[0].set_ylabel(layer.title, fontsize=8)
        row[-1].annotate(layer.remark, (0.98, 0.06), xycoords="axes fraction", ha="right", fontsize=7)
    for top, bottom, title in zip(grid[0], grid[-1], domains, strict=True):
        top.set_title(title, fontsize=9)
        bottom.set_xlabel("angle (°)", fontsize=8)
        bottom.set_xticks([0, 90, 180, 270])
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **solid), Line2D([], [], **dashed)][not learnt :]  # type: ignore[arg-type]
    names = ["density λ (left axes)", "equivariance error (right axes)"] if learnt else ["equivariance error"]
    figure.legend(handles, names, ncols=len(domains), **ABOVE)
    return figure


def agreement_figure(model: nn.Module, x: Tensor, points: int = 48) -> Figure:
    """One panel per layer: the equivariance error against the density, a point per random element of any group.

    Elements that keep orientation are dots, the others crosses. The number in the corner is the rank correlation. Of
    layers without a density the error is drawn against the angle of the rotation, and the number is the share of the
    kernel that is not equivariant.

    Args:
        model: A network with layers between fields.
        x: A batch of its inputs.
        points: How many elements.
    """
    elements = _group(model).sample(points, seed=0)
    layers = _measure(model, x, elements)
    kept = np.linalg.det(elements) > 0
    turned = np.degrees(np.arccos(np.clip(_cosine(elements, kept), -1, 1)))
    columns = min(3, len(layers))
    rows = -(-len(layers) // columns)
    figure, grid = panels("Drawing densities", 2.35 * columns, 2.1 * rows + 0.3, rows, columns)
    kinds = ((kept, COLOURS[0], "o", "rotations"), (~kept, COLOURS[1], "x", "with a reflection"))
    for axis, layer in zip(grid.flat, layers, strict=False):
        across = turned if layer.density is None else layer.density
        for which, colour, marker, name in kinds:
            if which.any():
                axis.plot(across[which], layer.error[which], marker, color=colour, ms=3, ls="", label=name)
        axis.set_title(layer.title, fontsize=8)
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
        label(axis, "angle (°)" if layer.density is None else "density λ")
        axis.annotate(layer.remark, (0.05, 0.06), xycoords="axes fraction", fontsize=7)
    for axis in grid.flat[len(layers) :]:
        axis.set_axis_off()
    grid[0, 0].set_ylabel("equivariance error", fontsize=8)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), ncols=min(2, columns), **ABOVE)
    return figure


def _cosine(elements: Array, rotations: AnyArray) -> Array:
    """Of the angle of a rotation; in space a reflection is one after −1, in the plane it has none."""
    trace = np.trace(elements, axis1=1, axis2=2)
    if elements.shape[1] == 2:
        return np.where(rotations, trace / 2, 1.0)
    return np.asarray((np.where(rotations, trace, -trace) - 1) / 2)

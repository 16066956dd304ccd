"""Pictures of densities on groups of the plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from pscnn._extras import require
from pscnn._types import Array
from pscnn.densities import likelihoods
from pscnn.groups import MIRROR, Axial, Group, PlanarGroup, rotation
from pscnn.likelihood import Likelihood
from pscnn.report._spheres import sphere_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROTATIONS, REFLECTIONS = "#0072B2", "#D55E00"  # distinguishable with any kind of colour vision


def planar(group: Group) -> PlanarGroup | None:
    """The group of the plane that a group is, perhaps about an axis in space; None for the others."""
    return group.planar


@torch.no_grad()
def density_curves(likelihood: Likelihood, points: int = 181) -> dict[str, tuple[Array, Array]]:
    """λ over rotation angles (degrees), for rotations and, if H has them, for reflections R(θ)·mirror.

    Finite groups give their elements, continuous ones ``points`` angles from −180° to 180°.
    """
    group = likelihood.group if likelihood.support is None else likelihood.support
    if group.planar is None:
        raise ValueError(f"curves exist for groups of the plane, not for {group.name}")
    count = group.planar.n
    angles = np.linspace(-np.pi, np.pi, points) if count is None else 2 * np.pi * np.arange(count) / count
    out = {}
    for name, factor in (("rotations", np.eye(2)), ("reflections", MIRROR)):
        if name == "rotations" or group.planar.has_reflections:
            elements = rotation(angles) @ factor
            lifted = group.lift(elements) if isinstance(group, Axial) else elements
            out[name] = (np.degrees(angles), likelihood.density(lifted).cpu().double().numpy())
    return out


def density_figure(model: nn.Module) -> Figure:
    """One panel per learnt density, rotations and reflections in two colours; uniform is the dotted line at 1.

    Densities on SO(3) and O(3) are drawn as maps of axes, see ``sphere_figure``.
    """
    require("matplotlib", "plots", "Drawing densities")
    from matplotlib.figure import Figure

    everything = likelihoods(model)
    found = {name: lam for name, lam in everything.items() if lam.group.planar is not None}
    if everything and not found:
        return sphere_figure({f"layer {k}": lam for k, lam in enumerate(everything.values(), 1)})
    if not found:
        raise ValueError("this model has no learnt densities to draw")
    figure = Figure(figsize=(2.1 * len(found) + 0.4, 2.3), layout="constrained")
    axes = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    highest = 1.0
    for number, (axis, (name, lam)) in enumerate(zip(axes, found.items(), strict=True), 1):
        curves = density_curves(lam)
        for (kind, (angles, values)), colour in zip(curves.items(), (ROTATIONS, REFLECTIONS), strict=False):
            highest = max(highest, values.max())
            if _is_finite(lam):
                shift = 0 if len(curves) == 1 else -6 if kind == "rotations" else 6
                axis.bar(angles + shift, values, width=12, color=colour, label=kind)
            else:
                axis.plot(angles, values, color=colour, lw=1.6, ls="-" if kind == "rotations" else "--", label=kind)
        axis.axhline(1, color="0.6", lw=0.8, ls=":")
        axis.set_title(f"layer {number} ({name})", fontsize=9)
        axis.set_xlabel("angle (°)", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xticks([0, 90, 180, 270] if _is_finite(lam) else [-180, -90, 0, 90, 180])
    axes[0].set_ylim(0, 1.1 * highest)
    axes[0].set_ylabel("density λ", fontsize=8)
    most = max(axes, key=lambda axis: len(axis.get_legend_handles_labels()[1]))
    if len(most.get_legend_handles_labels()[1]) > 1:
        most.legend(fontsize=7, frameon=False)
    return figure


def _is_finite(lam: Likelihood) -> bool:
    return lam.group.order is not None

"""Pictures of densities on groups of the plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from pscnn._types import Array
from pscnn.densities import likelihoods
from pscnn.groups import MIRROR, Axial, rotation
from pscnn.likelihood import Likelihood
from pscnn.report._spheres import sphere_figure
from pscnn.report._style import STYLES, Figure, label, panels

_BLOCKS = " ▁▂▃▄▅▆▇█"


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
    factors = {"rotations": np.eye(2)} | ({"reflections": MIRROR} if group.planar.has_reflections else {})
    out = {}
    for kind, factor in factors.items():
        elements = rotation(angles) @ factor
        lifted = group.lift(elements) if isinstance(group, Axial) else elements
        out[kind] = (np.degrees(angles), likelihood.density(lifted).cpu().double().numpy())
    return out


def _over_angles(axis: Any, title: str, finite: bool = False) -> None:
    axis.axhline(1, color="0.6", lw=0.8, ls=":")
    axis.set_title(title, fontsize=9)
    axis.set_xticks([0, 90, 180, 270] if finite else [-180, -90, 0, 90, 180])
    label(axis, "angle (°)")


def density_figure(model: nn.Module) -> Figure:
    """One panel per learnt density, rotations and reflections in two colours; uniform is the dotted line at 1.

    Densities on SO(3) and O(3) are drawn as maps of axes, see ``sphere_figure``.
    """
    everything = likelihoods(model)
    found = {name: lam for name, lam in everything.items() if lam.group.planar is not None}
    if everything and not found:
        return sphere_figure({f"layer {k}": lam for k, lam in enumerate(everything.values(), 1)})
    if not found:
        raise ValueError("this model has no learnt densities to draw")
    figure, (axes,) = panels("Drawing densities", 2.1 * len(found) + 0.4, 2.3, 1, len(found), sharey=True)
    highest = 1.0
    for number, (axis, (name, lam)) in enumerate(zip(axes, found.items(), strict=True), 1):
        finite, curves = lam.group.order is not None, density_curves(lam)
        for kind, (angles, values) in curves.items():
            colour, line = STYLES[kind]
            highest = max(highest, values.max())
            if finite:
                shift = 0 if len(curves) == 1 else -6 if kind == "rotations" else 6
                axis.bar(angles + shift, values, width=12, color=colour, label=kind)
            else:
                axis.plot(angles, values, color=colour, lw=1.6, ls=line, label=kind)
        _over_angles(axis, f"layer {number} ({name})", finite)
    axes[0].set_ylim(0, 1.1 * highest)
    axes[0].set_ylabel("density λ", fontsize=8)
    most = max(axes, key=lambda axis: len(axis.get_legend_handles_labels()[1]))
    if len(most.get_legend_handles_labels()[1]) > 1:
        most.legend(fontsize=7, frameon=False)
    return figure


def seeds_figure(networks: Mapping[str, Sequence[nn.Module]], layer: int = 0) -> Figure:
    """The density of one layer: a panel per entry, a line per network; rotations and reflections in two colours."""
    figure, (axes,) = panels("Drawing densities", 3.0 * len(networks) + 0.4, 2.6, 1, len(networks))
    for axis, (title, models) in zip(axes, networks.items(), strict=True):
        for number, model in enumerate(models):
            for kind, (angles, values) in density_curves([*likelihoods(model).values()][layer]).items():
                colour, line = STYLES[kind]
                axis.plot(angles, values, color=colour, lw=1.0, ls=line, label=None if number else kind)
        _over_angles(axis, title)
    axes[0].set_ylabel("density λ", fontsize=8)
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def density_chart(model: nn.Module, width: int = 37) -> str:
    """One line per layer: λ over the angle, for rotations and reflections, on one scale for all layers."""
    curves = [density_curves(lam, width) for lam in likelihoods(model).values() if lam.group.planar is not None]
    if not curves:
        return "no learnt densities on groups of the plane"
    top = max(float(values.max()) for found in curves for _, values in found.values())
    heads = (f"{kind}, {angles[0]:.0f}° … {angles[-1]:.0f}°" for kind, (angles, _) in curves[0].items())
    lines = ["layer " + "   ".join(head.ljust(width) for head in heads)]
    for number, found in enumerate(curves, 1):
        heights = (np.rint(values / top * (len(_BLOCKS) - 1)).astype(int).clip(1) for _, values in found.values())
        lines.append(f"{number:>5} " + "   ".join("".join(_BLOCKS[h] for h in row).ljust(width) for row in heights))
    lines.append(f"full height is λ = {top:.2f}; uniform is 1")
    if any("reflections" in found for found in curves):
        lines.append("reflections: the left–right mirror, turned by the angle; at ±180° it is the top–bottom mirror")
    return "\n".join(lines)

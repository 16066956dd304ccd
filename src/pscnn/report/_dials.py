"""Dials for papers: what each layer kept of a group of the plane, as the report shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from pscnn.densities import KEPT, layer_summaries, likelihoods
from pscnn.groups import explored
from pscnn.report._phrases import kept_words
from pscnn.report._spheres import sphere_figure
from pscnn.report._style import Figure, panels

LOST, HALF, WHOLE = "#b8480f", "#b3b3b3", "#0b64a3"
RINGS = ((0.62, 0.38), (0.16, 0.38))
"""Where the rings of rotations and of mirrors begin, and how high they are."""


@torch.no_grad()
def dial_figure(model: nn.Module, columns: int = 6) -> Figure:
    """A dial per density on a group of the plane; save it as PDF, SVG or PNG.

    Outer ring: rotations, 0° at the top, counter-clockwise. Inner ring: mirrors, each along its mirror line. Height and
    colour are λ(h) / max λ; from the dashed circle on an element counts as kept. Densities on SO(3) and O(3) are drawn
    as maps of axes, see ``sphere_figure``.

    Args:
        model: A network with densities.
        columns: Dials beside each other.
    """
    everything = likelihoods(model)
    rows = [row for row in layer_summaries(model) if everything[row.name].group.planar is not None]
    if everything and not rows:
        return sphere_figure({f"layer {k}": lam for k, lam in enumerate(everything.values(), 1)})
    if not rows:
        raise ValueError("this model has no learnt densities to draw")
    columns = min(columns, len(rows))
    lines = -(-len(rows) // columns)
    polar = {"projection": "polar"}
    figure, grid = panels("Drawing densities", 1.9 * columns, 2.5 * lines, lines, columns, subplot_kw=polar)
    for axis, row in zip(grid.flat, rows, strict=False):
        _dial(axis, everything[row.name], row.highest)
        axis.set_title(f"layer {row.number}", fontsize=9, fontweight="bold", pad=12)
        axis.set_xlabel(_broken(f"keeps {kept_words(row)}"), fontsize=7)
    for axis in grid.flat[len(rows) :]:
        axis.set_axis_off()
    return figure


def _dial(axis: Any, likelihood: Any, highest: float) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("kept", [LOST, HALF, WHOLE])
    elements = explored(likelihood.group if likelihood.support is None else likelihood.support)
    count, continuous = len(elements.angles), elements.group.order is None
    shares = likelihood.density(elements.matrices).cpu().double().numpy().reshape(len(elements.sides), count) / highest
    turn, angles = np.linspace(0, 2 * np.pi, 181), np.radians(elements.angles)
    for side, (start, height) in enumerate(RINGS[: len(elements.sides)]):
        # Mirror lines lie as in the image: a line at φ to the x axis is at φ − 90° from the top, and half a turn on.
        places = angles if side == 0 else np.concatenate([angles / 2, angles / 2 + np.pi])
        values = shares[0] if side == 0 else np.tile(shares[1], 2)
        step = 2 * np.pi / len(places)
        width = 1.02 * step if continuous else min(0.6 * step, np.radians(14))
        axis.bar(places, height * values, width, bottom=start, color=colours((values - 0.3) / 0.7), linewidth=0)
        for level, line in ((0, "-"), (KEPT, ":"), (1, "-")):
            axis.plot(turn, np.full_like(turn, start + level * height), color="0.4", lw=0.5, ls=line)
    axis.set_theta_zero_location("N")
    axis.set_ylim(0, 1.01)
    axis.set_yticks([])
    axis.set_xticks(np.radians([0, 90, 180, 270]), ["0°", "90°", "180°", "270°"], fontsize=6)
    axis.tick_params(pad=-3)
    axis.grid(visible=False)
    axis.spines["polar"].set_visible(False)


def _broken(text: str, width: int = 26) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width))

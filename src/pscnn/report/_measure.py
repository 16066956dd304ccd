"""A picture of how equivariant a network is."""

from __future__ import annotations

import numpy as np

from pscnn.densities import Measurement
from pscnn.report._style import ABOVE, COLOURS, Figure, label, panels


def measure_figure(measurement: Measurement) -> Figure:
    """Kernels as bars of their energy by irrep, responses as a map of layers and elements.

    The first part of every bar commutes with the group; the mark is where it would end for a random kernel.

    Args:
        measurement: What ``pscnn.measure`` found.
    """
    kernels = [layer for layer in measurement.layers if layer.shares is not None]
    responses = [layer for layer in measurement.layers if layer.response is not None]
    rows = max(len(kernels), len(responses))
    both = bool(kernels) + bool(responses)
    figure, grid = panels("Drawing a measurement", 4.3 * both, 1.3 + 0.19 * rows, 1, both)
    axes = list(grid[0])
    if kernels:
        axis, names = axes.pop(0), [layer.name or layer.kind for layer in kernels]
        starts, where = np.zeros(len(kernels)), np.arange(len(kernels))
        for number, irrep in enumerate(kernels[0].shares or ()):
            shares = np.array([layer.shares[irrep] for layer in kernels if layer.shares is not None])
            colour = COLOURS[number % len(COLOURS)]
            axis.barh(where, shares, left=starts, color=colour, alpha=0.85, height=0.8, label=irrep)
            starts = starts + shares
        chance = [layer.chance for layer in kernels]
        axis.plot(chance, where, "|", color="black", ms=7, label=f"{next(iter(kernels[0].shares or ()))} if random")
        axis.set_yticks(where, names)
        axis.invert_yaxis()
        axis.set_xlim(0, 1)
        label(axis, "share of the kernel's energy")
        figure.legend(*axis.get_legend_handles_labels(), ncols=6, **ABOVE)
    if responses:
        axis, names = axes.pop(0), [layer.name or layer.kind for layer in responses]
        values = np.stack([layer.response for layer in responses if layer.response is not None])
        picture = axis.imshow(values, aspect="auto", vmin=0, vmax=np.sqrt(2), cmap="viridis", interpolation="nearest")
        axis.set_yticks(np.arange(len(names)), names)
        axis.set_xticks(np.arange(len(measurement.labels)), measurement.labels)
        label(axis, f"element h of {measurement.group.name}")
        axis.tick_params(length=0)
        bar = figure.colorbar(picture, ax=axis, extend="max")
        bar.set_label("‖f(h·x) − h·f(x)‖ / ‖f(x)‖", fontsize=8)
        bar.ax.tick_params(labelsize=7)
    return figure

"""Pictures of forecast flows: what was said, what happened, and how far apart they are."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from pscnn._extras import require
from pscnn._types import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARROWS = 16
"""Arrows along the longer side."""
_SPEED, _ERROR = "viridis", "magma"
_COLOURS = {_SPEED: 116, _ERROR: 116, "gray": 24}


def _speeds(predicted: Tensor, true: Tensor) -> tuple[Array, Array, Array, float, float]:
    """Both flows and the length of their difference, and the ends of the two colour scales."""
    if predicted.shape != true.shape or predicted.ndim != 4 or predicted.shape[1] != 2:
        raise ValueError(
            f"expected two flows of shape (steps, 2, H, W), got {tuple(predicted.shape)} and {tuple(true.shape)}"
        )
    found = [t.detach().cpu().double().numpy() for t in (predicted, true)]
    error = np.hypot(*(found[0] - found[1]).swapaxes(0, 1))
    fastest = float(np.hypot(*found[1].swapaxes(0, 1)).max()) or 1.0
    return found[0], found[1], error, fastest, float(error.max()) or 1.0


def _flow(axis: Any, field: Array, fastest: float) -> Any:
    """Speed as colour, direction as arrows; rows are counted downwards and y points up."""
    height, width = field.shape[1:]
    image = axis.imshow(np.hypot(*field), vmin=0, vmax=fastest, cmap=_SPEED)
    step = max(1, max(height, width) // ARROWS)
    rows, columns = np.mgrid[step // 2 : height : step, step // 2 : width : step]
    u, v = field[:, rows, columns]
    axis.quiver(columns, rows, u, v, color="white", angles="uv", scale=12 * fastest, width=0.006)
    axis.set(xticks=[], yticks=[])
    return image


def forecast_figure(predicted: Tensor, true: Tensor, columns: int = 5) -> Figure:
    """Some steps of a forecast beside what happened, and the error.

    Args:
        predicted: (steps, 2, H, W), the x- and y-components.
        true: The same.
        columns: How many steps to show, evenly spread, the first and the last among them.
    """
    require("matplotlib", "plots", "Drawing flows")
    from matplotlib.figure import Figure

    flow, truth, error, fastest, largest = _speeds(predicted, true)
    steps = np.unique(np.linspace(0, len(flow) - 1, columns).round().astype(int))
    height = 2.1 * flow.shape[2] / flow.shape[3]
    figure = Figure(figsize=(2.1 * len(steps) + 1.2, 3 * min(height, 4) + 0.6), layout="constrained")
    axes = figure.subplots(3, len(steps), squeeze=False)
    for column, step in enumerate(steps):
        for row, field in enumerate((truth, flow)):
            speed = _flow(axes[row, column], field[step], fastest)
        wrong = axes[2, column].imshow(error[step], vmin=0, vmax=largest, cmap=_ERROR)
        axes[2, column].set(xticks=[], yticks=[])
        axes[0, column].set_title(f"step {step + 1}", fontsize=10)
    for row, name in enumerate(("true", "forecast", "error")):
        axes[row, 0].set_ylabel(name)
    figure.colorbar(speed, ax=axes[:2], label="speed", shrink=0.8)
    figure.colorbar(wrong, ax=axes[2], label="|difference|", shrink=0.8)
    return figure


def forecast_animation(predicted: Tensor, true: Tensor, seconds_per_step: float = 0.25) -> bytes:
    """The forecast, the truth and the error, step by step, as an animated GIF.

    Args:
        predicted: (steps, 2, H, W).
        true: The same.
        seconds_per_step: How long a step is shown.
    """
    require("matplotlib", "plots", "Drawing flows")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    flow, truth, error, fastest, largest = _speeds(predicted, true)
    frames = []
    palette = _palette()
    for step in range(len(flow)):
        figure = Figure(figsize=(7.5, 2.9 if flow.shape[2] <= flow.shape[3] else 5.0), layout="constrained", dpi=80)
        canvas = FigureCanvasAgg(figure)
        axes = figure.subplots(1, 3)
        for axis, field, name in ((axes[0], truth, "true"), (axes[1], flow, "forecast")):
            _flow(axis, field[step], fastest)
            axis.set_title(name, fontsize=10)
        axes[2].imshow(error[step], vmin=0, vmax=largest, cmap=_ERROR)
        axes[2].set(xticks=[], yticks=[])
        axes[2].set_title("error", fontsize=10)
        figure.suptitle(f"step {step + 1}", fontsize=10)
        canvas.draw()  # type: ignore[no-untyped-call]
        pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
        frames.append(Image.fromarray(pixels[..., :3]).quantize(palette=palette, dither=Image.Dither.NONE))
    buffer = io.BytesIO()
    frames[0].save(
        buffer, "GIF", save_all=True, append_images=frames[1:], duration=round(1000 * seconds_per_step), loop=0
    )
    return buffer.getvalue()


def _palette() -> Any:
    """The 256 colours of an animation: both scales and greys. One chosen by frequency would lack the largest values."""
    from matplotlib import colormaps
    from PIL import Image

    colours = [colormaps[name](np.linspace(0, 1, count)) for name, count in _COLOURS.items()]
    palette = Image.new("P", (1, 1))
    palette.putpalette((255 * np.concatenate(colours)[:, :3]).round().astype(np.uint8).tobytes())
    return palette

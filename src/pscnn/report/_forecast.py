"""Pictures of forecast flows: what was said, what happened, and how far apart they are."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from torch import Tensor

from pscnn._extras import require
from pscnn.report._style import Figure, panels

ARROWS = 16
"""Arrows along the longer side."""
_SPEED, _ERROR = "viridis", "magma"
_NAMES = ("true", "forecast", "error")
_COLOURS = {_SPEED: 116, _ERROR: 116, "gray": 24}


class _Flows:
    """A forecast, the truth and the length of their difference, on two colour scales for all steps."""

    def __init__(self, predicted: Tensor, true: Tensor) -> None:
        if predicted.shape != true.shape or predicted.ndim != 4 or predicted.shape[1] != 2:
            raise ValueError(
                f"expected two flows of shape (steps, 2, H, W), got {tuple(predicted.shape)} and {tuple(true.shape)}"
            )
        self.forecast, self.true = (t.detach().cpu().double().numpy() for t in (predicted, true))
        self.error = np.hypot(*(self.forecast - self.true).swapaxes(0, 1))
        self.fastest = float(np.hypot(*self.true.swapaxes(0, 1)).max()) or 1.0
        self.steps, self.height, self.width = self.error.shape

    def draw(self, axes: Any, step: int) -> list[Any]:
        """The truth, the forecast and the error at a step; rows are counted downwards and y points up."""
        fields = [field[step] for field in (self.true, self.forecast)]
        shown = [(np.hypot(*field), self.fastest, _SPEED) for field in fields]
        shown.append((self.error[step], float(self.error.max()) or 1.0, _ERROR))
        images = [axis.imshow(what, vmin=0, vmax=top, cmap=c) for axis, (what, top, c) in zip(axes, shown, strict=True)]
        apart = max(1, max(self.height, self.width) // ARROWS)
        rows, columns = np.mgrid[apart // 2 : self.height : apart, apart // 2 : self.width : apart]
        for axis, field in zip(axes, fields, strict=False):
            arrows = field[:, rows, columns]
            axis.quiver(columns, rows, *arrows, color="white", angles="uv", scale=12 * self.fastest, width=0.006)
        for axis in axes:
            axis.set(xticks=[], yticks=[])
        return images


def forecast_figure(predicted: Tensor, true: Tensor, columns: int = 5) -> Figure:
    """Some steps of a forecast beside what happened, and the error.

    Args:
        predicted: (steps, 2, H, W), the x- and y-components.
        true: The same.
        columns: How many steps to show, evenly spread, the first and the last among them.
    """
    flows = _Flows(predicted, true)
    steps = np.unique(np.linspace(0, flows.steps - 1, columns).round().astype(int))
    height = min(2.1 * flows.height / flows.width, 4)
    figure, axes = panels("Drawing flows", 2.1 * len(steps) + 1.2, 3 * height + 0.6, 3, len(steps))
    for column, step in zip(axes.T, steps, strict=True):
        speed, _, wrong = flows.draw(column, step)
        column[0].set_title(f"step {step + 1}", fontsize=10)
    for axis, name in zip(axes[:, 0], _NAMES, strict=True):
        axis.set_ylabel(name)
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
    from PIL import Image

    flows = _Flows(predicted, true)
    frames, palette = [], _palette()
    for step in range(flows.steps):
        figure, (axes,) = panels("Drawing flows", 7.5, 2.9 if flows.height <= flows.width else 5.0, 1, 3)
        flows.draw(axes, step)
        for axis, name in zip(axes, _NAMES, strict=True):
            axis.set_title(name, fontsize=10)
        figure.suptitle(f"step {step + 1}", fontsize=10)
        figure.savefig(drawn := io.BytesIO(), format="png", dpi=80)
        frames.append(Image.open(drawn).convert("RGB").quantize(palette=palette, dither=Image.Dither.NONE))
    buffer = io.BytesIO()
    duration = round(1000 * seconds_per_step)
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=duration, loop=0)
    return buffer.getvalue()


def _palette() -> Any:
    """The 256 colours of an animation: both scales and greys. One chosen by frequency would lack the largest values."""
    from matplotlib import colormaps
    from PIL import Image

    colours = [colormaps[name](np.linspace(0, 1, count)) for name, count in _COLOURS.items()]
    palette = Image.new("P", (1, 1))
    palette.putpalette((255 * np.concatenate(colours)[:, :3]).round().astype(np.uint8).tobytes())
    return palette

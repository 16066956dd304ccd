"""Pictures of forecast flows: what was said, what happened, and how far apart they are."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
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

    def draw(self, axes: Any, step: int, largest: float | None = None) -> list[Any]:
        """The truth, the forecast and the error at a step; rows are counted downwards and y points up.

        Args:
            axes: Three; what has None is not drawn.
            step: Which.
            largest: The error that has the brightest colour; by default the largest of all steps.
        """
        fields = [field[step] for field in (self.true, self.forecast)]
        shown = [(np.hypot(*field), self.fastest, _SPEED) for field in fields]
        shown.append((self.error[step], largest or float(self.error.max()) or 1.0, _ERROR))
        drawn = [(axis, *one) for axis, one in zip(axes, shown, strict=True) if axis is not None]
        images = [axis.imshow(what, vmin=0, vmax=top, cmap=colours) for axis, what, top, colours in drawn]
        apart = max(1, max(self.height, self.width) // ARROWS)
        rows, columns = np.mgrid[apart // 2 : self.height : apart, apart // 2 : self.width : apart]
        for axis, field in zip(axes, fields, strict=False):
            if axis is not None:
                arrows = field[:, rows, columns]
                axis.quiver(columns, rows, *arrows, color="white", angles="uv", scale=12 * self.fastest, width=0.006)
        for axis, *_ in drawn:
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
    flows = _Flows(predicted, true)
    figures = []
    for step in range(flows.steps):
        figure, (axes,) = panels("Drawing flows", 7.5, 2.9 if flows.height <= flows.width else 5.0, 1, 3)
        flows.draw(axes, step)
        for axis, name in zip(axes, _NAMES, strict=True):
            axis.set_title(name, fontsize=10)
        figures.append(figure)
    return _animated(figures, seconds_per_step)


def comparison_animation(forecasts: Mapping[str, Tensor], true: Tensor, seconds_per_step: float = 0.25) -> bytes:
    """The truth and the forecasts of several networks side by side, their errors below, as an animated GIF.

    Args:
        forecasts: By name, each (steps, 2, H, W).
        true: The same.
        seconds_per_step: How long a step is shown.
    """
    flows = {name: _Flows(predicted, true) for name, predicted in forecasts.items()}
    largest = max(float(one.error.max()) for one in flows.values()) or 1.0
    first = next(iter(flows.values()))
    height = min(2.2 * first.height / first.width, 4)
    figures = []
    for step in range(first.steps):
        figure, axes = panels("Drawing flows", 2.2 * (len(flows) + 1), 2 * height + 0.6, 2, len(flows) + 1)
        axes[1, 0].set_axis_off()
        for column, (name, one) in enumerate(flows.items(), 1):
            one.draw([axes[0, 0] if column == 1 else None, axes[0, column], axes[1, column]], step, largest)
            mean = float(np.sqrt((one.error[step] ** 2).mean() / 2))
            axes[0, column].set_title(textwrap.fill(name, 26), fontsize=8)
            axes[1, column].set_xlabel(f"error, RMSE {mean:.3f}", fontsize=8)
        axes[0, 0].set_title("true", fontsize=8)
        figures.append(figure)
    return _animated(figures, seconds_per_step)


def _animated(figures: Sequence[Figure], seconds_per_step: float) -> bytes:
    """Figures, one per step, as a GIF."""
    require("matplotlib", "plots", "Drawing flows")
    from PIL import Image

    frames, palette = [], _palette()
    for step, figure in enumerate(figures, 1):
        figure.suptitle(f"step {step}", fontsize=10)
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

"""What printed pictures share: colours, small type, panels without a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pscnn._extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure
else:
    Figure = Any  # matplotlib is optional, and imported when something is drawn

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Distinguishable with any kind of colour vision (Okabe and Ito); markers tell apart what colours cannot."""
STYLES = {"rotations": (COLOURS[0], "-"), "reflections": (COLOURS[1], "--")}
"""Colours and lines of the two halves of a group of the plane."""
ABOVE: dict[str, Any] = {"loc": "outside upper center", "fontsize": 8, "frameon": False}
"""Where the legend of several panels is."""


def panels(
    purpose: str, width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, Any]:
    """A figure and its panels, (rows, columns); the purpose begins the message where matplotlib is missing."""
    require("matplotlib", "plots", purpose)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def label(axis: Any, x: str = "", y: str = "") -> None:
    """Names of the axes and ticks in small type, and no frame above and on the right."""
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)

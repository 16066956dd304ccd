"""What a network does when its input is transformed, as a picture and in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from pscnn._types import Array
from pscnn.experiments import Curve
from pscnn.groups import Elements
from pscnn.report._style import ABOVE, COLOURS, STYLES, Figure, label, panels

SCORES = {
    "classes": "right answers",
    "labels": "right labels",
    "masks": "right pixels",
    "numbers": "explained variance",
    "vectors": "explained variance",
}
VERBS = {
    "classes": ("is right in", "of the examples"),
    "labels": ("gets right", "of the labels"),
    "masks": ("gets right", "of the pixels"),
    "numbers": ("explains", "of the variance"),
    "vectors": ("explains", "of the variance"),
}
ANSWERS = {"classes": "answers", "labels": "labels", "masks": "pixels"}
SINGULAR = {"rotations": "rotation", "mirrors": "mirror", "with a point reflection": "rotation with a point reflection"}
PLURAL = {"rotations": "rotations", "mirrors": "mirrors", "with a point reflection": "such transformations"}


def curve_figure(found: Curve) -> Figure:
    """Scores over the angle, a panel for rotations and one for the rest, for every axis; and how stable answers are.

    Coloured lines: transformed examples, with 95 % intervals. Grey: examples turned there and back. Dotted: the share
    of answers that stay as they were. Answers that are worse than a constant one are drawn as explaining nothing.
    """
    elements = found.elements
    rows, columns = len(elements.axes), len(elements.sides)
    size = (3.1 * columns + 0.5, 2.0 * rows + 0.6)
    figure, grid = panels("Drawing curves", *size, rows, columns, sharey=True, sharex="col")
    for number, (axis, side) in enumerate(np.ndindex(rows, columns)):
        _panel(grid[axis, side], found, number, side)
        if axis == 0:
            grid[axis, side].set_title(elements.sides[side], fontsize=9)
        last, name = axis == rows - 1, f" about {elements.axes[axis]}" if elements.axes[axis] else ""
        below = "angle of the mirror line (°)" if _mirror_lines(elements, side) else "angle (°)"
        label(grid[axis, side], below if last else "", "" if side else f"{SCORES[found.kind]}{name}")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), ncols=3, **ABOVE)
    return figure


def _panel(axis: Any, found: Curve, number: int, side: int) -> None:
    angles = np.array(found.elements.angles)
    rows = slice(number * len(angles), (number + 1) * len(angles))
    shown = _shown_angles(angles, found.elements, side)
    order = np.argsort(shown)
    closed = found.elements.group.order is None
    marker = {} if closed else {"marker": "o", "ms": 3}

    def line(values: Array) -> tuple[Array, Array]:
        """To the end of the circle, where it begins again."""
        x, y = shown[order], values[rows][order].clip(0, 1)
        period = 360.0 if not _mirror_lines(found.elements, side) else 180.0
        return (np.append(x, x[0] + period), np.concatenate([y, y[:1]])) if closed else (x, y)

    x, back = line(found.back)
    axis.fill_between(x, back[:, 1], back[:, 2], color="0.5", alpha=0.2, lw=0)
    axis.plot(x, back[:, 0], color="0.4", lw=1.2, label="turned there and back", **marker)
    colour, style = STYLES["rotations" if side == 0 else "reflections"]
    x, turned = line(found.turned)
    axis.fill_between(x, turned[:, 1], turned[:, 2], color=colour, alpha=0.2, lw=0)
    axis.plot(x, turned[:, 0], color=colour, lw=1.5, ls=style, label="turned or mirrored", **marker)
    x, same = line(found.same)
    axis.plot(x, same[:, 0], color=COLOURS[2], lw=1.2, ls=":", label="same answer", **marker)
    axis.set_xticks(np.arange(0, 361, 90) if not _mirror_lines(found.elements, side) else np.arange(0, 181, 45))
    axis.set_ylim(-0.03, 1.03)


def _mirror_lines(elements: Elements, side: int) -> bool:
    return elements.sides[side] == "mirrors"


def _shown_angles(angles: Array, elements: Elements, side: int) -> Array:
    """Of rotations as they are; of mirrors, the angle of the line that stays where it is."""
    return (angles / 2 + 90) % 180 if _mirror_lines(elements, side) else angles


def curve_words(found: Curve) -> list[str]:
    """What the curve says: where the pose costs most, and how far answers stay the same.

    A sentence for rotations, one for the rest of the group; "costs" is said where the paired interval for all elements
    together excludes zero.
    """
    elements, words = found.elements, found.elements.words()
    moved = np.abs(elements.matrices - np.eye(elements.matrices.shape[-1])).max((1, 2)) > 1e-6
    sides = np.tile(np.repeat(np.arange(len(elements.sides)), len(elements.angles)), len(elements.axes))
    out = []
    for side, name in enumerate(elements.sides):
        rows = np.flatnonzero(moved & (sides == side))
        if not len(rows):
            continue
        sure = rows[found.lost[rows, 1] > 0]
        worst = sure[np.argmax(found.lost[sure, 0])] if len(sure) else rows[np.argmax(found.lost[rows, 0])]
        element = words[worst].replace("mirror line", "reflection in the line")
        turned, back, mean = (found.turned[worst, 0], found.back[worst, 0], found.turned[rows, 0].mean())
        said = f"after a {element} the network {_does(found, turned)} (there and back: {_percent(back)})"
        start = f"{said[0].upper()}{said[1:]}" if len(sure) else f"No {SINGULAR[name]} costs more than chance: {said}"
        if len(rows) > 1:
            start += f", and that is the largest loss; over all {PLURAL[name]}, {_percent(mean)}"
        out.append(f"{start}. {_unchanged(found, found.same[rows, 0].mean())}.")
    return [*out, f"Measured on {found.examples} examples."] if out else []


def _does(found: Curve, share: float) -> str:
    verb, what = VERBS[found.kind]
    return f"{verb} {_percent(share)} {what}"


def _percent(share: float) -> str:
    """Answers that are worse than a constant one explain nothing."""
    return f"{100 * max(share, 0.0):.0f} %"


def _unchanged(found: Curve, share: float) -> str:
    if found.kind in ("numbers", "vectors"):
        return f"{_percent(share)} of the variance of its answers stays as the pose changes"
    return f"{_percent(share)} of its {ANSWERS[found.kind]} stay the same"

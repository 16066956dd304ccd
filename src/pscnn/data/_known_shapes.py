"""Shapes made of strokes, drawn exactly at any pose: the only thing that resamples them is the grid itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

Point = tuple[float, ...]
Stroke = tuple[Point, Point, float]

SOFTNESS = 0.35
"""Of a stroke's edge, in pixels: from one tenth to nine tenths within about one and a half."""
AT_ONCE = 2**20
"""Distances that are computed at once, so that they stay in the cache."""


def _line(*points: Point, width: float = 0.0) -> list[Stroke]:
    """Strokes from point to point; a single point is a ball. Their width is added to the pen's."""
    if len(points) == 1:
        points = (points[0], points[0])
    return [(a, b, width) for a, b in itertools.pairwise(points)]


def _arc(centre: Point, radius: float, first: float, last: float, steps: int = 10) -> list[Stroke]:
    angles = [math.radians(first + (last - first) * k / steps) for k in range(steps + 1)]
    return _line(*((centre[0] + radius * math.cos(a), centre[1] + radius * math.sin(a)) for a in angles))


def _polar(*points: tuple[float, float]) -> list[Point]:
    """From radii and angles in degrees."""
    return [(r * math.cos(math.radians(a)), r * math.sin(math.radians(a))) for r, a in points]


def _turned(strokes: Sequence[Stroke], count: int) -> list[Stroke]:
    """A pattern and its copies by multiples of 360°/count."""
    out: list[Stroke] = []
    for k in range(count):
        c, s = math.cos(2 * math.pi * k / count), math.sin(2 * math.pi * k / count)
        out += [((c * a[0] - s * a[1], s * a[0] + c * a[1]), (c * b[0] - s * b[1], s * b[0] + c * b[1]), w)
                for a, b, w in strokes]  # fmt: skip
    return out


def _grating(spacing: float) -> list[Stroke]:
    count = int(0.7 / spacing + 0.5)
    heights = [(k + 0.5) * spacing for k in range(-count, count)]
    ends = [(math.sqrt(0.85**2 - y * y), y) for y in heights]
    return [stroke for x, y in ends for stroke in _line((-x, y), (x, y), width=-0.03)]


def _mesh(spacing: float) -> list[Stroke]:
    """Beyond the corners of an image, at any pose and size."""
    places = [(k + 0.5) * spacing for k in range(round(-2.2 / spacing), round(2.2 / spacing))]
    return [stroke for p in places for ends in (((p, -2.2), (p, 2.2)), ((-2.2, p), (2.2, p)))
            for stroke in _line(*ends, width=-0.05)]  # fmt: skip


def _helix() -> list[Stroke]:
    angles = [2 * math.pi * 1.2 * (k / 20 - 0.5) for k in range(21)]
    return _line(*((0.17 * a, 0.45 * math.cos(a), 0.45 * math.sin(a)) for a in angles))


_RING = [(0.0, 0.6 * math.cos(k * math.pi / 8), 0.6 * math.sin(k * math.pi / 8)) for k in range(17)]

SHAPES: dict[str, list[Stroke]] = {
    # What points somewhere points to the right, along x.
    "arrow": [*_line((-0.65, 0), (0.65, 0)), *_line((0.25, 0.4), (0.65, 0), (0.25, -0.4))],
    "comet": [*_line((-0.7, 0), (0.3, 0)), *_line((0.35, 0), width=0.2)],
    "dot": _line((0.55, 0), width=0.1),
    "hand": [*((a, b, -0.04) for a, b, _ in _arc((0, 0), 0.8, 0, 360, 24)), *_line((0, 0), (0.6, 0))],
    "bar": _line((-0.7, 0), (0.7, 0)),
    "plus": [*_line((-0.65, 0), (0.65, 0)), *_line((0, -0.65), (0, 0.65))],
    "square": _turned(_line((0.5, -0.5), (0.5, 0.5)), 4),
    "triangle": _turned(_line(*_polar((0.7, 0), (0.7, 120))), 3),
    "star": _turned(_line((0, 0), (0.7, 0)), 5),
    "saw": _turned(_line(*_polar((0.35, 0), (0.45, 30), (0.57, 60), (0.75, 90), (0.35, 90))), 4),
    "N": _line((-0.42, -0.6), (-0.42, 0.6), (0.42, -0.6), (0.42, 0.6)),
    "S": [*_arc((0, 0.33), 0.33, 10, 270), *_arc((0, -0.33), 0.33, 90, -170)],
    "b": [*_line((-0.34, -0.65), (-0.34, 0.7)), *_arc((0.0, -0.3), 0.34, 180, 540)],
    "six": [*_arc((0.02, -0.3), 0.36, 180, 540), *_arc((0.26, -0.1), 0.6, 190, 80)],
    "L": _line((-0.3, 0.7), (-0.3, -0.6), (0.45, -0.6)),
    "coarse": _grating(0.42),
    "fine": _grating(0.24),
    "mesh": _mesh(0.3),
    # Clothes, upright.
    "trousers": [*_line((-0.2, 0.6), (0.2, 0.6), width=0.05), *_line((-0.18, 0.5), (-0.3, -0.65), width=0.06),
                 *_line((0.18, 0.5), (0.3, -0.65), width=0.06)],
    "shirt": [*_line((-0.1, 0.3), (-0.1, -0.5), width=0.16), *_line((0.1, 0.3), (0.1, -0.5), width=0.16),
              *_line((-0.3, 0.42), (-0.65, 0.1), width=0.06), *_line((0.3, 0.42), (0.65, 0.1), width=0.06)],
    "dress": [*_line((0, 0.6), (0, -0.55), width=0.08), *_line((0, 0.1), (-0.3, -0.6), width=0.08),
              *_line((0, 0.1), (0.3, -0.6), width=0.08)],
    "shoe": [*_line((-0.6, -0.3), (0.6, -0.3), width=0.1), *_line((-0.5, -0.2), (-0.5, 0.25), width=0.1),
             *_line((-0.5, 0.1), (0.4, -0.25), width=0.06)],
    "bag": [*_line((-0.4, -0.1), (0.4, -0.1), width=0.18), *_line((-0.4, -0.35), (0.4, -0.35), width=0.18),
            *_arc((0, 0.15), 0.35, 0, 180)],
    # In space.
    "comet in space": [*_line((-0.7, 0, 0), (0.3, 0, 0)), *_line((0.35, 0, 0), width=0.2)],
    "rod": _line((-0.65, 0, 0), (0.65, 0, 0)),
    "ring": _line(*_RING),
    "helix": _helix(),
}  # fmt: skip
"""Strokes (from, to, additional width) in coordinates from −1 to 1: x to the right, y up, z from the first slice on."""


def grid(size: int, dimension: int) -> Tensor:
    """Coordinates of all pixels in the order of memory, (size^n, n); as ``pscnn.kernels`` has them."""
    steps = (2 * torch.arange(size, dtype=torch.float64) + 1) / size - 1
    *depth, row, column = torch.meshgrid(*[steps] * dimension, indexing="ij")
    return torch.stack([axis.flatten() for axis in (column, -row, *depth)], 1)


def draw(shape: str, poses: Tensor, scale: Tensor, width: Tensor, shift: Tensor, size: int) -> Tensor:
    """A shape at poses of its own, (B, 1, size, size[, size]), from 0 to 1.

    Args:
        shape: One of ``SHAPES``.
        poses: Orthogonal matrices (B, n, n) that are applied to the shape.
        scale: Its size, (B,).
        width: Half the width of the pen, (B,).
        shift: Where its centre is, (B, n).
        size: Side length in pixels.
    """
    n = poses.shape[-1]
    first, last, extra = (torch.tensor(part, dtype=torch.float64) for part in zip(*SHAPES[shape], strict=True))
    points, along = grid(size, n), last - first
    length = along.square().sum(1).clamp(min=1e-12)
    out = []
    for rows in torch.arange(len(poses)).split(max(1, AT_ONCE // (len(points) * len(first)))):
        # Pixels in the coordinates of the shape: its strokes stay, everything else moves.
        x = (points - shift[rows, None]) @ poses[rows] / scale[rows, None, None]  # (b, pixels, n)
        on, beside = x @ along.T - (first * along).sum(1), x @ first.T  # (b, pixels, strokes)
        t = (on / length).clamp(0, 1)
        squared = x.square().sum(2, keepdim=True) - 2 * beside + first.square().sum(1) + t * (t * length - 2 * on)
        distance = squared.clamp(min=0).sqrt() - extra
        pen = width[rows, None] - distance.amin(2) * scale[rows, None]
        out.append(torch.sigmoid(pen * size / (2 * SOFTNESS)))
    return torch.cat(out).view(-1, 1, *[size] * n).float()

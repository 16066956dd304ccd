"""Pictures that are known everywhere, not only at pixels: drawn at any angle, they are exact, without interpolation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pscnn._memory import afford
from pscnn._types import Array
from pscnn._words import short

Scenes = Callable[[Array], Array]
"""From points (N, n), in pixels about the centre with y upwards, to brightnesses (count, N)."""
BLUR = 0.8
"""Standard deviation in pixels of what a pixel of a given image becomes: of it, 4 % are left at the finest stripes."""


def scenes(kind: str | Tensor, shape: Sequence[int], count: int = 32, seed: int = 0) -> Scenes:
    """Random pictures within the largest disk (ball) of an image (volume).

    Args:
        kind: "smooth" (a dozen Gaussians each, of a standard deviation of 5 to 10 % of the shortest side), "plus"
            (plus signs of several sizes at several places, brightness −1 to 1, whose edges are blurred by 0.7 pixels),
            or images (B, 1, H, W[, …]): every pixel becomes a Gaussian.
        shape: Height and width, with a depth before them for volumes.
        count: Of the pictures, unless images are given.
        seed: Of the random numbers.

    Example:
        >>> pictures = scenes("plus", (28, 28), count=2)
        >>> pictures(np.zeros((1, 2))).shape
        (2, 1)
    """
    n = len(shape) if isinstance(shape, Sequence) else 0
    if n not in (2, 3) or not all(isinstance(side, int) and side > 0 for side in shape):
        raise ValueError(f"shape must be height and width, with a depth before them for volumes, got {short(shape)}")
    for name, given, least in (("count", count, 1), ("seed", seed, 0)):
        if not isinstance(given, int) or given < least:
            raise ValueError(f"{name} must be a whole number of {least} or more, got {short(given)}")
    if isinstance(kind, Tensor):
        if kind.ndim != n + 2 or kind.shape[1] != 1 or not kind.numel() or kind.is_complex():
            axes = ("H, W", "D, H, W")[n - 2]
            raise ValueError(
                f"images must be real numbers (B, 1, {axes}), got {kind.dtype} of shape {tuple(kind.shape)}"
            )
        return _given(kind)
    if not isinstance(kind, str) or kind not in ("smooth", "plus"):
        raise ValueError(f"scenes: unknown kind {short(kind)}: use 'smooth', 'plus' or a tensor of images")
    afford(count * math.prod(shape), f"{count} pictures of shape {tuple(shape)}", "use a smaller count or shape")
    random, side = np.random.default_rng(seed), min(shape)
    return (_smooth if kind == "smooth" else _plus)(random, count, side, n)


def draw(pictures: Scenes, shape: Sequence[int], element: Array) -> Tensor:
    """The pictures, moved by an element, at the pixels of images: (count, 1, *shape)."""
    steps = [np.arange(n) - (n - 1) / 2 for n in shape]
    *depth, row, column = np.meshgrid(*steps, indexing="ij")
    points = np.stack([axis.ravel() for axis in (column, -row, *depth)], axis=1)
    values = pictures(points @ element)  # (h·f)(x) = f(h⁻¹x)
    return torch.as_tensor(values.reshape(len(values), 1, *shape), dtype=torch.get_default_dtype())


def _smooth(random: np.random.Generator, count: int, side: int, n: int) -> Scenes:
    direction = random.normal(size=(count, 12, n))
    direction /= np.linalg.norm(direction, axis=2, keepdims=True)
    centres = direction * random.random((count, 12, 1)) ** (1 / n) * 0.28 * side
    height, width = random.normal(size=(count, 12, 1)), side * random.uniform(0.05, 0.1, (count, 12, 1))

    def values(points: Array) -> Array:
        out = np.zeros((count, len(points)))
        for k in range(centres.shape[1]):
            squared = ((points - centres[:, k : k + 1]) ** 2).sum(2)
            out += height[:, k] * np.exp(-squared / (2 * width[:, k] ** 2))
        return out

    return values


def _plus(random: np.random.Generator, count: int, side: int, n: int) -> Scenes:
    from scipy.special import erf  # slow to import

    half = side * random.uniform(0.2, 0.32, (count, 1))
    thick = side * random.uniform(0.035, 0.07, (count, 1))
    places = side * random.uniform(-0.07, 0.07, (count, 1, n))

    def values(points: Array) -> Array:
        # Along each axis, how much of a bar of that half width a blurred pixel sees.
        moved = points - places
        within = [
            [0.5 * (erf((moved[..., a] + h) / 0.99) - erf((moved[..., a] - h) / 0.99)) for a in range(n)]
            for h in (half, thick)
        ]
        left = np.ones((count, len(points)))
        for a in range(n):
            bar = within[0][a] * np.prod([within[1][b] for b in range(n) if b != a], axis=0)
            left = left * (1 - bar)
        return np.asarray(2 * (1 - left) - 1)

    return values


def _given(images: Tensor) -> Scenes:
    """Σ_i p_i g(x − x_i) / Σ_i g(x − x_i): outside of the images, their border goes on."""
    pixels = images.detach().cpu().double().numpy()[:, 0]
    sides, reach = pixels.shape[1:], 3

    def values(points: Array) -> Array:
        n = len(sides)
        # Indices of axes in the order of memory: depth, row (downwards), column.
        place = np.stack([points[:, 0], -points[:, 1], *([points[:, 2]] if n == 3 else [])], 1)[:, [*range(2, n), 1, 0]]
        place = place + (np.array(sides) - 1) / 2
        near = np.round(place)
        out, total = np.zeros((len(pixels), len(points))), np.zeros(len(points))
        for offset in itertools.product(range(-reach, reach + 1), repeat=n):
            weight = np.exp(-((near + offset - place) ** 2).sum(1) / (2 * BLUR**2))
            index = tuple(np.clip(near[:, a] + offset[a], 0, sides[a] - 1).astype(int) for a in range(n))
            out += weight * pixels[(slice(None), *index)]
            total += weight
        return np.asarray(out / total)

    return values

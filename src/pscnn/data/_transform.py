"""Images and volumes rotated and reflected about their centre, by an element each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn._memo import memo
from pscnn._types import Array

AT_ONCE = 2**21
"""Pixels that are interpolated at once: more would not fit into caches, and volumes not into memory."""
TARGET_KINDS = ("classes", "labels", "numbers", "vectors", "masks")
# Centred array indices (…, row, column) as a linear function of the coordinates (x, y[, z]): see kernels.grid_points.
_ARRAY_AXES = {
    2: torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64),
    3: torch.tensor([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64),
}


def transform(x: Tensor, elements: Tensor, shifts: Tensor | None = None) -> Tensor:
    """(h·x)(p) = x(h⁻¹p): every example of a batch, transformed about its centre.

    Rotations are counter-clockwise for someone who looks at the picture, as in ``FieldType.transform``. Elements that
    map the grid to itself are permutations of pixels. All others interpolate by cubic splines, which lose less than
    cubic convolutions do; what comes from outside an example has the mean of its border, channel by channel.

    Args:
        x: Shape (B, C, H, W) or (B, C, D, H, W), of any sides.
        elements: One for each example, (B, n, n), or one for all, (n, n); n = 2 for images and 3 for volumes.
        shifts: By how many pixels each is moved first, along the axes of its array, (B, n).

    Example:
        >>> x = torch.arange(6.0).view(1, 1, 2, 3)
        >>> transform(x, torch.tensor([[-1.0, 0.0], [0.0, 1.0]]))
        tensor([[[[2., 1., 0.],
                  [5., 4., 3.]]]])
    """
    n = x.ndim - 2
    if n not in (2, 3) or elements.shape not in ((n, n), (len(x), n, n)):
        raise ValueError(
            "transform: expected examples (B, C, H, W) with elements (B, 2, 2) or (2, 2), or (B, C, D, H, W) with "
            f"(B, 3, 3) or (3, 3), got examples {tuple(x.shape)} with elements {tuple(elements.shape)}"
        )
    if shifts is not None and shifts.shape != (len(x), n):
        raise ValueError(f"transform: expected shifts of shape {(len(x), n)}, got {tuple(shifts.shape)}")
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    inverse = _inverse(elements).expand(len(x), n, n)
    permutations = inverse.round()
    exact = maps_grid(elements, x.shape[2:]).expand(len(x))
    if shifts is not None:
        exact = torch.zeros_like(exact)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    for permutation in torch.unique(permutations[exact], dim=0) if exact.any() else ():
        rows = (exact & (permutations == permutation).all(2).all(1)).nonzero()[:, 0].to(x.device)
        out[rows] = _permuted(x[rows], permutation)
    others = (~exact).nonzero()[:, 0]
    for rows in others.split(max(1, AT_ONCE // math.prod(x.shape[2:]))):
        own = rows.to(x.device)
        out[own] = _interpolated(x[own], inverse[rows].to(x), None if shifts is None else shifts[rows].to(x))
    return out


def transform_targets(y: Tensor, elements: Tensor, kind: str, shifts: Tensor | None = None) -> Tensor:
    """The right answers to transformed examples, from those to the examples.

    Args:
        y: The answers. Vectors are (B, n), or (B, m·n) for m vectors; masks are classes, (B, H, W) or (B, D, H, W), or
            fields of numbers, (B, C, …).
        elements: As for ``transform``.
        kind: "vectors" and "masks" turn with their examples; "classes", "labels" and "numbers" stay.
        shifts: As for ``transform``; masks are moved along.
    """
    if kind not in TARGET_KINDS:
        raise ValueError(f"the kind of targets must be one of {', '.join(TARGET_KINDS)}, got {kind!r}")
    if kind == "vectors":
        n = elements.shape[-1]
        return (y.view(len(y), -1, n) @ elements.to(y).mT).view_as(y)
    if kind == "masks":
        if y.is_floating_point():
            return transform(y, elements, shifts)
        least = min(0, int(y.min())) if y.numel() else 0  # −1 where a class is not known
        shares = F.one_hot(y.long() - least).movedim(-1, 1).float()
        return (transform(shares, elements, shifts).argmax(1) + least).to(y.dtype)
    return y


def maps_grid(elements: Tensor, sides: Sequence[int]) -> Tensor:
    """Which elements map a grid of pixels to itself: a quarter turn does for a square and does not for an oblong.

    Args:
        elements: Shape (…, n, n).
        sides: Pixels along each of the n axes.
    """
    inverse = _inverse(elements)
    size = torch.tensor(sides, dtype=torch.float64, device=inverse.device)
    whole = (inverse - inverse.round()).abs().amax((-1, -2)) < 1e-6
    return whole & (inverse.round().abs() @ size == size).all(-1)


def _inverse(elements: Tensor) -> Tensor:
    """The array indices of what comes to a pixel, as a linear function of its own; both are centred."""
    axes = _ARRAY_AXES[elements.shape[-1]].to(elements.device)
    return axes @ elements.double().mT @ axes.mT


def _permuted(x: Tensor, permutation: Tensor) -> Tensor:
    source = permutation.abs().argmax(1).tolist()  # target axis that the i-th source axis follows
    flips = [2 + target for i, target in enumerate(source) if permutation[i, target] < 0]
    return x.permute(0, 1, *(2 + source.index(target) for target in range(len(source)))).flip(flips)


def _interpolated(x: Tensor, inverse: Tensor, shifts: Tensor | None) -> Tensor:
    """Splines through the pixels, mirrored at the outermost ones, from where they fade to the border's mean.

    The four (eight) neighbours along each axis are read as two values between neighbours: grid_sample weights them.
    """
    sides = x.shape[2:]
    n = len(sides)
    fill = border_mean(x)
    coefficients = x - fill
    for axis, side in enumerate(sides, 2):
        spline = torch.tensor(_spline_filter(side), dtype=x.dtype, device=x.device)
        coefficients = (coefficients.movedim(axis, -1) @ spline.T).movedim(-1, axis)
    steps = [torch.arange(side, device=x.device, dtype=x.dtype) - (side - 1) / 2 for side in sides]
    target = torch.stack(torch.meshgrid(*steps, indexing="ij"), -1).view(-1, n)
    source = target @ inverse.mT  # (B, pixels, n), centred
    source = source if shifts is None else source - shifts[:, None]
    last = torch.tensor([side - 1.0 for side in sides], device=x.device, dtype=x.dtype)
    inside = (last / 2 + 1 - source.abs()).clamp(0, 1).prod(-1)
    index = source + last / 2
    whole = index.floor()
    t = index - whole
    # The weights of the neighbours are (1−t)³/6, 2/3 − t²(2−t)/2 and these two for 1−t: in pairs, weight and place.
    upper = (1 + 3 * t + 3 * t * t - 2 * t * t * t) / 6
    weights = (1 - upper, upper)
    places = (whole - 1 + (2 / 3 - t * t * (2 - t) / 2) / (1 - upper), whole + 1 + t * t * t / 6 / upper)
    halves = last.clamp_min(1) / 2
    grids = [place / halves - 1 for place in places]
    shape = (len(x), *sides)
    out = torch.zeros_like(x)
    for pick in product((0, 1), repeat=n):
        weight = torch.stack([weights[side][..., axis] for axis, side in enumerate(pick)]).prod(0) * inside
        grid = torch.stack([grids[side][..., axis] for axis, side in reversed(list(enumerate(pick)))], -1)
        read = F.grid_sample(coefficients, grid.view(*shape, n), padding_mode="reflection", align_corners=True)
        out += weight.view(len(x), 1, *sides) * read
    return out + fill


def border_mean(x: Tensor) -> Tensor:
    """Of the outermost pixels of each example and channel, (B, C, 1, …)."""
    axes = tuple(range(2, x.ndim))
    inner = x[:, :, 1:-1, 1:-1] if x.ndim == 4 else x[:, :, 1:-1, 1:-1, 1:-1]
    count = math.prod(x.shape[2:]) - math.prod(inner.shape[2:])
    # The difference of two sums that are almost equal, in single precision, would be wrong by what lies inside.
    whole, within = (part.sum(axes, keepdim=True, dtype=torch.float64) for part in (x, inner))
    return ((whole - within) / count).to(x.dtype)


@memo
def _spline_filter(side: int) -> Array:
    """From values at whole numbers to the coefficients of the cubic spline through them, mirrored at both ends."""
    values: Array = np.eye(side) * 4 / 6
    for row in range(side):
        for neighbour in (row - 1, row + 1):
            mirrored = abs(neighbour) if neighbour < side else 2 * (side - 1) - neighbour
            values[row, mirrored % side] += 1 / 6
    return np.asarray(np.linalg.inv(values))

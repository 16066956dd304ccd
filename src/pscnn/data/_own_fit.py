"""How examples are brought to one shape: equal spacing, padding, and resizing where it is asked for."""

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn._types import AnyArray
from pscnn.data._transform import border_mean

MOST_VOXELS = 128**3
"""Of a volume that is resampled to a finer spacing than it has along some side."""
UNKNOWN = -1
"""In masks, the class of pixels beside the example."""


def pad_to(x: Tensor, sides: Sequence[int]) -> Tensor:
    """(C, …) in the middle of so many pixels: around it each channel's mean over its border, in masks ``UNKNOWN``."""
    own = x.shape[1:]
    if tuple(own) == tuple(sides):
        return x
    border = border_mean(x[None])[0] if x.dtype.is_floating_point else torch.tensor(UNKNOWN, dtype=x.dtype)
    out = border.expand(len(x), *sides).contiguous()
    first = [(side - n) // 2 for side, n in zip(sides, own, strict=True)]
    out[(slice(None), *(slice(k, k + n) for k, n in zip(first, own, strict=True)))] = x
    return out


def resize(x: Tensor, sides: Sequence[int]) -> Tensor:
    """(C, …) with another number of pixels, smoothed where there are fewer; masks take the nearest pixel."""
    if tuple(x.shape[1:]) == tuple(sides):
        return x
    if not x.dtype.is_floating_point:
        for axis, side in enumerate(sides, 1):
            n = x.shape[axis]
            x = x.index_select(axis, ((torch.arange(side) + 0.5) * n / side).long().clamp(max=n - 1))
        return x
    if x.ndim == 3:
        return F.interpolate(x[None], tuple(sides), mode="bilinear", antialias=True, align_corners=False)[0]
    fewer = [min(n, side) for n, side in zip(x.shape[1:], sides, strict=True)]
    x = F.adaptive_avg_pool3d(x, (fewer[0], fewer[1], fewer[2]))
    return F.interpolate(x[None], tuple(sides), mode="trilinear", align_corners=False)[0] if fewer != [*sides] else x


def with_spacing(sides: Sequence[int], spacing: Sequence[float], wanted: float) -> tuple[int, ...]:
    """How many pixels there are along each side at another spacing."""
    return tuple(max(1, round(n * own / wanted)) for n, own in zip(sides, spacing, strict=True))


def common_spacing(sides: Sequence[Sequence[int]], spacings: Sequence[Sequence[float]]) -> float:
    """The finest spacing of all examples, unless some would then have far more voxels than they have.

    Example:
        >>> common_spacing([(10, 40, 40)], [(4.0, 1.0, 1.0)])
        1.0
        >>> round(common_spacing([(100, 512, 512)], [(5.0, 0.7, 0.7)]), 2)
        1.35
    """
    finest = min(min(own) for own in spacings)
    for own, lengths in zip(sides, spacings, strict=True):
        whole = math.prod(n * length for n, length in zip(own, lengths, strict=True))
        finest = max(finest, (whole / max(MOST_VOXELS, math.prod(own))) ** (1 / len(own)))
    return finest


def box(sides: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The smallest number of pixels with the proportions of ``shape`` that holds so many."""
    factor = max(n / m for n, m in zip(sides, shape, strict=True))
    return tuple(max(n, round(m * factor)) for n, m in zip(sides, shape, strict=True))


def steps(sides: Sequence[int], shape: Sequence[int], frame: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sides that an example is resized to first, and those that it is then padded to, before ``shape``.

    With a frame it is padded to it, and made smaller first if it is larger; without one it is padded to the proportions
    of ``shape``.
    """
    if not frame:
        return tuple(sides), box(sides, shape)
    factor = min(1.0, *(m / n for n, m in zip(sides, frame, strict=True)))
    return tuple(max(1, round(n * factor)) for n in sides), tuple(frame)


def fit(x: Tensor, shape: Sequence[int], frame: Sequence[int]) -> Tensor:
    """(C, …) → (C, *shape); see ``steps``."""
    first, padded = steps(x.shape[1:], shape, frame)
    return resize(pad_to(resize(x, first), padded), shape)


def unfit(mask: Tensor, sides: Sequence[int], frame: Sequence[int]) -> Tensor:
    """The other way round, of a mask: from the network's shape to that of the example, (…) → (*sides)."""
    first, padded = steps(sides, mask.shape, frame)
    whole = resize(mask[None], padded)
    begin = [(n - m) // 2 for n, m in zip(padded, first, strict=True)]
    return resize(whole[(slice(None), *(slice(k, k + m) for k, m in zip(begin, first, strict=True)))], sides)[0]


def channels_first(values: AnyArray) -> Tensor:
    """(…, C) → (C, …)."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(values, -1, 0)))

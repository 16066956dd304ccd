"""Do the data have a symmetry? A classifier two-sample test between examples and their transformed copies.

As in arXiv 2510.01349 ("To Augment or Not to Augment?"): if a classifier tells held-out examples from randomly
transformed ones, their law does not have the symmetry. Here the classifier is a kernel method on pairs (``_pairs``).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn._checks import check_batch
from pscnn._types import Array, ArrayLike
from pscnn.data import maps_grid, transform
from pscnn.experiments._pairs import gram, told_apart
from pscnn.groups import O2, O3, Group

FINEST, MOST = {2: 28, 3: 12}, {2: 700, 3: 400}
"""Pixels along the longest side that the classifier sees, and examples; in the plane and in space."""
FEWEST, ENOUGH = 30, 300
"""Examples below which nothing is said, and below which no symmetry is called present: a classifier needs some to learn
from, before it means anything that it finds nothing."""
LEVEL = 0.05
"""Probability of calling any symmetry absent that is there, over all tests together."""
CLOSE = 0.6
"""Where copies are found in fewer pairs than this (half would be chance), data count as having a symmetry."""
JITTER, OFF_CENTRE = 0.07, 0.04
"""By how much of the longest side examples are shifted at random, and how far from their centre they may be symmetric:
data whose centre is between other pixels than ours have a symmetry all the same."""


@runtime_checkable
class Candidate(Protocol):
    """A subgroup, perhaps turned: every ``Group`` is one."""

    @property
    def name(self) -> str:
        """Of the group."""

    def sample(self, count: int, seed: int) -> Array:
        """Elements drawn uniformly, (count, n, n)."""

    def contains(self, elements: ArrayLike) -> bool:
        """Whether all matrices are elements."""


@dataclass(frozen=True)
class Presence:
    """Whether data have one symmetry.

    Attributes:
        group: The subgroup.
        angle: Of its mirror line in degrees, if it has one and knows it.
        statistic: The share of held-out pairs in which a classifier finds the transformed copy; 0.5 is chance.
        low: Lower end of its interval: 95 % for all tests together.
        high: Upper end.
        examples: How many pairs there were.
        present: True if the copies cannot be found, False if they can; None if the examples are too few to tell.
        within_classes: The same for copies of known class. Where this is False and ``present`` is not, all examples
            together have the symmetry but a class has not: the pose tells the class. None without classes, too.
    """

    group: Candidate
    angle: float | None
    statistic: float
    low: float
    high: float
    examples: int
    present: bool | None
    within_classes: bool | None = None


def presence(
    pixels: Tensor,
    group: Group,
    candidates: Sequence[Candidate],
    *,
    seconds: float = 60.0,
    seed: int = 0,
    classes: Tensor | None = None,
) -> list[Presence]:
    """Test for each candidate whether examples come transformed by it as often as not.

    Members of pairs went through the same interpolation: an example was turned by a random angle and back, its copy by
    the angle and back with an element of K, unless all of K maps the grid of pixels to itself. Fine detail, shifts by a
    pixel or so, and what lies outside a disc (where the grid is not mapped to itself) do not count. What a subgroup
    lacks, larger candidates lack.

    Args:
        pixels: Examples, (B, C, H, W) or (B, C, D, H, W).
        group: H, of which all candidates are subgroups.
        candidates: Groups, or whatever has their ``name``, ``sample`` and ``contains``, and perhaps an ``angle``.
        seconds: After these, remaining candidates are not tested: nothing can be told about them.
        seed: Of what is drawn at random.
        classes: Of the examples, (B,).

    Example:
        >>> from pscnn.groups import C, D
        >>> x = torch.zeros(60, 1, 12, 12)
        >>> x[:, :, 1:4, 4:8] = 1 + torch.rand(60, 1, 3, 4)  # bright at the top
        >>> [one.present for one in presence(x, D(4), [C(2), D(1)])]
        [False, None]
    """
    ends = time.monotonic() + seconds
    check_batch("pixels", pixels)
    n = pixels.ndim - 2
    if n != group.dimension:
        raise ValueError(f"{group.name} acts on {group.dimension} axes, got examples of shape {tuple(pixels.shape)}")
    for one in candidates:
        if not group.contains(one.sample(32, seed=0)):
            raise ValueError(f"{one.name} is not a subgroup of {group.name}")
    rows = torch.from_numpy(np.random.default_rng(seed).permutation(len(pixels))[: MOST[n]]).to(pixels.device)
    x = _simplified(pixels[rows].cpu())
    labels = None if classes is None else classes.cpu()[rows.cpu()]
    level = LEVEL / (max(len(candidates), 1) * (1 if labels is None else 2))
    found = [_Tested() for _ in candidates]
    if len(x) >= FEWEST:
        for k, one in enumerate(candidates):
            if time.monotonic() < ends:
                found[k] = _tested(x, one, labels, level, seed + k)
    for large, one in enumerate(candidates):
        for small, other in enumerate(candidates):
            if small != large and one.contains(other.sample(32, seed=0)):
                found[large].inherit(found[small])
    return [
        Presence(one, getattr(one, "angle", None), *test.interval, len(x), test.present, test.within)
        for one, test in zip(candidates, found, strict=True)
    ]


@dataclass
class _Tested:
    interval: tuple[float, float, float] = (0.5, 0.0, 1.0)
    present: bool | None = None
    within: bool | None = None

    def inherit(self, subgroup: _Tested) -> None:
        self.present = False if subgroup.present is False else self.present
        self.within = False if subgroup.within is False else self.within


def _tested(x: Tensor, candidate: Candidate, classes: Tensor | None, level: float, seed: int) -> _Tested:
    """What is told apart about the grid's centre is compared about the best centre, too: only both count."""
    elements = _elements(candidate, len(x), seed)
    alike = None if classes is None else (classes[:, None] == classes).double()
    out = _compared(x, elements, alike, level, seed)
    if out.present is False or out.within is False:
        centred = _compared(_shifted(x, _centre(x, elements[:64]).expand(len(x), -1)), elements, alike, level, seed)
        if out.present is False:
            out.interval, out.present = centred.interval, centred.present
        out.within = centred.within if out.within is False else out.within
    return out


def _compared(x: Tensor, elements: Tensor, alike: Tensor | None, level: float, seed: int) -> _Tested:
    """For examples of known class, only pairs of the same class teach the classifier."""
    products = gram(*_pairs(x, elements, seed))
    out = _Tested(*_judged(products, level, seed))
    if alike is not None:
        out.within = False if out.present is False else _judged(products * alike, level, seed)[1]
    return out


def _judged(products: Tensor, level: float, seed: int) -> tuple[tuple[float, float, float], bool | None]:
    share, by_chance = told_apart(products, seed)
    half = torch.quantile(by_chance, 1 - level).item() - 0.5
    interval = (share, max(0.0, share - half), min(1.0, max(share, 0.5) + half))  # below one half is chance
    if share > CLOSE and interval[1] > 0.5:
        return interval, False
    return interval, True if interval[2] < CLOSE and len(products) >= ENOUGH else None


def _elements(candidate: Candidate, count: int, seed: int) -> Tensor:
    """Drawn without the identity."""
    drawn = candidate.sample(8 * count + 64, seed)
    others = drawn[np.abs(drawn - np.eye(drawn.shape[-1])).max((1, 2)) > 1e-6]
    if not len(others):
        raise ValueError(f"{candidate.name} has no element but the identity: there is nothing to test")
    return torch.from_numpy(np.resize(others, (count, *others.shape[1:])))


def _pairs(x: Tensor, elements: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Examples and copies, each shifted by an amount of its own."""
    if maps_grid(elements, x.shape[2:]).all():
        pair = x, transform(x, elements)
    else:
        whole = O2() if elements.shape[-1] == 2 else O3()
        turns = torch.from_numpy(whole.sample(len(x), seed + 1))
        turned = transform(_in_disc(x), turns)
        pair = _in_disc(transform(turned, turns.mT)), _in_disc(transform(turned, elements @ turns.mT))
    generator = torch.Generator().manual_seed(seed)
    most = JITTER * max(x.shape[2:])
    first, second = (
        _shifted(one, most * (2 * torch.rand(len(x), x.ndim - 2, generator=generator) - 1)) for one in pair
    )
    return first, second


def _simplified(x: Tensor) -> Tensor:
    """At most ``FINEST`` pixels along a side, blurred by about one: what is finer comes from the grid, which stays."""
    longest, finest = max(x.shape[2:]), FINEST[x.ndim - 2]
    x = x.float()
    if longest > finest:
        x = F.interpolate(x, [max(1, round(side * finest / longest)) for side in x.shape[2:]], mode="area")
    weights = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]).view(1, 1, 5) / 16
    for axis in range(2, x.ndim):
        lines = x.movedim(axis, -1)
        padded = F.pad(lines.reshape(-1, 1, lines.shape[-1]), (2, 2), mode="replicate")
        x = F.conv1d(padded, weights).view(lines.shape).movedim(-1, axis)
    return x


def _offsets(sides: Sequence[int]) -> Tensor:
    """Of all pixels from the centre, (…, n)."""
    steps = [torch.arange(side) - (side - 1) / 2 for side in sides]
    return torch.stack(torch.meshgrid(*steps, indexing="ij"), -1)


def _in_disc(x: Tensor) -> Tensor:
    """With the mean of the disc's rim outside the disc."""
    radius = min(x.shape[2:]) / 2 - 0.5
    far = _offsets(x.shape[2:]).norm(dim=-1)
    rim = ((far <= radius) & (far > radius - 1.5)).float()
    axes = tuple(range(2, x.ndim))
    mean = (x * rim).sum(axes, keepdim=True) / rim.sum()
    return mean + (x - mean) * (radius - far).clamp(0, 1)


def _shifted(x: Tensor, by: Tensor) -> Tensor:
    """Examples that were blurred, moved by vectors of pixels (B, n)."""
    sides = x.shape[2:]
    places = _offsets(sides) + by.view(len(x), *(1 for _ in sides), len(sides))
    halves = torch.tensor([max(side - 1, 1) / 2 for side in sides])
    mode = "bicubic" if len(sides) == 2 else "bilinear"
    return F.grid_sample(x, (places / halves).flip(-1), mode=mode, padding_mode="border", align_corners=True)


def _centre(x: Tensor, elements: Tensor) -> Tensor:
    """Where the mean of all examples is most symmetric, in pixels from the grid's centre (Gauss and Newton)."""
    mean = x.mean(0, keepdim=True)
    most = OFF_CENTRE * max(x.shape[2:])

    def broken(image: Tensor) -> Tensor:
        return (_in_disc(transform(image.expand(len(elements), *image.shape[1:]), elements)) - image).flatten()

    centre = torch.zeros(1, x.ndim - 2)
    for _ in range(2):
        here = _in_disc(_shifted(mean, centre))
        slopes = torch.gradient(here, dim=tuple(range(2, x.ndim)))
        changes = torch.stack([broken(slope) for slope in slopes], 1).double()
        centre = centre - (torch.linalg.pinv(changes, rtol=1e-3) @ broken(here).double()).float()
        centre = centre * min(1.0, most / max(centre.norm().item(), 1e-9))
    return centre

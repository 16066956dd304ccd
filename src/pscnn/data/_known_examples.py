"""What a task with a known answer consists of, and its examples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pscnn._types import AnyArray
from pscnn.data._known_shapes import draw
from pscnn.data._known_truth import Kept

NOISE = 0.12
LARGE = 0.85
"""Shapes of more than this size, which is between 0.7 and 1, are large."""
DARK, BRIGHT = 0.1, (0.6, 0.9)
"""Brightness of the ground, and lowest and highest of the shapes."""


@dataclass(frozen=True)
class KnownTask:
    """A task with a known answer.

    Attributes:
        words: What it is about, in a sentence.
        truth: The largest subgroups that can be enforced without loss; none where nothing can be known.
        shapes: What is drawn, each a class of its own if there are several; nothing but noise if there are none.
        centres: Directions (degrees), each a class of its own if there are several.
        spread: Examples are turned by up to so many degrees from their centre.
        period: Turning by it changes no class: a random multiple of it is added.
        hands: "one" as drawn, "both" mirrored at random, "told": mirrored ones are classes of their own.
        axis: In space: shapes point towards it or away from it, which are two classes; any pose if it is None.
        target: "classes"; "labels": whether it is of the first class, and whether it is large; "masks": pixels of the
            shape have its class, others none; or one of ``TARGETS``.
        random: Whether targets are drawn at random.
        may_abstain: Whether there are so few examples that "cannot tell" is as right as the truth.
        count: Examples.
        shift: Places are uniform in a disk or ball of this radius, in halves of the side.
        beside: By how much everything lies beside the centre, to the right and up, in pixels.
        dimension: 2 for images, 3 for volumes.
        side: In pixels; 28 for images and 16 for volumes if it is 0.
    """

    words: str
    truth: tuple[Kept, ...]
    shapes: tuple[str, ...]
    centres: tuple[float, ...] = (0.0,)
    spread: float = 180.0
    period: float = 360.0
    hands: str = "one"
    axis: tuple[float, float, float] | None = None
    target: str = "classes"
    random: bool = False
    may_abstain: bool = False
    count: int = 800
    shift: float = 0.1
    beside: tuple[float, ...] = ()
    dimension: int = 2
    side: int = 0

    @property
    def size(self) -> int:
        """Side length in pixels."""
        return self.side or (28 if self.dimension == 2 else 16)

    @property
    def kind(self) -> str:
        """Of the targets: classes, labels, masks, numbers, or vectors, which turn with the example."""
        return TARGETS[self.target][0] if self.target in TARGETS else self.target


GAP = 8.0
"""Degrees around the equator of an axis without examples, so that classes do not touch; half of it on each side."""


def _angle(direction: Tensor, times: int) -> Tensor:
    angle = times * torch.atan2(direction[:, 1], direction[:, 0])
    return torch.stack([angle.cos(), angle.sin()], 1)


_WIND = 1.2 * torch.tensor([math.cos(math.radians(30)), math.sin(math.radians(30))], dtype=torch.float64)

TARGETS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "height": ("numbers", lambda d, scale: d[:, 1:2]),
    "components": ("numbers", lambda d, scale: d),
    "angle twice": ("numbers", lambda d, scale: _angle(d, 2)),
    "angle four times": ("numbers", lambda d, scale: _angle(d, 4)),
    "size": ("numbers", lambda d, scale: scale[:, None]),
    "direction": ("vectors", lambda d, scale: d),
    "to its left": ("vectors", lambda d, scale: torch.stack([-d[:, 1], d[:, 0]], 1)),
    "with wind": ("vectors", lambda d, scale: d + _WIND),
}
"""Their kind, and the target as a function of the direction in which the shape points and of its size."""


class Placed(NamedTuple):
    """What examples are made of.

    Attributes:
        shape: Index of the shape, (N,).
        pose: Orthogonal matrices, (N, n, n).
        scale: Size of the shape, (N,).
        width: Half the width of the pen, (N,).
        shift: Place of the centre, (N, n).
        target: Classes (N,), of masks those of their shapes; or numbers or labels (N, k).
    """

    shape: Tensor
    pose: Tensor
    scale: Tensor
    width: Tensor
    shift: Tensor
    target: Tensor


def place(task: KnownTask, seed: int = 0, count: int | None = None) -> Placed:
    """Draw shapes, poses and targets at random.

    Args:
        task: One of ``TASKS``.
        seed: The same seed gives the same examples.
        count: How many; as the task says by default.
    """
    count = count or task.count
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*(shape or (count,)), generator=generator, dtype=torch.float64)

    n, told = task.dimension, task.hands == "told"
    sides = 2 if task.axis is not None else len(task.centres)
    classes = max(1, len(task.shapes)) * sides * (2 if told else 1)
    label = torch.randperm(count, generator=generator) % classes  # every class as often
    shape, rest = label // (sides * (2 if told else 1)), label % (sides * (2 if told else 1))
    side, mirrored = (rest // 2, rest % 2 == 1) if told else (rest, torch.zeros(count, dtype=torch.bool))
    if task.hands == "both":
        mirrored = uniform(0, 1) < 0.5
    if n == 2:
        angle = torch.tensor(task.centres, dtype=torch.float64)[side] + uniform(-task.spread, task.spread)
        angle += task.period * torch.floor(uniform(0, 360 / task.period))
        pose = _rotations(torch.deg2rad(angle))
        pose[mirrored] = pose[mirrored] @ torch.diag(torch.tensor([-1.0, 1.0], dtype=torch.float64))
    else:
        pose, upper = torch.linalg.qr(torch.randn(count, 3, 3, generator=generator, dtype=torch.float64))
        pose = pose * upper.diagonal(dim1=1, dim2=2).sign()[:, None]  # else the signs are the algorithm's
        pose = pose * torch.where(mirrored, -1.0, 1.0)[:, None, None] * torch.linalg.det(pose)[:, None, None]
        if task.axis is not None:
            pose = _towards(pose, torch.tensor(task.axis, dtype=torch.float64), side, uniform)
    scale = uniform(0.7, 1.0)
    place = torch.randn(count, n, generator=generator, dtype=torch.float64)
    place = task.shift * place / place.norm(dim=1, keepdim=True) * uniform(0, 1)[:, None] ** (1 / n)
    place += torch.tensor(task.beside or [0.0] * n, dtype=torch.float64) * 2 / task.size
    target = TARGETS[task.target][1](pose[:, :, 0], scale) if task.target in TARGETS else label
    if task.target == "labels":
        target = torch.stack([label == 0, scale > LARGE], 1).long()
    if task.random:
        target = target[torch.randperm(count, generator=generator)]
    width = uniform(0.07, 0.11) if n == 2 else uniform(0.1, 0.14)
    return Placed(shape, pose, scale, width, place, target)


def _rotations(angle: Tensor) -> Tensor:
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)


def _towards(pose: Tensor, axis: Tensor, side: Tensor, uniform: Callable[[float, float], Tensor]) -> Tensor:
    """Turn poses such that shapes point into the half space of the axis (side 0) or the other one (side 1)."""
    axis = axis / axis.norm()
    height = uniform(math.sin(math.radians(GAP / 2)), 1.0) * torch.where(side == 0, 1.0, -1.0)  # uniform on the sphere
    flat = pose[:, :, 0] - (pose[:, :, 0] @ axis)[:, None] * axis
    flat = flat / flat.norm(dim=1, keepdim=True)
    wanted = height[:, None] * axis + (1 - height**2).sqrt()[:, None] * flat
    middle = wanted + pose[:, :, 0]  # two half-turns, about the direction and about the middle, take it where wanted
    middle = middle / middle.norm(dim=1, keepdim=True)
    turn = 2 * middle[:, :, None] * middle[:, None] - torch.eye(3, dtype=torch.float64)
    about = 2 * pose[:, :, :1] * pose[:, None, :, 0] - torch.eye(3, dtype=torch.float64)
    return turn @ about @ pose


def render(task: KnownTask, placed: Placed, seed: int = 0) -> tuple[AnyArray, AnyArray]:
    """Images (N, s, s) or volumes (N, s, s, s) of 8 bits, and their targets; masks have the same shape.

    Args:
        task: One of ``TASKS``.
        placed: From ``place``.
        seed: Of the noise.
    """
    rng = np.random.default_rng(seed)
    sides, target = [task.size] * task.dimension, placed.target.numpy()
    if not task.shapes:
        return rng.integers(0, 256, (len(target), *sides), dtype=np.uint8), target
    drawn = np.empty((len(target), *sides))
    for k, shape in enumerate(task.shapes):
        rows = placed.shape == k
        at = (placed.pose[rows], placed.scale[rows], placed.width[rows], placed.shift[rows])
        drawn[rows.numpy()] = draw(shape, *at, task.size)[:, 0].numpy()
    bright = rng.uniform(*BRIGHT, (len(drawn), *[1] * task.dimension))
    values = DARK + (bright - DARK) * drawn + NOISE * rng.standard_normal(drawn.shape)
    if task.target == "masks":
        target = np.where(drawn > 0.5, 1 + target.reshape(-1, *[1] * task.dimension), 0)
    return np.round(255 * values.clip(0, 1)).astype(np.uint8), target

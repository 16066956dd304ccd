"""Volumes whose symmetries are known: coils of wire, drawn exactly at any pose, with no download.

A body is a helix that narrows towards one end, so it has no symmetry of its own and is either left- or right-handed.
What its class depends on is the variant's:

========  ===================================================================  ==================================
variant   the two classes                                                      kept by
========  ===================================================================  ==================================
any       a helix, or a flat spiral of the same turns; any pose and hand       O(3)
chiral    left- or right-handed; any rotation                                  SO(3)
axis      upright or upside down; turned about z                               rotations about z
fixed     upright or turned by 180° about x, up to 10°                         the identity (within 10°)
========  ===================================================================  ==================================
"""

import math

import torch
from torch import Tensor

from pscnn.data._digits import SPLITS
from pscnn.data._folder import check_known
from pscnn.data._windows import Labelled

__all__ = ["SIZES", "VARIANTS", "Shapes", "load"]

VARIANTS = ("any", "chiral", "axis", "fixed")
SIZES = (16, 28)
BALLS = 18
"""Balls along the wire."""
TURNS = 1.5
RADII = (0.6, 0.25)
"""Of the coil at its two ends, as shares of half the side."""
HALF_LENGTH = 0.65
THICKNESS = 0.11
JITTER = 0.03
TILT = math.radians(10)


class Shapes(Labelled):
    """Bodies of one split; ``images`` draws them.

    Args:
        count: How many, in two classes of equal size.
        variant: One of ``VARIANTS``.
        size: Side length, 16 or 28.
    """

    def __init__(self, count: int, variant: str, size: int = 16) -> None:
        check_known("variant", variant, VARIANTS)
        if size not in SIZES:
            raise ValueError(f"shapes have side length {SIZES}, got {size}")
        if count < 2:
            raise ValueError(f"needs two bodies or more, got {count}")
        self.variant, self.size = variant, size
        self.labels = torch.arange(count) % 2

    def images(self, rows: Tensor, seed: int) -> Tensor:
        """Volumes of some rows, at poses drawn from a seed, shape (B, 1, size, size, size), with values in [−1, 1].

        Args:
            rows: Indices; volumes are made on their device.
            seed: Seeds poses and the jitter of the wire.
        """
        self._move(rows.device)
        generator = torch.Generator(rows.device).manual_seed(seed)
        labels = self.labels[rows]
        jitter = JITTER * torch.randn(len(rows), BALLS, 3, device=rows.device, generator=generator)
        centres = _body(labels, self.variant) + jitter
        centres = centres @ _poses(labels, self.variant, generator).transpose(1, 2)
        return _draw(centres, self.size)


def load(
    variant: str, *, size: int = 16, train: int = 1000, validation: int = 200, test: int = 500
) -> dict[str, Shapes]:
    """The splits; every image is drawn from its own seed, so they have none in common.

    Example:
        >>> shapes = load("chiral", train=10)["train"]
        >>> shapes.images(torch.arange(3), seed=0).shape
        torch.Size([3, 1, 16, 16, 16])
    """
    counts = train, validation, test
    return {split: Shapes(count, variant, size) for split, count in zip(SPLITS, counts, strict=True)}


def _body(labels: Tensor, variant: str) -> Tensor:
    """The balls of every body before it is posed, shape (B, balls, 3)."""
    t = torch.linspace(-1, 1, BALLS, device=labels.device)
    radius = RADII[0] + (RADII[1] - RADII[0]) * (t + 1) / 2
    angle = math.pi * TURNS * t
    helix = torch.stack([radius * angle.cos(), radius * angle.sin(), HALF_LENGTH * t], 1)
    bodies = helix.expand(len(labels), -1, -1)
    if variant != "any":
        return bodies
    spiral = helix * torch.tensor([1.0, 1.0, 0.0], device=labels.device)  # flat, so it is its own mirror image
    return torch.where(labels.view(-1, 1, 1) == 1, spiral, bodies)


def _poses(labels: Tensor, variant: str, generator: torch.Generator) -> Tensor:
    """One element of O(3) per body, shape (B, 3, 3)."""
    count, device = len(labels), labels.device
    one = labels.view(-1, 1, 1) == 1
    if variant in ("any", "chiral"):
        turn = _rotations(torch.randn(count, 4, device=device, generator=generator))
        coin = torch.rand(count, device=device, generator=generator).view(-1, 1, 1) < 0.5
        return torch.where(coin if variant == "any" else one, -turn, turn)
    if variant == "axis":
        angle = math.pi * torch.rand(count, device=device, generator=generator)
        axis = torch.tensor([0.0, 0.0, 1.0], device=device)
    else:
        angle = TILT / 2 * torch.rand(count, device=device, generator=generator)
        axis = torch.nn.functional.normalize(torch.randn(count, 3, device=device, generator=generator), dim=1)
    turn = _rotations(torch.cat([angle.cos()[:, None], angle.sin()[:, None] * axis], 1))
    upside_down = torch.diag(torch.tensor([1.0, -1.0, -1.0], device=device))
    return torch.where(one, turn @ upside_down, turn)


def _rotations(quaternions: Tensor) -> Tensor:
    """Rotation matrices of quaternions of any length, (B, 4) to (B, 3, 3)."""
    w, x, y, z = torch.nn.functional.normalize(quaternions, dim=1).unbind(1)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return torch.stack([torch.stack(row, 1) for row in rows], 1)


def _draw(centres: Tensor, size: int) -> Tensor:
    """Gaussian balls at (B, balls, 3) in a cube from −1 to 1; the last axis of the volume is x, as in images."""
    grid = (2 * torch.arange(size, device=centres.device) + 1) / size - 1
    x, y, z = torch.exp(-((grid - centres[..., None]) ** 2) / (2 * THICKNESS**2)).unbind(2)
    return torch.einsum("bpk,bpj,bpi->bkji", z, y, x).clamp(max=1)[:, None] * 2 - 1

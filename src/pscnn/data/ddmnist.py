"""Double digits: pairs of digits that may turn and flip one by one, but not as a pair (paper, Appendix F.1.2).

The class is 10 · left + right (with all ten digits). Each digit is transformed by a random element of its own symmetry
group; turning the whole image by 180° or mirroring it would exchange the digits and so change the class. Images are
drawn anew each epoch, in batch, on the device that trains.

Differences from the paper, on purpose: validation and test digits are disjoint (its code draws both from the same
digits); the rotation there and back that gives every digit the same interpolation artefacts is applied under every
symmetry (its code leaves it out for SO(2) and O(2), the text does not); validation and test images are drawn once and
stay the same, so that the choice of the best epoch is not a choice of a lucky draw. ``overlap`` and
``released_rotation`` undo the first two, to measure what they are worth.
"""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn.data._digits import SOURCES, SPLITS, Digits, load_digits
from pscnn.data._folder import DataError, check_known
from pscnn.data._windows import Labelled

__all__ = ["SOURCES", "SYMMETRIES", "DataError", "DoubleDigits", "load", "render"]

SYMMETRIES = ("C1", "C4", "SO2", "D1", "D4", "O2")
"""How each digit may move: not at all, right angles, any rotation; the same with left–right flips."""

MEAN, STD = 0.06535, 0.55507


class DoubleDigits(Labelled):
    """Pairs of digits of one split, as indices; ``images`` draws them.

    Args:
        digits: Where to draw single digits from.
        per_class: Images per class.
        symmetry: One of ``SYMMETRIES``.
        seed: Seeds the choice of digits (with replacement).
        kinds: Use the digits 0 to kinds − 1; the number of classes is its square.
        released_rotation: As for ``render``.
    """

    def __init__(
        self, digits: Digits, per_class: int, symmetry: str, seed: int, kinds: int = 10, released_rotation: bool = False
    ) -> None:
        check_known("digit symmetry", symmetry, SYMMETRIES)
        if per_class < 1:
            raise ValueError(f"needs at least one image per class, got {per_class}")
        if not 2 <= kinds <= 10:
            raise ValueError(f"needs 2 to 10 kinds of digits, got {kinds}")
        self.symmetry, self.released_rotation = symmetry, released_rotation
        self.bank = digits.images
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.arange(kinds**2).repeat_interleave(per_class)
        pools = [torch.nonzero(digits.labels == d)[:, 0] for d in range(kinds)]
        self.pairs = torch.empty(len(self.labels), 2, dtype=torch.long)
        for side, wanted in enumerate((self.labels // kinds, self.labels % kinds)):
            for digit, pool in enumerate(pools):
                rows = torch.nonzero(wanted == digit)[:, 0]
                self.pairs[rows, side] = pool[torch.randint(len(pool), (len(rows),), generator=generator)]

    def images(self, rows: Tensor, seed: int) -> Tensor:
        """The images of some rows, with augmentations drawn from a seed, shape (B, 1, 2·side, 2·side).

        Args:
            rows: Indices; images are made on their device.
            seed: Seeds the augmentation.
        """
        self._move(rows.device)
        generator = torch.Generator(rows.device).manual_seed(seed)
        return render(self.bank[self.pairs[rows]], self.symmetry, generator, self.released_rotation)


def render(digits: Tensor, symmetry: str, generator: torch.Generator, released_rotation: bool = False) -> Tensor:
    """Transform each digit by a random element of its symmetry and put pairs side by side.

    Args:
        digits: Values in [0, 1], shape (B, 2, side, side).
        symmetry: One of ``SYMMETRIES``.
        generator: On the digits' device.
        released_rotation: Rotate as the paper's released code does: digits at any angle once only, the others there and
            back by angles cut to whole degrees.

    Returns:
        Normalised images, shape (B, 1, 2·side, 2·side).
    """
    count, side = digits.shape[0] * 2, digits.shape[-1]
    uniform = torch.rand(3, count, device=digits.device, generator=generator)
    there = 2 * math.pi * uniform[0]
    if symmetry in ("SO2", "O2"):
        target = 2 * math.pi * uniform[1]
    elif symmetry in ("C4", "D4"):
        target = math.pi / 2 * torch.floor(4 * uniform[1])
    else:
        target = torch.zeros_like(there)
    flat = digits.reshape(count, 1, side, side)
    if not released_rotation:
        flat = _rotate(_rotate(flat, there), target - there)  # the same artefacts for every digit, whatever its angle
    elif symmetry in ("SO2", "O2"):
        flat = _rotate(flat, target)
    else:
        first, last = torch.rad2deg(there) - 180, torch.rad2deg(target)
        flat = _rotate(_rotate(flat, torch.deg2rad(first.trunc())), torch.deg2rad((last - first).trunc()))
    if symmetry in ("D1", "D4", "O2"):
        flat = torch.where(uniform[2].view(-1, 1, 1, 1) < 0.5, flat.flip(-1), flat)
    pair = flat.view(-1, 2, side, side).transpose(1, 2).reshape(-1, 1, side, 2 * side)
    return (F.pad(pair, (0, 0, side // 2, side // 2)) - MEAN) / STD


def _rotate(images: Tensor, angles: Tensor) -> Tensor:
    """Counter-clockwise rotations about the centre, bilinear, zeros outside."""
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    matrices = torch.stack([torch.stack([cos, -sin, zero], -1), torch.stack([sin, cos, zero], -1)], -2)
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def load(
    source: str,
    symmetry: str,
    *,
    seed: int,
    size: int = 56,
    per_class: dict[str, int] | None = None,
    kinds: int = 10,
    folder: str | Path | None = None,
    overlap: bool = False,
    released_rotation: bool = False,
) -> dict[str, DoubleDigits]:
    """The three splits, made of disjoint digits.

    Args:
        source: "mnist" or "digits".
        symmetry: One of ``SYMMETRIES``.
        seed: Seeds the choice of pairs.
        size: Side length of the images, 56 or 28.
        per_class: Images per class of each split; 100, 20 and 50 as in the paper by default.
        kinds: Use the digits 0 to kinds − 1 only, for smaller problems.
        folder: Data folder.
        overlap: Draw validation and test images from the same digits, all that either split has.
        released_rotation: As for ``render``.

    Example:
        >>> splits = load("digits", "O2", seed=0, size=28, per_class={"train": 2, "validation": 1, "test": 1})
        >>> splits["train"].images(torch.arange(3), seed=0).shape
        torch.Size([3, 1, 28, 28])
    """
    if size not in (28, 56):
        raise ValueError(f"images have side 28 or 56, got {size}")
    counts = {"train": 100, "validation": 20, "test": 50, **(per_class or {})}
    digits = load_digits(source, size // 2, folder)
    if overlap:
        joined = Digits(*map(torch.cat, zip(digits["validation"], digits["test"], strict=True)))
        digits = {**digits, "validation": joined, "test": joined}
    return {
        split: DoubleDigits(digits[split], counts[split], symmetry, 4 * seed + k, kinds, released_rotation)
        for k, split in enumerate(SPLITS)
    }

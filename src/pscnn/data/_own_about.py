"""What a file of people's own data holds: shapes, targets, ranges, and how further examples are read for it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from pscnn._files import from_json

KINDS = ("classes", "labels", "numbers", "vectors", "masks")
"""Of targets: one class, several labels at once, numbers, vectors that turn with the example, a class per pixel."""
MOST_CHANNELS = 4096
MOST_NUMBERS = 2**28
"""Of one example, over all channels."""


@dataclass(frozen=True)
class About:
    """What a prepared file holds.

    Attributes:
        shape: Of every example: rows and columns, of volumes planes first.
        channels: Of every pixel.
        names: Of the classes (of pixels, if targets are masks), of the labels, or of the numbers.
        kind: Of the targets, one of ``KINDS``.
        low: The value that becomes −1, after numbers of 8 and 16 bits were divided by the largest of their kind.
        high: The value that becomes 1.
        means: Of the training targets, if they are numbers; of vectors 0, which all turns keep.
        deviations: Their standard deviations; of vectors the same for all components.
        counts: Examples for training, validation and testing.
        notes: What was done to the data, in sentences.
        source: Where they came from.
        frame: The shape to which every example is padded, before it is resized to ``shape``; () if each is padded to
            the proportions of ``shape``, whatever its own size.
        spacing: Edge length of the voxels to which volumes of known spacing are resampled; 0 if it is not known.
        dimension_given: Whether it was said that arrays are images, or volumes, and not seen from their shapes.
        content: How much of every side, in its middle, examples fill, if it can be seen where they end; else ().
    """

    shape: tuple[int, ...]
    channels: int
    names: tuple[str, ...]
    kind: str
    low: float
    high: float
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""
    frame: tuple[int, ...] = ()
    spacing: float = 0.0
    dimension_given: bool = False
    content: tuple[int, ...] = ()

    @property
    def dimension(self) -> int:
        """2 for images, 3 for volumes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The longest side."""
        return max(self.shape)

    @property
    def regression(self) -> bool:
        """Whether targets are amounts, so that errors are measured in deviations."""
        return self.kind in ("numbers", "vectors")

    def to_json(self) -> str:
        """As text, from which ``from_json`` makes it again."""
        values = asdict(self)
        for name in ("dimension_given", "content"):
            if not values[name]:  # as versions wrote that did not know it: runs are found by this text
                del values[name]
        return json.dumps(values)

    def check(self) -> None:
        """Raise a ``ValueError`` or ``TypeError`` unless everything is of its kind and goes together."""
        sides = (self.shape, self.frame, self.content)
        tuples = (*sides, self.names, self.means, self.deviations, self.counts, self.notes)
        wholes, texts = (
            (*self.shape, *self.frame, *self.content, self.channels, *self.counts),
            (*self.names, *self.notes, self.source, self.kind),
        )
        if {*map(type, wholes)} != {int} or {*map(type, texts)} != {str} or {*map(type, tuples)} != {tuple}:
            raise TypeError("shape, frame, channels and counts must be whole numbers, names and notes must be text")
        if type(self.dimension_given) is not bool:
            raise TypeError("dimension_given must be true or false")
        numbers = (self.low, self.high, *self.means, *self.deviations, self.spacing)
        if not all(type(value) in (int, float) and math.isfinite(value) for value in numbers) or self.low >= self.high:
            raise ValueError("low, high, means, deviations and spacing must be finite numbers, low below high")
        if self.kind not in KINDS:
            raise ValueError(f"targets must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.dimension not in (2, 3) or len(self.frame) not in (0, self.dimension):
            raise ValueError(f"images have two sides and volumes three, got {self.shape} and {self.frame}")
        if self.content and not (
            len(self.content) == self.dimension
            and all(1 <= n <= side for n, side in zip(self.content, self.shape, strict=True))
        ):
            raise ValueError(f"no {self.content} pixels lie in examples of {self.shape}")
        if min(*self.shape, *self.frame) < 1 or not 1 <= self.channels <= MOST_CHANNELS or self.spacing < 0:
            raise ValueError(f"no examples have shape {self.shape}, {self.channels} channels, spacing {self.spacing}")
        if self.channels * max(math.prod(self.shape), math.prod(self.frame)) > MOST_NUMBERS:
            raise ValueError(f"examples of shape {self.shape} with {self.channels} channels are too large")
        if len(self.names) < (2 if self.kind in ("classes", "masks") else 1):
            raise ValueError("there must be two classes, or one target, or more")
        if self.kind == "vectors" and len(self.names) != self.dimension:
            raise ValueError("vectors have as many components as examples have sides")
        if self.regression and {len(self.means), len(self.deviations)} != {len(self.names)}:
            raise ValueError("there must be as many means and deviations as targets")

    @classmethod
    def from_json(cls, text: str) -> About:
        """The other way round, also of what earlier versions wrote; text that is something else is a ``ValueError``."""
        try:
            values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in from_json(text).items()}
            if "shape" not in values:  # of versions that knew squares and cubes, classes and numbers
                dimension, size = values.pop("dimension"), values.pop("size")
                regression = values.pop("regression")
                if dimension not in (2, 3) or type(regression) is not bool:
                    raise ValueError("dimension must be 2 or 3, regression true or false")
                values |= {"shape": (size,) * dimension, "kind": "numbers" if regression else "classes"}
            about = cls(**values)
            about.check()
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ValueError(f"not a description of prepared data: {error}") from None
        return about

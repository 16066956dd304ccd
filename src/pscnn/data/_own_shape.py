"""The one shape of people's own examples: which it is, what it costs, and all examples brought to it."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pscnn._memory import half_of_memory
from pscnn._types import AnyArray
from pscnn.data._folder import DataError
from pscnn.data._own_about import About
from pscnn.data._own_files import Example, is_bytes, unit
from pscnn.data._own_fit import channels_first, common_spacing, fit, resize, steps, with_spacing

OUTLIER = 20
"""Times as large as the usual one a side may be: all examples are padded to the largest."""
SHOWS, FEW = 0.01, 0.05
"""Standard deviations by which the edge of an example may differ from the padding around it before it shows, and the
share of examples in which it may show."""


def choose_shape(examples: Sequence[Example], source: object, size: int | None, square: bool) -> dict[str, Any]:
    """Shape, frame, spacing and channels that all examples get, and what is done to them, in sentences."""
    if len({example.values.ndim for example in examples}) > 1:
        raise DataError("some files are images and some are volumes: all must be of one kind")
    kinds = {example.values.shape[-1] for example in examples}
    if len(kinds - {1}) > 1:
        raise DataError(f"{source}: examples have {' and '.join(map(str, sorted(kinds)))} channels; give all the same")
    sides, spacing, notes = _equally_spaced(examples, source)
    frame = tuple(max(side) for side in zip(*sides, strict=True))
    usual = statistics.median(max(own) for own in sides)
    if max(frame) > OUTLIER * usual:
        large = max(sides, key=max)
        raise DataError(
            f"{source}: an example of {times(large)} is among examples whose longer side is mostly {usual:g}, and all "
            "would be padded to it: leave it out, or make it smaller"
        )
    different = len({*sides}) > 1
    if square and len({*frame}) > 1:
        notes.append(
            f"Examples of {times(frame)} were padded to equal sides of {max(frame)}, so that quarter turns keep them "
            "whole."
        )
        frame = (max(frame),) * len(frame)
    shape = frame
    if size is None and different:
        notes.append(f"Examples of {len({*sides})} different shapes were padded to {times(frame)}.")
    if size is not None:
        shape = (size,) * len(frame) if different else tuple(max(1, round(n * size / max(frame))) for n in frame)
    if size is not None and (different or shape != frame):
        factor = max(max(own) for own in sides) / size
        lost = f", and details finer than {factor:.2g} pixels were lost" if factor > 1 else ""
        what = f"{len({*sides})} different shapes" if different else times(frame)
        equal = all(len({*own}) == 1 for own in sides) or not different
        notes.append(
            f"Examples of {what} were {'' if equal else 'filled up to equal sides and '}resized to "
            f"{times(shape)}{lost}."
        )
        frame = () if different else frame
    if len({*shape}) > 1:
        notes.append(
            f"The sides of {times(shape)} differ: a turned example keeps this frame, and what leaves it is cut off. "
            "--square pads to equal sides."
        )
    return {"shape": shape, "frame": frame, "spacing": spacing, "channels": max(kinds), "notes": notes}


def _equally_spaced(examples: Sequence[Example], source: object) -> tuple[list[tuple[int, ...]], float, list[str]]:
    """The sides of all examples after resampling to one spacing, which it is (0 if it is not known), and a note."""
    sides: list[tuple[int, ...]] = [example.values.shape[:-1] for example in examples]
    known = [example.spacing for example in examples if example.spacing is not None]
    if not known:
        return sides, 0.0, []
    if len(known) < len(examples):
        raise DataError(f"{source}: {len(examples) - len(known)} examples have no voxel spacing, but others have one")
    spacing = common_spacing(sides, known)
    if all(abs(length / spacing - 1) < 1e-3 for own in known for length in own):
        return sides, spacing, []
    after = [with_spacing(own, lengths, spacing) for own, lengths in zip(sides, known, strict=True)]
    kind = "×".join(f"{length:.3g}" for length in known[0]) if len({*known}) == 1 else f"of {len({*known})} kinds"
    note = (
        f"Voxels with spacing {kind} were resampled to {spacing:.3g} along every side, since turns mix the sides: "
        f"{_shapes(Counter(sides))} became {_shapes(Counter(after))}."
    )
    return after, spacing, [note]


def times(sides: Sequence[int]) -> str:
    """Sides in words: 28×28."""
    return "×".join(map(str, sides))


def _shapes(shapes: Counter[tuple[int, ...]]) -> str:
    (most, _), *others = shapes.most_common()
    return times(most) + (f" (and {len(others)} other shapes)" if others else "")


def all_pixels(examples: list[Example], about: About, train: AnyArray, source: object) -> tuple[AnyArray, float, float]:
    """All examples in one shape, scaled, and the values that become −1 and 1.

    Values of 8 bits are kept in half precision, others in single: 16 bits would lose some.
    """
    of_bytes = all(is_bytes(example.values) for example in examples)
    whole = (len(examples), about.channels, *about.shape)
    kind = np.float16 if of_bytes else np.float32
    _check_room(math.prod(whole) * np.dtype(kind).itemsize, about, source)
    pixels = np.empty(whole, dtype=kind)
    if of_bytes:
        for k, example in enumerate(examples):
            pixels[k] = scale(fitted(example, about), 0.0, 1.0)
        if pixels[train].min() == pixels[train].max():
            raise DataError(f"{source}: all training examples have the same value everywhere")
        return pixels, 0.0, 1.0
    for k, example in enumerate(examples):
        pixels[k] = fitted(example, about)
    low, high = (
        min(float(pixels[k].min()) for k in np.flatnonzero(train)),
        max(float(pixels[k].max()) for k in np.flatnonzero(train)),
    )
    if not high > low:
        raise DataError(f"{source}: all training examples have the same value everywhere")
    for row in pixels:  # in place, one by one: the whole may be large
        row[...] = scale(row, low, high)
    return pixels, low, high


def _check_room(needed: int, about: About, source: object) -> None:
    room = half_of_memory()
    if needed > room:
        raise DataError(
            f"{source}: {sum(about.counts)} examples of {times(about.shape)} with {about.channels} channels take "
            f"{needed / 2**30:.1f} GiB, more than {room / 2**30:.1f} GiB, half of this machine's memory: give a "
            "smaller --size"
        )


def fitted(example: Example, about: About) -> AnyArray:
    """An example with the channels, spacing and shape that prepared data have, not yet scaled."""
    x = channels_first(unit(example.values))
    if len(x) < about.channels:
        x = x.expand(about.channels, *x.shape[1:])
    if example.spacing is not None and about.spacing:
        x = resize(x, with_spacing(x.shape[1:], example.spacing, about.spacing))
    return fit(x, about.shape, about.frame).numpy()


def content_of(pixels: AnyArray, examples: Sequence[Example], about: About) -> tuple[int, ...]:
    """How much of every side nearly all examples fill, if it can be seen where they end and padding begins; else ().

    Args:
        pixels: The examples in their one shape.
        examples: As they were read.
        about: What they are.
    """
    filled = np.array([_filled(example, about) for example in examples])
    padded = np.flatnonzero((filled < about.shape).any(1))
    if len(padded) <= FEW * len(examples):
        return ()
    unit = float(pixels[:: max(1, len(pixels) // 200)].astype(np.float64).std())
    shows = [_edge_shows(pixels[k].astype(np.float64), filled[k], SHOWS * unit) for k in padded]
    if sum(shows) <= FEW * len(examples):
        return ()
    return tuple(np.quantile(filled, FEW, axis=0, method="lower").astype(int).tolist())


def _filled(example: Example, about: About) -> list[int]:
    """Pixels along each side of the one shape that an example fills."""
    sides: Sequence[int] = example.values.shape[:-1]
    if example.spacing is not None and about.spacing:
        sides = with_spacing(sides, example.spacing, about.spacing)
    own, whole = steps(sides, about.shape, about.frame)
    return [max(1, n * side // all_of) for n, side, all_of in zip(own, about.shape, whole, strict=True)]


def _edge_shows(x: AnyArray, filled: AnyArray, least: float) -> bool:
    """Whether the outermost pixels of an example (C, …) differ from the padding beside them."""
    first = (np.array(x.shape[1:]) - filled) // 2
    inner = x[(slice(None), *(slice(k, k + n) for k, n in zip(first, filled, strict=True)))]
    around = x[(slice(None), *(0 if k else slice(k, k + n) for k, n in zip(first, filled, strict=True)))]
    fill = around.reshape(len(x), -1).mean(1)
    faces = [np.take(inner, end, axis).reshape(len(x), -1) for axis, k in enumerate(first, 1) if k for end in (0, -1)]
    return bool(faces) and max(np.sqrt(np.square(face - fill[:, None]).mean()) for face in faces) > least


def all_masks(masks: Sequence[AnyArray], examples: Sequence[Example], about: About) -> AnyArray:
    """Masks, brought to one shape as their examples are."""
    out = np.empty((len(masks), *about.shape), dtype=np.int16)
    for k, (mask, example) in enumerate(zip(masks, examples, strict=True)):
        x = torch.from_numpy(mask)[None]
        if example.spacing is not None and about.spacing:
            x = resize(x, with_spacing(x.shape[1:], example.spacing, about.spacing))
        out[k] = fit(x, about.shape, about.frame)[0].numpy()
    return out


def scale(pixels: AnyArray, low: float, high: float) -> AnyArray:
    """Values from ``low`` to ``high`` as −1 to 1; those far beyond are cut off."""
    return np.clip(2 * (pixels - low) / (high - low) - 1, -4, 4)

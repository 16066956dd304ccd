"""People's own data: folders of images, arrays in MedMNIST's layout, tables of paths and targets.

``prepare`` reads everything, checks it, brings it to one shape and writes one file, before any training starts;
``load`` reads that file. What is accepted:

- a folder with one sub-folder of images per class, or with ``train``, ``val`` and ``test`` that have such sub-folders;
- an ``.npz`` file with ``train_images``, ``train_labels`` and the same for ``val`` and ``test``, or with ``images`` and
  ``labels``; images are (N, H, W) or (N, H, W, channels), volumes (N, D, H, W) or (N, D, H, W, channels);
- a ``.csv`` file: paths in the column ``path``, ``file`` or ``image`` (else the first), targets in the others, and if
  there is a column ``split``, what each row is for. Numbers are targets of a regression, unless their column is called
  ``label`` or ``class``.

Images are PNG, JPEG, TIFF, BMP or ``.npy`` files of one channel or in colour; ``.npy`` files may be volumes.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pscnn._types import AnyArray
from pscnn.data._contact import contact_sheet
from pscnn.data._digits import SPLITS
from pscnn.data._folder import DataError, read_arrays, save, shuffled_classes
from pscnn.data._own_about import About
from pscnn.data._own_sources import SUFFIXES, Found, fit, number, read, read_file
from pscnn.data._windows import Examples

__all__ = [
    "SUFFIXES",
    "About",
    "Examples",
    "find",
    "load",
    "prepare",
    "read_about",
    "read_example",
    "write_contact_sheet",
]

SIDES = {2: (28, 56), 3: (16, 28)}
"""Side lengths to which images and volumes are brought, since there are networks for them."""
SHARE = 0.2
"""Of every class for validation, and as much for testing, where the data do not say it."""
FEWEST = 5
"""Examples that every class needs."""


def prepare(
    source: str | Path,
    out: str | Path,
    *,
    size: int | None = None,
    seed: int = 0,
    regression: bool | None = None,
    on_read: Callable[[int, int], None] = lambda done, of: None,
) -> About:
    """Read and check data, and write them as one file.

    Args:
        source: Folder, ``.npz`` or ``.csv``; see the module.
        out: The file to write.
        size: Side length, one of ``SIDES``; by default the one that suits the data.
        seed: Of the split, where the data do not say it: a fifth of every class for validation and for testing.
        regression: Whether the targets of a table are numbers; by default as they look.
        on_read: Called with how many files have been read, and of how many.

    Raises:
        DataError: If anything is wrong; nothing is written then.
    """
    source = Path(source).expanduser()
    found = read(source, regression, on_read)
    if found.regression:
        with np.errstate(over="ignore"):  # what is too large is found below
            targets: AnyArray = np.asarray(found.targets, dtype=np.float32).reshape(len(found.targets), -1)
        numbered = tuple(f"target {k + 1}" for k in range(targets.shape[1]))
        found.names = found.names or (numbered if len(numbered) > 1 else ("target",))
        bad = np.flatnonzero(~np.isfinite(targets).all(1))
        if len(bad):
            raise DataError(f"{source}: {len(bad)} targets are not finite numbers, the first in example {bad[0] + 1}")
        strata = np.zeros(len(targets), dtype=np.int64)
    else:
        found.names = found.names or tuple(sorted({str(t) for t in found.targets}, key=_natural))
        strata = np.asarray([found.names.index(str(t)) for t in found.targets], dtype=np.int64)
        targets = strata
    split = _split(strata, found, source, seed)
    dimension = found.examples[0].ndim - 1
    sides = [max(example.shape[:-1]) for example in found.examples]
    if not size:  # the nearer by ratio
        size = SIDES[dimension][int(np.median(sides)) > math.sqrt(math.prod(SIDES[dimension]))]
    if size not in SIDES[dimension]:
        raise DataError(f"size must be one of {', '.join(map(str, SIDES[dimension]))}, got {size}")
    channels = max(example.shape[-1] for example in found.examples)
    shapes = {example.shape[:-1] for example in found.examples}
    notes = list(found.notes)
    if shapes != {(size,) * dimension}:
        what = f"{len(shapes)} different shapes" if len(shapes) > 1 else "×".join(map(str, next(iter(shapes))))
        equal = all(len(set(shape)) == 1 for shape in shapes)
        notes.append(
            f"Examples of {what} were {'' if equal else 'filled up to equal sides and '}resized to side {size}."
        )
    pixels = np.stack([fit(example, size, channels) for example in found.examples])
    low, high = (0.0, 1.0) if found.bytes_only else (float(f(pixels[split == 0])) for f in (np.min, np.max))
    if not high > low:
        raise DataError(f"{source}: all training examples have the same value everywhere")
    pixels = _scale(pixels, low, high)
    about = About(
        (size,) * dimension, channels, found.names, "numbers" if found.regression else "classes", low, high,
        counts=tuple(int((split == k).sum()) for k in range(3)), notes=tuple(notes), source=str(source),
    )  # fmt: skip
    if found.regression:
        train = targets[split == 0]
        deviations = train.std(0)
        if not (deviations > 0).all():
            name = found.names[int(np.argmin(deviations))]
            raise DataError(f"{source}: the target {name!r} is the same in all training examples")
        about = replace(about, means=tuple(map(float, train.mean(0))), deviations=tuple(map(float, deviations)))
    write_prepared(Path(out), pixels, targets, split, about)
    return about


def write_contact_sheet(path: str | Path, out: str | Path) -> None:
    """Write a picture of examples of a prepared file, to see whether they were read as they were meant.

    Args:
        path: The prepared file.
        out: A PNG file.
    """
    pixels = _open(Path(path), ("pixels",))["pixels"]
    save(Path(out), io.BytesIO(contact_sheet(pixels)), "Choose another folder")


def write_prepared(out: Path, pixels: AnyArray, targets: AnyArray, split: AnyArray, about: About) -> None:
    """Write a prepared file, whole or not at all."""
    arrays: dict[str, Any] = {"pixels": pixels.astype(np.float16), "targets": targets, "split": split.astype(np.uint8)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, about=np.array(about.to_json()), **arrays)
    save(out, buffer, "Choose another folder")


def read_about(path: str | Path) -> About:
    """What a prepared file holds."""
    try:
        return About.from_json(str(_open(Path(path), ("about",))["about"]))
    except (ValueError, TypeError):
        raise DataError(f"{path} was not made by this version of pscnn discover") from None


def find(name: str | Path, run: Path | None) -> Path:
    """A prepared file: where its name says, or, of a run's folder that was moved with it, in a folder above the run.

    Args:
        name: Its path, or its name alone.
        run: The run's folder.
    """
    places = [] if run is None else [parent / Path(name).name for parent in list(run.resolve().parents)[:2]]
    return next((place for place in (*places, Path(name)) if place.is_file()), Path(name))


def load(path: str | Path) -> dict[str, Examples]:
    """The splits of a prepared file."""
    arrays = _open(Path(path), ("pixels", "targets", "split"))
    _check_arrays(Path(path), arrays, read_about(path))
    kinds = [torch.from_numpy(arrays[name]) for name in ("pixels", "targets")]
    chosen = [torch.from_numpy(arrays["split"] == k) for k in range(3)]
    return {name: Examples(*(kind[rows] for kind in kinds)) for name, rows in zip(SPLITS, chosen, strict=True)}


def _check_arrays(path: Path, arrays: dict[str, AnyArray], about: About) -> None:
    """Raise unless the arrays of a prepared file are what its description says."""
    pixels, targets, split = (arrays[name] for name in ("pixels", "targets", "split"))
    count = len(split) if split.ndim else 0
    right = pixels.dtype == np.float16 and pixels.shape == (count, about.channels, *about.shape)
    if about.regression:
        right &= targets.dtype == np.float32 and targets.shape == (count, len(about.names))
    else:
        right &= targets.dtype == np.int64 and targets.shape == (count,) and count > 0
        right = right and targets.min() >= 0 and targets.max() < len(about.names)
    right = right and split.dtype == np.uint8 and {*np.unique(split).tolist()} == {0, 1, 2}
    if not right or not np.isfinite(pixels).all() or not np.isfinite(targets).all():
        raise DataError(f"{path} does not hold what it says; pscnn discover makes it again")


def read_example(path: str | Path, about: About) -> Tensor:
    """One image or volume as a network for prepared data expects it, (C, s, s) or (C, s, s, s).

    Args:
        path: PNG, JPEG, TIFF, BMP or ``.npy``.
        about: What the network was trained on.
    """
    example, _ = read_file(Path(path))
    if example.ndim - 1 != about.dimension:
        wanted = "an image" if about.dimension == 2 else "a volume"
        raise DataError(f"{path}: the network expects {wanted}, got an array of shape {example.shape[:-1]}")
    if example.shape[-1] > about.channels:
        example = example.mean(-1, keepdims=True)
    pixels = fit(example, about.size, about.channels)
    low, high, span = float(pixels.min()), float(pixels.max()), about.high - about.low
    if low < about.low - span or high > about.high + span:
        raise DataError(
            f"{path} has values from {low:.4g} to {high:.4g}, but the network was trained on {about.low:.4g} to "
            f"{about.high:.4g} (whole numbers of 8 and 16 bits count as 0 to 1): give it the same kind of file"
        )
    return torch.from_numpy(_scale(pixels, about.low, about.high)).float()


def _scale(pixels: AnyArray, low: float, high: float) -> AnyArray:
    return np.clip(2 * (pixels - low) / (high - low) - 1, -4, 4)


def _split(strata: AnyArray, found: Found, source: Path, seed: int) -> AnyArray:
    """0 for training, 1 for validation, 2 for testing."""
    given = np.array([-1 if split is None else split for split in found.splits])
    if not found.regression and len(found.names) < 2:
        raise DataError(f"{source} has one class only ({found.names[0]!r}); there is nothing to tell apart")
    fewest = FEWEST * (2 if found.regression else 1)
    out = given.copy()
    for name, rows in zip(found.names, shuffled_classes(strata, seed), strict=False):  # a regression is one class
        kind = "there are" if found.regression else f"the class {name!r} has"
        if (given[rows] < 0).all():
            if len(rows) < fewest:
                raise DataError(
                    f"{source}: {kind} {len(rows)} examples; at least {fewest} are needed to split them into "
                    "training, validation and test"
                )
            part = max(1, round(SHARE * len(rows)))
            out[rows[:part]], out[rows[part : 2 * part]], out[rows[2 * part :]] = 2, 1, 0
            continue
        for wanted in (1, 2):  # taken from training where the data have no such split at all
            if not (given == wanted).any():
                own = rows[out[rows] == 0]
                out[own[: max(1, round(SHARE * len(own)))]] = wanted
        if (out[rows] == 0).sum() < 2:
            raise DataError(f"{source}: {kind} {int((out[rows] == 0).sum())} training examples; two or more are needed")
    return out


def _natural(text: str) -> tuple[int, float, str]:
    value = number(text)
    return (1, 0.0, text) if value is None else (0, value, text)


def _open(path: Path, names: tuple[str, ...]) -> dict[str, AnyArray]:
    try:
        arrays = read_arrays(path, ". pscnn discover makes it again", names)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: pscnn discover makes such files") from None
    if not set(names) <= set(arrays):
        raise DataError(f"{path} was not made by pscnn discover")
    return arrays

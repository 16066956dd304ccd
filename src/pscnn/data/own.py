"""People's own data: folders of images, arrays in MedMNIST's layout, tables of paths and targets, data set objects.

``prepare`` reads everything, checks it, brings it to one shape and writes one file, before any training starts;
``load`` reads that file. What is accepted:

- a folder with one sub-folder of images per class, or with ``images`` and ``masks``, with files of the same names;
  either within ``train``, ``val`` and ``test``, if there are such folders;
- an ``.npz`` file with ``train_images``, ``train_labels`` and the same for ``val`` and ``test``, or with ``images`` and
  ``labels``; or ``masks`` instead of labels. Images are (N, H, W) or (N, H, W, channels), volumes (N, D, H, W) or
  (N, D, H, W, channels), whose ``spacing`` may be given, one number per side;
- a ``.csv`` file: paths in the column ``path``, ``file`` or ``image`` (else the first), targets in the others, and if
  there is a column ``split``, what each row is for. Numbers are targets of a regression, unless their column is called
  ``label`` or ``class``; a column ``mask`` has paths of masks;
- in Python: arrays or tensors (images, targets), a data set of such rows, as torchvision has them, or of rows with
  names, as Hugging Face has them; or a mapping of "train", "val" and "test" to such data.

Images are PNG, JPEG, TIFF, BMP or ``.npy`` files of any size, grey, in colour (with 16 bits: ``.npy``) or (``.npy``) of
any number of channels; volumes are ``.npy`` or NIfTI files.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pscnn._files import expanded
from pscnn._types import AnyArray
from pscnn.data._contact import contact_sheet
from pscnn.data._digits import SPLITS
from pscnn.data._folder import DataError, read_arrays, save, shuffled_classes
from pscnn.data._own_about import KINDS, About
from pscnn.data._own_copies import copies
from pscnn.data._own_files import SUFFIXES, is_example
from pscnn.data._own_fit import UNKNOWN
from pscnn.data._own_objects import name_of, read_object
from pscnn.data._own_shape import all_masks, all_pixels, choose_shape, content_of, times
from pscnn.data._own_single import mask_of_file, read_example, write_mask
from pscnn.data._own_sources import Found, read
from pscnn.data._own_targets import natural
from pscnn.data._windows import Examples
from pscnn.groups import Group, parse

__all__ = [
    "KINDS",
    "SUFFIXES",
    "UNKNOWN",
    "About",
    "Examples",
    "find",
    "has_quarter_turns",
    "is_example",
    "load",
    "mask_of_file",
    "prepare",
    "read_about",
    "read_example",
    "write_contact_sheet",
    "write_mask",
]

SMALLEST = 8
"""The shortest longest side that examples can be resized to."""
SHARE = 0.2
"""Of every class for validation, and as much for testing, where the data do not say it."""
FEWEST = 5
"""Examples that every class needs."""


def prepare(
    source: Any,
    out: str | Path,
    *,
    size: int | None = None,
    seed: int = 0,
    target: str | None = None,
    dimension: int | None = None,
    square: bool = False,
    on_read: Callable[[int, int], None] = lambda done, of: None,
) -> About:
    """Read and check data, and write them as one file.

    Examples are padded to a common shape, not stretched. They keep their size unless another is asked for.

    Args:
        source: Folder, ``.npz``, ``.csv``, arrays or a data set; see the module.
        out: The file to write.
        size: The longest side to resize examples to; by default they stay as they are.
        seed: Of the split, where the data do not say it: a fifth of every class for validation and for testing.
        target: The kind of targets, one of ``KINDS``; by default as they look.
        dimension: 2 if arrays are images, so that a third axis is channels, 3 if they are volumes; by default as their
            shapes look.
        square: Pad to equal sides, so that quarter turns map the pixels to themselves and nothing leaves the frame.
        on_read: Called with how many files have been read, and of how many.

    Raises:
        DataError: If anything is wrong; nothing is written then.
    """
    if target is not None and target not in KINDS:
        raise DataError(f"target must be one of {', '.join(KINDS)}, got {target!r}")
    for name, value in (("size", size or 0), ("seed", seed)):
        if type(value) is not int or value < 0:
            raise DataError(f"{name} must be a whole number that is not negative, got {value!r}")
    if not isinstance(out, str | Path) or not Path(out).name:
        raise DataError(f"out must be the path of the file to write, got {out!r}")
    if dimension not in (None, 2, 3):
        raise DataError(f"dimension must be 2 for images or 3 for volumes, got {dimension}")
    if size is not None and not SMALLEST <= size <= 2**16:
        raise DataError(f"size must lie between {SMALLEST} and {2**16}, got {size}")
    if isinstance(source, str | Path):
        source = expanded(source)
        found = read(source, target, dimension, on_read)
    else:
        found, source = read_object(source, target, dimension, on_read), name_of(source)
    targets, names = _targets(found, source)
    split = _split(found, targets, names, source, seed)
    geometry = choose_shape(found.examples, source, size, square)
    notes = (*found.notes, *found.targets.notes, *geometry.pop("notes"))
    about = About(
        names=names, kind=found.targets.kind, low=0.0, high=1.0, notes=notes, source=str(source),
        counts=tuple(int((split == k).sum()) for k in range(3)), dimension_given=dimension is not None, **geometry,
    )  # fmt: skip
    pixels, low, high = all_pixels(found.examples, about, split == 0, source)
    about = replace(about, low=low, high=high)
    if about.regression:
        means, deviations = _standard(targets[split == 0], about, source)
        about = replace(about, means=means, deviations=deviations)
    elif about.kind == "labels":
        _check_columns(targets[split == 0], names, source)
    elif about.kind == "masks":
        targets = all_masks(targets, found.examples, about)
    more = copies(pixels, targets, split)
    if content := content_of(pixels, found.examples, about):
        more.append(f"It can be seen where examples end and padding begins: nearly all of them fill {times(content)}.")
    about = replace(about, content=content, notes=(*about.notes, *more))
    write_prepared(Path(out), pixels, targets, split, about)
    return about


def has_quarter_turns(group: Group | str) -> bool:
    """Whether a group exchanges sides of an example, so that its examples had better be ``square``.

    Example:
        >>> [has_quarter_turns(name) for name in ("O(2)", "C(6)", "D(2)", "SO(3)")]
        [True, False, False, True]
    """
    try:
        group = parse(group) if isinstance(group, str) else group
    except ValueError as error:
        raise DataError(str(error)) from None
    n = group.dimension
    turns = []
    for i, j in combinations(range(n), 2):
        turns.append(np.eye(n))
        turns[-1][[i, j, i, j], [i, j, j, i]] = 0, 0, -1, 1
    return any(group.contains(turn[None]) for turn in turns)


def _targets(found: Found, source: object) -> tuple[Any, tuple[str, ...]]:
    """Targets as they are stored (masks: as they were read), and their names."""
    kind, values, names, _ = found.targets
    if kind == "classes":
        used = {*values}
        names = tuple(name for name in names if name in used) or tuple(sorted(used, key=natural))
        numbers = {name: k for k, name in enumerate(names)}
        values = np.array([numbers[value] for value in values], dtype=np.int64)
    if kind in ("classes", "masks") and len(names) < 2:
        raise DataError(f"{source} has one class only ({names[0]!r}); there is nothing to tell apart")
    sides = found.examples[0].values.ndim - 1
    if kind == "vectors" and len(names) != sides:
        what = "images" if sides == 2 else "volumes"
        raise DataError(f"{source}: vectors of {what} have {sides} components, got {len(names)}")
    return values, names


def _standard(train: AnyArray, about: About, source: object) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """By what numbers are standardised; vectors only by one factor, since all else would not turn with them."""
    if about.kind == "vectors":
        length = float(np.sqrt(np.square(train, dtype=np.float64).mean()))
        if not length > 0:
            raise DataError(f"{source}: the vectors are zero in all training examples")
        return (0.0,) * train.shape[1], (length,) * train.shape[1]
    deviations = _check_columns(train, about.names, source)
    return tuple(train.mean(0, dtype=np.float64).tolist()), tuple(deviations.tolist())


def _check_columns(train: AnyArray, names: Sequence[str], source: object) -> AnyArray:
    """The standard deviation of each column, which must not be constant."""
    # NumPy adds the rows of several columns one after another: in single precision every row would lose digits.
    deviations = train.std(0, dtype=np.float64)
    if not (deviations >= np.finfo(np.float32).tiny).all():  # networks divide by them in single precision
        name = names[int(np.argmin(deviations))]
        raise DataError(
            f"{source}: the target {name!r} is the same in all training examples; leave it out, or split otherwise"
        )
    return deviations


def write_contact_sheet(path: str | Path, out: str | Path) -> None:
    """Write a picture of examples of a prepared file, to see whether they were read as they were meant.

    Args:
        path: The prepared file.
        out: A PNG file.
    """
    masked = read_about(path).kind == "masks"
    arrays = _open(Path(path), ("pixels", "targets"))
    sheet = contact_sheet(arrays["pixels"], arrays["targets"] if masked else None)
    save(Path(out), io.BytesIO(sheet), "Choose another folder")


def write_prepared(out: Path, pixels: AnyArray, targets: AnyArray, split: AnyArray, about: About) -> None:
    """Write a prepared file, whole or not at all."""
    arrays = {"pixels": pixels, "targets": targets, "split": split.astype(np.uint8), "about": np.array(about.to_json())}
    buffer = io.BytesIO()
    with zipfile.ZipFile(
        buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1
    ) as archive:  # numpy's level takes three times as long
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as handle:
                np.lib.format.write_array(handle, np.asanyarray(array), allow_pickle=False)
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
    count, classes = len(split) if split.ndim else 0, len(about.names)
    kind, shape, least, most = {
        "classes": (np.int64, (), 0, classes - 1),
        "labels": (np.uint8, (classes,), 0, 1),
        "masks": (np.int16, about.shape, UNKNOWN, classes - 1),
    }.get(about.kind, (np.float32, (classes,), -np.inf, np.inf))
    right = pixels.dtype in (np.float16, np.float32) and pixels.shape == (count, about.channels, *about.shape)
    right &= targets.dtype == kind and targets.shape == (count, *shape) and count > 0
    right = right and targets.min() >= least and targets.max() <= most
    right = right and split.dtype == np.uint8 and {*np.unique(split).tolist()} == {0, 1, 2}
    if not right or not -1e4 <= pixels.min() <= pixels.max() <= 1e4 or not np.isfinite(targets).all():
        raise DataError(f"{path} does not hold what it says; pscnn discover makes it again")


def _split(found: Found, targets: Any, names: Sequence[str], source: object, seed: int) -> AnyArray:
    """0 for training, 1 for validation, 2 for testing."""
    given = np.array([-1 if split is None else split for split in found.splits])
    classes = found.targets.kind == "classes"
    strata = targets if classes else np.zeros(len(given), dtype=np.int64)
    fewest = FEWEST * (1 if classes else 2)
    out = given.copy()
    for name, rows in zip(names, shuffled_classes(strata, seed), strict=False):  # without classes all are one
        kind = f"the class {name!r} has" if classes else "there are"
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


def _open(path: Path, names: tuple[str, ...]) -> dict[str, AnyArray]:
    try:
        arrays = read_arrays(path, ". pscnn discover makes it again", names)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: pscnn discover makes such files") from None
    if not set(names) <= set(arrays):
        raise DataError(f"{path} was not made by pscnn discover")
    return arrays

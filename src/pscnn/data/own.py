"""People's own data: folders of images, arrays in MedMNIST's layout, tables of paths and targets.

``prepare`` reads everything, checks it, brings it to one shape and writes one file, before any training starts;
``load`` reads that file. What is accepted:

- a folder with one sub-folder of images per class, or with ``train``, ``val`` and ``test`` that have such sub-folders;
- an ``.npz`` file with ``train_images``, ``train_labels`` and the same for ``val`` and ``test``, or with ``images`` and
  ``labels``; images are (N, H, W), (N, H, W, channels) or (N, D, H, W);
- a ``.csv`` file: paths in the column ``path``, ``file`` or ``image`` (else the first), targets in the others, and if
  there is a column ``split``, what each row is for. Numbers are targets of a regression, unless their column is called
  ``label`` or ``class``.

Images are PNG, JPEG, TIFF, BMP or ``.npy`` files of one channel or in colour; ``.npy`` files may be volumes.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn._extras import require
from pscnn._files import write_whole
from pscnn._types import AnyArray
from pscnn.data._digits import SPLITS
from pscnn.data._examples import Examples
from pscnn.data._folder import DataError, read_arrays

__all__ = ["SUFFIXES", "About", "Examples", "load", "prepare", "read_about", "read_example"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".npy")
SIDES = {2: (28, 56), 3: (16, 28)}
"""Side lengths to which images and volumes are brought, since there are networks for them."""
SHARE = 0.2
"""Of every class for validation, and as much for testing, where the data do not say it."""
FEWEST = 5
"""Examples that every class needs."""
_SPLIT_NAMES = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
_NAMED = 5
"""How many culprits a message names."""


@dataclass(frozen=True)
class About:
    """What a prepared file holds.

    Attributes:
        dimension: 2 or 3.
        size: Side length.
        channels: Of every pixel.
        names: Of the classes, or of the targets of a regression.
        regression: Whether targets are numbers.
        low: The value that becomes −1, after whole numbers were divided by the largest of their kind.
        high: The value that becomes 1.
        means: Of the training targets of a regression.
        deviations: Their standard deviations.
        counts: Examples for training, validation and testing.
        notes: What was done to the data, in sentences.
        source: Where they came from.
    """

    dimension: int
    size: int
    channels: int
    names: tuple[str, ...]
    regression: bool
    low: float
    high: float
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""

    def to_json(self) -> str:
        """As text, from which ``from_json`` makes it again."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> About:
        """The other way round."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})  # type: ignore[arg-type]


@dataclass
class _Found:
    """What a source holds, before it is brought to one shape."""

    examples: list[AnyArray]  # (H, W, C) or (D, H, W, 1)
    targets: list[Any]
    splits: list[int | None]
    regression: bool
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bytes_only: bool = True


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
    found = _read(source, regression, on_read)
    if found.regression:
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
    size = size or _side(int(np.median(sides)), dimension)
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
    pixels = np.stack([_fit(example, size, channels) for example in found.examples])
    low, high = (0.0, 1.0) if found.bytes_only else _range(pixels[split == 0], source)
    pixels = np.clip(2 * (pixels - low) / (high - low) - 1, -4, 4)
    about = About(
        dimension, size, channels, found.names, found.regression, low, high,
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


def write_prepared(out: Path, pixels: AnyArray, targets: AnyArray, split: AnyArray, about: About) -> None:
    """Write a prepared file, whole or not at all."""
    arrays: dict[str, Any] = {"pixels": pixels.astype(np.float16), "targets": targets, "split": split.astype(np.uint8)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, about=np.array(about.to_json()), **arrays)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, buffer.getvalue())
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}. Choose another folder") from None


def read_about(path: str | Path) -> About:
    """What a prepared file holds."""
    try:
        return About.from_json(str(_open(Path(path), ("about",))["about"]))
    except (ValueError, TypeError):
        raise DataError(f"{path} was not made by this version of pscnn discover") from None


def load(path: str | Path) -> dict[str, Examples]:
    """The splits of a prepared file."""
    arrays = _open(Path(path), ("pixels", "targets", "split"))
    out = {}
    for number, name in enumerate(SPLITS):
        rows = arrays["split"] == number
        out[name] = Examples(torch.from_numpy(arrays["pixels"][rows]), torch.from_numpy(arrays["targets"][rows]))
    return out


def read_example(path: str | Path, about: About) -> Tensor:
    """One image or volume as a network for prepared data expects it, (C, s, s) or (C, s, s, s).

    Args:
        path: PNG, JPEG, TIFF, BMP or ``.npy``.
        about: What the network was trained on.
    """
    example, _ = _read_file(Path(path))
    if example.ndim - 1 != about.dimension:
        wanted = "an image" if about.dimension == 2 else "a volume"
        raise DataError(f"{path}: the network expects {wanted}, got an array of shape {example.shape[:-1]}")
    if example.shape[-1] > about.channels:
        example = example.mean(-1, keepdims=True)
    pixels = _fit(example, about.size, about.channels)
    return torch.from_numpy(np.clip(2 * (pixels - about.low) / (about.high - about.low) - 1, -4, 4)).float()


# -- sources ----------------------------------------------------------------------------------------------------------


def _read(source: Path, regression: bool | None, on_read: Callable[[int, int], None]) -> _Found:
    try:
        if source.is_dir():
            return _folder(source, on_read)
        if not source.exists():
            raise DataError(
                f"{source} does not exist: give a folder with a sub-folder per class, an .npz or a .csv file"
            )
        if source.suffix.lower() == ".npz":
            return _arrays(source)
        if source.suffix.lower() in (".csv", ".tsv"):
            return _table(source, regression, on_read)
    except PermissionError as error:
        raise DataError(f"{error.filename or source} may not be read: change its permissions") from None
    raise DataError(f"{source} is not a folder, an .npz or a .csv file")


def _folder(source: Path, on_read: Callable[[int, int], None]) -> _Found:
    children = _subfolders(source)
    if not children:
        raise DataError(f"{source} has no sub-folders: images belong into one sub-folder per class")
    given = all(child.name.lower() in _SPLIT_NAMES for child in children)
    places = [(child, _SPLIT_NAMES[child.name.lower()]) for child in children] if given else [(source, None)]
    jobs: list[tuple[Path, str, int | None]] = []
    others = 0
    for place, split in places:
        for folder in _subfolders(place):
            for file in sorted(folder.iterdir()):
                if file.name.startswith(".") or file.is_dir():
                    continue
                if file.suffix.lower() in SUFFIXES:
                    jobs.append((file, folder.name, split))
                else:
                    others += 1
    if not jobs:
        raise DataError(f"{source} holds no images: {', '.join(SUFFIXES)} are read, in one sub-folder per class")
    notes = (f"{others} files of other kinds were left out.",) if others else ()
    return _files(jobs, False, (), notes, on_read)


def _subfolders(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))


def _table(source: Path, regression: bool | None, on_read: Callable[[int, int], None]) -> _Found:
    try:
        with source.open(newline="", encoding="utf-8-sig") as handle:
            rows = list(csv.DictReader(handle, delimiter="\t" if source.suffix.lower() == ".tsv" else ","))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{source} is not a table: {error}") from None
    if not rows:
        raise DataError(f"{source} has no rows below its heading")
    heads = [head for head in rows[0] if head is not None]
    paths = next((head for head in heads if head.strip().lower() in ("path", "file", "image")), heads[0])
    splits = next((head for head in heads if head.strip().lower() == "split"), None)
    columns = [head for head in heads if head not in (paths, splits)]
    if not columns:
        raise DataError(f"{source} has no column of targets beside {paths!r}")
    for number, row in enumerate(rows, 2):
        empty = [head for head in (paths, *columns) if not (row.get(head) or "").strip()]
        if empty:
            raise DataError(f"{source}, line {number}: nothing in the column {empty[0]!r}")
    if regression is None:
        regression = not any(c.strip().lower() in ("label", "class") for c in columns) and all(
            _number(row[c]) is not None for row in rows for c in columns
        )
    if regression:
        targets: list[Any] = []
        for number, row in enumerate(rows, 2):
            values = [_number(row[c]) for c in columns]
            if any(value is None or not math.isfinite(value) for value in values):
                got = ", ".join(row[c] for c in columns)
                raise DataError(f"{source}, line {number}: targets must be finite numbers, got {got}")
            targets.append(values)
    elif len(columns) > 1:
        raise DataError(f"{source}: classes are one column, got {', '.join(columns)}; give numbers for a regression")
    else:
        targets = [row[columns[0]].strip() for row in rows]
    files = [source.parent / row[paths].strip() for row in rows]
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise DataError(f"{source} names {len(missing)} files that do not exist: {_some(missing)}")
    chosen: list[int | None] = [None] * len(rows)
    if splits is not None:
        for number, row in enumerate(rows):
            word = (row[splits] or "").strip().lower()
            if word not in _SPLIT_NAMES:
                raise DataError(f"{source}, line {number + 2}: split must be train, val or test, got {row[splits]!r}")
            chosen[number] = _SPLIT_NAMES[word]
    names = tuple(column.strip() for column in columns) if regression else ()
    return _files(list(zip(files, targets, chosen, strict=True)), regression, names, (), on_read)


def _files(
    jobs: Sequence[tuple[Path, Any, int | None]],
    regression: bool,
    names: tuple[str, ...],
    notes: tuple[str, ...],
    on_read: Callable[[int, int], None],
) -> _Found:
    found = _Found([], [t for _, t, _ in jobs], [s for _, _, s in jobs], regression, names, notes)
    unreadable: list[str] = []
    for number, (file, _, _) in enumerate(jobs, 1):
        try:
            example, of_bytes = _read_file(file)
            found.examples.append(example)
            found.bytes_only &= of_bytes
        except DataError as error:
            unreadable.append(str(error))
        on_read(number, len(jobs))
    if unreadable:
        raise DataError(f"{len(unreadable)} of {len(jobs)} files cannot be used: {_some(unreadable)}")
    dimensions = {example.ndim - 1 for example in found.examples}
    if len(dimensions) > 1:
        raise DataError("some files are images and some are volumes: all must be of one kind")
    return found


def _read_file(path: Path) -> tuple[AnyArray, bool]:
    """Channels last, whole numbers divided by the largest of their kind; and whether they were bytes."""
    if path.suffix.lower() == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} is damaged or not an array ({error})") from None
        if array.ndim == 3 and array.shape[-1] in (1, 3, 4):
            array = array if array.shape[-1] == 1 else _colour(array)
        elif array.ndim in (2, 3):
            array = array[..., None]
        else:
            raise DataError(f"{path}: an image has 2 axes, a volume 3, got shape {array.shape}")
        return _unit(array, path), array.dtype in (np.uint8, np.bool_)
    image_module = require("PIL.Image", "data", "Reading images")
    try:
        with image_module.open(path) as image:
            if getattr(image, "n_frames", 1) > 1:
                raise DataError(f"{path} has {image.n_frames} pages: volumes are read from .npz and .npy files")
            if image.mode in ("1", "L", "I", "F", "I;16", "I;16B", "I;16L", "LA"):
                array = np.asarray(image.convert("L") if image.mode in ("1", "LA") else image)
                if image.mode == "I":  # 32 bits in memory, 16 in the file
                    array = array.clip(0, 65535).astype(np.uint16)
            else:
                array = _colour(np.asarray(image.convert("RGBA")))
    except PermissionError:
        raise DataError(f"{path} may not be read") from None
    except (OSError, ValueError, SyntaxError, EOFError, image_module.DecompressionBombError) as error:
        raise DataError(f"{path} is damaged or not an image ({error})") from None
    if array.ndim == 2:
        array = array[..., None]
    return _unit(array, path), array.dtype == np.uint8


def _colour(array: AnyArray) -> AnyArray:
    """RGB of RGBA, laid on white."""
    if array.shape[-1] == 3:
        return array
    top = np.iinfo(array.dtype).max if np.issubdtype(array.dtype, np.integer) else 1
    opacity = array[..., 3:].astype(np.float32) / top
    mixed = array[..., :3] * opacity + top * (1 - opacity)
    return mixed.round().astype(array.dtype) if np.issubdtype(array.dtype, np.integer) else mixed


def _unit(array: AnyArray, path: Path) -> AnyArray:
    if not np.issubdtype(array.dtype, np.number) and array.dtype != np.bool_:
        raise DataError(f"{path} must hold numbers, got {array.dtype}")
    if array.size == 0:
        raise DataError(f"{path} is empty")
    out = array.astype(np.float32)
    if np.issubdtype(array.dtype, np.integer):
        out /= np.iinfo(array.dtype).max
    if not np.isfinite(out).all():
        raise DataError(f"{path} holds values that are not finite")
    return out


def _arrays(source: Path) -> _Found:
    arrays = read_arrays(source)
    prefixes = {"train_": 0, "val_": 1, "test_": 2} if "train_images" in arrays else {"": None}
    examples: list[AnyArray] = []
    targets: list[Any] = []
    splits: list[int | None] = []
    regression, bytes_only = False, True
    for prefix, split in prefixes.items():
        for kind in ("images", "labels"):
            if f"{prefix}{kind}" not in arrays:
                listed = ", ".join(sorted(arrays)) or "none"
                raise DataError(f"{source} has no array {prefix}{kind}; it has {listed}")
        images, labels = arrays[f"{prefix}images"], arrays[f"{prefix}labels"]
        if images.ndim == 3 or (images.ndim == 4 and images.shape[-1] not in (1, 3, 4)):
            images = images[..., None]
        if images.ndim not in (4, 5):
            raise DataError(
                f"{source}: {prefix}images must have shape (N, H, W), (N, H, W, channels) or (N, D, H, W), "
                f"got {images.shape}"
            )
        labels = labels.reshape(len(labels), -1)
        regression = np.issubdtype(labels.dtype, np.floating)
        whole = np.issubdtype(labels.dtype, np.integer) and labels.shape[1] == 1
        if len(labels) != len(images) or not (regression or whole):
            raise DataError(
                f"{source}: {prefix}labels must be one whole number per example, or numbers with decimals for a "
                f"regression, {len(images)} rows in all, got {labels.dtype} of shape {labels.shape}"
            )
        bytes_only &= images.dtype in (np.uint8, np.bool_)
        examples += list(_unit(_colour(images) if images.shape[-1] == 4 and images.ndim == 4 else images, source))
        targets += labels.tolist() if regression else [str(label) for label in labels[:, 0]]
        splits += [split] * len(images)
    if not examples:
        raise DataError(f"{source} has no examples")
    return _Found(examples, targets, splits, regression, bytes_only=bytes_only)


# -- shapes, values, splits -------------------------------------------------------------------------------------------


def _fit(example: AnyArray, size: int, channels: int) -> AnyArray:
    """(…, C) → (channels, size, …): filled up around to equal sides with the border's mean, then resized."""
    x = torch.from_numpy(np.ascontiguousarray(np.moveaxis(example, -1, 0)))[None]
    if x.shape[1] < channels:
        x = x.expand(-1, channels, *x.shape[2:])
    side = max(x.shape[2:])
    if any(n != side for n in x.shape[2:]):
        around: list[int] = []
        for n in reversed(x.shape[2:]):
            around += [(side - n) // 2, side - n - (side - n) // 2]
        inside = [slice(1, -1) if n > 2 else slice(0, 0) for n in x.shape[2:]]
        inner = x[(slice(None), slice(None), *inside)]
        border = (x.sum() - inner.sum()) / max(1, x.numel() - inner.numel())
        x = F.pad(x, around, value=float(border))
    if side != size and x.ndim == 4:
        x = F.interpolate(x, (size, size), mode="bilinear", antialias=True, align_corners=False)
    elif side > size:
        x = F.adaptive_avg_pool3d(x, size)
    elif side < size:
        x = F.interpolate(x, (size,) * 3, mode="trilinear", align_corners=False)
    return x[0].numpy()


def _side(side: int, dimension: int) -> int:
    small, large = SIDES[dimension]
    return small if side <= math.sqrt(small * large) else large


def _range(pixels: AnyArray, source: Path) -> tuple[float, float]:
    low, high = float(pixels.min()), float(pixels.max())
    if not high > low:
        raise DataError(f"{source}: all training examples have the same value everywhere")
    return low, high


def _split(strata: AnyArray, found: _Found, source: Path, seed: int) -> AnyArray:
    """0 for training, 1 for validation, 2 for testing."""
    given = np.array([-1 if split is None else split for split in found.splits])
    if not found.regression:
        present = sorted({found.names[k] for k in strata})
        if len(present) < 2:
            raise DataError(f"{source} has one class only ({present[0]!r}); there is nothing to tell apart")
    groups = ["all examples"] if found.regression else list(found.names)
    rng = np.random.default_rng(seed)
    out = given.copy()
    for number, name in enumerate(groups):
        rows = rng.permutation(np.flatnonzero(strata == number))
        kind = "there are" if found.regression else f"the class {name!r} has"
        if (given[rows] < 0).all():
            if len(rows) < FEWEST * (2 if found.regression else 1):
                fewest = FEWEST * (2 if found.regression else 1)
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


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _natural(text: str) -> tuple[int, float, str]:
    value = _number(text)
    return (1, 0.0, text) if value is None else (0, value, text)


def _some(things: Sequence[Any]) -> str:
    listed = "; ".join(str(thing) for thing in things[:_NAMED])
    return listed if len(things) <= _NAMED else f"{listed}; and {len(things) - _NAMED} more"


def _open(path: Path, names: tuple[str, ...]) -> dict[str, AnyArray]:
    try:
        arrays = read_arrays(path, ". pscnn discover makes it again", names)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: pscnn discover makes such files") from None
    if not set(names) <= set(arrays):
        raise DataError(f"{path} was not made by pscnn discover")
    return arrays

"""Sources of people's own data: folders, arrays and tables, read and checked; and every image or volume in them."""

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from pscnn._extras import require
from pscnn._types import AnyArray
from pscnn.data._folder import DataError, array_of, read_arrays

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".npy")
Progress = Callable[[int, int], None]
_SPLIT_NAMES = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
_NAMED = 5
"""How many culprits a message names."""


@dataclass
class Found:
    """What a source holds, before it is brought to one shape."""

    examples: list[AnyArray]  # (H, W, C) or (D, H, W, 1)
    targets: list[Any]
    splits: list[int | None]
    regression: bool
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bytes_only: bool = True


def read(source: Path, regression: bool | None, on_read: Progress) -> Found:
    """What a folder, an ``.npz`` or a table holds."""
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


def _folder(source: Path, on_read: Progress) -> Found:
    children = _subfolders(source)
    if not children:
        raise DataError(f"{source} has no sub-folders: images belong into one sub-folder per class")
    given = all(child.name.lower() in _SPLIT_NAMES for child in children)
    places = [(child, _SPLIT_NAMES[child.name.lower()]) for child in children] if given else [(source, None)]
    found, files, others = Found([], [], [], False), [], 0
    for place, split in places:
        for folder in _subfolders(place):
            for file in sorted(folder.iterdir()):
                if file.name.startswith(".") or file.is_dir():
                    continue
                if file.suffix.lower() not in SUFFIXES:
                    others += 1
                    continue
                files.append(file)
                found.targets.append(folder.name)
                found.splits.append(split)
    if not files:
        raise DataError(f"{source} holds no images: {', '.join(SUFFIXES)} are read, in one sub-folder per class")
    found.notes = (f"{others} files of other kinds were left out.",) if others else ()
    return _with_files(found, files, on_read)


def _subfolders(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))


def _table(source: Path, regression: bool | None, on_read: Progress) -> Found:
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
    for line, row in enumerate(rows, 2):
        empty = [head for head in (paths, *columns) if not (row.get(head) or "").strip()]
        if empty:
            raise DataError(f"{source}, line {line}: nothing in the column {empty[0]!r}")
    if regression is None:
        regression = not any(c.strip().lower() in ("label", "class") for c in columns) and all(
            number(row[c]) is not None for row in rows for c in columns
        )
    if regression:
        targets: list[Any] = [[number(row[c]) for c in columns] for row in rows]
        for line, (row, values) in enumerate(zip(rows, targets, strict=True), 2):
            if any(value is None or not math.isfinite(value) for value in values):
                got = ", ".join(row[c] for c in columns)
                raise DataError(f"{source}, line {line}: targets must be finite numbers, got {got}")
    elif len(columns) > 1:
        raise DataError(f"{source}: classes are one column, got {', '.join(columns)}; give numbers for a regression")
    else:
        targets = [row[columns[0]].strip() for row in rows]
    files = [source.parent / row[paths].strip() for row in rows]
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise DataError(f"{source} names {len(missing)} files that do not exist: {_some(missing)}")
    chosen = [None if splits is None else _SPLIT_NAMES.get((row[splits] or "").strip().lower()) for row in rows]
    if splits is not None and None in chosen:
        wrong = chosen.index(None)
        raise DataError(f"{source}, line {wrong + 2}: split must be train, val or test, got {rows[wrong][splits]!r}")
    names = tuple(column.strip() for column in columns) if regression else ()
    return _with_files(Found([], targets, chosen, regression, names), files, on_read)


def _with_files(found: Found, files: Sequence[Path], on_read: Progress) -> Found:
    unreadable: list[str] = []
    for done, file in enumerate(files, 1):
        try:
            example, of_bytes = read_file(file)
            found.examples.append(example)
            found.bytes_only &= of_bytes
        except DataError as error:
            unreadable.append(str(error))
        on_read(done, len(files))
    if unreadable:
        raise DataError(f"{len(unreadable)} of {len(files)} files cannot be used: {_some(unreadable)}")
    if len({example.ndim for example in found.examples}) > 1:
        raise DataError("some files are images and some are volumes: all must be of one kind")
    return found


def _arrays(source: Path) -> Found:
    arrays = read_arrays(source)
    prefixes = {"train_": 0, "val_": 1, "test_": 2} if "train_images" in arrays else {"": None}
    found = Found([], [], [], False)
    for prefix, split in prefixes.items():
        images, labels = (array_of(arrays, f"{prefix}{kind}", source) for kind in ("images", "labels"))
        if images.ndim == 3 or (images.ndim == 4 and images.shape[-1] not in (1, 3, 4)):
            images = images[..., None]
        if images.ndim not in (4, 5):
            raise DataError(
                f"{source}: {prefix}images must have shape (N, H, W), (N, H, W, channels) or (N, D, H, W), "
                f"got {images.shape}"
            )
        labels = labels.reshape(len(labels), -1)
        found.regression = np.issubdtype(labels.dtype, np.floating)
        whole = np.issubdtype(labels.dtype, np.integer) and labels.shape[1] == 1
        if len(labels) != len(images) or not (found.regression or whole):
            raise DataError(
                f"{source}: {prefix}labels must be one whole number per example, or numbers with decimals for a "
                f"regression, {len(images)} rows in all, got {labels.dtype} of shape {labels.shape}"
            )
        found.bytes_only &= is_bytes(images)
        found.examples += list(unit(colour(images) if images.ndim == 4 else images, source))
        found.targets += labels.tolist() if found.regression else [str(label) for label in labels[:, 0]]
        found.splits += [split] * len(images)
    return found


def number(text: str) -> float | None:
    """A number, if it is one."""
    try:
        return float(text)
    except ValueError:
        return None


def _some(things: Sequence[Any]) -> str:
    listed = "; ".join(str(thing) for thing in things[:_NAMED])
    return listed if len(things) <= _NAMED else f"{listed}; and {len(things) - _NAMED} more"


def read_file(path: Path) -> tuple[AnyArray, bool]:
    """Channels last, whole numbers divided by the largest of their kind; and whether they were bytes."""
    array = _array(path) if path.suffix.lower() == ".npy" else _image(path)
    return unit(array, path), is_bytes(array)


def is_bytes(array: AnyArray) -> bool:
    """Whether the range of the values is known."""
    return array.dtype in (np.uint8, np.bool_)


def _array(path: Path) -> AnyArray:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise DataError(f"{path} is damaged or not an array ({error})") from None
    if array.ndim not in (2, 3):
        raise DataError(f"{path}: an image has 2 axes, a volume 3, got shape {array.shape}")
    return colour(array) if array.ndim == 3 and array.shape[-1] in (1, 3, 4) else array[..., None]


def _image(path: Path) -> AnyArray:
    image_module = require("PIL.Image", "data", "Reading images")
    try:
        with image_module.open(path) as image:
            if getattr(image, "n_frames", 1) > 1:
                raise DataError(f"{path} has {image.n_frames} pages: volumes are read from .npz and .npy files")
            if image.mode not in ("1", "L", "I", "F", "I;16", "I;16B", "I;16L", "LA"):
                return colour(np.asarray(image.convert("RGBA")))
            array = np.asarray(image.convert("L") if image.mode in ("1", "LA") else image)[..., None]
            return array.clip(0, 65535).astype(np.uint16) if image.mode == "I" else array  # 16 of its 32 bits are used
    except PermissionError:
        raise DataError(f"{path} may not be read") from None
    except (OSError, ValueError, SyntaxError, EOFError, image_module.DecompressionBombError) as error:
        raise DataError(f"{path} is damaged or not an image ({error})") from None


def colour(array: AnyArray) -> AnyArray:
    """RGB of RGBA, laid on white; fewer channels stay as they are."""
    if array.shape[-1] < 4:
        return array
    top = np.iinfo(array.dtype).max if np.issubdtype(array.dtype, np.integer) else 1
    opacity = array[..., 3:].astype(np.float32) / top
    mixed = array[..., :3] * opacity + top * (1 - opacity)
    return mixed.round().astype(array.dtype) if np.issubdtype(array.dtype, np.integer) else mixed


def unit(array: AnyArray, path: Path) -> AnyArray:
    """Floating-point numbers; whole ones are divided by the largest of their kind."""
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


def fit(example: AnyArray, size: int, channels: int) -> AnyArray:
    """(…, C) → (channels, size, …): filled up around to equal sides with the border's mean, then resized."""
    x = torch.from_numpy(np.ascontiguousarray(np.moveaxis(example, -1, 0)))[None]
    if x.shape[1] < channels:
        x = x.expand(-1, channels, *x.shape[2:])
    side = max(x.shape[2:])
    if any(n != side for n in x.shape[2:]):
        around = [half for n in reversed(x.shape[2:]) for half in ((side - n) // 2, (side - n + 1) // 2)]
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

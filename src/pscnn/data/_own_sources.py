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
from pscnn._files import DAMAGED, plain_file
from pscnn._types import AnyArray
from pscnn.data._folder import DataError, array_of, read_arrays

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".npy")
Progress = Callable[[int, int], None]
_SPLIT_NAMES = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
_NAMED = 5
"""How many culprits a message names."""
_FEW = 20
"""Up to so many different whole numbers may be meant as names of classes."""
_LARGEST_VALUE = 1e30
"""Of a pixel: sums of squares of larger ones are not finite."""
_THINNEST = 5
"""Voxels along a side from which on it is one of a volume."""
_CHANNELS = (1, 3, 4)
"""Lengths of a last axis that count channels."""


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
            if regression:
                raise DataError(
                    f"{source} is a folder of classes: numbers as targets are read from .npz and .csv files"
                )
            return _folder(source, on_read)
        if not source.exists():
            raise DataError(
                f"{source} does not exist: give a folder with a sub-folder per class, an .npz or a .csv file"
            )
        if source.suffix.lower() == ".npz":
            return _arrays(source, regression)
        if source.suffix.lower() in (".csv", ".tsv"):
            return _table(source, regression, on_read)
    except PermissionError as error:
        raise DataError(f"{error.filename or source} may not be read: change its permissions") from None
    except OSError as error:
        raise DataError(f"cannot read {error.filename or source}: {error.strerror}") from None
    raise DataError(f"{source} is not a folder, an .npz or a .csv file")


def _folder(source: Path, on_read: Progress) -> Found:
    children = _subfolders(source)
    if not children:
        raise DataError(f"{source} has no sub-folders: images belong into one sub-folder per class")
    given = all(child.name.lower() in _SPLIT_NAMES for child in children)
    splits = [child.name for child in children if child.name.lower() in _SPLIT_NAMES]
    if not given and any(_SPLIT_NAMES[name.lower()] == 0 for name in splits):
        others = [child for child in children if child.name not in splits]
        raise DataError(
            f"{source} has {', '.join(splits)} beside other folders, {_some(others)}: are those classes or not?"
        )
    places = [(child, _SPLIT_NAMES[child.name.lower()]) for child in children] if given else [(source, None)]
    found, files = Found([], [], [], False), []
    left_out = {"of other kinds": 0, "beside the folders of classes": 0}
    for place, split in places:
        left_out["beside the folders of classes"] += sum(map(_is_example, place.iterdir()))
        for folder in _subfolders(place):
            deeper = [inner for inner in _subfolders(folder) if any(map(_is_example, inner.rglob("*")))]
            if deeper:
                raise DataError(
                    f"{deeper[0]} is a folder within a class: images belong directly into their class's folder"
                )
            for file in sorted(folder.iterdir()):
                if file.name.startswith(".") or file.is_dir():
                    continue
                if file.suffix.lower() not in SUFFIXES:
                    left_out["of other kinds"] += 1
                    continue
                files.append(file)
                found.targets.append(folder.name)
                found.splits.append(split)
    if not files:
        raise DataError(f"{source} holds no images: {', '.join(SUFFIXES)} are read, in one sub-folder per class")
    found.notes = tuple(f"{count} files {which} were left out." for which, count in left_out.items() if count)
    return _with_files(found, files, on_read)


def _is_example(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _subfolders(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))


def _table(source: Path, regression: bool | None, on_read: Progress) -> Found:
    try:
        with plain_file(source).open(newline="", encoding="utf-8-sig") as handle:
            rows = list(csv.DictReader(handle, delimiter="\t" if source.suffix.lower() == ".tsv" else ","))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{source} is not a table: {error}") from None
    if not rows:
        raise DataError(f"{source} has no rows below its heading")
    if None in rows[0]:
        raise DataError(f"{source}: its rows have more columns than its heading")
    heads = list(rows[0])
    if any(_is_example(Path(head.strip())) for head in heads):
        raise DataError(f"{source} has no heading: its first line names a file. Put a line such as path,label above it")
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
        if regression and len(columns) == 1:
            _ask_if_classes([number(row[columns[0]]) or 0.0 for row in rows], source)
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


def _ask_if_classes(values: Sequence[float], source: Path) -> None:
    """Numbers such as 0, 1 and 2 may count something or name classes; nobody but the user knows."""
    kinds = sorted({*values})
    if kinds[0] in (0, 1) and 2 <= len(kinds) <= _FEW and kinds == [kinds[0] + k for k in range(len(kinds))]:
        raise DataError(
            f"{source}: the targets are the numbers {kinds[0]:g} to {kinds[-1]:g}. Are they classes (--no-regression) "
            "or amounts (--regression)?"
        )


def _arrays(source: Path, regression: bool | None) -> Found:
    arrays = read_arrays(source)
    prefixes = {"train_": 0, "val_": 1, "test_": 2} if "train_images" in arrays else {"": None}
    found = Found([], [], [], False)
    for prefix, split in prefixes.items():
        images, labels = (array_of(arrays, f"{prefix}{kind}", source) for kind in ("images", "labels"))
        if images.ndim not in (3, 4, 5) or (images.ndim == 5 and images.shape[-1] not in _CHANNELS):
            raise DataError(
                f"{source}: {prefix}images must have shape (N, H, W), (N, H, W, channels), (N, D, H, W) or "
                f"(N, D, H, W, channels), got {images.shape}"
            )
        images = with_channels(images, f"{source}: {prefix}images", 1)
        labels, found.regression = _targets(labels, regression, source)
        whole = labels.dtype.kind in "iu" and labels.shape[1] == 1
        if len(labels) != len(images) or not (found.regression or whole):
            raise DataError(
                f"{source}: {prefix}labels must be one whole number per example, or numbers with decimals for a "
                f"regression, {len(images)} rows in all, got {labels.dtype} of shape {labels.shape}"
            )
        found.bytes_only &= is_bytes(images)
        found.examples += list(unit(images, source))
        found.targets += labels.tolist() if found.regression else [str(label) for label in labels[:, 0]]
        found.splits += [split] * len(images)
    return found


def _targets(labels: AnyArray, regression: bool | None, source: Path) -> tuple[AnyArray, bool]:
    """Targets as (N, T), whole numbers if they name classes, and whether they are amounts."""
    labels = labels.reshape(len(labels), -1)
    if labels.dtype.kind not in "iuf" or not len(labels):
        return labels, False
    indicators = labels.shape[1] > 1 and bool(np.isin(labels, (0, 1)).all() and (labels.sum(1) == 1).all())
    if indicators and regression is None:
        raise DataError(
            f"{source}: every row of the labels has a single 1. Is it the class (--no-regression), or are these "
            f"{labels.shape[1]} amounts (--regression)?"
        )
    if indicators and not regression:
        return labels.argmax(1)[:, None], False
    if regression is None and labels.dtype.kind == "f" and labels.shape[1] == 1:
        _ask_if_classes(labels[:, 0].tolist(), source)
    if regression is False and labels.dtype.kind == "f":
        exact = labels.astype(np.float64)
        if ((exact == np.round(exact)) & (abs(exact) < 2**53)).all():
            return exact.astype(np.int64), False
    return labels, labels.dtype.kind == "f" if regression is None else regression


def with_channels(array: AnyArray, what: str, first: int) -> AnyArray:
    """Images and volumes with an axis of channels at the end; the spatial axes begin at ``first``.

    Three axes are a volume, or an image whose last axis has 1, 3 or 4 channels. A volume with a side of so few voxels
    is more likely an image whose channels come first, so it must have an axis of channels.
    """
    check_real(array, what)
    axes = array.ndim - first
    if axes == 4 or (axes == 3 and array.shape[-1] in _CHANNELS):
        return colour(array, what) if axes == 3 else array
    if axes == 3 and min(array.shape[first:]) < _THINNEST:
        raise DataError(
            f"{what} have shape {array.shape}, which may be images with channels or thin volumes: give images with "
            "channels of 1, 3 or 4 last, volumes with one more axis of length 1 at the end"
        )
    return array[..., None]


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
    """Channels last, numbers of 8 and 16 bits divided by the largest of their kind; and whether they were bytes."""
    array = _array(path) if path.suffix.lower() == ".npy" else _image(path)
    return unit(array, path), is_bytes(array)


def is_bytes(array: AnyArray) -> bool:
    """Whether the range of the values is known."""
    return array.dtype in (np.uint8, np.bool_)


def _array(path: Path) -> AnyArray:
    try:
        with plain_file(path).open("rb") as handle:
            array = np.lib.format.read_array(handle, allow_pickle=False)
    except DAMAGED as error:
        raise DataError(f"{path} is damaged or not an array ({error})") from None
    if array.ndim not in (2, 3, 4) or (array.ndim == 4 and array.shape[-1] not in _CHANNELS):
        raise DataError(f"{path}: an image has 2 axes, a volume 3, and one more for channels, got shape {array.shape}")
    return with_channels(array, f"{path}: its numbers", 0)


def _image(path: Path) -> AnyArray:
    image_module = require("PIL.Image", "data", "Reading images")
    try:
        with plain_file(path).open("rb") as handle, image_module.open(handle) as opened:
            if getattr(opened, "n_frames", 1) == 1:
                opened = require("PIL.ImageOps", "data", "Reading images").exif_transpose(opened)  # as cameras mean it
            image = opened
            if getattr(image, "n_frames", 1) > 1:
                raise DataError(f"{path} has {image.n_frames} pages: volumes are read from .npz and .npy files")
            grey = image.mode in ("1", "L", "I", "F", "I;16", "I;16B", "I;16L", "LA", "La")
            if not grey or image.mode in ("LA", "La") or (image.mode == "L" and "transparency" in image.info):
                laid = colour(np.asarray(image.convert("RGBA")), path)  # on white
                return laid[..., :1] if grey else laid
            array = np.asarray(image.convert("L") if image.mode == "1" else image)[..., None]
            return array.clip(0, 65535).astype(np.uint16) if image.mode == "I" else array  # 16 of its 32 bits are used
    except PermissionError:
        raise DataError(f"{path} may not be read") from None
    except (OSError, ValueError, SyntaxError, EOFError, image_module.DecompressionBombError) as error:
        raise DataError(f"{path} is damaged or not an image ({error})") from None


def check_real(array: AnyArray, what: object) -> None:
    """Refuse what holds no real numbers."""
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} must hold real numbers, got {array.dtype}")


def colour(array: AnyArray, what: object) -> AnyArray:
    """RGB of RGBA, laid on white; fewer channels stay as they are."""
    if array.shape[-1] < 4:
        return array
    opaque = array[..., 3:]
    if array.dtype not in (np.uint8, np.uint16) and not ((opaque >= 0) & (opaque <= 1)).all():
        raise DataError(f"{what}: the last of four channels is opacity, from 0 to 1, or whole numbers of 8 or 16 bits")
    whole = array.dtype in (np.uint8, np.uint16)
    top = np.iinfo(array.dtype).max if whole else 1
    opacity = opaque.astype(np.float32) / top
    mixed = array[..., :3] * opacity + top * (1 - opacity)
    return mixed.round().astype(array.dtype) if whole else mixed


def unit(array: AnyArray, path: Path) -> AnyArray:
    """Floating-point numbers; those of images, of 8 and 16 bits, are divided by the largest of their kind."""
    check_real(array, path)
    if array.size == 0:
        raise DataError(f"{path} is empty")
    with np.errstate(over="ignore"):
        out = array.astype(np.float32)
    if array.dtype in (np.uint8, np.uint16):
        out /= np.iinfo(array.dtype).max
    if not (np.abs(out) < _LARGEST_VALUE).all():
        raise DataError(f"{path} holds values that are not finite, or larger than {_LARGEST_VALUE:g}")
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

"""Sources of people's own data: folders, arrays and tables, read and checked."""

import csv
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._files import plain_file
from pscnn._types import AnyArray
from pscnn.data._folder import DataError, array_of, read_arrays
from pscnn.data._own_files import (
    SUFFIXES,
    Example,
    as_mask,
    check_values,
    is_example,
    read_file,
    read_mask,
    suffix,
    with_channels,
)
from pscnn.data._own_targets import Targets, number, settle, settle_masks

Progress = Callable[[int, int], None]
SPLIT_NAMES = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
_NAMED = 5
"""How many culprits a message names."""


@dataclass
class Found:
    """What a source holds, before it is brought to one shape."""

    examples: list[Example]
    splits: list[int | None]
    targets: Targets
    notes: tuple[str, ...] = ()


def read(source: Path, wanted: str | None, dimension: int | None, on_read: Progress) -> Found:
    """What a folder, an ``.npz`` or a table holds.

    Args:
        source: Its path.
        wanted: The kind of targets, if the user names it.
        dimension: 2 if arrays are images, 3 if they are volumes, None if their shapes say it.
        on_read: Called with how many files have been read, and of how many.
    """
    try:
        if source.is_dir():
            places = [source, *(child for child in _subfolders(source) if child.name.lower() in SPLIT_NAMES)]
            if wanted in (None, "masks") and any(map(_has_masks, places)):
                return _pairs(source, dimension, on_read)
            if wanted not in (None, "classes"):
                kind = {"numbers": "numbers as targets", "masks": "masks"}.get(wanted, wanted)
                where = "folders images and masks" if wanted == "masks" else ".npz and .csv files"
                raise DataError(f"{source} is a folder of classes: {kind} are read from {where}")
            return _folder(source, dimension, on_read)
        if not source.exists():
            raise DataError(
                f"{source} does not exist: give a folder with a sub-folder per class, an .npz or a .csv file"
            )
        if source.suffix.lower() == ".npz":
            return from_arrays(read_arrays(source), source, wanted, dimension)
        if source.suffix.lower() in (".csv", ".tsv"):
            return _table(source, wanted, dimension, on_read)
    except PermissionError as error:
        raise DataError(f"{error.filename or source} may not be read: change its permissions") from None
    except OSError as error:
        raise DataError(f"cannot read {error.filename or source}: {error.strerror}") from None
    raise DataError(f"{source} is not a folder, an .npz or a .csv file")


def _folder(source: Path, dimension: int | None, on_read: Progress) -> Found:
    children = _subfolders(source)
    if not children:
        raise DataError(f"{source} has no sub-folders: images belong into one sub-folder per class")
    given = all(child.name.lower() in SPLIT_NAMES for child in children)
    named = [child.name for child in children if child.name.lower() in SPLIT_NAMES]
    if not given and any(SPLIT_NAMES[name.lower()] == 0 for name in named):
        others = [child for child in children if child.name not in named]
        raise DataError(
            f"{source} has {', '.join(named)} beside other folders, {some(others)}: are those classes or not?"
        )
    places = [(child, SPLIT_NAMES[child.name.lower()]) for child in children] if given else [(source, None)]
    files: list[Path] = []
    classes: list[str] = []
    splits: list[int | None] = []
    left_out = {"of other kinds": 0, "beside the folders of classes": 0}
    for place, split in places:
        left_out["beside the folders of classes"] += sum(map(is_example, place.iterdir()))
        for folder in _subfolders(place):
            deeper = [inner for inner in _subfolders(folder) if any(map(is_example, inner.rglob("*")))]
            if deeper:
                raise DataError(
                    f"{deeper[0]} is a folder within a class: images belong directly into their class's folder"
                )
            for file in sorted(folder.iterdir()):
                if file.name.startswith(".") or file.is_dir():
                    continue
                if not is_example(file):
                    left_out["of other kinds"] += 1
                    continue
                files.append(file)
                classes.append(folder.name)
                splits.append(split)
    if not files:
        raise DataError(f"{source} holds no images: {', '.join(SUFFIXES)} are read, in one sub-folder per class")
    notes = tuple(f"{count} files {which} were left out." for which, count in left_out.items() if count)
    return Found(_read_files(files, dimension, on_read), splits, Targets("classes", classes), notes)


def _pairs(source: Path, dimension: int | None, on_read: Progress) -> Found:
    """Folders ``images`` and ``masks`` with files of the same names, perhaps within ``train``, ``val`` and ``test``."""
    if _has_masks(source):
        places: list[tuple[Path, int | None]] = [(source, None)]
    else:
        children = [child for child in _subfolders(source) if child.name.lower() in SPLIT_NAMES]
        places = [(child, SPLIT_NAMES[child.name.lower()]) for child in children]
    files: list[Path] = []
    masks: list[Path] = []
    splits: list[int | None] = []
    for place, split in places:
        if not _has_masks(place):
            raise DataError(f"{place} has no folders images and masks beside each other")
        images, other = (_by_stem(place / name) for name in ("images", "masks"))
        alone = [images[stem] for stem in images if stem not in other] + [other[s] for s in other if s not in images]
        if alone:
            raise DataError(f"{place}: {len(alone)} files have no partner of the same name: {some(alone)}")
        files += images.values()
        masks += (other[stem] for stem in images)
        splits += [split] * len(images)
    if not files:
        raise DataError(f"{source} holds no images: {', '.join(SUFFIXES)} are read, in folders images and masks")
    examples = _read_files(files, dimension, on_read)
    return Found(examples, splits, _read_masks(masks, examples, source))


def _has_masks(place: Path) -> bool:
    return (place / "images").is_dir() and (place / "masks").is_dir()


def _by_stem(folder: Path) -> dict[str, Path]:
    """The examples of a folder by the name that they share with their partners."""
    found: dict[str, Path] = {}
    for file in filter(is_example, sorted(folder.iterdir())):
        first = found.setdefault(_stem(file), file)
        if first is not file:
            raise DataError(f"{first} and {file.name} would have the same partner: rename or remove one of them")
    return found


def _stem(file: Path) -> str:
    return file.name[: -len(suffix(file))].removesuffix("_mask")


def _subfolders(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))


def _table(source: Path, wanted: str | None, dimension: int | None, on_read: Progress) -> Found:
    try:
        with plain_file(source).open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle, delimiter="\t" if source.suffix.lower() == ".tsv" else ",")
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{source} is not a table: {error}") from None
    if not rows:
        raise DataError(f"{source} has no rows below its heading")
    for line, row in enumerate(rows, 2):
        if None in row:
            raise DataError(f"{source}, line {line}: it has more columns than the heading")
    heads = list(reader.fieldnames or ())
    bare = [head.strip() for head in heads]
    twice = [head for number, head in enumerate(bare) if head in bare[:number]]
    if twice:
        raise DataError(f"{source}: the column {twice[0]!r} occurs twice")
    if any(is_example(Path(head.strip())) for head in heads):
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
    masked = wanted in (None, "masks") and len(columns) == 1 and columns[0].strip().lower() == "mask"
    targets = None if masked else _columns(rows, columns, wanted, source)
    chosen = [None if splits is None else SPLIT_NAMES.get((row[splits] or "").strip().lower()) for row in rows]
    if splits is not None and None in chosen:
        wrong = chosen.index(None)
        raise DataError(f"{source}, line {wrong + 2}: split must be train, val or test, got {rows[wrong][splits]!r}")
    files = _files(source, rows, paths)
    again = [file for file, count in Counter(files).items() if count > 1]
    if again:
        raise DataError(
            f"{source} names {len(again)} files more than once, {some(again)}: copies could be trained and tested on"
        )
    examples = _read_files(files, dimension, on_read)
    targets = targets or _read_masks(_files(source, rows, columns[0]), examples, source)
    return Found(examples, chosen, targets)


def _files(source: Path, rows: Sequence[Mapping[str, str]], column: str) -> list[Path]:
    files = [source.parent / row[column].strip() for row in rows]
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise DataError(f"{source} names {len(missing)} files that do not exist: {some(missing)}")
    return files


def _columns(rows: Sequence[Mapping[str, str]], columns: Sequence[str], wanted: str | None, source: Path) -> Targets:
    """Targets of a table: names of classes in one column, or numbers."""
    names = [column.strip() for column in columns]
    numbers = [[number(row[c]) for c in columns] for row in rows]
    numeric = all(value is not None for values in numbers for value in values)
    one_column_of_classes = len(columns) == 1 and (not numeric or names[0].lower() in ("label", "class"))
    if wanted is None and (one_column_of_classes or not numeric or {*map(str.lower, names)} & {"label", "class"}):
        wanted = "classes"
    if wanted == "classes" and len(columns) == 1:
        return Targets("classes", [row[columns[0]].strip() for row in rows])
    if wanted == "classes" and not numeric:
        raise DataError(f"{source}: classes are one column, got {', '.join(columns)}; give numbers for a regression")
    if "file" in names:
        raise DataError(f"{source}: predictions call the file that they are for 'file': give this target another name")
    for line, (row, values) in enumerate(zip(rows, numbers, strict=True), 2):
        if any(value is None or not math.isfinite(value) for value in values):
            got = ", ".join(row[c] for c in columns)
            raise DataError(f"{source}, line {line}: targets must be finite numbers, got {got}")
    return settle(np.array(numbers, dtype=np.float64), wanted, source, names)


def _read_files(files: Sequence[Path], dimension: int | None, on_read: Progress) -> list[Example]:
    examples: list[Example] = []
    unreadable: list[str] = []
    for done, file in enumerate(files, 1):
        try:
            example = read_file(file, dimension)
            check_values(example.values, file)
            examples.append(example)
        except DataError as error:
            unreadable.append(str(error))
        on_read(done, len(files))
    if unreadable:
        raise DataError(f"{len(unreadable)} of {len(files)} files cannot be used: {some(unreadable)}")
    return examples


def _read_masks(files: Sequence[Path], examples: Sequence[Example], source: Path) -> Targets:
    masks: list[AnyArray] = []
    unreadable: list[str] = []
    for file, example in zip(files, examples, strict=True):
        try:
            masks.append(read_mask(file, example.values.shape[:-1]))
        except DataError as error:
            unreadable.append(str(error))
    if unreadable:
        raise DataError(f"{len(unreadable)} of {len(files)} masks cannot be used: {some(unreadable)}")
    return settle_masks(masks, source)


def from_arrays(arrays: Mapping[str, AnyArray], source: object, wanted: str | None, dimension: int | None) -> Found:
    """What arrays hold: ``images`` with ``labels`` or ``masks``, or the same with ``train_``, ``val_``, ``test_``."""
    prefixes: dict[str, int | None] = {"": None}
    if "train_images" in arrays:  # validation or testing may be missing
        known = {"train_": 0, "val_": 1, "test_": 2}
        prefixes = {prefix: split for prefix, split in known.items() if any(name.startswith(prefix) for name in arrays)}
    masked = wanted == "masks" or (
        wanted is None and any(f"{p}masks" in arrays and f"{p}labels" not in arrays for p in prefixes)
    )
    examples: list[Example] = []
    splits: list[int | None] = []
    labels: list[AnyArray] = []
    notes: set[str] = set()
    for prefix, split in prefixes.items():
        images, targets = (
            array_of(arrays, f"{prefix}{kind}", source) for kind in ("images", "masks" if masked else "labels")
        )
        what = f"{source}: {prefix}images"
        if images.ndim not in (3, 4, 5) or (
            dimension is None and images.ndim == 5 and images.shape[-1] not in (1, 3, 4)
        ):
            raise DataError(
                f"{what} must have shape (N, H, W), (N, H, W, channels), (N, D, H, W) or (N, D, H, W, channels), got "
                f"{images.shape}"
            )
        if (
            dimension is None
            and images.ndim == 4
            and 2 * images.shape[-1] < min(images.shape[1:-1])
            and images.shape[-1] > 4
        ):
            notes.add(f"Arrays {images.shape[1:]} were read as volumes; --dimension 2 takes the last axis as channels.")
        images = with_channels(images, what, 1, dimension)
        check_values(images, what)
        if targets.ndim < 1 or len(targets) != len(images):
            raise DataError(
                f"{source}: {prefix}{'masks' if masked else 'labels'} must have {len(images)} rows in all, one per "
                f"example, got {targets.dtype} of shape {targets.shape}"
            )
        if masked:
            targets = as_mask(targets, images.shape[:-1], f"{source}: {prefix}masks")
        examples += [
            Example(image, spacing)
            for image, spacing in zip(images, _spacings(arrays, prefix, images, source), strict=True)
        ]
        labels.append(targets.reshape(len(targets), -1) if not masked else targets)
        splits += [split] * len(images)
    if masked:
        settled = settle_masks([mask for part in labels for mask in part], source)
    else:
        if len({part.shape[1] for part in labels}) > 1 or len({part.dtype.kind for part in labels}) > 1:
            raise DataError(f"{source}: the labels of training, validation and testing must be of one kind")
        settled = settle(np.concatenate(labels), wanted, source)
    return Found(examples, splits, settled, tuple(sorted(notes)))


def _spacings(arrays: Mapping[str, AnyArray], prefix: str, images: AnyArray, source: object) -> list[Any]:
    """Per example, from an array ``spacing`` with one number per side, for all examples or for each."""
    found = arrays.get(f"{prefix}spacing", arrays.get("spacing"))
    if found is None:
        return [None] * len(images)
    sides = images.ndim - 2
    if found.dtype.kind not in "iuf" or found.shape not in ((sides,), (len(images), sides)):
        raise DataError(
            f"{source}: spacing must be {sides} numbers, one per side, got {found.dtype} of shape {found.shape}"
        )
    lengths = found.astype(np.float64)  # half precision knows no such numbers as these bounds
    if not ((lengths > 1e-9) & (lengths < 1e9)).all():
        raise DataError(f"{source}: spacing must be positive, got {lengths.min():g} to {lengths.max():g}")
    return [tuple(one) for one in np.broadcast_to(lengths, (len(images), sides)).tolist()]


def some(things: Sequence[Any]) -> str:
    """The first few things, and how many more there are."""
    listed = "; ".join(str(thing) for thing in things[:_NAMED])
    return listed if len(things) <= _NAMED else f"{listed}; and {len(things) - _NAMED} more"

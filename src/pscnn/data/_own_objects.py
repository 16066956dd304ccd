"""Data sets as objects in Python: rows of (image, target) or of named columns, as torchvision and Hugging Face have."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pscnn._memory import half_of_memory
from pscnn._types import AnyArray
from pscnn.data._folder import DataError, native
from pscnn.data._own_files import CHANNELS, Example, as_mask, check_values, mask_values, pixels_of, with_channels
from pscnn.data._own_sources import SPLIT_NAMES, Found, Progress, from_arrays
from pscnn.data._own_targets import Targets, settle, settle_masks

IMAGE_KEYS = ("image", "img", "images", "picture", "volume", "pixel_values", "x")
TARGET_KEYS = (
    "label", "labels", "target", "targets", "class", "mask", "masks", "annotation", "segmentation", "segmentation_mask",
    "y",
)  # fmt: skip
_LEAST = 256
"""Bytes that an example takes at least, with what Python needs for it and its target."""


def read_object(source: Any, wanted: str | None, dimension: int | None, on_read: Progress) -> Found:
    """What a data set holds.

    Args:
        source: Arrays (images, targets); a mapping of the arrays that an ``.npz`` file has; a data set with ``len()``
            whose rows are (image, target) or mappings; or a mapping of "train", "val" and "test" to any of these.
        wanted: The kind of targets, if the user names it.
        dimension: 2 if arrays are images, 3 if they are volumes, None if their shapes say it.
        on_read: Called with how many examples have been read, and of how many.
    """
    if isinstance(source, Mapping):
        if source and all(str(key).lower() in SPLIT_NAMES for key in source):
            return _splits(source, wanted, dimension, on_read)
        if "images" in source or "train_images" in source:
            arrays = {str(key): _numpy(value) for key, value in source.items()}
            tensors = {
                key for key, value in source.items() if isinstance(value, Tensor) and str(key).endswith("images")
            }
            arrays |= {str(key): _channels_last(arrays[str(key)], dimension) for key in tensors}
            return from_arrays(arrays, name_of(source), wanted, dimension)
        raise DataError(f"a mapping must have images and labels, or train, val and test, got {_keys(source)}")
    if isinstance(source, tuple) and len(source) == 2 and all(_is_array(part) for part in source):
        images, targets = source[0], _numpy(source[1])
        second = "masks" if targets.ndim > 2 and wanted in (None, "masks") else "labels"
        return read_object({"images": images, second: targets}, wanted, dimension, on_read)
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")) or isinstance(source, str | bytes):
        raise DataError(
            f"data must be a path, arrays (images, targets), or a data set with a length and rows (image, target), got "
            f"{name_of(source)}"
        )
    return _rows(source, wanted, dimension, on_read)


def name_of(source: Any) -> str:
    """What the data are called in reports and messages."""
    return "arrays" if isinstance(source, tuple | Mapping) else type(source).__name__


def _splits(source: Mapping[Any, Any], wanted: str | None, dimension: int | None, on_read: Progress) -> Found:
    parts = {
        SPLIT_NAMES[str(key).lower()]: read_object(value, wanted, dimension, on_read) for key, value in source.items()
    }
    if len(parts) < len(source):
        raise DataError(f"a mapping of splits has one data set each for train, val and test, got {_keys(source)}")
    kinds = {part.targets.kind for part in parts.values()}
    if len(kinds) > 1:
        raise DataError(
            f"the splits have different kinds of targets, {', '.join(sorted(kinds))}: say which with target="
        )
    kind, names = kinds.pop(), [part.targets.names for part in parts.values()]
    values: Any = [one for part in parts.values() for one in part.targets.values]
    together = tuple(names[0])
    if kind == "masks":  # each split has its own numbers of the classes that occur in it
        raw = [
            np.array([int(n) for n in part.targets.names])[one]
            for part in parts.values()
            for one in part.targets.values
        ]
        values, together = settle_masks(raw, name_of(source))[1:3]
    elif kind == "classes":
        together = tuple(dict.fromkeys(name for own in names for name in own))
    elif len({*map(len, names)}) > 1:
        raise DataError("the splits have different numbers of targets")
    else:
        values = np.stack(values)
    return Found(
        [example for part in parts.values() for example in part.examples],
        [split for split, part in parts.items() for _ in part.examples],
        Targets(kind, values, together, next(iter(parts.values())).targets.notes),
        tuple(dict.fromkeys(note for part in parts.values() for note in part.notes)),
    )


def _rows(source: Any, wanted: str | None, dimension: int | None, on_read: Progress) -> Found:
    what, room = name_of(source), half_of_memory()
    try:
        count = len(source)
    except Exception as error:  # whatever the data set's own code raises, or Python of a length that is none
        raise DataError(f"{what}: its length cannot be had ({type(error).__name__}: {error})") from error
    if not count:
        raise DataError(f"{what} has no examples")
    taken = count * _LEAST
    keys: tuple[str, str] | None = None
    examples: list[Example] = []
    targets: list[Any] = []
    for k in range(count):
        if taken > room:
            raise DataError(
                f"{what} has {count} examples, which take more than {room / 2**30:.1f} GiB, half of this machine's "
                "memory: give a part of them"
            )
        try:
            row = source[k]
        except Exception as error:  # whatever the data set's own code raises
            raise DataError(f"{what}: reading example {k + 1} failed ({type(error).__name__}: {error})") from error
        if isinstance(row, Mapping):
            keys = keys or _choose_keys(row, what)
            if not {*keys} <= {*row}:
                raise DataError(f"{what}: example {k + 1} has no {' or '.join(keys)}, but {_keys(row)}")
            image, target = row[keys[0]], row[keys[1]]
        elif isinstance(row, tuple | list) and len(row) == 2:
            image, target = row
        else:
            raise DataError(
                f"{what}: rows must be (image, target) or mappings, got {type(row).__name__} in example {k + 1}"
            )
        values = _image(image, dimension, f"{what}: the image of example {k + 1}")
        check_values(values, f"{what}: the image of example {k + 1}")
        examples.append(Example(values))
        targets.append(_numpy(target))
        taken += values.nbytes + targets[-1].nbytes
        on_read(k + 1, count)
    settled = _settle(targets, examples, wanted, what, _class_names(source, keys))
    return Found(examples, [None] * count, settled)


def _choose_keys(row: Mapping[Any, Any], what: str) -> tuple[str, str]:
    chosen = []
    for known in (IMAGE_KEYS, TARGET_KEYS):
        found = [key for key in row if str(key).lower() in known]
        if len(found) != 1:
            raise DataError(
                f"{what}: rows must have one image and one target, called image and label, got {_keys(row)}: rename or "
                "remove columns"
            )
        chosen.append(found[0])
    return chosen[0], chosen[1]


def _image(image: Any, dimension: int | None, what: str) -> AnyArray:
    if hasattr(image, "getbands"):  # of PIL
        return pixels_of(image, what)
    array = _numpy(image)
    if isinstance(image, Tensor):
        array = _channels_last(array[None], dimension)[0]
        dimension = dimension or array.ndim - 1
        return with_channels(array, what, 0, dimension)
    if dimension is None and array.ndim == 4 and array.shape[0] in CHANNELS and array.shape[-1] not in CHANNELS:
        return np.moveaxis(array, 0, -1)
    if array.ndim not in (2, 3, 4):
        raise DataError(f"{what} has shape {array.shape}: an image has 2 axes, a volume 3, and one more for channels")
    return with_channels(array, what, 0, dimension)


def _channels_last(batch: AnyArray, dimension: int | None) -> AnyArray:
    """Of tensors, (N, C, …) as in torch → (N, …, C); (N, H, W) are grey images."""
    if batch.ndim == 3 or (dimension is not None and batch.ndim == dimension + 1):
        return batch[..., None]
    return np.moveaxis(batch, 1, -1) if batch.ndim in (4, 5) else batch


def _settle(
    targets: list[AnyArray], examples: list[Example], wanted: str | None, what: str, known: tuple[tuple[str, ...], bool]
) -> Targets:
    names, lists = known
    if wanted == "masks" or (wanted is None and any(target.ndim >= 2 for target in targets)):
        pairs = enumerate(zip(targets, examples, strict=True), 1)
        masks = [
            as_mask(_squeezed(t, e), e.values.shape[:-1], f"{what}: the mask of example {k}") for k, (t, e) in pairs
        ]
        return settle_masks(masks, what)
    if lists and wanted in (None, "labels"):
        return Targets("labels", _listed(targets, len(names), what), names, ("Every example may have several labels.",))
    if len({target.shape for target in targets}) > 1:
        raise DataError(f"{what}: all targets must have the same shape, got {targets[0].shape} and others")
    settled = settle(np.stack(targets), wanted, what)
    if settled.kind == "classes" and names and all(one.isdigit() and int(one) < len(names) for one in settled.values):
        return Targets("classes", [names[int(one)] for one in settled.values], names)
    if settled.kind == "labels" and len(names) == settled.values.shape[1]:
        return settled._replace(names=names)
    return settled


def _listed(targets: list[AnyArray], count: int, what: str) -> AnyArray:
    """Lists of the labels that an example has, as columns of 0 and 1."""
    rows = np.zeros((len(targets), count), dtype=np.uint8)
    for row, target in zip(rows, targets, strict=True):
        if target.size and not (target.dtype.kind in "iu" and target.min() >= 0 and target.max() < count):
            raise DataError(f"{what}: lists of labels must hold numbers from 0 to {count - 1}, got {target.tolist()}")
        row[target.astype(int)] = 1
    return rows


def _squeezed(mask: AnyArray, example: Example) -> AnyArray:
    """Masks of torch may have an axis of channels first."""
    return mask[0] if mask.ndim == example.values.ndim and mask.shape[0] == 1 else mask


def _class_names(source: Any, keys: tuple[str, str] | None) -> tuple[tuple[str, ...], bool]:
    """As the data set says them, and whether targets are lists of classes, of which an example may have several.

    They are its ``classes``, or the names of its feature; also of a part of a data set.
    """
    features, lists = getattr(source, "features", None), False
    if keys is not None and isinstance(features, Mapping) and keys[1] in features:
        feature = features[keys[1]]
        lists = hasattr(feature, "feature")
        names = getattr(feature.feature if lists else feature, "names", None)
    else:
        names = getattr(source, "classes", None)
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) and len({*names}) == len(names):
        return tuple(names), lists and len(names) > 0
    return _class_names(source.dataset, keys) if hasattr(source, "dataset") else ((), False)


def _is_array(part: Any) -> bool:
    return isinstance(part, np.ndarray | Tensor) or (isinstance(part, list) and not hasattr(part, "classes"))


def _numpy(value: Any) -> AnyArray:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if hasattr(value, "getbands"):  # of PIL
        return mask_values(value, "an image")
    try:
        array = np.asarray(value)
    except ValueError:
        raise DataError(f"lists of unequal lengths are no array: {str(value)[:60]}") from None
    if array.dtype.kind == "O":
        raise DataError(f"expected numbers, arrays, tensors, images or names, got {str(value)[:60]}")
    return native(array)


def _keys(mapping: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, list(mapping)[:12])) or "nothing"

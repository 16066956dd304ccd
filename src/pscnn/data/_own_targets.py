"""What people's targets are: classes, labels, numbers or vectors. Where they can be read in two ways, it is asked."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pscnn._types import AnyArray
from pscnn.data._folder import DataError

_FEW = 20
"""Up to so many different whole numbers may be meant as names of classes."""
COARSE = 0.01
"""Deviations by which single precision may round a number."""
MOST_CLASSES = 256
"""Of the pixels of masks."""
AXES = ("x", "y", "z")


class Targets(NamedTuple):
    """Targets of all examples: names of classes, a table of numbers (N, T), or masks."""

    kind: str
    values: Any
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def settle(values: AnyArray, wanted: str | None, source: object, columns: Sequence[str] = ()) -> Targets:
    """What numbers or names, (N,) or (N, T), are.

    Args:
        values: As the source has them, at least one.
        wanted: The kind, if the user names it.
        source: For messages.
        columns: Names of the T columns, if they have names.
    """
    if values.dtype.kind == "O":
        values = values.astype(str)
    table = values.reshape(len(values), -1)
    many = table.shape[1] > 1
    if not table.size:
        raise DataError(_expected(source, values))
    if table.dtype.kind not in "biuf" and (many or wanted not in (None, "classes") or table.dtype.kind != "U"):
        raise DataError(_expected(source, values))
    if table.dtype.kind == "U":
        return Targets("classes", [str(one) for one in table[:, 0]])
    bits = bool(np.isin(table, (0, 1)).all())
    single = many and bits and bool((table.sum(1) == 1).all())
    if wanted is None:
        wanted = _guess(table, bits, single, source)
    if wanted == "masks":
        raise DataError(
            f"{source} has no masks: give them as an array masks, a column mask, or folders images and masks"
        )
    if wanted == "classes":
        return _classes(table, single, values, source, columns)
    names = tuple(columns)
    if wanted == "labels":
        if not bits:
            raise DataError(f"{source}: labels are 0 or 1 each, got numbers from {table.min():g} to {table.max():g}")
        names = names or tuple(str(k) for k in range(table.shape[1]))
        return Targets("labels", table.astype(np.uint8), names, ("Every example may have several labels.",) * many)
    with np.errstate(over="ignore"):
        numbers = table.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(numbers).all(1))
    if len(bad):
        raise DataError(f"{source}: {len(bad)} targets are not finite numbers, the first in example {bad[0] + 1}")
    if wanted == "vectors":
        if table.shape[1] not in (2, 3):
            raise DataError(f"{source}: a vector has 2 components, (x, y), or 3 for volumes, got {table.shape[1]}")
        note = "Vectors have x to the right and y upwards" + (", z along the planes" if table.shape[1] == 3 else "")
        return Targets("vectors", numbers, names or AXES[: table.shape[1]], (f"{note}.",))
    _check_digits(table, source, names)
    return Targets(
        "numbers", numbers, names or (tuple(f"target {k + 1}" for k in range(table.shape[1])) if many else ("target",))
    )


def _check_digits(table: AnyArray, source: object, names: Sequence[str]) -> None:
    """Refuse numbers of which single precision, in which networks work, keeps little but what they have in common."""
    exact = table.astype(np.float64)
    lost = np.abs(exact).max(0) * np.finfo(np.float32).eps / 2
    for k in np.flatnonzero(lost > COARSE * exact.std(0)).tolist():
        if exact[:, k].min() != exact[:, k].max():
            name, middle = names[k] if names else f"target {k + 1}", exact[:, k].mean()
            raise DataError(
                f"{source}: {name!r} differs by {exact[:, k].std():.3g} about {middle:.9g}, of which networks, in "
                f"single precision, see next to nothing: subtract {middle:.9g} first"
            )


def _guess(table: AnyArray, bits: bool, single: bool, source: object) -> str:
    count = table.shape[1]
    if single:
        raise DataError(
            f"{source}: every row of the labels has a single 1. Is it the class (--target classes), are these {count} "
            f"labels, of which there may be several (--target labels), or {count} amounts (--target numbers)?"
        )
    if count > 1 and bits:
        if table.dtype.kind in "biu":
            return "labels"
        raise DataError(
            f"{source}: the targets are 0 and 1 in {count} columns. Are they labels, of which there may be several "
            "(--target labels), or amounts (--target numbers)?"
        )
    if table.dtype.kind == "f":
        if count == 1:
            ask_if_classes(table[:, 0].tolist(), source)
        return "numbers"
    return "classes"


def ask_if_classes(values: Sequence[float], source: object) -> None:
    """Numbers such as 0, 1 and 2 may count something or name classes; nobody but the user knows."""
    kinds = sorted({*values})
    if kinds[0] in (0, 1) and 2 <= len(kinds) <= _FEW and kinds == [kinds[0] + k for k in range(len(kinds))]:
        raise DataError(
            f"{source}: the targets are the numbers {kinds[0]:g} to {kinds[-1]:g}. Are they classes (--target classes) "
            "or amounts (--target numbers)?"
        )


def _classes(table: AnyArray, single: bool, values: AnyArray, source: object, columns: Sequence[str]) -> Targets:
    if single:
        which = table.argmax(1)
        return Targets("classes", [columns[k] if columns else str(k) for k in which])
    if table.dtype.kind == "f":
        exact = table.astype(np.float64)
        if ((exact == np.round(exact)) & (abs(exact) < 2**53)).all():
            table = exact.astype(np.int64)
    if table.dtype.kind not in "biu" or table.shape[1] != 1:
        raise DataError(_expected(source, values))
    return Targets("classes", [str(int(one)) for one in table[:, 0]])


def _expected(source: object, values: AnyArray) -> str:
    return (
        f"{source}: labels must be one whole number per example, several columns of 0 and 1, or numbers with decimals "
        f"for a regression, got {values.dtype} of shape {values.shape}"
    )


def settle_masks(masks: Sequence[AnyArray], source: object) -> Targets:
    """Masks whose values name classes, as numbers of these classes."""
    values: set[int] = set()
    for mask in masks:
        values |= {*np.unique(mask).tolist()}
        if len(values) > MOST_CLASSES:
            raise DataError(
                f"{source}: the masks have more than {MOST_CLASSES} different values, which are to name classes; "
                "lossy files such as JPEG do not keep them"
            )
    kinds = sorted(values)
    found = [np.searchsorted(kinds, mask).astype(np.int16) for mask in masks]
    return Targets("masks", found, tuple(map(str, kinds)))


def number(text: str) -> float | None:
    """A number, if it is one."""
    try:
        return None if "_" in text else float(text)  # to Python 1_5 is a number
    except ValueError:
        return None


def natural(text: str) -> tuple[int, float, str]:
    """The key by which names are sorted: numbers by their size, before all others."""
    value = number(text)
    return (1, 0.0, text) if value is None or math.isnan(value) else (0, value, text)

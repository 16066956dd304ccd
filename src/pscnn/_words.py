"""Numbers in words, and values in a few of them."""

import reprlib
from collections.abc import Sequence
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80


def short(value: Any) -> str:
    """A value as Python writes it, cut where it is long: a message is one sentence, whatever a file holds.

    Example:
        >>> short({"a": list(range(1000))})
        "{'a': [0, 1, 2, 3, 4, 5, ...]}"
    """
    return _SHORT.repr(value)


def duration(seconds: float) -> str:
    """Time in the unit that suits it.

    Example:
        >>> [duration(s) for s in (0.34, 14.2, 200, 9000)]
        ['0.3 s', '14 s', '3.3 min', '2.5 h']
    """
    number, unit = next(
        ((seconds / length, unit) for length, unit in ((1, "s"), (60, "min")) if seconds < 90 * length),
        (seconds / 3600, "h"),
    )
    text = f"{number:.{0 if number >= 9.95 else 1}f}"
    return f"{text if unit == 's' else text.removesuffix('.0')} {unit}"


def aligned(table: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Lines of a table; columns beyond those with a side are aligned on the right.

    Example:
        >>> aligned([["layer", "kept", "size"], ["1", "C(4)", "1"]], "<<")
        ['layer  kept  size', '1      C(4)     1']
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    formats = [f"{{:{side}{width}}}" for side, width in zip(sides.ljust(len(widths), ">"), widths, strict=True)]
    return ["  ".join(formats).format(*line).rstrip() for line in table]

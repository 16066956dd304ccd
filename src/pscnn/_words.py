"""Numbers in words, and values in a few of them."""

import reprlib
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
        ['0.3 s', '14 s', '3 min', '2.5 h']
    """
    if seconds < 90:
        return f"{seconds:.{0 if seconds >= 9.95 else 1}f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"

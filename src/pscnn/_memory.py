"""What would take more memory than anybody means to give is refused before it is begun."""

import os

from pscnn._extras import PscnnError

LARGEST = 2**28
"""Numbers of one array or kernel, 2 GiB in float64; what the library is made for takes a hundredth of it."""


def half_of_memory() -> float:
    """Bytes; without end where the system does not tell."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 if hasattr(os, "sysconf") else float("inf")


class TooLargeError(PscnnError, ValueError):
    """Something would take far too much memory; the message says how much."""


def afford(numbers: float, what: str, advice: str) -> None:
    """Refuse what has more numbers than ``LARGEST``.

    Example:
        >>> afford(1e9, "a kernel of 301 × 301", "use a smaller kernel_size")
        Traceback (most recent call last):
        ...
        pscnn._memory.TooLargeError: a kernel of 301 × 301 would take 7 GiB of memory: use a smaller kernel_size
    """
    if numbers > LARGEST:
        size = 8 * numbers / 2**30
        raise TooLargeError(f"{what} would take {size:,.0f} GiB of memory: {advice}")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is not enough memory, in numpy's words or torch's."""
    words = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in words or "out of memory" in words

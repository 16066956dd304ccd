"""Numbers in words."""


def duration(seconds: float) -> str:
    """Time in the unit that suits it.

    Example:
        >>> [duration(s) for s in (0.34, 14.2, 200, 9000)]
        ['0.3 s', '14 s', '3 min', '2.5 h']
    """
    if seconds < 90:
        return f"{seconds:.{0 if seconds >= 9.95 else 1}f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"

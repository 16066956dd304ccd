"""The base class of this package's errors."""

from __future__ import annotations


class PscnnError(Exception):
    """An error that the user can fix: a setting, a file, a data set, a missing extra. The message says how."""

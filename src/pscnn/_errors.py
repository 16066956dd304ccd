"""The base class of this package's errors."""

from __future__ import annotations


class PscnnError(Exception):
    """Something a user can put right: a setting, a file, a data set, a missing extra. The message says how."""

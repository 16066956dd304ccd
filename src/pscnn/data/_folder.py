"""Where data sets lie on disk."""

from __future__ import annotations

import os
from pathlib import Path


class DataError(Exception):
    """A data set is missing, damaged or not what was expected; the message says what to do."""


def data_folder(folder: str | Path | None = None) -> Path:
    """The data folder: the one given, else the environment variable PSCNN_DATA, else a per-user cache."""
    chosen = folder or os.environ.get("PSCNN_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pscnn"

"""Where data sets lie on disk."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from pscnn._types import AnyArray


class DataError(Exception):
    """A data set is missing, damaged or not what was expected; the message says what to do."""


def data_folder(folder: str | Path | None = None) -> Path:
    """The data folder: the one given, else the environment variable PSCNN_DATA, else a per-user cache."""
    chosen = folder or os.environ.get("PSCNN_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pscnn"


def read_arrays(path: Path, advice: str = "") -> dict[str, AnyArray]:
    """All arrays of an ``.npz`` file.

    Args:
        path: The file.
        advice: What to do if it is damaged, the end of the message.
    """
    try:
        # Opened here, because numpy does not close a file that it cannot read.
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (FileNotFoundError, PermissionError):
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged or not an .npz file ({error}){advice}") from error

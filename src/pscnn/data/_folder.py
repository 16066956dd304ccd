"""Where data sets lie on disk."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pscnn._errors import PscnnError
from pscnn._types import AnyArray


class DataError(PscnnError):
    """A data set is missing, damaged or not what was expected; the message says what to do."""


def data_folder(folder: str | Path | None = None) -> Path:
    """The data folder: the one given, else the environment variable PSCNN_DATA, else a per-user cache."""
    chosen = folder or os.environ.get("PSCNN_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pscnn"


def read_arrays(path: Path, advice: str = "", names: Sequence[str] | None = None) -> dict[str, AnyArray]:
    """Arrays of an ``.npz`` file.

    Args:
        path: The file.
        advice: What to do if it is damaged, the end of the message.
        names: Which, of those that it has; all by default.
    """
    try:
        # Opened here, because numpy does not close a file that it cannot read.
        with path.open("rb") as handle:
            file = np.load(handle, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("a single array")
            with file:
                return {key: file[key] for key in file.files if names is None or key in names}
    except FileNotFoundError:
        raise
    except PermissionError:
        raise DataError(f"{path} may not be read: change its permissions") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged or not an .npz file ({error}){advice}") from error

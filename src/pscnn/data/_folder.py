"""Where data sets lie on disk, and how they get there."""

import io
import os
import sys
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._extras import PscnnError, require
from pscnn._files import DAMAGED, expanded, plain_file, reported, write_whole
from pscnn._memory import half_of_memory
from pscnn._types import AnyArray


class DataError(PscnnError):
    """A data set is missing, damaged or not what was expected; the message says what to do."""


def data_folder(folder: str | Path | None = None) -> Path:
    """The data folder: the one given, else the environment variable PSCNN_DATA, else a per-user cache."""
    chosen = folder or os.environ.get("PSCNN_DATA")
    if chosen:
        return expanded(chosen)
    cache = expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if str(cache).startswith("~"):
        raise DataError("there is no home folder to keep data in: set PSCNN_DATA, or --data-dir, to a folder")
    return cache / "pscnn"


def read_arrays(
    path: Path, advice: str = "", names: Sequence[str] | None = None, largest: int | None = None
) -> dict[str, AnyArray]:
    """Arrays of an ``.npz`` file.

    Args:
        path: The file.
        advice: What to do if it is damaged, the end of the message.
        names: Which, of those that it has; all by default.
        largest: Bytes that they may have together, unpacked; by default half of this machine's memory.
    """
    most = largest or half_of_memory()
    try:
        # Opened here, because numpy does not close a file that it cannot read.
        with plain_file(path).open("rb") as handle:
            file = np.load(handle, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("a single array")
            with file:
                archive: Any = file.zip
                size = sum(member.file_size for member in archive.infolist())
                if size > most:
                    raise ValueError(f"its arrays take {size / 2**30:,.2f} GiB, and {most / 2**30:,.2f} are allowed")
                found = {key: file[key] for key in file.files if names is None or key in names}
        for name, array in found.items():
            if not isinstance(array, np.ndarray) or array.dtype.names is not None:
                raise ValueError(f"{name!r} is not an array of numbers")
        return {name: native(array) for name, array in found.items()}
    except FileNotFoundError:
        raise
    except PermissionError:
        raise DataError(f"{path} may not be read: change its permissions") from None
    except (
        *DAMAGED,
        zipfile.BadZipFile,
        zlib.error,
        RuntimeError,
    ) as error:  # the last: locked, or packed otherwise
        raise DataError(f"{path} is damaged or not an .npz file ({error}){advice}") from error


def native(array: AnyArray) -> AnyArray:
    """The same numbers in this machine's order of bytes: types in another one equal none of NumPy's."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def array_of(arrays: Mapping[str, AnyArray], name: str, path: object) -> AnyArray:
    """One of the arrays of a file, which must have it."""
    if name not in arrays:
        raise DataError(f"{path} has no array {name}; it has {', '.join(sorted(arrays)) or 'none'}")
    return arrays[name]


def save(path: Path, content: io.BytesIO, advice: str) -> None:
    """Write a file, whole or not at all, into a folder that is made if need be."""
    with reported(f"cannot write {path}", DataError, f". {advice}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.getvalue())


def download(address: str, path: Path, title: str, advice: str, checksum: str | None = None) -> None:
    """Fetch a file of a data set, or say that it is missing and what to do."""
    pooch = require("pooch", "data", f"Downloading {title}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"downloading {address}", file=sys.stderr)
        pooch.get_logger().setLevel("WARNING")
        # pooch checks the file and moves it into place when it is complete.
        pooch.retrieve(address, known_hash=checksum, fname=path.name, path=path.parent)
    except Exception as error:  # requests and urllib raise many kinds
        what, why = (path.name, f": {error}") if checksum else (title, "")
        raise DataError(
            f"{what} is not in {path.parent} and could not be downloaded ({type(error).__name__}{why}). {advice}"
        ) from error


def check_known(kind: str, name: str, known: Collection[str]) -> None:
    """Refuse a name that is not among those known."""
    if name not in known:
        raise ValueError(f"unknown {kind} {name!r}: use one of {', '.join(known)}")


def shuffled_classes(labels: AnyArray, seed: int) -> Iterator[AnyArray]:
    """The rows of every class that occurs, in random order."""
    rng = np.random.default_rng(seed)
    return (rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels))

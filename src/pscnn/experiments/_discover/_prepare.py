"""People's data as one file, under a name that tells their content."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._extras import PscnnError
from pscnn._files import make_folder
from pscnn.data import DataError, own


def prepared_file(source: Any, folder: Path, **reading: Any) -> Path:
    """Prepare data in a folder, under a name that tells their content: changed data are other data.

    Args:
        source: As for ``own.prepare``.
        folder: Where; it is removed again if the data cannot be used and nothing else is in it.
        reading: Options of ``own.prepare``.
    """
    new = not folder.exists()
    make_folder(folder, "--out", PscnnError)
    temporary = folder / f".data.{secrets.token_hex(4)}.npz"
    try:
        own.prepare(source, temporary, **reading)
    except PscnnError:
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    digest = hashlib.sha256()
    with np.load(temporary) as arrays:
        for name in ("pixels", "targets", "split", "about"):
            digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    path = folder / f"data-{digest.hexdigest()[:8]}.npz"
    temporary.replace(path)
    own.write_contact_sheet(path, folder / "examples.png")
    return path


def is_prepared(path: Any) -> bool:
    """Whether something is a file that ``prepared_file`` wrote."""
    if not (isinstance(path, Path) and path.name.startswith("data-") and path.suffix == ".npz" and path.is_file()):
        return False
    try:
        own.read_about(path)
    except DataError:
        return False
    return True

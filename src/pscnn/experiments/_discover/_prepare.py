"""People's data as one file, under a name that tells their content."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._extras import PscnnError
from pscnn._files import expanded, make_folder, reported, written_whole
from pscnn.data import DataError, own


def prepared_file(source: Any, folder: Path, **reading: Any) -> Path:
    """Prepare data in a folder, under a name that tells their content: changed data are other data.

    Args:
        source: As for ``own.prepare``.
        folder: Where; what is made of it is removed again if the data cannot be used.
        reading: Options of ``own.prepare``.
    """
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    make_folder(folder, "--out", PscnnError)
    temporary = folder / f".data.{secrets.token_hex(4)}.npz"
    try:
        own.prepare(source, temporary, **reading)
    except PscnnError:
        with contextlib.suppress(OSError):
            for place in new:
                place.rmdir()
        raise
    digest = hashlib.sha256()
    with np.load(temporary) as arrays:
        for name in ("pixels", "targets", "split", "about"):
            digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    path = folder / f"data-{digest.hexdigest()[:8]}.npz"
    temporary.replace(path)
    own.write_contact_sheet(path, folder / "examples.png")
    return path


def beside(path: Path, folder: Path) -> Path:
    """Prepared data in the folder of an answer, where its runs look for them; a copy if they are elsewhere."""
    make_folder(folder, "out", PscnnError)
    place = folder / path.name
    if path.parent.resolve() != folder.resolve() and not place.exists():
        with reported(f"cannot write {place}", PscnnError), written_whole(place) as partial:
            shutil.copyfile(path, partial)
    return place


def is_prepared(data: Any) -> bool:
    """Whether something is a file that ``prepared_file`` wrote."""
    if not isinstance(data, str | Path):
        return False
    path = expanded(data)
    if not (path.name.startswith("data-") and path.suffix == ".npz" and path.is_file()):
        return False
    try:
        own.read_about(path)
    except DataError:
        return False
    return True

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
from pscnn._files import expanded, make_folder, plain_file, reported, written_whole
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
    path = folder / _name_of(temporary)
    temporary.replace(path)
    own.write_contact_sheet(path, folder / "examples.png")
    return path


def _name_of(path: Path) -> str:
    """Of a prepared file, by its content."""
    digest = hashlib.sha256()
    with plain_file(path).open("rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        for name in ("pixels", "targets", "split", "about"):
            digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return f"data-{digest.hexdigest()[:8]}.npz"


def beside(path: Path, folder: Path) -> Path:
    """Prepared data in the folder of an answer, where its runs look for them, under the name that tells their content.

    They are checked first.
    """
    own.load(path)
    make_folder(folder, "--out", PscnnError)
    place = folder / _name_of(path)
    if not (place.exists() and (place.resolve() == path.resolve() or _is_whole(place))):
        with reported(f"cannot write {place}", PscnnError), written_whole(place) as partial:
            shutil.copyfile(path, partial)
    return place


def _is_whole(place: Path) -> bool:
    """Whether a copy that was made before still has the content that its name tells."""
    try:
        return _name_of(place) == place.name
    except Exception:  # what damaged archives raise
        return False


def folder_of(data: Any, out: str | Path | None) -> Path:
    """Where data, runs and the report are; not among the data.

    Args:
        data: As for ``own.prepare``.
        out: The folder that was asked for.
    """
    source = expanded(data) if isinstance(data, str | Path) else None
    if out is None:
        out = Path("discover") / ("data" if source is None else source.resolve().stem or "data")
    if source is not None and source.is_dir() and Path(out).resolve().is_relative_to(source.resolve()):
        raise PscnnError(f"{out} is a folder within the data, {source}: choose another one with --out")
    return Path(out)


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

"""Files that are written whole or not at all, and errors of the system in words."""

import contextlib
import dataclasses
import errno
import json
import math
import os
import tokenize
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pscnn._extras import PscnnError


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON that everybody reads: numbers that are none, as after training that diverged, are null."""
    return json.dumps(_without_nan(value), indent=indent, allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


DAMAGED = (OSError, ValueError, EOFError, RecursionError, MemoryError, SyntaxError, tokenize.TokenError)
"""What readers of JSON and of numpy's files raise for other files; numpy reads its headers as Python's literals."""


def check_record(record: Any) -> None:
    """Raise unless the fields of a dataclass have the types that it says, as those of a file that was received may not.

    Of lists and tuples the elements are looked at, too.
    """
    hints = typing.get_type_hints(type(record))
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if not _fits(value, hints[field.name]):
            raise ValueError(f"{field.name} is {str(value)[:40]!r}, which it cannot be")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin in (list, tuple):
        return isinstance(value, origin) and all(_fits(one, inner[0]) for one in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def plain_file(path: Path) -> Path:
    """The path, unless something else than a file is there: reading a pipe or a device could wait for ever."""
    if path.exists() and not path.is_file():
        kind = (errno.EISDIR, "Is a directory") if path.is_dir() else (errno.EINVAL, "Not a plain file")
        raise OSError(*kind, str(path))
    return path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write beside the file and move it there, so that an interruption never leaves half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def reported(problem: str, kind: type[PscnnError], advice: str = "") -> Iterator[None]:
    """Turn an error of the system into one for people: the problem, the system's reason, and what to do."""
    try:
        yield
    except OSError as error:
        raise kind(f"{problem}: {error.strerror}{advice}") from None


def make_folder(folder: Path, option: str, kind: type[PscnnError]) -> None:
    """Make a folder, or name the option with which to choose another."""
    with reported(f"cannot create the folder {folder}", kind, f". Choose another with {option}"):
        folder.mkdir(parents=True, exist_ok=True)

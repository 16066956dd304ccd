"""Files that are written whole or not at all, and errors of the system in words."""

import contextlib
import dataclasses
import errno
import json
import math
import os
import secrets
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


DEEPEST = 40
"""Lists and objects within each other that a file may have."""


def from_json(text: str) -> Any:
    """JSON that may come from others: text that is Unicode, whole numbers of 64 bits, not nested without end.

    Everything else is a ``ValueError``, or a ``RecursionError``.

    Example:
        >>> from_json('{"a": [1, 2]}')
        {'a': [1, 2]}
        >>> from_json("1" + 400 * "0")
        Traceback (most recent call last):
        ...
        ValueError: a whole number of more than 64 bits
    """
    found = json.loads(text)
    level = [found]
    for _ in range(DEEPEST):
        for one in level:
            if isinstance(one, str):
                one.encode()  # half a pair of surrogates is no text
            elif isinstance(one, int) and abs(one) >= 2**63:
                raise ValueError("a whole number of more than 64 bits")
        inside = [one for one in level if isinstance(one, dict | list)]
        level = [item for one in inside for item in ([*one, *one.values()] if isinstance(one, dict) else one)]
        if not level:
            return found
    raise ValueError(f"more than {DEEPEST} lists or objects within each other")


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


@contextlib.contextmanager
def written_whole(path: Path, *, new: bool = False) -> Iterator[Path]:
    """A new file beside another one, which takes its place in the end: an interruption never leaves half of it.

    It is made here and under a name that nobody foresees: a link that lies in a received folder is not followed.

    Args:
        path: The file.
        new: Whether it must not be there, also not since this began: then it is left as it is, and an error raised.
    """
    partial = _beside(path)
    try:
        partial.open("xb").close()
        yield partial
        if new:
            _put_new(partial, path)
        else:
            os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _put_new(partial: Path, path: Path) -> None:
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:  # where files have one name only
        if path.exists():
            raise FileExistsError(errno.EEXIST, "File exists", str(path)) from None
        os.replace(partial, path)
    else:
        partial.unlink()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.stem}.{secrets.token_hex(4)}.partial{path.suffix}")


def expanded(path: str | Path) -> Path:
    """With the home folder for ~; as it is where nobody is called so."""
    try:
        return Path(path).expanduser()
    except (RuntimeError, ValueError):
        return Path(path)


def check_place(path: Path) -> None:
    """Raise now what would be raised if the file were written after minutes of work."""
    partial = _beside(path)
    partial.open("xb").close()
    partial.unlink()


def write_whole(path: Path, content: str | bytes, *, new: bool = False) -> None:
    """Write a file, whole or not at all; of names that are no Unicode the bytes are written out.

    Args:
        path: The file.
        content: What is in it.
        new: As for ``written_whole``.
    """
    with written_whole(path, new=new) as partial:
        partial.write_bytes(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


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

"""One process at a time works on a run."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock


def run_lock(folder: Path) -> FileLock:
    """Held by whoever works on a run. It ends with its process, and can be taken again within it."""
    folder = folder.resolve()
    return FileLock(folder.with_name(f".{folder.name}.lock"), is_singleton=True)

"""Work in processes, whose results are kept as files: what is there is not done again."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from pscnn._files import DAMAGED, reported
from pscnn.training import RunError, processes


@dataclass(frozen=True)
class Job:
    """A call, and the file of its result.

    Attributes:
        name: Of the file.
        function: Of a module, so that other processes can import it.
        arguments: Its arguments.
        read: Reads a result from a file.
        write: Writes it.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    read: Callable[[Path], Any]
    write: Callable[[Any, Path], None]


@contextlib.contextmanager
def pool_of(count: int) -> Iterator[Executor | None]:
    """Processes, unless one is enough; an interruption (Ctrl-C) ends them and nothing else."""
    with contextlib.suppress(KeyboardInterrupt):
        if count == 1:
            yield None
        else:
            with processes(count) as pool:
                yield pool


def results(jobs: Sequence[Job], folder: Path, pool: Executor | None) -> Iterator[tuple[int, Any]]:
    """Results with their numbers, as they come: what was kept first, then what is done now, and kept."""
    left: list[int] = []
    for number, job in enumerate(jobs):
        try:
            found = job.read(folder / job.name)
        except (*DAMAGED, KeyError, TypeError, AttributeError, OverflowError, BadZipFile, zlib.error):  # or not there
            left.append(number)
        else:
            yield number, found
    if pool is None:
        for number in left:
            result = jobs[number].function(*jobs[number].arguments)
            _keep(jobs[number], result, folder)
            yield number, result
        return
    futures: dict[Future[Any], int] = {pool.submit(jobs[n].function, *jobs[n].arguments): n for n in left}
    for future in as_completed(futures):
        number = futures[future]
        try:
            result = future.result()
        except BrokenProcessPool:
            raise RunError(
                "a process ended before its work was done, perhaps for want of memory: use fewer workers; the same "
                'command continues. In a script, call discover below: if __name__ == "__main__":'
            ) from None
        _keep(jobs[number], result, folder)
        yield number, result


def _keep(job: Job, result: Any, folder: Path) -> None:
    with reported(f"cannot write {folder / job.name}", RunError, "; the same command continues"):
        job.write(result, folder / job.name)

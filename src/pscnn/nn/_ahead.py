"""Kernels of a network compiled side by side before its first step, instead of one after the other in it."""

import contextlib
import os
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor


class _Jobs:
    """What is being compiled, each once."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.pool = pool
        self.under_way: dict[Hashable, Future[None]] = {}

    def add(self, key: Hashable, compile_it: Callable[[], None]) -> None:
        if key not in self.under_way:
            self.under_way[key] = self.pool.submit(compile_it)


jobs: list[_Jobs] = []
"""At most one, for all threads: gradients are computed in others than this."""


@contextlib.contextmanager
def compile_ahead() -> Iterator[None]:
    """Within it kernels are compiled and not run, so nothing that layers give is of any use. At its end all are there.

    Compilers work for most of the time outside of Python, in as many threads as there are cores. What cannot be
    compiled says so when it is to run.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs.append(_Jobs(pool))
        try:
            yield
        finally:
            jobs.pop()

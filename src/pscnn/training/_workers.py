"""Work in several processes that end when they are told to, or on the machines of a Ray cluster."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import torch

from pscnn._extras import require

RETRIES = 3
"""How often a call is begun again whose worker has died."""
Arguments = Sequence[tuple[Any, ...]]
"""One tuple per call of a function, which is that of a module, so that all processes and machines can import it."""
Done = Callable[[int, Any], None]
"""Called with the number of a call and its result, as they come; an exception that it raised is the result."""


def in_processes(function: Callable[..., Any], arguments: Arguments, workers: int, on_done: Done) -> None:
    """Call a function with each tuple of arguments, in processes that share the cores.

    Ctrl-C, or an exception from ``on_done``, ends the processes at once; so does the end of this process.
    """
    with processes(workers) as pool:
        jobs = {pool.submit(function, *own): number for number, own in enumerate(arguments)}
        for job in as_completed(jobs):
            on_done(jobs[job], job.exception() or job.result())


@contextlib.contextmanager
def processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that share the cores and end with this one; at once if an exception, such as Ctrl-C, ends the block."""
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    threads = max(1, (os.cpu_count() or 1) // workers)
    with ProcessPoolExecutor(workers, context, _start_worker, (threads,)) as pool:
        try:
            yield pool
        except BaseException:  # an executor would wait until the calls under way have ended
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise


def _start_worker(threads: int) -> None:
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    stay_with_parent()


def stay_with_parent() -> None:
    """No life of its own: the parent ends a process on Ctrl-C, and it ends itself when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def in_ray(function: Callable[..., Any], arguments: Arguments, on_done: Done, gpus: float) -> None:
    """Call a function with each tuple of arguments, on the machines of a Ray cluster.

    The cluster is the one that ``ray.init`` finds: that of ``RAY_ADDRESS``, else one that runs on this machine, else
    one that is started here and ends with this process. Every call has so many
    GPUs; a fraction lets several share one.
    """
    require("ray", "cluster", "The engine 'ray'")
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would tell its makers
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(function)
    waiting = {remote.remote(*own): number for number, own in enumerate(arguments)}
    try:
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(done)
            try:
                result: Any = ray.get(done)
            except ray.exceptions.RayTaskError as error:
                result = error.cause or error
            except ray.exceptions.RayError as error:  # its worker died too often
                result = error
            on_done(number, result)
    except BaseException:
        for call in waiting:
            ray.cancel(call, force=True)
        raise

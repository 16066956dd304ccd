"""One GPU for several processes: that they use it together, and how busy it is."""

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator

import torch

WORKERS = 6
"""Processes per GPU: with more, the paper's networks are trained no faster."""
_PLACE, _TRY = "CUDA_MPS_PIPE_DIRECTORY", "import torch; torch.zeros(1, device='cuda').item()"


def gpu_is_used(accelerator: str) -> bool:
    """Whether runs with this accelerator are trained on a GPU."""
    return accelerator != "cpu" and torch.cuda.is_available()


def usual_workers(accelerator: str) -> int:
    """How many processes train many runs: one per core, fewer on a GPU."""
    cores = os.cpu_count() or 1
    return min(WORKERS, cores) if gpu_is_used(accelerator) else cores


@contextlib.contextmanager
def shared_gpu() -> Iterator[None]:
    """Processes that are started within it use a GPU at the same time instead of in turns.

    A small network leaves most of a GPU idle. NVIDIA's multi-process service lets several fill it; where it cannot be
    started, or is running already, nothing changes.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or _PLACE in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="pscnn-", ignore_cleanup_errors=True) as folder:
        own = {_PLACE: folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        os.environ |= own
        try:
            if not (_succeeds([control, "-d"]) and _succeeds([sys.executable, "-c", _TRY])):
                _forget(own)
            yield
        finally:
            _succeeds([control], "quit\n", {**os.environ, **own})
            _forget(own)


def _succeeds(words: list[str], text: str = "", environment: dict[str, str] | None = None) -> bool:
    try:
        done = subprocess.run(words, input=text.encode(), env=environment, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _forget(names: Iterable[str]) -> None:
    for name in names:
        os.environ.pop(name, None)


class Watch:
    """Asks nvidia-smi every few seconds how busy the GPU is."""

    def __init__(self, pause: float = 5.0) -> None:
        self._pause, self._stop, self._found = pause, threading.Event(), list[float]()

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        words = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self._stop.wait(self._pause):
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=True)
                self._found.append(float(done.stdout.split()[0]))
            except (OSError, subprocess.SubprocessError, ValueError, IndexError):
                return

    @property
    def busy(self) -> float | None:
        """The mean share of the time in which the GPU did something, in percent; None if it is not known."""
        return statistics.mean(self._found) if self._found else None

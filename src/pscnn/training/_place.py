"""Where a run is trained."""

import contextlib
import os
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from pscnn.training._gpu import gpu_is_used
from pscnn.training._run import RunError


class Place(NamedTuple):
    """The device of a process, and which of how many processes it is."""

    device: torch.device
    rank: int = 0
    processes: int = 1

    def summed(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.processes > 1:
            dist.all_reduce(values)
        return values

    def autocast(self, precision: str) -> Any:
        """Half precision where it is safe, if it is asked for."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "bf16")


def choose_device(accelerator: str) -> torch.device:
    """The device that "auto", "cpu" or "gpu" stands for."""
    if accelerator not in ("auto", "cpu", "gpu"):
        raise RunError(f"accelerator must be auto, cpu or gpu, got {accelerator!r}")
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise RunError("no GPU is available: use --accelerator cpu or auto")
    return torch.device("cuda" if gpu_is_used(accelerator) else "cpu")


_waking: list[threading.Thread] = []


def wake(device: torch.device) -> None:
    """Let a GPU start, and load its libraries, while this process prepares other things: each takes a second or two."""
    if device.type == "cuda" and not (torch.cuda.is_initialized() or _waking):
        _waking.extend(threading.Thread(target=do, daemon=True) for do in (partial(_touch, device), _load_optimizers))
        for thread in _waking:
            thread.start()


def _touch(device: torch.device) -> None:
    with contextlib.suppress(RuntimeError):  # whatever is wrong is said where the GPU is needed
        x = torch.zeros(1, 8, 8, 8, device=device, dtype=torch.bfloat16)
        F.conv2d(x, x[..., :3, :3])
        F.linear(x, x[0, 0])


def _load_optimizers() -> None:
    """The first optimiser of a process loads torch's compiler, a second or more."""
    torch.optim.SGD([torch.zeros(1)], lr=1.0)


def awake() -> None:
    """Wait until a GPU that is waking is awake: steps must not be recorded meanwhile."""
    while _waking:
        _waking.pop().join()


SMALL = 300_000
"""Parameters up to which a network is trained by one thread. Its steps are so short that threads mostly wait for each
other: on two busy cores an epoch of the quickstart's P-SCNN took 3 s with one thread and 8 to 23 s with two."""


@contextlib.contextmanager
def suitable_threads(model: nn.Module) -> Iterator[None]:
    """Within it small networks use one thread of the CPU, unless ``OMP_NUM_THREADS`` says how many to use."""
    before = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ and sum(p.numel() for p in model.parameters()) <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

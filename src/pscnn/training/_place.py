"""Where a run is trained."""

import contextlib
import threading
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

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
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise RunError("no GPU is available: use --accelerator cpu or auto")
    return torch.device("cuda" if gpu_is_used(accelerator) else "cpu")


_waking: list[threading.Thread] = []


def wake(device: torch.device) -> None:
    """Let a GPU start, and load its libraries, while this process prepares other things: each takes a second or two."""
    if device.type == "cuda" and not (torch.cuda.is_initialized() or _waking):
        _waking.append(threading.Thread(target=_touch, args=(device,), daemon=True))
        _waking[0].start()


def _touch(device: torch.device) -> None:
    with contextlib.suppress(RuntimeError):  # whatever is wrong is said where the GPU is needed
        x = torch.zeros(1, 8, 8, 8, device=device, dtype=torch.bfloat16)
        F.conv2d(x, x[..., :3, :3])
        F.linear(x, x[0, 0])


def awake() -> None:
    """Wait until a GPU that is waking is awake: steps must not be recorded meanwhile."""
    while _waking:
        _waking.pop().join()

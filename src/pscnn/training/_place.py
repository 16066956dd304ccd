"""Where a run is trained."""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
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

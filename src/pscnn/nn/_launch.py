# mypy: disable-error-code="no-untyped-def,no-untyped-call"
"""Kernels are started with little work in Python.

At every start Triton looks at every argument to find the code compiled for such ones, which takes longer than most of
our kernels run.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
from triton.compiler import CompiledKernel

from pscnn.nn._ahead import jobs

REMEMBERED = 4096
"""Starts of one kernel that are remembered; with more, all are forgotten."""
DIRECT = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 3) and torch.version.hip is None
"""Whether compiled code is started with all arguments of the kernel, constants too; older versions leave them out.

For AMD what is compiled also depends on the memory that tensors lie in.
"""


class Kernel:
    """A Triton kernel that remembers what Triton found for arguments that are alike.

    What is compiled depends on numbers and constants, and of tensors on their types and on whether they begin at
    multiples of 16 bytes. Where all of these are as before, and the devices are, the code of that time is started.
    Triton's interpreter has none, and is asked every time.

    Args:
        function: The kernel. Its parameters are tensors, then numbers, then constants.
    """

    def __init__(self, function) -> None:
        self.function = function
        self.direct = DIRECT
        self.known: dict[Any, Any] = {}

    def start(self, grid, tensors, numbers, constants, num_warps=4) -> None:
        """Run it on the device of the first tensor, which need not be the current one."""
        device = tensors[0].get_device()
        if device >= 0 and device != torch.cuda.current_device():
            with torch.cuda.device(device):
                self.start(grid, tensors, numbers, constants, num_warps)
            return
        places = [t.data_ptr() for t in tensors]
        kinds = [(t.dtype, place & 15 == 0, t.get_device()) for t, place in zip(tensors, places, strict=True)]
        if jobs:
            alike = [(number == 1, number % 16 == 0) if isinstance(number, int) else type(number) for number in numbers]
            compile_it = partial(self._compile, device, grid, (*tensors, *numbers, *constants), num_warps)
            jobs[0].add((self, device, *alike, constants, num_warps, *kinds), compile_it)
            return
        key = device, grid, numbers, constants, num_warps, *kinds
        run = self.known.get(key)
        if run is not None:
            try:
                run(*places, *numbers, *constants)  # places were looked up: the driver need not be asked what they are
            except TypeError:  # a version of Triton that wants others; nothing was started
                self.direct = False
                self.known.clear()
            else:
                return
        compiled = self.function[grid](*tensors, *numbers, *constants, num_warps=num_warps)
        if self.direct and isinstance(compiled, CompiledKernel):
            if len(self.known) >= REMEMBERED:
                self.known.clear()
            self.known[key] = compiled[(*grid, 1, 1)[:3]]

    def _compile(self, device, grid, arguments, num_warps) -> None:
        with torch.cuda.device(device):  # a thread's own; -1 for none
            self.function.warmup(*arguments, grid=grid, num_warps=num_warps)


def ceil_div(n: int, size: int) -> int:
    """How many portions of a size n things take; Triton's own is slow where it is called often."""
    return -(-n // size)


def power_of_two(n: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << (n - 1).bit_length()

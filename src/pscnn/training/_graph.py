"""Training steps as CUDA graphs: hundreds of small operations are started at once, and nothing is compiled for it."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

EAGER_STEPS = 2
"""Of each batch size before its step is recorded: libraries choose their algorithms in them."""


class GraphedStep:
    """One step of training, forwards, backwards and the update, for batches of any size.

    The first steps with a batch of some size are done one operation after the other. Then the step is recorded, and
    from there on replayed. Both change the same parameters in place.

    Args:
        objective: Gives the loss and its terms for a batch.
        optimizer: Made for it by ``prepare``.
        half: Whether to compute in bf16 where that is safe.
    """

    def __init__(
        self, objective: Callable[[Tensor, Tensor], dict[str, Tensor]], optimizer: torch.optim.Optimizer, half: bool
    ) -> None:
        self._objective, self._optimizer, self._half = objective, optimizer, half
        self._stream = torch.cuda.Stream()
        self._pool = torch.cuda.graph_pool_handle()  # one for all, since no two are replayed at a time
        self._seen: dict[Any, int] = {}
        self._refused = False
        self._recorded: dict[Any, tuple[torch.cuda.CUDAGraph, tuple[Tensor, Tensor], dict[str, Tensor]]] = {}

    def __call__(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The loss and its terms before the step, which is done."""
        key = x.shape, y.shape
        if key not in self._recorded:
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] <= EAGER_STEPS or not self._record(key, x, y):
                return self._aside(x, y)
        graph, inputs, values = self._recorded[key]
        for place, value in zip(inputs, (x, y), strict=True):
            place.copy_(value)
        graph.replay()
        return values

    def _aside(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """A step beside the main stream, as before a recording."""
        main = torch.cuda.current_stream()
        self._stream.wait_stream(main)
        with torch.cuda.stream(self._stream):
            values = self._step(x, y)
        main.wait_stream(self._stream)
        return values

    def _step(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        search = torch.backends.cudnn.benchmark
        # The last batch of an epoch is smaller and rare: which algorithms are the fastest for it is not tried out.
        torch.backends.cudnn.benchmark = search and len(self._seen) == 1
        try:
            return self._do(x, y)
        finally:
            torch.backends.cudnn.benchmark = search

    def _do(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        self._optimizer.zero_grad(set_to_none=True)
        # Nothing is kept of weights in half precision: a replay would find those of the recording.
        with torch.autocast("cuda", torch.bfloat16, enabled=self._half, cache_enabled=False):
            values = self._objective(x, y)
        with torch.autocast("cuda", enabled=False):
            values["loss"].backward()
            self._optimizer.step()
        return {name: value.detach() for name, value in values.items()}

    def _record(self, key: Any, x: Tensor, y: Tensor) -> bool:
        """Whether it can be done: an objective that waits for the device cannot be recorded."""
        if self._refused:
            return False
        inputs = x.clone(), y.clone()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, self._pool, self._stream):
                values = self._step(*inputs)
        except RuntimeError as error:
            self._refused = True
            why = str(error).splitlines()[0]
            warnings.warn(
                f"training steps are slower than they could be: they cannot be recorded ({why})", stacklevel=3
            )
            return False
        self._recorded[key] = graph, inputs, values
        return True


def prepare(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Let an optimiser read its rate from a device, where a replayed step finds it."""
    for group in optimizer.param_groups:
        group["capturable"], group["lr"] = True, torch.tensor(float(group["lr"]), device=device)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate

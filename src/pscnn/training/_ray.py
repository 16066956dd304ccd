"""Work on the machines of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pscnn._extras import require

RETRIES = 3
"""How often a call is begun again whose worker has died."""


def in_ray(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    on_done: Callable[[int, Any], None],
    *,
    gpus: float = 0,
) -> None:
    """Call a function with each tuple of arguments, on the machines of a Ray cluster.

    The cluster is the one that ``ray.init`` finds: that of ``RAY_ADDRESS``, else one that runs on this machine, else
    one that is started here and ends with this process.

    Args:
        function: Of a module that all machines have.
        arguments: One tuple per call.
        on_done: Called with the number of a call and its result, as they come; an exception that it raised is the
            result.
        gpus: GPUs per call; a fraction lets several share one.
    """
    require("ray", "cluster", "The engine 'ray'")
    import ray

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

"""One training step of forecasting networks beside their plain twins, as ``pscnn train smoke`` executes it.

    python benchmarks/flows.py --json FILE           # on a GPU: batch 16, 64 × 64, 92 fields, bf16, recorded
    python benchmarks/flows.py --profile p-scnn      # the kernels of a step that take the longest
    python benchmarks/flows.py --width 2 --size 8 --batch 2 --rounds 2     # on a CPU, to see that it works

A step is a forecast of six frames, each from the ones before, forwards and backwards through all of them, with the
losses of the method and the update. On a GPU it is recorded and replayed, and kernels are expanded once. The twin has
free kernels with the same channels ("fast twin": in the layout that steerable convolutions use on a GPU); normalisation
and nonlinearities stay. All networks are timed in turns. ``minutes`` is 100 epochs of 250 steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pscnn import models
from pscnn.experiments import machine
from pscnn.tasks.flows import Smoke, SmokeSettings
from pscnn.training import GraphedStep, precision, prepare

METHODS = ("p-scnn", "e2cnn", "lift", "cnn")
STEPS_PER_RUN = 100 * 250
REPEATS = 5


def make_step(method: str, twin: str, arguments: argparse.Namespace, device: torch.device) -> Callable[[], object]:
    """What does one step of a network, or of its twin."""
    task = Smoke(SmokeSettings(method=method, width=arguments.width, precision="bf16"))
    task.grid = arguments.size, arguments.size
    torch.manual_seed(0)
    learner: Any = task.learner()
    if twin:
        learner.model, learner._densities = models.twin(learner.model), False
    for module in [*learner.model.modules()] if twin == "fast twin" else []:
        for key, child in module.named_children():
            if isinstance(child, torch.nn.Conv2d):
                setattr(module, key, models.FreeConvolution(child))
    learner.to(device).train()
    optimizer = learner.make_optimizer()
    x = torch.randn(arguments.batch, *(2 * models.PAST, arguments.size, arguments.size), device=device)
    y = torch.randn(arguments.batch, task.settings.train_steps, 2, arguments.size, arguments.size, device=device)
    if device.type == "cuda":
        prepare(optimizer, device)
        recorded = GraphedStep(learner.objective, optimizer, half=True)
        return lambda: recorded(x, y)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = learner.objective(x, y)["loss"]
        loss.backward()
        optimizer.step()

    return step


def milliseconds(step: Callable[[], object], device: torch.device) -> float:
    wait: Callable[[], Any] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    for _ in range(REPEATS):
        step()
    wait()
    return 1000 * (time.perf_counter() - started) / REPEATS


def profile(step: Callable[[], object], device: torch.device) -> None:
    """Print the operations of a step that take the longest."""
    kind = torch.profiler.ProfilerActivity.CUDA if device.type == "cuda" else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[kind]) as found:
        for _ in range(REPEATS):
            step()
    order = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=order, row_limit=30, max_name_column_width=80))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=models.FLOW_METHODS)
    parser.add_argument("--profile", choices=models.FLOW_METHODS, help="profile this one instead")
    parser.add_argument("--width", type=int, default=92)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    names: dict[str, tuple[str, str]] = {}
    for method in [arguments.profile] if arguments.profile else arguments.methods:
        names[method] = method, ""
        if method != "cnn" and not arguments.profile:
            twins = ("twin", "fast twin") if device.type == "cuda" else ("twin",)
            names |= {f"{method}, {twin}": (method, twin) for twin in twins}
    with precision("bf16"):
        steps = {name: make_step(*which, arguments, device) for name, which in names.items()}
        for step in steps.values():
            for _ in range(5 if device.type == "cuda" else 1):  # chooses algorithms, records
                step()
        if arguments.profile:
            profile(steps[arguments.profile], device)
            return
        found: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(arguments.rounds):
            for name, step in steps.items():
                found[name].append(round(milliseconds(step, device), 3))
    rows = {}
    for name, times in found.items():
        middle = statistics.median(times)
        twin = statistics.median(found.get(f"{names[name][0]}, twin", times))
        minutes = round(STEPS_PER_RUN * middle / 60_000, 1)
        rows[name] = {"ms": times, "median": middle, "ratio": round(middle / twin, 3), "minutes": minutes}
        print(f"{name:18} {middle:9.3f} ms, {middle / twin:5.2f} × its twin, {minutes:6.1f} minutes in 100 epochs")
    case = {name: getattr(arguments, name) for name in ("width", "size", "batch")}
    result = {"machine": machine(device.type), "case": {**case, "precision": "bf16"}, "networks": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

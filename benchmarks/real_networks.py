"""A ResNet at 224 pixels beside its partially equivariant version and that one's free twin: training steps and memory.

    python benchmarks/real_networks.py eager graphed recorded compiled --json FILE
    python benchmarks/real_networks.py eager recorded --profile

All are measured in one process and in turns, in bf16: one step is forwards, backwards and AdamW. "eager" starts one
operation after the other; "graphed" is the same loop with the network's two directions as CUDA graphs, as
``torch.cuda.make_graphed_callables`` makes them; "recorded" replays the whole step as one, as ``pscnn train`` does;
"compiled" is ``torch.compile`` of the network with ``mode="reduce-overhead"``. Each figure is the median of 20 rounds
of two steps, after five; the ratio is to the plain network in the same mode. With ``--profile`` one more step is taken
apart: the operations that take longest on the CPU and on the GPU, and how many kernels are started.
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
import torch.nn.functional as F
from torch import Tensor, nn

from pscnn import models, training
from pscnn.experiments import machine
from pscnn.nn import compile_ahead

BATCH, SIZE, CLASSES = 64, 224, 1000
NETWORKS: dict[str, dict[str, Any]] = {
    "plain": {"method": "cnn"},
    "P-SCNN, functions": {"fields": "functions"},
    "free twin of it": {"method": "twin", "fields": "functions"},
    "P-SCNN, irreps with gates": {"fields": "irreps"},
}


def milliseconds(step: Callable[[], Any]) -> float:
    """Of one step, in a row of two."""
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(2):
        step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 2


def profile(step: Callable[[], Any], rows: int = 25) -> dict[str, Any]:
    """What one step starts, printed; and how many kernels there are and how long the GPU is busy."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as found:
        step()
        torch.cuda.synchronize()
    averages = found.key_averages()
    for key in ("self_cpu_time_total", "self_cuda_time_total"):
        print(averages.table(sort_by=key, row_limit=rows, max_name_column_width=60), flush=True)
    events = found.events() or []
    on_gpu = [event for event in events if event.device_type.name == "CUDA" and not event.is_user_annotation]
    starts = {name: sum(e.count for e in averages if name in e.key) for name in ("LaunchKernel", "GraphLaunch")}
    busy = sum(event.time_range.elapsed_us() for event in on_gpu) / 1000
    return {"kernels": len(on_gpu), "GPU busy ms": round(busy, 2), **starts}


def make_step(name: str, mode: str, depth: int) -> tuple[Callable[[], Any], dict[str, Any]]:
    """A step of one network in one mode, which was done five times, and what is known by then."""
    torch.manual_seed(0)
    before = torch.cuda.memory_allocated()
    model: nn.Module = models.resnet(depth, outputs=CLASSES, **NETWORKS[name]).cuda()
    if NETWORKS[name].get("method") == "cnn":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as one would train it
    weights = sum(p.numel() for p in model.parameters())
    x = torch.randn(BATCH, 3, SIZE, SIZE, device="cuda").contiguous(memory_format=torch.channels_last)
    y = torch.randint(CLASSES, (BATCH,), device="cuda")
    run: Any = torch.compile(model, mode="reduce-overhead") if mode == "compiled" else model
    if mode == "graphed":
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            run = torch.cuda.make_graphed_callables(model, (x,))

    def objective(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"loss": F.cross_entropy(run(x).float(), y)}

    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    started = time.monotonic()
    if mode == "compiled":  # what torch compiles are other kernels; it would start ours, and compile them, one by one
        with compile_ahead(), torch.autocast("cuda", torch.bfloat16):
            F.cross_entropy(model(x).float(), y).backward()
    torch.cuda.reset_peak_memory_stats()
    if mode == "recorded":
        training.prepare(optimizer, torch.device("cuda"))
        graphed = training.GraphedStep(objective, optimizer, half=True)

        def step() -> None:
            graphed(x, y)
    else:

        def step() -> None:
            if mode == "compiled":
                torch.compiler.cudagraph_mark_step_begin()  # networks take turns
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=mode != "graphed"):
                values = objective(x, y)
            values["loss"].backward()
            optimizer.step()

    step()
    torch.cuda.synchronize()
    first = round(time.monotonic() - started, 1)
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    memory = round((torch.cuda.max_memory_allocated() - before) / 2**20)
    return step, {"first step s": first, "memory MiB": memory, "weights": weights}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "modes", nargs="*", choices=["eager", "graphed", "recorded", "compiled"], default=["eager", "recorded"]
    )
    parser.add_argument("--depth", type=int, default=18, choices=[18, 34, 50])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--networks", nargs="*", choices=[*NETWORKS][1:], default=[*NETWORKS][1:], help="beside plain")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", action="store_true", help="print what one step starts, and how long it takes")
    arguments = parser.parse_args()
    found: dict[str, Any] = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    found |= {"machine": machine("cuda"), "depth": arguments.depth, "batch": BATCH, "size": SIZE}
    with training.precision("bf16"):
        for mode in arguments.modes:
            made = {name: make_step(name, mode, arguments.depth) for name in ("plain", *arguments.networks)}
            times: dict[str, list[float]] = {name: [] for name in made}
            for _ in range(arguments.count):
                for name, (step, _) in made.items():
                    times[name].append(milliseconds(step))
            rows = {name: {"step ms": round(statistics.median(times[name]), 2), **made[name][1]} for name in made}
            for name, (step, _) in made.items() if arguments.profile else ():
                print(f"\n{mode}, {name}")
                rows[name] |= profile(step)
            del made, step
            torch.compiler.reset()
            for row in rows.values():
                for key in ("step ms", "memory MiB"):
                    row[key.split()[0] + " ratio"] = round(row[key] / rows["plain"][key], 2)
            found[mode] = rows
            for name, row in rows.items():
                print(f"{mode:9} {name:28}", row, flush=True)
            if arguments.json:  # after every mode: compilation may take longer than one has
                arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""How the cost of one partially equivariant convolution grows, beside a plain convolution of the same channels.

    python benchmarks/curves.py                      # prints a table
    python benchmarks/curves.py --json FILE
    python benchmarks/curves.py --plot FILE --picture curves.png

Forwards and backwards, the expansion of the kernel and its gradient included. From one setting (O(2), band-limit 2, 12
fields of all irreps up to frequency 3 on both sides, 5×5, 55² pixels, 64 images; TF32 on a GPU) one number changes at a
time. On a GPU both run as CUDA graphs, so what is measured is work, not launches. ``floor`` is the time that the
memory traffic of the plain convolution would take at the bandwidth that copying a large array reaches on the machine.
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
from torch import Tensor

from pscnn import FieldType, Likelihood, nn
from pscnn.experiments import machine
from pscnn.groups import direct_sum, parse

START: dict[str, Any] = {"group": "O(2)", "bandlimit": 2, "fields": 12, "kernel": 5, "size": 55}
SWEEPS: dict[str, list[Any]] = {
    "group": ["C4", "D4", "SO(2)", "O(2)"],
    "bandlimit": [0, 1, 2, 3, 4],
    "fields": [3, 6, 12, 24, 48],
    "kernel": [1, 3, 5, 7, 9],
    "size": [14, 28, 55, 110],
}
FREQUENCY = 3
ROUNDS, REPEATS = 7, 5


def layers(setting: dict[str, Any]) -> tuple[nn.Conv2d, torch.nn.Module]:
    """The steerable convolution and its plain twin."""
    group = parse(setting["group"])
    fields = FieldType(group, setting["fields"] * [direct_sum(list(group.irreps(FREQUENCY)))])
    ours = nn.Conv2d(
        fields, fields, setting["kernel"], padding="same", likelihood=Likelihood(group, setting["bandlimit"])
    )
    return ours, ours.plain()


def step(layer: torch.nn.Module, x: Tensor, gradient: Tensor) -> Callable[[], None]:
    """Forwards and backwards; on a GPU as a graph."""

    def run() -> None:
        for parameter in layer.parameters():
            parameter.grad = None
        layer(x).backward(gradient)

    if not x.is_cuda:
        return run
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def milliseconds(function: Callable[[], Any], device: str) -> float:
    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    wait()
    started = time.perf_counter()
    for _ in range(REPEATS):
        function()
    wait()
    return 1000 * (time.perf_counter() - started) / REPEATS


def bandwidth(device: str) -> float:
    """Bytes per second that copying a large array reads and writes."""
    a = torch.empty(2**28 if device == "cuda" else 2**26, dtype=torch.float32, device=device)
    b = torch.empty_like(a)
    b.copy_(a)
    seconds = min(milliseconds(lambda: b.copy_(a), device) for _ in range(5)) / 1000
    return 2 * a.numel() * a.element_size() / seconds


def measure(setting: dict[str, Any], batch: int, device: str, bytes_per_second: float) -> dict[str, Any]:
    ours, plain = layers(setting)
    ours, plain = ours.to(device), plain.to(device)
    x = torch.randn(batch, ours.in_type.size, setting["size"], setting["size"], device=device, requires_grad=True)
    gradient = torch.randn_like(x)
    steps = {"p-scnn": step(ours, x, gradient), "plain": step(plain, x, gradient)}
    found: dict[str, Any] = {name: [] for name in steps}
    for run in steps.values():
        run()
    for _ in range(ROUNDS):
        for name, run in steps.items():
            found[name].append(round(milliseconds(run, device), 4))
    # Forwards: x in, y out. Backwards: g and the kernel in, dx out; g and x in. All maps have one size.
    floor = 1000 * 6 * x.numel() * x.element_size() / bytes_per_second
    return {**setting, "channels": x.shape[1], **found, "floor": round(floor, 4)}


def plot(result: dict[str, Any], path: Path) -> None:
    """One panel a sweep: the milliseconds of both, and their ratio in words."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    names = {
        "group": "group",
        "bandlimit": "band-limit L",
        "fields": "channels",
        "kernel": "kernel size",
        "size": "image size",
    }
    figure, axes = plt.subplots(1, len(SWEEPS), figsize=(15, 3.2), layout="constrained", sharey=True)
    for axis, (name, values) in zip(axes, SWEEPS.items(), strict=True):
        rows = result["sweeps"][name]
        ticks = [row["channels"] if name == "fields" else value for row, value in zip(rows, values, strict=True)]
        medians = {key: [statistics.median(row[key]) for row in rows] for key in ("p-scnn", "plain")}
        for key, label, style in (("p-scnn", "partially equivariant", "o-"), ("plain", "plain convolution", "s--")):
            axis.plot(range(len(rows)), medians[key], style, label=label, markersize=4)
        axis.plot(range(len(rows)), [row["floor"] for row in rows], ":", color="gray", label="memory traffic alone")
        for k, (one, two) in enumerate(zip(medians["p-scnn"], medians["plain"], strict=True)):
            axis.annotate(
                f"{one / two:.2f}×", (k, max(one, two)), (0, 6), textcoords="offset points", ha="center", fontsize=8
            )
        axis.set(xticks=range(len(rows)), xticklabels=ticks, xlabel=names[name], yscale="log")
        axis.margins(x=0.12, y=0.15)
    axes[0].set_ylabel("forwards and backwards, ms")
    axes[0].legend(fontsize=7, loc="best")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--plot", type=Path, help="figures to draw instead of measuring")
    parser.add_argument("--picture", type=Path, default=Path("curves.png"), help="where to draw them")
    parser.add_argument("--batch", type=int, help="images; 64, or 4 on a CPU")
    arguments = parser.parse_args()
    if arguments.plot:
        plot(json.loads(arguments.plot.read_text()), arguments.picture)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    batch = arguments.batch or (64 if device == "cuda" else 4)
    speed = bandwidth(device)
    sweeps: dict[str, list[dict[str, Any]]] = {}
    for name, values in SWEEPS.items():
        sweeps[name] = []
        for value in values:
            row = measure({**START, name: value}, batch, device, speed)
            sweeps[name].append(row)
            one, two = (statistics.median(row[key]) for key in ("p-scnn", "plain"))
            print(
                f"{name:9} {value!s:6} {row['channels']:4} channels: {one:8.3f} ms, plain {two:8.3f}, {one / two:.2f}×",
                flush=True,
            )
    result = {"machine": machine(device), "batch": batch, "bandwidth": speed, "sweeps": sweeps}
    if arguments.json:
        arguments.json.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()

"""Runs per GPU-minute: one training from the shell's prompt to its result, and what sharing a GPU brings.

    python benchmarks/runs.py single sharing --data-dir DATA --json FILE

"single" is one ``pscnn train`` of the paper's O(2) network on double-digit MNIST, 50 epochs in bf16: first with no
compiled kernels in the cache, then with them and another seed. "sharing" is training steps per second of all processes
together, each replaying the recorded step of the same network for some seconds: one process; four that take
turns; four and eight with NVIDIA's multi-process service; and four networks in one process, each with a stream of its
own. Parts that are not measured keep their figures in an existing file. What many runs cost in the end is printed by
``pscnn reproduce``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from pscnn import training
from pscnn.experiments import machine
from pscnn.tasks.double_digits import DoubleDigitSettings

SECONDS = 5.0


def train_once(seed: int, store: str, data: str | None, epochs: int, kernels: str) -> dict[str, Any]:
    words = ["train", "ddmnist", "--source", "mnist", "--precision", "bf16", "--seed", str(seed), "--runs", store]
    words += ["--epochs", str(epochs), *(["--data-dir", data] if data else [])]
    started = time.monotonic()
    environment = {**os.environ, "TRITON_CACHE_DIR": kernels}
    subprocess.run([sys.executable, "-m", "pscnn", *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - started
    (folder,) = Path(store, "ddmnist").glob(f"*-seed{seed}")
    rows, result = training.history(folder), training.read_result(folder)
    assert result is not None
    epochs_s = [row["seconds"] for row in rows]
    accuracy = {"seed": seed, "test_accuracy": result["test_accuracy"]}
    return {
        "seconds": round(took, 1),
        "first_epoch": epochs_s[0],
        "other_epochs": round(sum(epochs_s[1:]), 1),
        **accuracy,
    }


def recorded_step(seed: int) -> Any:
    """A function that does one more step."""
    torch.manual_seed(seed)
    learner = training.task_of(DoubleDigitSettings(source="mnist", precision="bf16")).learner().cuda()
    optimizer = learner.make_optimizer()
    training.prepare(optimizer, torch.device("cuda"))
    step = training.GraphedStep(learner.objective, optimizer, half=True)
    x, y = torch.randn(256, 1, 56, 56, device="cuda"), torch.randint(100, (256,), device="cuda")
    for _ in range(4):
        step(x, y)
    return lambda: step(x, y)


def replay(meeting: Path, processes: int, networks: int = 1) -> float:
    """Steps per second of this process, once all are ready."""
    with training.precision("bf16"):
        streams = [torch.cuda.Stream() for _ in range(networks)]
        steps = []
        for seed, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                steps.append(recorded_step(seed))
        torch.cuda.synchronize()
        (meeting / str(os.getpid())).touch()
        while len([*meeting.iterdir()]) < processes:
            time.sleep(0.01)
        done, started = 0, time.monotonic()
        while time.monotonic() - started < SECONDS:
            for _ in range(5):
                for step, stream in zip(steps, streams, strict=True):
                    with torch.cuda.stream(stream):
                        step()
            torch.cuda.synchronize()
            done += 5 * networks
        return done / (time.monotonic() - started)


def together(processes: int, networks: int = 1, service: bool = False) -> float:
    """Steps per second of all processes."""
    with tempfile.TemporaryDirectory() as meeting, training.shared_gpu() if service else contextlib.nullcontext():
        words = [sys.executable, __file__, "--replay", meeting, str(processes), str(networks)]
        children = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        return round(sum(float(child.communicate()[0].split()[-1]) for child in children), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["single", "sharing"], default=["single", "sharing"])
    parser.add_argument("--data-dir")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--replay", nargs=3, metavar=("FOLDER", "PROCESSES", "NETWORKS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.replay:
        folder, processes, networks = arguments.replay
        print(replay(Path(folder), int(processes), int(networks)))
        return
    found = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    if "single" in arguments.parts:
        with tempfile.TemporaryDirectory() as store:
            common = store, arguments.data_dir, arguments.epochs, f"{store}/kernels"
            runs = {"empty cache": train_once(0, *common), "full cache": train_once(1, *common)}
        found["one run"] = {"machine": machine("cuda"), **runs}
    if "sharing" in arguments.parts:
        steps = {
            "one process": together(1),
            "four processes in turns": together(4),
            "four networks in one process": together(1, networks=4),
            "four processes together": together(4, service=True),
            "eight processes together": together(8, service=True),
        }
        found["steps per second"] = {"machine": machine("cuda"), **steps}
    print(json.dumps(found, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()

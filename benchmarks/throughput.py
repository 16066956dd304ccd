"""Training throughput with data, logging and Lightning: the partially equivariant network and its plain twin.

    python benchmarks/throughput.py                  # prints a table
    python benchmarks/throughput.py --json FILE

The paper's double-digit network over O(2), digits with O(2) symmetry, batch 256, images drawn on the device. Epochs of
both networks alternate, so that both see the machine in the same state. An epoch is timed from its first batch to the
end of its last, without validation and checkpoints.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch

from pscnn import models, training
from pscnn.tasks.double_digits import DoubleDigitSettings

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)


class Clock(lightning.Callback):
    """Seconds of every epoch's training batches."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_epoch_start(self, *_: Any) -> None:
        """Start the clock."""
        _wait()
        self.started = time.perf_counter()

    def on_train_epoch_end(self, *_: Any) -> None:
        """Stop it."""
        _wait()
        self.seconds.append(time.perf_counter() - self.started)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def prepare(precision: str, compiled: bool, plain: bool, arguments: argparse.Namespace) -> Any:
    """A function that trains some epochs and gives their seconds."""
    config = DoubleDigitSettings(
        method="scnn" if plain else "p-scnn",  # the twin has no densities to regularise
        source=arguments.source,
        precision=precision,
        compile=compiled,
        size=arguments.size,
        width=arguments.width,
        train_per_class=arguments.per_class,
    )
    module = training.Classification(training.task_of(config))
    if plain:
        module.model = models.twin(models.build("ddmnist", "p-scnn", "O(2)", size=config.size, width=config.width))
    data = training.Data(training.task_of(config), arguments.data_dir)

    def run(epochs: int) -> list[float]:
        clock = Clock()
        lightning.Trainer(
            max_epochs=epochs,
            devices=1,
            precision="bf16-mixed" if precision == "bf16" else "32-true",
            limit_val_batches=0,
            callbacks=[clock],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            benchmark=True,
        ).fit(module, datamodule=data)
        return clock.seconds[1:]  # the first one starts the optimiser and the loader

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="digits")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--size", type=int, default=56)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--per-class", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4, help="of four epochs each, the first not counted")
    parser.add_argument("--settings", default="bf16+compile", help="precisions, with +compile or without")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    rows = []
    for setting in arguments.settings.split(","):
        precision, _, compiled = setting.partition("+")
        runs = {plain: prepare(precision, bool(compiled), plain, arguments) for plain in (True, False)}
        for run in runs.values():
            run(2)
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(arguments.rounds):
            for plain, run in runs.items():
                seconds[plain] += run(4)
        images = arguments.per_class * 100
        rows.append(
            {
                "setting": setting,
                "twin_images_per_second": [round(images / s) for s in seconds[True]],
                "p_scnn_images_per_second": [round(images / s) for s in seconds[False]],
                "ratio": statistics.median(seconds[False]) / statistics.median(seconds[True]),
            }
        )
    print(f"{'':14} {'twin':>22} {'P-SCNN':>22}   images/s: median [min, max] of {3 * arguments.rounds} epochs")
    for row in rows:
        cells = [row["twin_images_per_second"], row["p_scnn_images_per_second"]]
        texts = [f"{statistics.median(c):.0f} [{min(c)}, {max(c)}]" for c in cells]
        print(f"{row['setting']:14} {texts[0]:>22} {texts[1]:>22}   {row['ratio']:.3f}× the twin's time")
    if arguments.json:
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        machine = {
            "processor": platform.processor() or platform.machine(),
            "gpu": gpu,
            "torch": torch.__version__,
            "lightning": lightning.__version__,
        }
        arguments.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""Five seeds of a small network, trained alone and together on one device.

    python benchmarks/together.py                    # prints the gain
    python benchmarks/together.py --json FILE

Double digits of scikit-learn's digits, width 0.25, batch 64. A run's epoch is timed with data, validation and logging.
The gain is how many times as many epochs are done in a second, from the median epoch of the run that was alone and the
median epoch of those that ran together; the first two epochs of each, when processes start, are left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from pscnn import training
from pscnn.experiments import machine
from pscnn.tasks.double_digits import DoubleDigitSettings


def seconds(folders: list[Path]) -> list[float]:
    """Of all epochs but the first two."""
    out = []
    for folder in folders:
        out += [row["seconds"] for row in training.history(folder)[2:]]
    return out


def train(settings: training.Settings, seeds: int, root: Path) -> list[Path]:
    """The folders of runs that were trained at once."""
    runs = [replace(settings, seed=seed) for seed in range(seeds)]
    store = training.Store(root)
    training.run_missing(runs, store, workers=seeds)
    return [store.folder(run) for run in runs]


def main() -> None:
    """Train, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=float, default=0.25)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    counts = {"alone": 1, "together": arguments.seeds}
    config = DoubleDigitSettings(
        width=arguments.width, size=28, batch_size=64, epochs=arguments.epochs, train_per_class=30,
        validation_per_class=5, test_per_class=5, precision="tf32",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as root:
        found = {name: seconds(train(config, count, Path(root, name))) for name, count in counts.items()}
    medians = {name: statistics.median(values) for name, values in found.items()}
    gain = arguments.seeds * medians["alone"] / medians["together"]
    alone_s, together_s = medians["alone"], medians["together"]
    print(f"an epoch alone {alone_s:.2f} s, with {arguments.seeds} together {together_s:.2f} s: {gain:.2f}×")
    if arguments.json:
        device = machine("cuda" if torch.cuda.is_available() else "cpu")
        text = json.dumps({"machine": device, "seeds": arguments.seeds, "gain": round(gain, 3), "seconds": found})
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()

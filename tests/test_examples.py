"""The examples run as they are, for a shorter time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("name", "arguments", "printed"),
    [
        ("vectors", ["1"], "angle: error of the equivariant network"),
        ("segmentation", ["1"], "The output changes least under"),
        ("photographs", ["1", "2"], r"kept:  outputs differ by \de-0[5-9] at first"),
    ],
)
def test_the_example_runs(name: str, arguments: list[str], printed: str, tmp_path: Path) -> None:
    run_example(name, arguments, printed, tmp_path)


def test_the_example_on_natural_images_runs(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (60, 16, 16, 3), dtype=np.uint8)
    arrays: dict[str, Any] = {"train_images": images[:40], "test_images": images[40:]}
    np.savez(tmp_path / "photographs.npz", train_labels=np.arange(40) % 2, test_labels=np.arange(20) % 2, **arrays)
    arguments = ["photographs.npz", "--epochs", "1", "--width", "0.13"]
    run_example("natural_images", arguments, r"P-SCNN over O\(2\) +19,303  0\.", tmp_path)


def run_example(name: str, arguments: list[str], printed: str, tmp_path: Path) -> None:
    example = Path(__file__).parents[1] / "examples" / f"{name}.py"
    command = [sys.executable, str(example), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(printed, done.stdout)
    assert (tmp_path / f"{name}.png").stat().st_size > 1000

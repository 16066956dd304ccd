"""The examples run as they are, for a shorter time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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
    example = Path(__file__).parents[1] / "examples" / f"{name}.py"
    command = [sys.executable, str(example), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(printed, done.stdout)
    assert (tmp_path / f"{name}.png").stat().st_size > 1000

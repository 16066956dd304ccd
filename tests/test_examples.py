"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_example_runs(tmp_path: Path) -> None:
    example = Path(__file__).parents[1] / "examples" / "vectors.py"
    command = [sys.executable, str(example), "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "angle: error of the equivariant network" in done.stdout
    assert (tmp_path / "vectors.png").stat().st_size > 1000

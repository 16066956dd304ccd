"""Several runs at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from helpers import TINY_DIGITS
from typer.testing import CliRunner

from pscnn.cli import app


def settings(folder: Path, **changes: object) -> Path:
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump({**TINY_DIGITS, "epochs": 2, **changes}))
    return path


def test_runs_together_give_what_they_give_alone(tmp_path: Path) -> None:
    config = settings(tmp_path)
    arguments = ["train", "--config", str(config), "--accelerator", "cpu", "--seeds", "2", "--seed", "3"]
    for runs, options in (("alone", []), ("together", ["--together"])):
        done = CliRunner().invoke(app, [*arguments, "--runs", str(tmp_path / runs), *options])
        assert done.exit_code == 0, done.output
        assert "standard deviation" in done.output
    for seed in (3, 4):
        found = [
            json.loads(path.read_text())
            for runs in ("alone", "together")
            for path in (tmp_path / runs).glob(f"ddmnist/*seed{seed}/result.json")
        ]
        assert len(found) == 2
        assert found[0]["test_loss"] == pytest.approx(found[1]["test_loss"], rel=1e-5)


def test_together_needs_several_seeds(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["train", "ddmnist", "--together", "--runs", str(tmp_path)])
    assert done.exit_code == 2
    assert "--together requires --seeds of 2 or more" in done.output
    assert not list(tmp_path.iterdir())


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    config = settings(tmp_path, epochs=1000)
    command = [sys.executable, "-m", "pscnn", "train", "--config", str(config), "--accelerator", "cpu"]
    command += ["--seeds", "2", "--together", "--runs", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        started = time.monotonic()
        while len(list(tmp_path.glob("ddmnist/*/last.ckpt"))) < 2:
            assert process.poll() is None
            assert time.monotonic() - started < 300
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=300)[0]
    assert process.returncode == 130
    assert "Run the same command again to continue" in output

"""Several runs in one process, and several processes on one GPU."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from helpers import tiny

from pscnn import training
from pscnn.training import _gpu


def outcome(store: training.Store, settings: training.Settings) -> tuple[list[object], dict[str, torch.Tensor]]:
    folder = store.folder(settings)
    rows: list[object] = [{**row, "seconds": 0, "step_ms": 0} for row in training.history(folder)]
    return rows, torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]


def test_runs_that_share_a_process_are_those_that_do_not(tmp_path: Path) -> None:
    runs = [tiny(seed=1, epochs=2), tiny(method="rpp", epochs=2), tiny(seed=2, epochs=2, lr=0.01)]
    shared, apart = training.Store(tmp_path / "shared"), training.Store(tmp_path / "apart")
    training.run_missing(runs, shared, workers=1, accelerator="cpu")
    for one in runs:
        training.run_missing([one], apart, workers=1, accelerator="cpu")
        (rows, weights), (expected, reference) = outcome(shared, one), outcome(apart, one)
        assert rows == expected
        assert weights.keys() == reference.keys()
        assert all(torch.equal(value, reference[name]) for name, value in weights.items())


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_service_is_there_while_runs_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv(_gpu._PLACE, raising=False)
    log = tmp_path / "log"
    program(tmp_path, "nvidia-cuda-mps-control", f'echo "$1" >> {log}; [ "$1" ] || cat >> {log}')
    monkeypatch.setattr(_gpu, "_TRY", "pass")
    with training.shared_gpu():
        place = os.environ[_gpu._PLACE]
        assert Path(place).is_dir()
        assert log.read_text().split() == ["-d"]
    assert log.read_text().split() == ["-d", "quit"]
    assert _gpu._PLACE not in os.environ
    assert not Path(place).exists()
    monkeypatch.setattr(_gpu, "_TRY", "raise SystemExit(1)")  # processes cannot use it
    with training.shared_gpu():
        assert _gpu._PLACE not in os.environ
    program(tmp_path, "nvidia-cuda-mps-control", "exit 1")
    with training.shared_gpu():
        assert _gpu._PLACE not in os.environ
    monkeypatch.setenv(_gpu._PLACE, "mine")
    with training.shared_gpu():
        assert os.environ[_gpu._PLACE] == "mine"
    assert os.environ[_gpu._PLACE] == "mine"


def test_a_watch_says_how_busy_the_gpu_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program(tmp_path, "nvidia-smi", "echo 37")
    with training.Watch(0.01) as watch:
        deadline = time.monotonic() + 120
        while watch.busy is None and time.monotonic() < deadline:
            time.sleep(0.01)
    assert watch.busy == 37
    program(tmp_path, "nvidia-smi", "echo [N/A]")
    with training.Watch(0.01) as watch:
        time.sleep(0.2)
    assert watch.busy is None

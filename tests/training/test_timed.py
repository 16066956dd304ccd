"""Training for a time instead of a number of epochs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pscnn import training
from pscnn.data import own
from pscnn.report import html_report
from pscnn.tasks.own import OwnSettings


@pytest.fixture
def settings(tmp_path: Path) -> OwnSettings:
    labels = np.arange(40) % 2
    images = np.random.default_rng(0).uniform(0, 0.3, (40, 8, 8)) + 0.7 * labels[:, None, None]
    own.prepare((images.astype(np.float32), labels), tmp_path / "data.npz")
    about = own.read_about(tmp_path / "data.npz").to_json()
    return OwnSettings(
        method="cnn", data="data.npz", about=about, schedule="cosine", select="last", batch_size=8, lr=0.01
    )


def test_a_run_ends_with_its_time_and_is_a_run_like_others(settings: OwnSettings, tmp_path: Path) -> None:
    store = training.Store(tmp_path)
    began = time.monotonic()
    folder = training.train_for(1.5, settings, store, accelerator="cpu")
    assert time.monotonic() - began < 60  # building and testing included, on a busy machine
    result = training.read_result(folder)
    assert result is not None
    assert result["epochs"] == len(training.history(folder)) >= 1
    assert training.read_task(folder).settings.epochs == result["epochs"]
    assert training.load(folder).model is not None
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (tmp_path / "own").rename(moved / "own")
    (tmp_path / "data.npz").rename(moved / "data.npz")
    assert len(training.load(moved / "own" / folder.name).task.load(None)["test"]) == 8


def test_epochs_are_limited_and_trials_leave_nothing_behind(settings: OwnSettings, tmp_path: Path) -> None:
    assert 0 < training.trial_loss(0.2, settings, tmp_path, accelerator="cpu") < 10
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]
    folder = training.train_for(1000, settings, training.Store(tmp_path), accelerator="cpu", most=2)
    assert len(training.history(folder)) == 2


def test_another_time_leaves_the_first_run_as_it_is(settings: OwnSettings, tmp_path: Path) -> None:
    store = training.Store(tmp_path)
    first = training.train_for(1000, settings, store, accelerator="cpu", most=2)
    before = {file.name: file.read_bytes() for file in first.iterdir()}
    second = training.train_for(1000, settings, store, accelerator="cpu", most=2)
    assert second != first
    assert training.read_result(second) is not None
    assert {file.name: file.read_bytes() for file in first.iterdir()} == before
    assert store.folder(training.read_task(second).settings) == first


def test_what_a_training_for_a_time_does_not_do_is_refused(settings: OwnSettings, tmp_path: Path) -> None:
    for changes in ({"average": 0.9}, {"compile": True}):
        with pytest.raises(training.ConfigError, match=f"{next(iter(changes))} applies to runs that are trained for a"):
            training.train_for(1, replace(settings, **changes), training.Store(tmp_path), accelerator="cpu")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "1"])
def test_a_time_is_positive(seconds: Any, settings: OwnSettings, tmp_path: Path) -> None:
    with pytest.raises(training.ConfigError, match="seconds must be a positive number, got"):
        training.train_for(seconds, settings, training.Store(tmp_path), accelerator="cpu")
    with pytest.raises(training.RunError, match="accelerator must be auto, cpu or gpu, got 'x'"):
        training.train_for(1, settings, training.Store(tmp_path), accelerator="x")


def test_half_precision_is_that_of_training_too(settings: OwnSettings, tmp_path: Path) -> None:
    seen = set()

    def note(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        seen.add((module.training, getattr(output, "dtype", None)))

    with torch.nn.modules.module.register_module_forward_hook(note):
        half = replace(settings, precision="bf16")
        training.train_for(1000, half, training.Store(tmp_path), accelerator="cpu", most=1)
    assert {(True, torch.bfloat16), (False, torch.bfloat16)} <= seen


def test_runs_that_cannot_be_made_again_or_continued_say_so(settings: OwnSettings, tmp_path: Path) -> None:
    folder = training.train_for(1000, settings, training.Store(tmp_path), accelerator="cpu", most=1)
    with pytest.raises(training.RunError, match=r"was trained for a time and is finished; .*: pscnn evaluate"):
        training.train(folder, accelerator="cpu", progress=False)
    page = html_report([folder]).read_text()
    assert "There is none: this run was trained for a time" in page
    assert "pscnn train" not in page
    usual = training.start(replace(settings, epochs=1, data=str(tmp_path / "data.npz")), tmp_path)
    training.train(usual, accelerator="cpu", progress=False)
    assert "pscnn train own" in html_report([usual]).read_text()

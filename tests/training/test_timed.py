"""Training for a time instead of a number of epochs."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from pscnn import training
from pscnn.data import own
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
    assert time.monotonic() - began < 20  # building and testing included, on a busy machine
    result = training.read_result(folder)
    assert result is not None
    assert result["epochs"] == len(training.history(folder)) > 1
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

"""What suits the machine at hand: threads, estimates of time; and folders that moved."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny

from pscnn import training
from pscnn.data import DataError, own
from pscnn.training import _place
from pscnn.training._place import suitable_threads


def test_small_networks_use_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    many.register_parameter("more", torch.nn.Parameter(torch.zeros(_place.SMALL)))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        for model, wanted in ((few, 1), (many, 2)):
            with suitable_threads(model):
                assert torch.get_num_threads() == wanted
            assert torch.get_num_threads() == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "2")  # whoever says so knows better
        with suitable_threads(few):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_times_of_a_gpu_say_nothing_about_a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    settings = tiny(epochs=10)
    result = {"epochs": 10, "best_epoch": 0, "parameters": 1, "test_accuracy": 0.5}
    for device, seconds, wanted in (("NVIDIA H200", 5.0, None), ("x86_64, 8 threads", 40.0, 40.0)):
        folder = training.Store(tmp_path / str(wanted)).start(settings)
        (folder / "result.json").write_text(json.dumps({**result, "device": device, "seconds": seconds}))
        assert training.Store(tmp_path / str(wanted)).estimate(tiny(epochs=10, seed=1)) == wanted


def test_a_folder_can_be_moved_with_its_data(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (12, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.arange(12) % 2)
    about = own.prepare(tmp_path / "a.npz", tmp_path / "here" / "data-1.npz")
    values = {"task": "own", "about": about.to_json(), "epochs": 1, "width": 0.05, "method": "cnn"}
    settings = [
        training.make_settings({**values, "data": "data-1.npz"}),
        training.make_settings(
            {**values, "data": str(tmp_path / "here" / "data-1.npz"), "seed": 1}
        ),  # as it used to be
    ]
    folders = [training.start(one, tmp_path / "here") for one in settings]
    for folder in folders:
        training.train(folder, accelerator="cpu", progress=False)
    shutil.move(tmp_path / "here", tmp_path / "there")
    for folder in folders:
        moved = tmp_path / "there" / folder.relative_to(tmp_path / "here")
        assert training.evaluate(moved, accelerator="cpu")["epochs"] == 1
    np.savez(tmp_path / "b.npz", images=images, labels=np.arange(12) % 2 + 5)
    own.prepare(tmp_path / "b.npz", tmp_path / "there" / "data-1.npz")
    with pytest.raises(DataError, match="holds other data than those that this run is about"):
        training.evaluate(moved, accelerator="cpu")

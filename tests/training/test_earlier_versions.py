"""What was stored with earlier versions is still read. The files in tests/kept were written by them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pscnn import training
from pscnn.experiments import save_runs, take_runs
from pscnn.tasks.double_digits import DoubleDigitSettings

KEPT = Path(__file__).parents[1] / "kept" / "0.1"
NAME = "p-scnn-C4-O2-seed0"
TINY = DoubleDigitSettings(
    group="C4", kinds=2, size=28, width=0.05, train_per_class=6, validation_per_class=4, test_per_class=4,
    epochs=2, batch_size=8, lr=0.003,
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> training.Store:
    shutil.copytree(KEPT / "store", tmp_path / "runs")
    return training.Store(tmp_path / "runs")


@pytest.mark.parametrize(
    ("changes", "name", "whole"),
    [
        ({}, NAME, "whole.jsonl"),
        # Its layers have other names today.
        ({"nonlinearity": "fourier"}, "p-scnn-C4-O2-e8179bd7-seed0", "whole-fourier.jsonl"),
    ],
)
def test_a_stopped_run_is_found_and_continued_with_the_same_result(
    store: training.Store, changes: dict[str, Any], name: str, whole: str
) -> None:
    wanted = replace(TINY, **changes)
    folder = store.folder(wanted)
    assert folder.name == name  # not as it would be called today
    assert store.state(wanted) == "started"
    assert store.folder(replace(wanted, lr=0.004)).name != name
    assert training.evaluate(folder, accelerator="cpu")["epochs"] == 1
    training.train(folder, accelerator="cpu", progress=False)
    _same_epochs(training.history(folder), [json.loads(line) for line in (KEPT / whole).read_text().splitlines()])
    assert training.load(folder).task.settings == wanted


def _same_epochs(rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for row, other in zip(rows, expected, strict=True):
        for name in other.keys() - {"seconds", "step_ms"}:
            assert row[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), name


def test_a_run_with_averages_is_continued_though_its_layers_had_other_names(tmp_path: Path) -> None:
    folder = training.start(replace(TINY, nonlinearity="fourier", average=0.9), tmp_path / "runs")
    training.train(folder, accelerator="cpu", progress=False, epochs=1)
    other = shutil.copytree(folder, tmp_path / "other")
    for file in ("last.ckpt", "best.ckpt"):
        saved = torch.load(other / file, weights_only=True)
        for part in {"state_dict", "trained"} & saved.keys():
            saved[part] = {name.replace(".norm.", "."): value for name, value in saved[part].items()}
        assert not any(".norm." in name for name in saved["state_dict"])
        torch.save(saved, other / file)
    for one in (folder, other):
        training.train(one, accelerator="cpu", progress=False)
    _same_epochs(training.history(other), training.history(folder))


def test_a_checkpoint_of_other_shapes_or_kinds_is_refused(store: training.Store) -> None:
    path = store.root / "ddmnist" / "p-scnn-C4-O2-e8179bd7-seed0" / "best.ckpt"
    saved = torch.load(path, weights_only=True)
    names = list(saved["state_dict"])
    for state in (
        {name: value[..., None] for name, value in saved["state_dict"].items()},
        {f"{name}_of_something": value for name, value in saved["state_dict"].items()},
        {name: saved["state_dict"][name] for name in names[:-1]},
    ):
        torch.save({**saved, "state_dict": state}, path)
        with pytest.raises(training.RunError, match=r"does not match its config\.yaml"):
            training.load(path.parent)


def test_a_file_of_results_is_taken_and_saved_again(tmp_path: Path) -> None:
    old = json.loads((KEPT / "results.json").read_text())["runs"]
    assert take_runs(KEPT / "results.json", tmp_path) == len(old)
    store = training.Store(tmp_path)
    for run in old:
        assert "experiment" in run["config"]
        settings = training.make_settings(run["config"])
        assert store.result(settings) == run["result"]
    save_runs([path.parent for path in tmp_path.rglob("result.json")], tmp_path / "new.json")
    assert take_runs(tmp_path / "new.json", tmp_path / "again") == len(old)


def test_settings_that_had_no_effect_are_dropped_and_others_are_not() -> None:
    old = next(
        run["config"]
        for run in json.loads((KEPT / "results.json").read_text())["runs"]
        if run["config"]["experiment"] == "smoke"
    )
    assert old["balanced"] is False
    assert "balanced" not in training.make_settings(old).to_dict()
    with pytest.raises(training.ConfigError, match="smoke has no setting 'balanced'"):
        training.make_settings({**old, "balanced": True})

"""What was stored with earlier versions is still read. The files in tests/kept were written by them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pscnn import training
from pscnn.experiments import save_runs, take_runs
from pscnn.tasks.double_digits import DoubleDigitSettings

KEPT = Path(__file__).parents[1] / "kept" / "0.1"
NAME = "p-scnn-C4-O2-seed0"


@pytest.fixture
def store(tmp_path: Path) -> training.Store:
    shutil.copytree(KEPT / "store", tmp_path / "runs")
    return training.Store(tmp_path / "runs")


def test_a_stopped_run_is_found_and_continued_with_the_same_result(store: training.Store) -> None:
    wanted = DoubleDigitSettings(
        group="C4", kinds=2, size=28, width=0.05, train_per_class=6, validation_per_class=4, test_per_class=4,
        epochs=2, batch_size=8, lr=0.003,
    )  # fmt: skip
    folder = store.folder(wanted)
    assert folder.name == NAME  # not as it would be called today
    assert store.state(wanted) == "started"
    assert store.folder(replace(wanted, lr=0.004)).name != NAME
    training.train(folder, accelerator="cpu", progress=False)
    whole = [json.loads(line) for line in (KEPT / "whole.jsonl").read_text().splitlines()]
    for row, expected in zip(training.history(folder), whole, strict=True):
        for name in expected.keys() - {"seconds"}:
            assert row[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-5), name
    assert training.load(folder).task.settings == wanted


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

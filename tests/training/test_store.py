"""The store that finds runs, and the runner that makes what is missing."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import TINY_DIGITS, held_elsewhere, tiny

from pscnn import training
from pscnn.tasks.vectors import VectorSettings
from pscnn.training import Store, load, run_missing


def test_every_setting_has_a_place_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    others = [tiny(seed=1), tiny(epochs=2), tiny(lr=1e-3), tiny(symmetry="C4"), tiny(precision="bf16")]
    assert len({store.folder(config) for config in [tiny(), *others]}) == 6
    assert store.folder(tiny()) == store.folder(tiny())
    assert store.state(tiny()) == "new"
    with held_elsewhere(store, tiny()):
        assert Store(tmp_path).state(tiny()) == "running"
    assert store.estimate(tiny()) is None


def test_how_a_run_is_executed_does_not_identify_it(tmp_path: Path) -> None:
    for first, second in ((False, True), (True, False)):
        store = Store(tmp_path / str(first))
        folder = store.start(tiny(compile=first))
        assert "compile" not in folder.name
        assert Store(store.root).folder(tiny(compile=second)) == store.folder(tiny(compile=second)) == folder
        assert Store(store.root).start(tiny(compile=second)) == folder
        assert training.read_task(folder).settings == tiny(compile=second)  # it goes on as asked
        (folder / "result.json").write_text("{}")
        store.start(tiny(compile=first))
        assert training.read_task(folder).settings == tiny(compile=second)  # how it was made


def test_runs_that_earlier_versions_named_by_their_execution_are_found(tmp_path: Path) -> None:
    place = Store(tmp_path).start(tiny(compile=True))
    old = place.rename(place.with_name("p-scnn-O2-O2-compile=true-seed0"))
    assert Store(tmp_path).folder(tiny()) == Store(tmp_path).folder(tiny(compile=True)) == old
    other = shutil.copytree(old, old.with_name("elsewhere"))
    for one in (other, old):  # whichever is finished
        (one / "result.json").write_text("{}")
        assert Store(tmp_path).folder(tiny()) == one
        (one / "result.json").unlink()


def test_what_fails_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    good, bad = tiny(method="cnn"), tiny(method="cnn", source="mnist")  # there is no MNIST in that folder
    store = Store(tmp_path / "runs")
    results = run_missing([bad, good], store, workers=1, data_dir=tmp_path / "nothing", accelerator="cpu")
    assert isinstance(results[bad], Exception)
    assert isinstance(results[good], dict)
    assert (store.state(bad), store.state(good)) == ("failed", "finished")
    assert "DataError" in str(store.failure(bad))
    assert store.code(good)
    again = store.result(good)
    assert again is not None
    assert run_missing([good], store, accelerator="cpu")[good] == again  # not run again
    assert Store(store.root).estimate(replace(good, epochs=10)) == pytest.approx(10 * again["seconds"], abs=0.6)


def test_one_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    first = training.make_settings({**TINY_DIGITS, "epochs": 1})
    wanted = [first, replace(first, seed=1)]
    store = training.Store(tmp_path)
    (store.start(first) / "metrics.jsonl").write_text("")  # without a checkpoint it cannot be continued
    results = training.run_missing(wanted, store, workers=2, accelerator="cpu")
    assert isinstance(results[first], training.RunError)
    assert "cannot be continued" in str(store.failure(first))
    second = results[wanted[1]]
    assert isinstance(second, dict)
    assert second["epochs"] == 1


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    config = tiny(method="cnn", epochs=12)
    alone = run_missing([config], Store(tmp_path / "alone"), workers=1, accelerator="cpu")[config]
    assert isinstance(alone, dict)
    store = Store(tmp_path / "runs")
    metrics = store.folder(config) / "metrics.jsonl"
    before = set(multiprocessing.active_children())
    results: dict[Any, Any] = {}
    work = threading.Thread(target=lambda: results.update(run_missing([config], store, workers=1, accelerator="cpu")))
    work.start()
    deadline = time.monotonic() + 300
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for worker in set(multiprocessing.active_children()) - before:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
    work.join(240)
    assert len(metrics.read_text().splitlines()) == 12
    assert {k: v for k, v in results[config].items() if k not in ("seconds", "step_ms")} == {
        k: v for k, v in alone.items() if k not in ("seconds", "step_ms")
    }


def test_two_runners_share_a_folder(tmp_path: Path) -> None:
    configs = [tiny(method="cnn")]
    found: list[dict[Any, Any]] = [{}, {}]

    def go(number: int) -> None:
        found[number] = run_missing(configs, Store(tmp_path), workers=1, accelerator="cpu")

    threads = [threading.Thread(target=go, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert found[0] == found[1]
    assert set(found[0]) == set(configs)
    assert len(list(tmp_path.rglob("result.json"))) == 1


VECTORS = [VectorSettings(seed=seed, epochs=2, count=64, batch_size=32, bandlimit=2) for seed in range(3)]


def errors(store: Store, seeds: int) -> list[float]:
    results = run_missing(VECTORS[:seeds], store, workers=1)
    return [result["test_error"] for result in results.values() if isinstance(result, dict)]


def test_seeds_are_run_once_and_do_not_depend_on_how_many_there_are(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    two = errors(store, 2)
    file = store.folder(VECTORS[0]) / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "test_error": 7.0}))
    assert errors(store, 3)[:2] == [7.0, two[1]]  # those that are there are read
    assert errors(Store(tmp_path / "b"), 3) == pytest.approx([two[0], two[1], errors(store, 3)[2]], rel=1e-4)
    first, second = (load(store.folder(one)).model.get_parameter("0.weight") for one in VECTORS[:2])
    assert not torch.equal(first, second)
    assert len((store.folder(VECTORS[0]) / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_finished_run_under_another_name_counts_more_than_one_that_was_begun(tmp_path: Path) -> None:
    settings = tiny()
    store = Store(tmp_path)
    begun = store.start(settings)
    done = begun.with_name("another")
    done.mkdir()
    shutil.copy(begun / "config.yaml", done)
    assert Store(tmp_path).folder(settings) == begun
    (done / "result.json").write_text("{}")
    assert Store(tmp_path).folder(settings) == done

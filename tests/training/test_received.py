"""A run's folder may come from anybody: nothing in it runs, and what does not fit is refused in one sentence."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import TINY_DIGITS, small
from PIL import Image
from typer.testing import CliRunner

from pscnn import training
from pscnn.cli import app
from pscnn.experiments import take_runs

COMMANDS = {
    "evaluate": ["evaluate", "RUN", "--accelerator", "cpu"],
    "inspect": ["inspect", "RUN"],
    "report": ["report", "RUN"],
    "predict": ["predict", "RUN", "RUN"],
    "export": ["export", "RUN"],
    "resume": ["train", "--resume", "RUN", "--accelerator", "cpu"],
}


class Crafted:
    """What makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = training.make_settings({**TINY_DIGITS, "epochs": 1})
    folder = training.start(settings, tmp_path_factory.mktemp("runs"), "genuine")
    training.train(folder, accelerator="cpu", progress=False)
    return folder


@pytest.fixture
def run(genuine: Path, tmp_path: Path) -> Path:
    shutil.copytree(genuine, tmp_path / "received")
    return tmp_path / "received"


def invoke(name: str, run: Path) -> Any:
    return CliRunner().invoke(app, [word.replace("RUN", str(run)) for word in COMMANDS[name]])


def refused(done: Any) -> str:
    """The message of a command that failed without a traceback."""
    assert done.exit_code == 1, (done.output, done.exception)
    assert isinstance(done.exception, SystemExit), done.exception
    return " ".join(done.output.split())


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("kind", ["torch", "plain pickle", "in the callbacks' state"])
def test_a_crafted_checkpoint_does_not_run(name: str, kind: str, run: Path, tmp_path: Path) -> None:
    trap = Crafted(tmp_path / "executed")
    for file in ("best.ckpt", "last.ckpt"):
        if kind == "plain pickle":
            (run / file).write_bytes(pickle.dumps(trap))
        elif kind == "torch":
            torch.save({"state_dict": trap}, run / file)
        else:
            state = torch.load(run / file, weights_only=True)
            torch.save({**state, "callbacks": {"_Recorder": trap}}, run / file)
    assert "damaged" in refused(invoke(name, run))
    assert not trap.path.exists()
    pickle.loads(pickle.dumps(trap))
    assert trap.path.exists()  # the trap works where it is not guarded against


def test_crafted_arrays_do_not_run(run: Path, tmp_path: Path) -> None:
    trap = np.array([Crafted(tmp_path / "executed")], dtype=object)
    np.save(run / "confusion.npy", trap, allow_pickle=True)
    assert "confusion.npy is damaged" in refused(invoke("report", run))
    np.savez(run / "densities.npz", trap, allow_pickle=True)
    done = CliRunner().invoke(app, ["results", str(run), "--save", str(tmp_path / "kept.json")])
    assert "densities.npz is damaged" in refused(done)
    np.save(tmp_path / "image.npy", trap, allow_pickle=True)
    done = CliRunner().invoke(app, ["predict", str(run), str(tmp_path / "image.npy")])
    refused(done)
    assert not (tmp_path / "executed").exists()


def test_a_configuration_cannot_make_objects(run: Path, tmp_path: Path) -> None:
    (run / "config.yaml").write_text(f"task: !!python/object/apply:os.mkdir ['{tmp_path / 'executed'}']\n")
    for name in COMMANDS:
        assert "not valid YAML" in refused(invoke(name, run))
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "text", ["task: [ddmnist]", "task: {a: b}", "[" * 5000, "task: ddmnist\nwidth: 1000000.0", "1"]
)
def test_other_configurations_are_refused(text: str, run: Path) -> None:
    (run / "config.yaml").write_text(text)
    assert "config.yaml" in refused(invoke("inspect", run))


@pytest.mark.parametrize("changes", [{"width": 0.3}, {"kinds": 3}, {"group": "C4"}, {"method": "cnn"}])
def test_a_checkpoint_must_fit_its_configuration(changes: dict[str, Any], run: Path) -> None:
    settings = training.make_settings({**training.read_task(run).settings.to_dict(), **changes})
    (run / "config.yaml").write_text("".join(f"{k}: {json.dumps(v)}\n" for k, v in settings.to_dict().items()))
    for name in ("inspect", "evaluate", "predict", "export", "report"):
        assert "does not match its config.yaml" in refused(invoke(name, run))


@pytest.mark.parametrize("state", [{}, [], {"state_dict": []}, {"state_dict": {"model.2.weight": "text"}}])
def test_other_checkpoints_are_refused(state: Any, run: Path) -> None:
    for file in ("best.ckpt", "last.ckpt"):
        torch.save(state, run / file)
    for name in ("inspect", "evaluate", "resume"):
        assert ".ckpt" in refused(invoke(name, run)) or "does not match" in refused(invoke(name, run))


@pytest.mark.parametrize("content", [b"\x80\x02J\x00", b"\x80\x02K\x05Q."])
def test_bytes_that_are_no_checkpoint(content: bytes, run: Path) -> None:
    for file in ("best.ckpt", "last.ckpt"):
        (run / file).write_bytes(content)
    assert "is damaged and cannot be read" in refused(invoke("inspect", run))


HUGE = 10**400


@pytest.mark.parametrize(
    "wrong",
    [
        {"test_accuracy": [0.1, 0.2]},
        {"test_accuracy": []},
        {"test_accuracy": HUGE},
        {"test_accuracy": -5},
        {"test_accuracy": 1e308},
        {"seconds": HUGE},
        {"seconds": -1.0},
        {"epochs": 0},
        {"device": "\ud800"},
        {"extra": json.loads(100 * "[" + 100 * "]")},
    ],
)
def test_results_that_cannot_be_are_refused(wrong: dict[str, Any], run: Path, tmp_path: Path) -> None:
    (run / "result.json").write_text(json.dumps(json.loads(_result(run)) | wrong))
    assert "result.json is damaged" in refused(invoke("report", run))
    assert "no finished run" in refused(CliRunner().invoke(app, ["results", str(run)]))
    kept = json.loads((Path(__file__).parents[1] / "kept" / "0.1" / "results.json").read_text())["runs"][0]
    (tmp_path / "wrong.json").write_text(json.dumps({"runs": [kept | {"result": kept["result"] | wrong}]}))
    assert "is not a file of runs" in refused(CliRunner().invoke(app, ["results", str(tmp_path / "wrong.json")]))


def test_counts_and_metrics_that_cannot_be_are_refused(run: Path) -> None:
    counts = np.load(run / "confusion.npy")
    for wrong in (-counts, np.full_like(counts, 2**62), 0 * counts):
        np.save(run / "confusion.npy", wrong)
        assert "confusion.npy is damaged" in refused(invoke("report", run))
    np.save(run / "confusion.npy", counts)
    row = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    (run / "metrics.jsonl").write_text(json.dumps(row | {"train/loss": HUGE}) + "\n")
    assert "metrics.jsonl is damaged" in refused(invoke("report", run))


def test_densities_that_are_none_are_not_saved(run: Path, tmp_path: Path) -> None:
    strange = {"structured": np.zeros(3, dtype=[("a", "f4")]), "flat": np.zeros((2, 2)), "text": np.array(["a"])}
    for name, array in strange.items():
        np.savez(run / "densities.npz", **{name: array})  # type: ignore[arg-type]
        refused(CliRunner().invoke(app, ["results", str(run), "--save", str(tmp_path / "kept.json")]))
    np.savez_compressed(run / "densities.npz", large=np.zeros(2**23, np.float32))  # 32 MiB from 32 KiB
    done = CliRunner().invoke(app, ["results", str(run), "--save", str(tmp_path / "kept.json")])
    assert "its arrays take 0.03 GiB, and 0.02 are allowed" in refused(done)
    with zipfile.ZipFile(run / "densities.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    done = CliRunner().invoke(app, ["results", str(run), "--save", str(tmp_path / "kept.json")])
    assert "'readme.txt' is not an array" in refused(done)
    assert not (tmp_path / "kept.json").exists()


def test_links_in_a_received_folder_are_not_followed(run: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (".model.partial.pt2", f".result.json.{os.getpid()}.partial", f".last.ckpt.{os.getpid()}.partial"):
        (run / name).symlink_to(victim)
    for name in ("export", "evaluate"):
        assert invoke(name, run).exit_code == 0
    assert victim.read_text() == "mine"
    assert not (run / "model.pt2").is_symlink()


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"epochs": "many"}', "\udcff", "[" * 100_000])
def test_other_results_and_metrics_are_refused(content: str, run: Path, tmp_path: Path) -> None:
    for name in ("result.json", "metrics.jsonl"):
        kept = (run / name).read_bytes()
        (run / name).write_bytes(content.encode(errors="surrogateescape"))
        if content or name == "result.json":
            assert f"{name} is damaged" in refused(invoke("report", run))
        (run / name).write_bytes(kept)
    (run / "result.json").write_bytes(content.encode(errors="surrogateescape"))
    shutil.copytree(run, tmp_path / "runs" / "broken")
    shutil.copytree(tmp_path / "received", tmp_path / "runs" / "whole")
    (tmp_path / "runs" / "whole" / "result.json").write_bytes(_result(run))
    listed = CliRunner().invoke(app, ["results", str(tmp_path / "runs")])
    assert listed.exit_code == 0, listed.output
    assert "whole" in listed.output  # one broken run does not hide the others
    assert "result.json is damaged" in " ".join(listed.output.split())


def _result(run: Path) -> bytes:
    values = {"test_accuracy": 0.5, "epochs": 1, "best_epoch": 0, "parameters": 1, "seconds": 1.0, "device": "x"}
    return json.dumps(values).encode()


def claiming(shape: str) -> bytes:
    """The beginning of a .npy file whose header claims a size that nobody has."""
    text = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def test_a_claimed_size_is_refused_before_memory_is_taken(run: Path, tmp_path: Path) -> None:
    (run / "confusion.npy").write_bytes(claiming("(10000000, 10000000)"))
    assert "got int64 of shape (10000000, 10000000)" in refused(invoke("report", run))
    (tmp_path / "image.npy").write_bytes(claiming("(10000000, 10000000)"))
    done = CliRunner().invoke(app, ["predict", str(run), str(tmp_path / "image.npy")])
    assert "image.npy is damaged" in refused(done)
    with zipfile.ZipFile(run / "densities.npz", "w") as archive:
        archive.writestr("0.npy", claiming("(1000000000000,)"))
    done = CliRunner().invoke(app, ["results", str(run), "--save", str(tmp_path / "kept.json")])
    assert "densities.npz is damaged" in refused(done)


def test_names_are_text_in_a_report(genuine: Path, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    run = tmp_path / name
    shutil.copytree(genuine, run)
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "device": name}))
    done = CliRunner().invoke(app, ["report", str(run), "--out", str(tmp_path / "report.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "report.html").read_text()
    assert name not in page
    assert (
        page.count("&lt;img src=x onerror=alert(1)&gt;") == 4
    )  # the run in a list, a heading, a table's label; the device


def test_names_of_data_and_classes_are_text_in_a_report(tmp_path: Path) -> None:
    from pscnn.data import own
    from pscnn.report import html_report

    bad = "<script>alert(1)<!--"
    source = tmp_path / bad
    for label in (f"{bad}a", f"{bad}b"):
        (source / label).mkdir(parents=True)
        for k in range(20):
            pixels = np.random.default_rng(k).integers(0, 255, (28, 28), dtype=np.uint8)
            Image.fromarray(pixels).save(source / label / f"{k}.png")
    own.prepare(source, tmp_path / "prepared.npz")
    settings = training.make_settings(
        {"task": "own", "data": str(tmp_path / "prepared.npz"), "epochs": 1, "width": 0.1}
    )
    folder = training.start(settings, tmp_path / "runs")
    assert "<" not in folder.name
    training.train(folder, accelerator="cpu", progress=False)
    page = html_report([folder]).read_text()
    assert bad not in page
    assert page.count("</script>") == page.count("<script")


def test_results_files_are_data(tmp_path: Path) -> None:
    kept = json.loads((Path(__file__).parents[1] / "kept" / "0.1" / "results.json").read_text())["runs"][0]
    wrongs: list[dict[str, Any]] = [
        {"result": {**kept["result"], "epochs": "many"}},
        {"result": {**kept["result"], "test_accuracy": "high"}},
        {"result": {**kept["result"], "test_accuracy": True}},
        {"config": {"task": ["ddmnist"]}},
        {"environment": []},
        {"densities": {"file": [1.0]}},
        {"densities": {"../../x": [1.0]}},
        {"densities": {"0": [[1.0]]}},
        {"densities": {"0": [HUGE]}},
        {"densities": {"a" * 70_000: [1.0]}},
    ]
    for wrong in wrongs:
        (tmp_path / "wrong.json").write_text(json.dumps({"runs": [{**kept, **wrong}]}))
        with pytest.raises(training.ConfigError, match="is not a file of runs"):
            take_runs(tmp_path / "wrong.json", tmp_path / "store")
        assert not (tmp_path / "store").exists()
    (tmp_path / "lost.json").write_text(
        json.dumps({"runs": [{**kept, "result": {**kept["result"], "test_loss": None}}]})
    )
    assert take_runs(tmp_path / "lost.json", tmp_path / "store") == 1
    (run,) = (path.parent for path in (tmp_path / "store").rglob("result.json"))
    assert training.diverged(training.read_result(run) or {})


def _without(state: dict[str, Any], *path: Any) -> None:
    for name in path[:-1]:
        state = state[name]
    del state[path[-1]]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["optimizer"]["state"][0].update(exp_avg=torch.zeros(3)),
        lambda state: _without(state, "optimizer", "state", 0, "exp_avg"),
        lambda state: _without(state, "optimizer", "param_groups"),
        lambda state: state["optimizer"]["param_groups"].pop(),
        lambda state: state["optimizer"].update(state="none"),
        lambda state: state["optimizer"]["state"][0].update(step=torch.zeros(5)),
        lambda state: state["optimizer"]["state"][0].update(step=torch.tensor(-5.0)),
        lambda state: state["history"][0].update(seconds=10**400),
        lambda state: state["history"][0].update({("a",): 1.0}),
        lambda state: state["history"][0].pop("validation/accuracy"),
        lambda state: state["history"].clear(),
        lambda state: state["history"].extend({**state["history"][0], "epoch": k} for k in range(1, 5)),
        lambda state: state.update(trained=state["state_dict"]),
        lambda state: state.update(best="high"),
        lambda state: _without(state, "history"),
    ],
)
def test_a_changed_checkpoint_is_not_continued(change: Any, tmp_path: Path) -> None:
    folder = training.start(small(epochs=2), tmp_path)
    training.train(folder, accelerator="cpu", progress=False, epochs=1)
    state = torch.load(folder / "last.ckpt", weights_only=True)
    change(state)
    torch.save(state, folder / "last.ckpt")
    with pytest.raises(training.RunError, match=r"does not match its config\.yaml|is damaged"):
        training.train(folder, accelerator="cpu", progress=False)


def test_options_of_an_optimiser_are_those_of_the_settings(tmp_path: Path) -> None:
    folders = [training.start(small(epochs=2), tmp_path / name) for name in ("whole", "changed")]
    for folder in folders:
        training.train(folder, accelerator="cpu", progress=False, epochs=1)
    state = torch.load(folders[1] / "last.ckpt", weights_only=True)
    for group in state["optimizer"]["param_groups"]:
        group.update(weight_decay=0.9, betas=(0.1, 0.1), amsgrad=True, fused=True)
    torch.save(state, folders[1] / "last.ckpt")
    found = [training.train(folder, accelerator="cpu", progress=False) for folder in folders]
    assert {**found[0], "seconds": 0, "step_ms": 0} == {**found[1], "seconds": 0, "step_ms": 0}


def test_a_test_without_metrics_is_refused(tmp_path: Path) -> None:
    folder = training.start(small(epochs=1), tmp_path)
    training.train(folder, accelerator="cpu", progress=False)
    for text in ("", '{"epoch": 0, "seconds": 1.0}\n'):
        (folder / "metrics.jsonl").write_text(text)
        with pytest.raises(training.RunError, match="lacks validation/accuracy"):
            training.evaluate(folder, accelerator="cpu")

"""Whatever happens to a run, nothing is lost: continued, it gives the result that it would have given."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import small
from PIL import Image
from typer.testing import CliRunner

from pscnn import training
from pscnn._files import write_whole, written_whole
from pscnn.cli import app

KILLS = int(os.environ.get("PSCNN_KILLS", "5"))


def same(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in ("seconds", "step_ms")}


def test_runs_killed_at_any_moment_continue_to_the_same_result(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    words, environment = [sys.executable, __file__, str(tmp_path), str(KILLS)], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["continued"]) == KILLS
    for result in found["continued"]:
        assert same(result) == same(found["whole"])
    assert found["killed"] > 0  # before they had ended


def kill_and_continue(root: Path, count: int) -> None:
    """In a process of its own, which has one thread and can be forked."""
    torch.set_num_threads(1)
    draw = random.Random(0)
    settings = small(epochs=8)

    def train(folder: Path) -> dict[str, Any]:
        return training.train(folder, accelerator="cpu", progress=False)

    train(training.start(settings, root, "first"))  # builds what later runs find in memory
    began = time.monotonic()
    found: dict[str, Any] = {"whole": train(training.start(settings, root, "whole")), "killed": 0, "continued": []}
    took = time.monotonic() - began
    for k in range(count):
        folder = training.start(settings, root, f"killed-{k}")
        child = os.fork()
        if child == 0:
            train(folder)
            os._exit(0)
        time.sleep(draw.uniform(0, took))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        found["killed"] += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        found["continued"].append(train(folder))
    print(json.dumps(found))


@contextlib.contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, after: int | None) -> Iterator[list[str]]:
    """Within it the disk is full from the nth file on that would be put in its place; which those are."""
    written: list[str] = []

    def full(put: Any, source: Any, target: Any) -> None:
        written.append(Path(target).name)
        if after is not None and len(written) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        put(source, target)

    with monkeypatch.context() as patch:
        for name in ("replace", "link"):
            patch.setattr(os, name, functools.partial(full, getattr(os, name)))
        yield written


def test_a_disk_that_is_full_at_any_write_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = small(epochs=2)
    with full_disk(monkeypatch, None) as written:
        folder = training.start(settings, tmp_path / "whole")
        whole = training.train(folder, accelerator="cpu", progress=False)
    assert {"config.yaml", "environment.json", "metrics.jsonl", "best.ckpt", "last.ckpt", "confusion.npy"} < {*written}
    assert written[-1] == "result.json"
    for after in range(len(written)):
        root = tmp_path / str(after)
        with full_disk(monkeypatch, after), pytest.raises(training.RunError, match="No space left on device"):
            training.train(training.start(settings, root), accelerator="cpu", progress=False)
        assert not list(root.rglob("*.partial*"))
        folder = training.start(settings, root)
        assert same(training.train(folder, accelerator="cpu", progress=False)) == same(whole), written[after]


def test_commands_on_a_full_disk_leave_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = training.start(small(epochs=1), tmp_path)
    training.train(folder, accelerator="cpu", progress=False)
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "i.png")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    answers = ["predict", str(folder), str(tmp_path / "i.png"), "--out", str(folder / "answers.csv")]
    with full_disk(monkeypatch, 0):
        for words in (
            ["evaluate", str(folder)],
            answers,
            ["report", str(folder)],
            ["results", str(folder), "--save", str(folder / "all.json")],
        ):
            done = CliRunner().invoke(app, words)
            assert isinstance(done.exception, SystemExit), done.exception
            assert done.exit_code == 1
            assert "No space left on device" in " ".join(done.output.split())
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("links", [True, False])
def test_of_two_that_write_a_new_file_the_first_wins(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")  # as where files have one name only

    if not links:
        monkeypatch.setattr(os, "link", none)
    path = tmp_path / "answers.csv"

    def second() -> None:
        with written_whole(path, new=True) as partial:
            partial.write_text("second")
            write_whole(path, "first", new=True)

    with pytest.raises(FileExistsError):
        second()
    assert path.read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["answers.csv"]


def test_a_network_is_not_exported_to_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = training.start(small(epochs=1), tmp_path)
    training.train(folder, accelerator="cpu", progress=False)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    done = CliRunner().invoke(app, ["export", str(folder)])
    assert isinstance(done.exception, SystemExit), done.exception
    assert "cannot write" in " ".join(done.output.split())
    assert not list(folder.glob("*.pt2"))


SLOW = """
import time
from pscnn.training import _export
_export._check = lambda *what: time.sleep(60)
from pscnn.__main__ import main
main()
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_what_a_command_was_writing_when_it_was_ended_is_gone(how: signal.Signals, tmp_path: Path) -> None:
    folder = training.start(small(epochs=1), tmp_path)
    training.train(folder, accelerator="cpu", progress=False)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    words = [sys.executable, "-c", SLOW, "export", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 300
        while not any(path.stat().st_size for path in folder.glob(".model.*.partial.pt2")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(how)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_second_ctrl_c_says_no_more_than_the_first(tmp_path: Path) -> None:
    folder = training.start(small(epochs=1000), tmp_path)
    words = [sys.executable, "-m", "pscnn", "train", "--resume", str(folder), "--accelerator", "cpu"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 300
        while not (folder / "last.ckpt").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode in (130, -signal.SIGINT), err
    assert "Traceback" not in err + out
    before = len(training.history(folder))
    training.train(folder, accelerator="cpu", progress=False, epochs=before + 1)
    assert len(training.history(folder)) == before + 1


if __name__ == "__main__":
    kill_and_continue(Path(sys.argv[1]), int(sys.argv[2]))

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pscnn
from pscnn.cli import app
from pscnn.data.known import TASKS, Kept


def benchmark(*words: str) -> Any:
    return CliRunner().invoke(app, ["benchmark-discover", *words], env={"COLUMNS": "300"})


class Oracle:
    """Says the truth of the task whose data it gets, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, path: Path, *, minutes: float, out: Path, target: str, workers: int | None, say: Any) -> Any:
        task = TASKS[path.stem]
        with np.load(path) as data:
            assert len(data["images"]) == len(data["labels"]) == task.count
        assert (minutes, target, workers, out.name) == (3, task.kind, 2, path.stem)
        say("thinking")
        self.asked.append(path.stem)
        if path.stem == "noise":
            raise pscnn.PscnnError("nobody knows")
        one = SimpleNamespace(subgroup=Kept("C(3)"), verdict="broken", layers="all", cost=0.3, low=0.2, high=0.4)
        return SimpleNamespace(kept=task.truth[0], statements=[one], complete=path.stem != "bars")


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Oracle:
    oracle = Oracle()
    monkeypatch.setattr(pscnn, "discover", oracle, raising=False)
    return oracle


def test_answers_are_stored_as_they_come_and_not_asked_for_again(oracle: Oracle, tmp_path: Path) -> None:
    words = (
        "--minutes",
        "3",
        "--workers",
        "2",
        "--out",
        str(tmp_path / "out"),
        "--only",
        "few-bars",
        "--only",
        "noise",
    )
    done = benchmark(*words)
    assert done.exit_code == 1
    assert "noise: nobody knows" in done.stderr
    assert "no answer to noise; run the same command to try again" in done.stderr
    assert "few-bars: D(2) at 0° (right)" in done.stdout
    assert "1 tasks: 1 right, 0 cannot tell, 0 too little, 0 confidently wrong" in done.stdout
    assert oracle.asked == ["noise", "few-bars"]
    stored = json.loads((tmp_path / "out" / "answers.json").read_text())["answers"]["few-bars"]
    assert stored["statements"] == [
        {"subgroup": "C(3)", "verdict": "broken", "layers": "all", "cost": 0.3, "low": 0.2, "high": 0.4}
    ]
    benchmark(*words)
    assert oracle.asked == ["noise", "few-bars", "noise"]
    other = benchmark(*words[2:])
    assert other.exit_code == 1
    assert "few-bars was answered with --minutes 3 --seed 0: give these, or another --out" in other.stderr
    table = benchmark("--no-run", "--known", str(tmp_path / "out" / "answers.json"), "--format", "markdown")
    assert table.exit_code == 0
    assert table.stdout.splitlines()[0] == "| task | what it is about | the truth | the answer |  | time |"
    assert len(table.stdout.splitlines()) == 2 + len(TASKS)
    about = "few-bars | Horizontal against vertical bars, 24 of them. | D(2) at 0°, or cannot tell"
    assert f"| {about} | D(2) at 0° | right | 0:00 |" in table.stdout.splitlines()


def test_an_interruption_ends_the_benchmark_and_is_no_answer(oracle: Oracle, tmp_path: Path) -> None:
    words = ["--minutes", "3", "--workers", "2", "--out", str(tmp_path), "--only", "bars", "--only", "few-bars"]
    done = benchmark(*words)
    assert (done.exit_code, oracle.asked) == (130, ["bars"])
    assert "interrupted" in done.stderr
    assert not (tmp_path / "answers.json").exists()


def test_a_picture_shows_every_task(tmp_path: Path) -> None:
    from PIL import Image

    done = benchmark("--picture", str(tmp_path / "tasks.png"), "--only", "bars", "--only", "volume-up-down")
    assert done.exit_code == 0, done.output
    with Image.open(tmp_path / "tasks.png") as picture:
        assert picture.size == (110 + 12 * 44, 2 * 46)
    again = benchmark("--picture", str(tmp_path / "tasks.png"), "--only", "bars")
    assert "tasks.png exists; choose another file with --picture" in again.stderr
    assert benchmark("--seed", str(2**64)).exit_code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "cars"], "unknown task 'cars': use one of arrows, clock, b-d-p-q, "),
        (["--format", "html"], "unknown format 'html': use one of text, "),
        (["--known", "nothing.json"], "nothing.json does not exist"),
        (["--picture", "no/where/tasks.png", "--only", "bars"], "cannot write no/where/tasks.png: No such file"),
    ],
)
def test_mistakes_get_a_sentence(words: list[str], message: str) -> None:
    done = benchmark(*words)
    assert done.exit_code == 1
    assert message in done.stderr

"""What is said during training."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import small

from pscnn import training
from pscnn.training._progress import FIRST, Progress


def said(capsys: pytest.CaptureFixture[str], epochs: int, done: int = 0) -> list[str]:
    """What is printed for a run whose first epoch takes five seconds and each other one two."""
    scores = {"train/loss": 1.2344, "validation/accuracy": 0.5671}
    with Progress(epochs, "accuracy", done) as shown:
        for epoch in range(done, epochs):
            shown.epoch({"epoch": epoch, "seconds": 5.0 if epoch == done else 2.0, **scores})
    return capsys.readouterr().err.splitlines()


def test_lines_have_the_scores_and_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, 4) == [
        FIRST,
        "epoch 1/4: loss 1.234, validation accuracy 0.5671, 5.0 s",
        "epoch 2/4: loss 1.234, validation accuracy 0.5671, 2.0 s, about 4.0 s left",
        "epoch 3/4: loss 1.234, validation accuracy 0.5671, 2.0 s, about 2.0 s left",
        "epoch 4/4: loss 1.234, validation accuracy 0.5671, 2.0 s",
    ]


def test_a_continued_run_has_a_first_epoch_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, 20, 17)
    assert [line.partition(":")[0] for line in lines[1:]] == ["epoch 18/20", "epoch 19/20", "epoch 20/20"]
    assert lines[2].endswith("about 2.0 s left")
    assert said(capsys, 20, 20) == []  # only its test is missing


@pytest.mark.parametrize(("epochs", "lines"), [(100, 100), (101, 51), (1000, 100)])
def test_there_are_about_a_hundred_lines_at_most(capsys: pytest.CaptureFixture[str], epochs: int, lines: int) -> None:
    found = said(capsys, epochs)[1:]
    assert len(found) == lines
    assert found[-1].startswith(f"epoch {epochs}/{epochs}:")


def test_a_terminal_has_one_line_which_is_taken_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "150")
    with pytest.raises(KeyboardInterrupt), Progress(3, "accuracy") as shown:
        raise KeyboardInterrupt
    assert shown._bar.finished is False
    assert not shown._bar.live.is_started


@pytest.mark.parametrize("progress", [True, False])
def test_training_speaks_if_it_may(tmp_path: Path, capsys: pytest.CaptureFixture[str], progress: bool) -> None:
    training.train(training.start(small(), tmp_path), accelerator="cpu", progress=progress)
    assert ("epoch 3/3: loss" in capsys.readouterr().err) == progress

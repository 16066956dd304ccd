"""The command that scores learnt symmetries."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pscnn.cli import app
from pscnn.experiments import VARIATIONS


def test_the_command_prints_scores_and_knows_its_targets(tmp_path: Path) -> None:
    arguments = ["benchmark-symmetry", "--only", "all", "--only", "mirror", "--seeds", "1", "--epochs", "1"]
    done = CliRunner().invoke(app, [*arguments, "--runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "mirror" in done.output
    assert "rotations" not in done.output.replace("rotations about", "")
    done = CliRunner().invoke(app, ["benchmark-symmetry", "--only", "banana"])
    assert done.exit_code != 0
    assert "unknown target 'banana'" in " ".join(done.output.split())


@pytest.mark.parametrize("what", VARIATIONS)
def test_settings_can_be_compared(what: str, tmp_path: Path) -> None:
    arguments = ["benchmark-symmetry", "--only", "none", "--seeds", "1", "--epochs", "1", "--vary", what]
    arguments += ["--runs", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    for label in VARIATIONS[what]:
        assert label in done.output


def test_what_cannot_be_varied_is_named() -> None:
    done = CliRunner().invoke(app, ["benchmark-symmetry", "--vary", "colour"])
    assert done.exit_code == 1
    assert "cannot vary 'colour'" in done.output

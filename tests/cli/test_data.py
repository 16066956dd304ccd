"""The command that prepares data."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from pscnn.cli import app


def test_all_variants_take_no_options_of_a_single_one(tmp_path: Path) -> None:
    for words in (["--asymmetry", "push", "--strength", "1"], ["--asymmetry", "box"]):
        done = CliRunner().invoke(app, ["data", "prepare", "asymmetry", *words, "--data-dir", str(tmp_path)])
        assert done.exit_code == 2
        assert "use smoke with --asymmetry and --strength for a single one" in " ".join(done.output.split())
        assert not list(tmp_path.iterdir())


def test_wrong_requests(tmp_path: Path) -> None:
    for arguments, message in (
        (["rain"], "unknown data set 'rain'"),
        (["smoke", "--strength", "1"], "strength has no effect with the published asymmetry"),
        (["smoke", "--device", "abacus"], "cannot simulate on 'abacus'"),
        (["smoke", "--data-dir", "/proc/nowhere"], "cannot create the folder"),
    ):
        done = CliRunner().invoke(app, ["data", "prepare", *arguments])
        assert done.exit_code == 1
        assert message in " ".join(done.output.split())

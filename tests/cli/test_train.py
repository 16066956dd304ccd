"""The command that trains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from pscnn import training
from pscnn.cli import app

TINY: dict[str, Any] = {
    "kinds": 2,
    "size": 28,
    "width": 0.1,
    "train_per_class": 12,
    "validation_per_class": 5,
    "test_per_class": 5,
    "epochs": 3,
    "batch_size": 16,
    "group": "C4",
}


class TestCommand:
    cli = CliRunner()

    def options(self, tmp_path: Path, **changes: Any) -> list[str]:
        values = {**TINY, "epochs": 1, **changes}
        listed = [text for k, v in values.items() for text in (f"--{k.replace('_', '-')}", str(v))]
        return ["train", "ddmnist", "--runs", str(tmp_path), "--accelerator", "cpu", *listed]

    def test_train_evaluate_inspect(self, tmp_path: Path) -> None:
        done = self.cli.invoke(app, self.options(tmp_path))
        assert done.exit_code == 0, done.output
        (folder,) = (tmp_path / "ddmnist").glob("p-scnn-C4-O2-*-seed0")
        assert "test accuracy" in done.output
        assert self.cli.invoke(app, ["evaluate", str(folder), "--accelerator", "cpu"]).exit_code == 0
        shown = self.cli.invoke(app, ["inspect", str(folder)])
        assert shown.exit_code == 0
        assert "λ(180°)" in shown.output
        assert "rotations, 0° … 270°" in shown.output

    def test_config_file_and_options(self, tmp_path: Path) -> None:
        file = tmp_path / "settings.yaml"
        file.write_text(yaml.safe_dump({**TINY, "epochs": 2}))
        done = self.cli.invoke(
            app,
            [
                *("train", "ddmnist", "--config", str(file), "--epochs", "1", "--runs", str(tmp_path)),
                *("--name", "x", "--accelerator", "cpu", "--no-invariant"),
            ],
        )
        assert done.exit_code == 0, done.output
        config = training.read_task(tmp_path / "ddmnist" / "x-seed0").settings
        assert config.epochs == 1
        assert config.invariant is False
        assert config.kinds == 2

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["train", "ddmnist", "--group", "banana"], "unknown group 'banana'"),
            (["train", "imagenet"], "unknown task 'imagenet': use one of ddmnist, medmnist3d"),
            (["train", "--runs", "x"], "name a task: one of ddmnist, medmnist3d"),
            (["train", "medmnist3d", "--group", "O(2)"], "medmnist3d needs a group of space, such as SO(3), got O(2)"),
            (["train", "ddmnist", "--config", "missing.yaml"], "cannot read missing.yaml"),
            (["train", "--resume", "nowhere"], "nowhere is not a run"),
            (["evaluate", "nowhere"], "nowhere is not a run"),
            (["inspect", "nowhere"], "nowhere is not a run"),
        ],
    )
    def test_failures_are_one_message_and_a_non_zero_exit(self, arguments: list[str], message: str) -> None:
        done = self.cli.invoke(app, arguments)
        assert done.exit_code == 1
        assert message in " ".join(done.output.split())
        assert "Traceback" not in done.output

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["ddmnist", "--dataset", "organ"], "ddmnist has no option --dataset; tasks with this option: medmnist3d"),
            (["smoke", "--no-invariant"], "tasks with this option: ddmnist, medmnist3d, shapes3d, own"),
            (["ddmnist", "--banana"], "ddmnist has no option --banana"),
            (["ddmnist", "--epochs", "many"], "should be a valid integer"),
            (["ddmnist", "--resume", "x"], "remove the other options"),
            (["ddmnist", "--together"], "--together requires --seeds of 2 or more"),
        ],
    )
    def test_wrong_usage_is_one_message_and_exits_with_2(self, arguments: list[str], message: str) -> None:
        done = self.cli.invoke(app, ["train", *arguments])
        assert done.exit_code == 2
        assert message in " ".join(done.output.split())

    def test_a_task_shows_its_own_settings_in_groups(self) -> None:
        shown = self.cli.invoke(app, ["train", "smoke", "--help"], env={"COLUMNS": "200"}).output
        positions = [shown.index(f"─ {title} ─") for title in ("Task", "Network", "Densities", "Optimiser", "Run")]
        assert positions == sorted(positions)
        assert "--train-steps" in shown
        assert "Default: 0.95." in shown
        for option in ("--symmetry", "--dataset", "--balanced", "--invariant"):
            assert option not in shown
        assert "ddmnist" in self.cli.invoke(app, ["train", "--help"]).output

    def test_completion_offers_tasks_methods_and_tables(self) -> None:
        for words, offered in (
            ("pscnn train ", {"ddmnist", "smoke", "own"}),
            ("pscnn train ddmnist --method ", {"p-scnn", "restricted"}),
            ("pscnn reproduce ", {"ddmnist", "figure-kl"}),
        ):
            command = [sys.executable, "-c", "from pscnn.cli import app; app(prog_name='pscnn')"]
            environment = {**os.environ, "_PSCNN_COMPLETE": "complete_bash", "COMP_WORDS": words}
            environment["COMP_CWORD"] = str(len(words.split()))
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            assert offered <= set(done.stdout.split()), done.stderr

    def test_what_is_trained_is_not_trained_again(self, tmp_path: Path) -> None:
        first = self.cli.invoke(app, self.options(tmp_path))
        assert first.exit_code == 0, first.output
        again = self.cli.invoke(app, self.options(tmp_path))
        assert again.exit_code == 0, again.output
        assert "already trained" in again.output
        assert len(list((tmp_path / "ddmnist").glob("p-scnn*"))) == 1

    def test_config_files_are_checked(self, tmp_path: Path) -> None:
        for text, message in (
            ("epoch: 3", "ddmnist has no setting 'epoch'"),
            ("a: [", "not valid YAML"),
            ("[1]", "must contain settings"),
        ):
            (tmp_path / "bad.yaml").write_text(text)
            done = self.cli.invoke(app, ["train", "ddmnist", "--config", str(tmp_path / "bad.yaml")])
            assert done.exit_code == 1
            assert message in " ".join(done.output.split())

    def test_missing_data_is_one_message(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import pooch

        monkeypatch.setattr(pooch, "retrieve", lambda *_, **__: (_ for _ in ()).throw(ConnectionError()))
        done = self.cli.invoke(app, [*self.options(tmp_path, source="mnist"), "--data-dir", str(tmp_path)])
        assert done.exit_code == 1
        assert "could not be downloaded" in " ".join(done.output.split())

    def test_version(self) -> None:
        assert "pscnn 0." in self.cli.invoke(app, ["--version"]).output

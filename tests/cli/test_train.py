"""The command that trains."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import SMALL, as_options, small
from typer.testing import CliRunner

from pscnn import training
from pscnn.cli import app


class TestCommand:
    cli = CliRunner()

    def options(self, tmp_path: Path, **changes: Any) -> list[str]:
        listed = as_options({**SMALL, "epochs": 1, **changes})
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
        file.write_text(yaml.safe_dump({**SMALL, "epochs": 2}))
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
            (["ddmnist", "--accelerator", "banana"], "use auto, cpu or gpu, not 'banana'"),
            (["ddmnist", "--epochs", "many"], "valid integer"),
            (["ddmnist", "--resume", "x"], "remove the other options"),
            (["--resume", "x", "--runs", "y"], "remove the other options"),
            (["ddmnist", "--together"], "--together requires --seeds of 2 or more"),
        ],
    )
    def test_wrong_usage_is_one_message_and_exits_with_2(self, arguments: list[str], message: str) -> None:
        done = self.cli.invoke(app, ["train", *arguments])
        assert done.exit_code == 2
        assert message in " ".join(done.output.split())

    def test_options_may_come_before_the_task(self, tmp_path: Path) -> None:
        (tmp_path / "s.yaml").write_text(yaml.safe_dump({**SMALL, "epochs": 1, "compile": False}))
        for words in (["--runs", str(tmp_path), "--config", str(tmp_path / "s.yaml"), "ddmnist"],):
            done = self.cli.invoke(app, ["train", *words, "--accelerator", "cpu"])
            assert done.exit_code == 0, done.output
        for words, message in (
            (["--epochs", "1"], "--epochs needs a task: pscnn train TASK --epochs"),
            (["--resume", "x", "--epochs", "1"], "--resume takes all settings from the run"),
            (["--resume=x", "--epochs", "1"], "--resume takes all settings from the run"),
            (["--name", "smoke"], "name a task: one of ddmnist"),
        ):
            done = self.cli.invoke(app, ["train", *words])
            assert done.exit_code != 0
            assert message in " ".join(done.output.split())

    def test_every_option_without_a_value_may_come_before_the_task(self) -> None:
        for name in training.task_names():
            for option in training.task_type(name).settings_type.options().values():
                if option.kind is bool:
                    words = ["train", f"--{option.name.replace('_', '-')}", name, "--epochs", "0"]
                    done = self.cli.invoke(app, words)
                    assert "needs a task" not in done.output, words
                    assert "must lie between 1 and" in done.output or name == "own", done.output

    def test_small_networks_train_at_once_on_the_cpu(self, tmp_path: Path) -> None:
        words = ["train", "vectors", "--epochs", "1", "--count", "16", "--batch-size", "8", "--seeds", "2"]
        done = self.cli.invoke(app, [*words, "--runs", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert "already trained" not in done.output
        assert "seed1" in "".join(done.output.split())  # long names are folded, not cut
        assert "already trained" in self.cli.invoke(app, [*words, "--runs", str(tmp_path)]).output
        assert self.cli.invoke(app, [*words, "--accelerator", "gpu"]).exit_code == 2

    def test_a_task_shows_its_own_settings_in_groups(self) -> None:
        shown = self.cli.invoke(app, ["train", "smoke", "--help"], env={"COLUMNS": "200"}).output
        positions = [shown.index(f"─ {title} ─") for title in ("Task", "Network", "Densities", "Optimiser", "Run")]
        assert positions == sorted(positions)
        assert "--train-steps" in shown
        assert "by default 0.95" in shown
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


def test_a_diverged_run_says_so(tmp_path: Path) -> None:
    folder = training.start(small(epochs=1, lr=1e30), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, ["train", "--resume", str(folder), "--accelerator", "cpu"])
        seen = CliRunner().invoke(app, ["inspect", str(folder)])
        listed = CliRunner().invoke(app, ["results", str(tmp_path)])
        asked = CliRunner().invoke(app, ["predict", str(folder), str(tmp_path)])
        exported = CliRunner().invoke(app, ["export", str(folder)])
    assert done.exit_code == 1
    assert "training diverged. Use a smaller --lr" in done.output
    json.loads((folder / "result.json").read_text(), parse_constant=pytest.fail)
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert math.isnan(training.history(folder)[0]["train/loss"])
    assert "diverged" in listed.output.splitlines()[-1]
    for refused in (asked, exported):
        assert refused.exit_code == 1
        assert "has weights that are not numbers" in " ".join(refused.output.split())
    assert "are not finite" in seen.output
    assert "kept in every layer" not in seen.output


def test_two_processes_do_not_train_one_run(tmp_path: Path) -> None:
    folder = training.start(small(epochs=1), tmp_path)
    program = (
        "import sys, time; from pathlib import Path; from pscnn.training import run_lock\n"
        "with run_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, folder], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        done = CliRunner().invoke(app, ["train", "--resume", str(folder), "--accelerator", "cpu"])
        other.kill()
    assert done.exit_code == 1
    assert "another process is working on" in done.output
    assert training.train(folder, accelerator="cpu", progress=False)["epochs"] == 1  # a lock ends with its process


def test_missing_data_leave_no_folder(tmp_path: Path) -> None:
    runs, data = tmp_path / "runs", tmp_path / "data"
    done = CliRunner().invoke(app, ["train", "smoke", "--runs", str(runs), "--data-dir", str(data)])
    assert done.exit_code == 1
    assert f"pscnn data prepare smoke --data-dir {data}" in "".join(done.output.splitlines())
    assert not runs.exists()


def test_seeds_that_diverged_say_so(tmp_path: Path) -> None:
    options = as_options({**SMALL, "epochs": 1})
    more = ["--lr", "1e30", "--seeds", "2", "--accelerator", "cpu", "--runs", str(tmp_path)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, ["train", "ddmnist", *options, *more])
    assert done.exit_code == 1, done.output
    assert len(list((tmp_path / "ddmnist").glob("p-scnn*"))) == 2
    assert "training diverged. Use a smaller --lr" in done.output
    compared = CliRunner().invoke(app, ["results", str(tmp_path), "--compare", "method"])
    assert "2 diverged" in compared.output


def test_a_run_that_is_not_trained_to_its_end_is_not_finished_by_a_test(tmp_path: Path) -> None:
    folder = training.start(small(epochs=2), tmp_path)
    training.train(folder, accelerator="cpu", progress=False, epochs=1)
    done = CliRunner().invoke(app, ["evaluate", str(folder), "--accelerator", "cpu"])
    assert done.exit_code == 0, done.output
    assert "not saved: 1 of 2 epochs are trained" in done.output
    assert not (folder / "result.json").exists()


def test_a_test_can_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training.Classification, "results", stop)
    folder = training.start(small(epochs=1), tmp_path)
    words = ["train", "--resume", str(folder), "--accelerator", "cpu", "--data-dir", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 130
    assert f"To continue: pscnn train --resume {folder} --data-dir {tmp_path} --accelerator cpu" in done.output

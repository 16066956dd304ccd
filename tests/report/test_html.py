from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import TINY_DIGITS
from typer.testing import CliRunner

from pscnn import training
from pscnn.cli import app
from pscnn.report._folded import train_command
from pscnn.report._html import html_report
from pscnn.tasks.double_digits import DoubleDigitSettings

TINY_DIGITS_SETTINGS: dict[str, Any] = {name: value for name, value in TINY_DIGITS.items() if name != "task"}


def data_of(page: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def finished(root: Path, **settings: object) -> Path:
    config = training.make_settings({**TINY_DIGITS, "epochs": 2, **settings})
    folder = training.start(config, root)
    training.train(folder, accelerator="cpu", progress=False)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    return [finished(root, method=m, group=g) for m, g in (("p-scnn", "O(2)"), ("p-scnn", "C4"), ("cnn", "O(2)"))]


def test_reports_are_one_file_with_everything(runs: list[Path], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", *map(str, runs), "--out", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.output
    file = tmp_path / "r.html"
    assert file.stat().st_size < 3e6
    page = file.read_text()
    for number, run in enumerate(runs, 1):
        assert f'id="run-{number}"' in page
        assert f"<b>{run.name}</b>" in page
    content = data_of(file)
    assert [network["run"] for network in content["networks"]] == [0, 1]
    assert content["networks"][0]["elements"] is None
    assert '<option value="1">partially equivariant (P-SCNN), group C(4), seed 0</option>' in page
    assert content["networks"][1]["elements"]["group"] == "quarter turns (C4)"
    assert len(content["try"]["networks"]) == 3
    assert all(run["confusion"]["names"] == ["00", "01", "10", "11"] for run in content["runs"])
    assert "method: cnn" in page
    assert "on other digits" not in page  # which these runs have not seen
    for attribute in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert attribute.startswith(("#", "data:")), attribute  # nothing comes from a network
    assert "http" not in re.sub(r"http://www.w3.org/2000/svg", "", page)


def test_the_command_makes_the_same_settings(tmp_path: Path) -> None:
    settings = DoubleDigitSettings(**{**TINY_DIGITS_SETTINGS, "balanced": True, "invariant": False, "lr": 2e-3})
    task = training.task_of(settings)
    words = shlex.split(train_command(task))
    assert words[:3] == ["pscnn", "train", "ddmnist"]
    assert {"--balanced", "--no-invariant", "--train-per-class"} <= set(words)
    done = CliRunner().invoke(app, [*words[1:], "--runs", str(tmp_path), "--epochs", "1", "--no-progress"])
    assert done.exit_code == 0, done.output
    (path,) = tmp_path.rglob("config.yaml")
    assert training.read_task(path.parent).settings == replace(settings, epochs=1)


def test_reports_are_not_replaced(runs: list[Path]) -> None:
    first, second = html_report(runs[2:]), html_report(runs[2:])
    assert (first.name, second.name) == ("report.html", "report-2.html")
    assert first.parent == runs[2]


def test_the_same_folder_counts_once_and_folders_of_one_name_are_told_apart(runs: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / runs[0].name
    shutil.copytree(runs[0], copy)
    page = html_report([runs[0], copy, runs[0]], tmp_path / "r.html")
    content = data_of(page)
    assert [run["name"] for run in content["runs"]] == [str(runs[0]), str(copy)]
    assert [len(row["points"]) for row in content["comparisons"][0]["rows"]] == [1]


def test_what_is_no_finished_run_is_one_message(runs: list[Path], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 1
    assert "is not a run: it has no config.yaml" in " ".join(done.output.split())
    started = training.start(DoubleDigitSettings(), tmp_path)
    done = CliRunner().invoke(app, ["report", str(started)])
    assert done.exit_code == 1
    assert "is not finished: continue it with" in " ".join(done.output.split())
    done = CliRunner().invoke(app, ["report", str(runs[0]), "--out", str(tmp_path / "missing" / "r.html")])
    assert done.exit_code == 1
    assert "cannot write" in done.output


def test_reports_of_volumes_have_globes(tmp_path: Path) -> None:
    settings = {"task": "shapes3d", "epochs": 1, "batch_size": 4, "group": "SO(3)", "lr": 0.05}
    counts = {"train_count": 6, "validation_count": 4, "test_count": 4}
    folder = training.start(training.make_settings({**settings, **counts}), tmp_path)
    training.train(folder, accelerator="cpu", progress=False)
    page = html_report([folder])
    content = data_of(page)
    assert len(content["networks"][0]["layers"]) == 3
    assert all(layer["globe"]["shape"][0] == 1 for layer in content["networks"][0]["layers"])
    assert content["try"]["examples"][0]["side"] == 16
    assert "shapes3d, chiral" in page.read_text()
    shown = CliRunner().invoke(app, ["inspect", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert "groups of the plane" not in shown.output


def test_methods_without_densities_have_a_report(tmp_path: Path) -> None:
    runs = [finished(tmp_path, method=method) for method in ("ace", "rpp", "augment")]
    file = html_report(runs, tmp_path / "r.html")
    page = file.read_text()
    assert page.count("<summary>The measured error</summary>") == 2
    assert page.count("<svg") == 2
    assert page.count("How much of each kernel is not equivariant") == 3
    assert "These networks have no densities" in page
    assert "Do the layers do what their densities say" not in page
    assert "γ = " in page
    content = data_of(file)
    assert content["networks"] == []
    assert len(content["try"]["networks"]) == 3

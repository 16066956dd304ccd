"""The commands that repeat published experiments and list results."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import TINY, as_options, held_elsewhere
from PIL import Image
from typer.testing import CliRunner

from pscnn import training
from pscnn.cli import app
from pscnn.experiments import SHEETS, save_runs, take_runs
from pscnn.training import ConfigError, Store

OPTIONS = as_options(TINY)


def test_the_command(tmp_path: Path) -> None:
    arguments = ["reproduce", "kl", *OPTIONS, "--seeds", "1", "--workers", "1", "--runs", str(tmp_path)]
    arguments += ["--accelerator", "cpu", "--only", "without"]
    (tmp_path / "ddmnist").mkdir()
    planned = CliRunner().invoke(app, [*arguments, "--dry-run"])
    assert "1 runs: 1 new" in planned.output
    assert not list((tmp_path / "ddmnist").iterdir())
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "0.797 ± 0.015" in done.output  # the paper's
    assert "settings that differ from the paper's" in done.output
    planned = CliRunner().invoke(app, [*arguments, "--dry-run", "--seeds", "2"])
    assert re.search(r"estimated time: \d+(\.\d)? s, 1 runs at a time", planned.output), planned.output
    (folder,) = (tmp_path / "ddmnist").glob("p-scnn*")
    listed = CliRunner().invoke(app, ["results", str(tmp_path), "--where", "kl_weight=0.0"])
    assert folder.name in listed.output
    compared = CliRunner().invoke(app, ["results", str(tmp_path), "--compare", "method", "--format", "csv"])
    accuracy = json.loads((folder / "result.json").read_text())["test_accuracy"]
    assert compared.output == f"method,runs,test accuracy\np-scnn,1,{accuracy:.4f}\n"
    file, elsewhere = tmp_path / "kept.json", tmp_path / "elsewhere"
    saved = CliRunner().invoke(app, ["results", str(tmp_path / "ddmnist"), "--save", str(file)])
    assert saved.exit_code == 0, saved.output
    again = CliRunner().invoke(app, ["results", str(tmp_path / "ddmnist"), "--save", str(file)])
    assert again.exit_code == 1
    assert "exists" in again.output
    from_file = CliRunner().invoke(app, ["results", str(file), "--format", "csv"])
    assert f"ddmnist/{folder.name},ddmnist,p-scnn" in from_file.output
    arguments[arguments.index(str(tmp_path))] = str(elsewhere)
    taken = CliRunner().invoke(app, [*arguments, "--known", str(file), "--dry-run"])
    assert "1 runs: 1 finished" in taken.output
    assert not elsewhere.exists()
    assert f"{accuracy:.3f} (1)" in CliRunner().invoke(app, [*arguments, "--known", str(file)]).output
    (other,) = (elsewhere / "ddmnist").glob("p-scnn*")
    assert other.name == folder.name
    with np.load(folder / "densities.npz") as one, np.load(other / "densities.npz") as two:
        for name in one.files:
            np.testing.assert_allclose(two[name], one[name], atol=1e-6)
    for use in (training.load, training.train):
        with pytest.raises(training.RunError, match="imported from a results file; it has no checkpoint"):
            use(other)
    for where, count in (("group=O2", 1), ("lr=5e-4", 1), ("compile=false", 1), ("lr=0.1", 0), ("seed=x", 0)):
        listed = CliRunner().invoke(app, ["results", str(file), "--where", where])
        assert listed.exit_code == 1 - count, where
    assert "has a setting 'nonsense'" in CliRunner().invoke(app, ["results", str(file), "--where", "nonsense=3"]).output
    (other / "result.json").unlink()
    (other / "metrics.jsonl").write_text("")
    assert take_runs(file, elsewhere) == 0  # what was begun there is not taken for finished
    shutil.rmtree(elsewhere)
    kept = training.make_settings(json.loads(file.read_text())["runs"][0]["config"])
    with held_elsewhere(Store(elsewhere), kept):
        assert take_runs(file, elsewhere) == 0  # nor is waited for what somebody works on
    shutil.rmtree(elsewhere)
    for name in ("densities.npz", "environment.json"):
        (folder / name).rename(tmp_path / name)
        with pytest.raises(ConfigError, match="is not complete"):
            save_runs([folder], tmp_path / "other.json")
        (tmp_path / name).rename(folder / name)
    kept = json.loads(file.read_text())["runs"][0]
    wrongs: list[dict[str, Any]] = [
        {"densities": {"0": "text"}}, {"densities": None}, {"result": {}}, {"environment": {}}, {"config": {}}
    ]  # fmt: skip
    for wrong in wrongs:
        (tmp_path / "wrong.json").write_text(json.dumps({"runs": [kept, {**kept, **wrong}]}))
        with pytest.raises(ConfigError, match="not a file of runs"):
            take_runs(tmp_path / "wrong.json", elsewhere)
        assert not elsewhere.exists()
    shutil.rmtree(folder)
    assert CliRunner().invoke(app, ["results", str(tmp_path)]).exit_code == 1


def test_estimates_have_the_unit_that_suits_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "estimate", lambda self, settings: 240.0)
    words = ["reproduce", "kl", "--only", "without", "--seeds", "1", "--runs", str(tmp_path), "--dry-run"]
    done = CliRunner().invoke(app, [*words, "--workers", "2"])
    assert "estimated time: 2 min, 2 runs at a time" in done.output


def test_the_command_draws(tmp_path: Path) -> None:
    common = [*OPTIONS, "--workers", "1", "--runs", str(tmp_path), "--accelerator", "cpu"]
    expected = {
        "figure-confusion": ("CNN", "P-SCNN"),
        "figure-degrees": ("C1",),
        "figure-kl": ("without",),
        "figure-kl-training": ("training",),
    }
    for name, files in expected.items():
        only = files if "training" not in files else ("with", "without")
        done = CliRunner().invoke(app, ["reproduce", name, *common, *(w for row in only for w in ("--only", row))])
        assert done.exit_code == 0, done.output
        for file in files:
            with Image.open(tmp_path / "figures" / name / f"{file}.png") as image:
                assert image.width > 300
    again = CliRunner().invoke(app, ["reproduce", "figure-kl", *common, "--only", "without"])
    assert "figure-kl-2" in "".join(again.output.split())  # nothing is replaced


def test_reproduce_vectors_prints_tables_and_draws(tmp_path: Path) -> None:
    arguments = ["reproduce", "vectors", "--runs", str(tmp_path), "--seeds", "1", "--epochs", "1"]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert "1.486 ± 0.044" in done.output
    assert "PE-MLP (probabilistic), FourierELU" in done.output
    place = tmp_path / "figures" / "vectors"
    for name in ("shared", "second-layer", "alignment", "kl"):
        assert (place / f"{name}.svg").stat().st_size > 1000
        assert (place / f"{name}.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "kl", "--format", "word"], "unknown format 'word'"),
        (["reproduce", "figure-kl", "--format", "latex"], "figure-kl is a figure: --format applies only to tables"),
        (["reproduce", "kl", "--only", "sometimes"], "no row or column is called"),
        (["results", "nowhere"], "nowhere does not exist"),
        (["results", "README.md"], "README.md is not a file of runs"),
        (["reproduce", "kl", "--known", "nowhere", "--dry-run"], "cannot read nowhere"),
        (["results", ".", "--where", "seed"], "needs a setting and a value"),
    ],
)
def test_wrong_requests(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert message in " ".join(done.output.split())


def test_an_unknown_table_is_wrong_usage() -> None:
    done = CliRunner().invoke(app, ["reproduce", "imagenet"])
    assert done.exit_code == 2
    assert "unknown table 'imagenet': use one of list, ddmnist" in " ".join(done.output.split())


def test_all_tables_are_listed() -> None:
    listed = CliRunner().invoke(app, ["reproduce", "list"]).output
    assert all(name in listed for name in (*SHEETS, "vectors", "vectors-3d"))


def test_the_command_plans_it(tmp_path: Path) -> None:
    planned = CliRunner().invoke(app, ["reproduce", "ablation", "--dry-run", "--seeds", "3", "--runs", str(tmp_path)])
    assert "48 runs: 48 new" in planned.output


def test_an_unwritable_folder_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["reproduce", "vectors", "--runs", str(tmp_path / "file")])
    assert done.exit_code == 1
    assert "Choose another with --runs" in " ".join(done.output.split())


def _processes_of(folder: Path) -> list[str]:
    """Command and children that know the folder: every process started under the command carries it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"PSCNN_TEST={folder}".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", ["terminal", "only the command", "killed"])
def test_an_interruption_ends_at_once_and_keeps_what_is_finished(tmp_path: Path, how: str) -> None:
    arguments = ["reproduce", "vectors", "--runs", str(tmp_path), "--seeds", "1", "--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pscnn", *arguments],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PSCNN_TEST": str(tmp_path)},
    )
    try:
        for _ in range(3000):  # until something trains
            if list(tmp_path.glob("vectors/*")):
                break
            time.sleep(0.1)
        if how == "terminal":
            os.killpg(process.pid, signal.SIGINT)  # what a terminal sends on Ctrl-C
        else:
            process.send_signal(signal.SIGINT if how == "only the command" else signal.SIGKILL)
        assert process.wait(timeout=300) == (130 if how != "killed" else -signal.SIGKILL)
        for _ in range(1500):
            if not _processes_of(tmp_path):
                break
            time.sleep(0.1)
        assert not _processes_of(tmp_path)
        assert not list(tmp_path.glob("vectors/*/result.json"))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_only_restricts_all_sheets_of_a_command(tmp_path: Path) -> None:
    words = ["reproduce", "vectors", "--seeds", "1", "--dry-run", "--runs", str(tmp_path)]
    for only, count in (("MLP, ELU", 2), ("shared", 4), ("angle", 16)):
        assert f"{count} runs: {count} new" in CliRunner().invoke(app, [*words, "--only", only]).output

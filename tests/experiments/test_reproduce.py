"""Tables as lists of runs, the store that finds them, and the runner that makes what is missing."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import statistics
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image
from typer.testing import CliRunner

from pscnn import training
from pscnn.cli import app
from pscnn.experiments import SHEETS, Sheet, check_settings, check_words, published, save_runs, take_runs
from pscnn.report import draw_sheets, write_rows
from pscnn.tasks.double_digits import DoubleDigitSettings
from pscnn.tasks.shapes import ShapeSettings
from pscnn.training import ConfigError, Settings, Store, run_missing, task_of

TINY: dict[str, Any] = {
    "source": "digits", "size": 28, "width": 0.1, "epochs": 1, "kinds": 2, "train_per_class": 4,
    "validation_per_class": 2, "test_per_class": 4, "batch_size": 8,
}  # fmt: skip
OPTIONS = [word for k, v in TINY.items() for word in (f"--{k.replace('_', '-')}", str(v))]


def tiny(**changes: Any) -> DoubleDigitSettings:
    return DoubleDigitSettings(**{**TINY, **changes})


# -- tables ------------------------------------------------------------------------------------------


def test_rows_and_columns_are_chosen_by_name_or_pattern() -> None:
    sheet = SHEETS["bandlimit"]()
    assert sheet.only(["O(2)*", "SO2"]).rows == [row for row in sheet.rows if row.startswith("O(2)")]
    assert sheet.only(["O(2)*", "SO2"]).columns == ["SO2"]
    assert sheet.only(["O(2) L = 1"]).rows == ["O(2) L = 1"]
    assert sheet.only(["*SCNN"]).columns == sheet.columns
    with pytest.raises(ConfigError, match="no row or column is called 'o\\(2"):
        check_words([sheet], ["O(2)*", "o(2)*"])


def test_table_1_has_510_runs() -> None:
    sheet = SHEETS["ddmnist"]()
    assert (len(sheet.rows), len(sheet.columns)) == (17, 6)
    runs = sheet.runs(5)
    assert len(runs) == len(set(runs)) == 510
    config, key = sheet.cells["SO(2) R-SCNN", "D4"]
    assert isinstance(config, DoubleDigitSettings)
    assert (config.method, config.group, config.symmetry, config.source, key) == (
        "restricted", "SO(2)", "D4", "mnist", "test_accuracy",
    )  # fmt: skip
    assert (config.epochs, config.lr, config.batch_size) == (50, 5e-4, 256)


FIGURES = [name for name in SHEETS if name.startswith("figure-")]
OTHERS = ["ablation", "jetflow", "data-ablation", "vectors", "vectors-3d", "symmetry", *FIGURES]


@pytest.mark.parametrize("name", [n for n in SHEETS if n not in OTHERS])
def test_every_cell_stands_beside_a_published_number(name: str) -> None:
    sheet = SHEETS[name]()
    assert sheet.paper is not None
    numbers = published(sheet.paper)
    assert all(column in numbers[row] for row, column in sheet.cells)


def test_fewer_volumes_of_organs_stand_beside_the_figures_numbers() -> None:
    sheet = SHEETS["data-ablation"]()
    numbers = published("data_ablation")
    assert all(column in numbers[row] for row, column in sheet.cells if row.endswith("organ"))
    assert numbers["SO(3) P-SCNN, organ"]["0.25"] == (0.755, 0.029)


def test_tables_can_be_narrowed_and_changed() -> None:
    sheet = SHEETS["ddmnist"]()
    assert set(sheet.only(["O2"]).columns) == {"O2"}
    assert len(sheet.only(["O2"]).cells) == 17
    few = sheet.only(["CNN", "O(2) P-SCNN", "O2", "SO2"])
    assert set(few.cells) == {(row, column) for row in ("CNN", "O(2) P-SCNN") for column in ("O2", "SO2")}
    with pytest.raises(ConfigError, match="no row or column is called 'O3'"):
        check_words([sheet], ["O3"])
    changed = few.changed({"epochs": 3})
    assert {config.epochs for config, _ in changed.cells.values()} == {3}
    with pytest.raises(ConfigError, match="no run of this table has a setting 'dataset'"):
        check_settings([sheet], {"dataset": "organ"})
    with pytest.raises(ConfigError, match="method is what this table compares"):
        sheet.changed({"method": "cnn"})
    mixed = SHEETS["competitive"]().changed({"epochs": 3, "fraction": 0.5})
    assert {config.epochs for config, _ in mixed.cells.values()} == {3}
    assert {config.method for config, _ in sheet.only(["CNN"]).changed({"group": "C4"}).cells.values()} == {"cnn"}


def test_cells_are_means_over_seeds() -> None:
    sheet = SHEETS["ddmnist"]().only(["CNN", "O2"])
    found = {0: 0.5, 2: 0.7}
    filled = sheet.fill(3, lambda c: {"test_accuracy": found[c.seed]} if c.seed in found else None)
    (value,) = filled.values()
    assert value is not None
    assert (value.mean, value.count) == (pytest.approx(0.6), 2)
    assert value.std == pytest.approx(statistics.stdev([0.5, 0.7]))
    assert value.paper == (0.649, 0.019)
    assert value.differs
    assert sheet.fill(3, lambda c: None) == {("CNN", "O2"): None}


def test_formats() -> None:
    rows = [["", "a_b"], ["x", "0.1 ± 0.2 | 3"]]
    assert write_rows(rows, "csv") == ",a_b\nx,0.1 ± 0.2 | 3\n"
    assert write_rows(rows, "markdown") == "|  | a_b |\n| --- | --- |\n| x | 0.1 ± 0.2 \\| 3 |\n"
    assert "x & 0.1 $\\pm$ 0.2 $|$ 3 \\\\" in write_rows(rows, "latex")
    assert write_rows(rows, "text") == "   a_b\nx  0.1 ± 0.2 | 3\n"


# -- the store and the runner -----------------------------------------------------------------------


def held_elsewhere(store: Store, config: Settings) -> FileLock:
    """A run's lock as another process has it: it cannot be taken again here."""
    return FileLock(store.lock(config).lock_file)


def test_every_setting_has_a_place_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    others = [tiny(seed=1), tiny(epochs=2), tiny(lr=1e-3), tiny(symmetry="C4"), tiny(compile=True)]
    assert len({store.folder(config) for config in [tiny(), *others]}) == 6
    assert store.folder(tiny()) == store.folder(tiny())
    assert store.state(tiny()) == "new"
    with held_elsewhere(store, tiny()):
        assert Store(tmp_path).state(tiny()) == "running"
    assert store.estimate(tiny()) is None


def test_what_fails_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    good, bad = tiny(method="cnn"), tiny(method="cnn", source="mnist")  # there is no MNIST in that folder
    store = Store(tmp_path / "runs")
    results = run_missing([bad, good], store, workers=1, data_dir=tmp_path / "nothing", accelerator="cpu")
    assert isinstance(results[bad], Exception)
    assert isinstance(results[good], dict)
    assert (store.state(bad), store.state(good)) == ("failed", "finished")
    assert "DataError" in str(store.failure(bad))
    assert store.code(good)
    again = store.result(good)
    assert run_missing([good], store, accelerator="cpu")[good] == again  # not run again
    assert Store(store.root).estimate(replace(good, epochs=10)) == pytest.approx(10 * again["seconds"], abs=0.6)  # type: ignore[index]


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    config = tiny(method="cnn", epochs=12)
    alone = run_missing([config], Store(tmp_path / "alone"), workers=1, accelerator="cpu")[config]
    assert isinstance(alone, dict)
    store = Store(tmp_path / "runs")
    metrics = store.folder(config) / "metrics.jsonl"
    before = set(multiprocessing.active_children())
    results: dict[Any, Any] = {}
    work = threading.Thread(target=lambda: results.update(run_missing([config], store, workers=1, accelerator="cpu")))
    work.start()
    deadline = time.monotonic() + 120
    while not metrics.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    for worker in set(multiprocessing.active_children()) - before:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
    work.join(240)
    assert len(metrics.read_text().splitlines()) == 12
    assert {k: v for k, v in results[config].items() if k != "seconds"} == {
        k: v for k, v in alone.items() if k != "seconds"
    }


def test_two_runners_share_a_folder(tmp_path: Path) -> None:
    configs = [tiny(method="cnn")]
    found: list[dict[Any, Any]] = [{}, {}]

    def go(number: int) -> None:
        found[number] = run_missing(configs, Store(tmp_path), workers=1, accelerator="cpu")

    threads = [threading.Thread(target=go, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert found[0] == found[1]
    assert set(found[0]) == set(configs)
    assert len(list(tmp_path.rglob("result.json"))) == 1


def test_a_network_is_tested_on_digits_that_move_otherwise(tmp_path: Path) -> None:
    config = tiny(method="cnn", symmetry="C1", other_symmetry="O2", test_per_class=20)
    result = run_missing([config], Store(tmp_path), workers=1, accelerator="cpu")[config]
    assert isinstance(result, dict)
    model = training.load(Store(tmp_path).folder(config)).model
    for name, key in (("test", "test_accuracy"), ("other", "other_accuracy")):
        split = task_of(config).load(None)[name]
        with torch.no_grad():
            right = model(split.images(torch.arange(len(split)), _seed(config))).argmax(1) == split.labels
        assert result[key] == pytest.approx(right.float().mean().item(), abs=1e-6)
    splits = task_of(config).load(None)
    assert torch.equal(splits["test"].labels, splits["other"].labels)
    assert splits["other"].symmetry == "O2"


def _seed(config: DoubleDigitSettings) -> int:
    """Of the only batch of a test split; see ``training.Data``."""
    stream = 1_000_003 * (2 + 3 * config.seed)
    return (1_000_003 * stream * 1024) % 2**63


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
    for wrong in (
        {"densities": {"0": "text"}}, {"densities": None}, {"result": {}}, {"environment": {}}, {"config": {}}
    ):  # fmt: skip
        (tmp_path / "wrong.json").write_text(json.dumps({"runs": [kept, {**kept, **wrong}]}))
        with pytest.raises(ConfigError, match="not a file of runs"):
            take_runs(tmp_path / "wrong.json", elsewhere)
        assert not elsewhere.exists()
    shutil.rmtree(folder)
    assert CliRunner().invoke(app, ["results", str(tmp_path)]).exit_code == 1


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_of_runs_that_tables_have_too(name: str) -> None:
    sheet = SHEETS[name]()
    assert sheet.picture is not None
    made = [make() for n, make in SHEETS.items() if n not in FIGURES]
    tables = {config for sheet in made if isinstance(sheet, Sheet) for config in sheet.runs(1)}
    assert set(sheet.runs(1)) <= tables


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


def test_figures_in_space_and_over_fractions(tmp_path: Path) -> None:
    store = Store(tmp_path)
    config = ShapeSettings(epochs=1, train_count=8, validation_count=8, test_count=8, batch_size=4)
    run_missing([config], Store(tmp_path), workers=1, accelerator="cpu")
    file, _ = draw_sheets([Sheet("", None, {("body", ""): (config, "test_accuracy")}, "spheres")], store, "spheres")
    assert file.stat().st_size > 10_000
    fractions = SHEETS["figure-data-ablation"]().only(["CNN, organ", "0.5", "1"])
    for k, (one, _) in enumerate(fractions.cells.values()):
        folder = store.folder(one)
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({"test_accuracy": 0.5 + 0.1 * k}))
    file, _ = draw_sheets([fractions], store, "fractions")
    assert file == tmp_path / "figures" / "fractions" / "organ.png"
    confusion = Sheet("", None, {("half", ""): next(iter(fractions.cells.values()))}, "confusion")
    with pytest.raises(training.RunError, match="imported from a results file"):
        draw_sheets([confusion], store, "confusion")
    with pytest.raises(training.RunError, match="is finished"):
        draw_sheets([SHEETS["figure-kl"]()], store, "kl")


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

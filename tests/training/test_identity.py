"""A run is identified by what differs from the defaults; it leaves nothing changed, and loads its data once."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from helpers import TINY_DIGITS
from typer.testing import CliRunner

from pscnn import training
from pscnn.cli import app
from pscnn.data.own import About
from pscnn.tasks.double_digits import DoubleDigits, DoubleDigitSettings
from pscnn.tasks.flows import SmokeSettings
from pscnn.tasks.shapes import ShapeSettings
from pscnn.tasks.volumes import VolumeSettings
from pscnn.training import Settings, Store, run_name

OPTIONS = [w for k, v in TINY_DIGITS.items() if k != "task" for w in (f"--{k.replace('_', '-')}", str(v))]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (DoubleDigitSettings(), "p-scnn-O2-O2-seed0"),
        (DoubleDigitSettings(symmetry="C4", group="D4", seed=3), "p-scnn-D4-C4-seed3"),
        (DoubleDigitSettings(lr=0.001, compile=True), "p-scnn-O2-O2-lr=0.001-seed0"),
        (VolumeSettings(dataset="nodule", lr=1e-5), "p-scnn-SO3-nodule-seed0"),  # the default of these volumes
        (VolumeSettings(dataset="nodule", lr=5e-5), "p-scnn-SO3-nodule-lr=5e-05-seed0"),
        (ShapeSettings(group="SO(2)@z"), "p-scnn-SO2@z-chiral-seed0"),
        (SmokeSettings(method="cnn", kernel=5), "cnn-C4-forecast-kernel=5-seed0"),
    ],
)
def test_folders_are_named_by_what_differs(settings: Settings, name: str) -> None:
    assert run_name(settings) == name


def test_long_names_are_digests_and_differ() -> None:
    many: dict[str, Any] = {f"{split}_per_class": 1000 for split in ("train", "validation", "test")}
    first = DoubleDigitSettings(**many, released="sampling,alignment,first-kl,gate-bias", other_symmetry="D4", kinds=7)
    names = {run_name(first), run_name(replace(first, kinds=6)), run_name(replace(first, lr=0.1))}
    assert len(names) == 3
    assert all(len(name) < 60 for name in names)


def test_another_default_does_not_change_what_a_stored_run_is(tmp_path: Path) -> None:
    """Its folder has the complete settings; if they are not those that its name stands for today, it is another run."""
    store = Store(tmp_path)
    folder = store.start(DoubleDigitSettings())
    values = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**values, "epochs": 49}))
    assert Store(tmp_path).folder(DoubleDigitSettings()).name == "p-scnn-O2-O2-seed0-2"
    assert Store(tmp_path).folder(DoubleDigitSettings(epochs=49)) == folder


def test_a_new_setting_orphans_no_stored_run(tmp_path: Path) -> None:
    folder = Store(tmp_path).start(DoubleDigitSettings(lr=0.1))
    values = yaml.safe_load((folder / "config.yaml").read_text())
    del values["released"]  # as if it had been added since
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    assert Store(tmp_path).folder(DoubleDigitSettings(lr=0.1)) == folder


def test_reproduce_finds_what_train_made(tmp_path: Path) -> None:
    common = [*OPTIONS, "--epochs", "1", "--runs", str(tmp_path), "--accelerator", "cpu"]
    trained = CliRunner().invoke(app, ["train", "ddmnist", *common, "--kl-weight", "0"])
    assert trained.exit_code == 0, trained.output
    settings = ["--source", "digits", *common[:-2]]
    planned = CliRunner().invoke(app, ["reproduce", "kl", *settings, "--seeds", "1", "--dry-run"])
    assert "2 runs: 1 new, 1 finished" in planned.output


def test_a_stopped_run_can_be_continued_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def compile_it(function: Any, **_: Any) -> Any:
        compiled.append(function)
        return function

    monkeypatch.setattr(torch, "compile", compile_it)
    settings = training.make_settings({**TINY_DIGITS, "epochs": 2})
    training.train(training.start(settings, tmp_path), accelerator="cpu", progress=False, epochs=1)
    assert not compiled
    options = [*OPTIONS, "--epochs", "2", "--runs", str(tmp_path), "--accelerator", "cpu", "--no-progress"]
    done = CliRunner().invoke(app, ["train", "ddmnist", *options, "--compile"])
    assert done.exit_code == 0, done.output
    assert len(compiled) == 1
    assert len([*tmp_path.glob("ddmnist/*/config.yaml")]) == 1
    assert "already trained" in CliRunner().invoke(app, ["train", "ddmnist", *options]).output


def test_a_run_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    def state() -> Any:
        cudnn = torch.backends.cudnn
        flags = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic
        return *flags, torch.get_rng_state().tolist(), random.getstate(), torch.is_grad_enabled()

    torch.manual_seed(5)
    before = state()
    for settings in ({"precision": "tf32"}, {"task": "vectors", "count": 16, "batch_size": 8}):
        values = settings if "task" in settings else {**TINY_DIGITS, **settings}
        folder = training.start(training.make_settings({**values, "epochs": 1}), tmp_path)
        training.train(folder, accelerator="cpu", progress=False)
        training.evaluate(folder, accelerator="cpu")
        assert state() == before


def test_data_are_loaded_once_per_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    load = DoubleDigits.load

    def counted(self: DoubleDigits, folder: Any) -> Any:
        loads.append(folder)
        return load(self, folder)

    monkeypatch.setattr(DoubleDigits, "load", counted)
    arguments = ["train", "ddmnist", *OPTIONS, "--epochs", "2", "--runs", str(tmp_path), "--accelerator", "cpu"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert len(loads) == 1


def test_every_task_has_what_the_engine_asks_for(tmp_path: Path) -> None:
    names = training.task_names()
    assert names == ["ddmnist", "medmnist3d", "shapes3d", "smoke", "jetflow", "vectors", "symmetry", "own"]
    for name in names:
        kind = training.task_type(name)
        assert kind.settings_type.task == name
        assert set(kind.named) <= set(kind.settings_type.options())
        for option in kind.settings_type.options().values():
            assert option.text, (name, option.name)
            assert option.section in ("task", "network", "density", "optimiser", "run")
        if name == "own":
            continue
        task = kind(kind.settings_type())
        assert task.scores
        assert training.make_settings(task.settings.to_dict()) == task.settings
        assert task.settings.differing() == {}


def test_runs_are_found_whatever_their_folders_are_called(tmp_path: Path) -> None:
    settings = VolumeSettings(dataset="nodule")
    folder = Store(tmp_path).start(settings)
    for name in (
        f"{folder.name}-0123abcd",
        "elsewhere",
        f"{folder.name}-2",
    ):  # a digest was behind names in version 0.1
        folder = folder.rename(folder.with_name(name))
        assert Store(tmp_path).folder(settings) == folder


def test_stored_settings_without_effect_are_read_and_given_ones_are_refused(tmp_path: Path) -> None:
    folder = Store(tmp_path).start(DoubleDigitSettings(method="scnn"))
    values = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**values, "bandlimit": 3, "kl_weight": 1.0}))
    assert training.read_task(folder).settings == DoubleDigitSettings(method="scnn")
    assert Store(tmp_path).folder(DoubleDigitSettings(method="scnn")) == folder
    with pytest.raises(training.ConfigError, match="bandlimit has no effect with method scnn"):
        training.make_settings({**values, "bandlimit": 3})


def test_two_processes_do_not_share_a_name(tmp_path: Path) -> None:
    runs = [DoubleDigitSettings(lr=0.1 * k) for k in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda one: Store(tmp_path, "mine").start(one), runs))
    assert len(set(folders)) == 8
    for one, folder in zip(runs, folders, strict=True):
        assert training.read_task(folder).settings == one


@pytest.mark.parametrize("about", ["{", "[]", "{}", '{"dimension": 4}', "null", '{"names": 3}'])
def test_a_malformed_description_of_data_is_one_message(about: str, tmp_path: Path) -> None:
    with pytest.raises(training.ConfigError, match="not a description of prepared data"):
        training.make_settings({"task": "own", "data": "x", "about": about})
    (tmp_path / "own" / "bad").mkdir(parents=True)
    (tmp_path / "own" / "bad" / "config.yaml").write_text(yaml.safe_dump({"task": "own", "about": about}))
    whole = About((28, 28), 1, ("a", "b"), "classes", 0.0, 1.0).to_json()
    one = training.make_settings({"task": "own", "data": "x", "about": whole})
    assert Store(tmp_path).start(one).exists()  # one bad folder does not hide the others

"""How a run is trained where no setting says so: the paper's recipe, or a modern one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import SMALL, small

from pscnn import training
from pscnn.data.own import About
from pscnn.tasks.double_digits import DoubleDigitSettings
from pscnn.tasks.flows import SmokeSettings
from pscnn.tasks.own import OwnSettings
from pscnn.tasks.shapes import ShapeSettings
from pscnn.tasks.volumes import VolumeSettings
from pscnn.training import ConfigError, TrainerSettings, run_name
from pscnn.training._settings import rate

MODERN = {"schedule": "cosine", "warmup": 0.1, "weight_decay": 0.05, "lr": 0.002}


def modern(**changes: Any) -> DoubleDigitSettings:
    return DoubleDigitSettings(**{**SMALL, "recipe": "modern", **changes})


def train(settings: TrainerSettings, root: Path, *stops: int | None) -> Path:
    folder = training.start(settings, root)
    for epochs in stops or (None,):
        training.train(folder, accelerator="cpu", progress=False, epochs=epochs)
    return folder


def saved(folder: Path, name: str) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(folder / name, weights_only=True)
    return state


@pytest.mark.parametrize("kind", [DoubleDigitSettings, VolumeSettings, ShapeSettings, SmokeSettings])
def test_the_modern_recipe_is_the_same_for_every_task(kind: type[TrainerSettings]) -> None:
    one = kind(recipe="modern")
    assert {name: getattr(one, name) for name in MODERN} == MODERN
    assert one.lr_decay == 1
    assert one.differing() == {"recipe": "modern"}
    assert getattr(one, "label_smoothing", 0.1) == 0.1
    assert one.batch_size == kind().batch_size


def test_the_papers_recipe_is_that_of_each_task() -> None:
    assert [kind().lr for kind in (DoubleDigitSettings, VolumeSettings, ShapeSettings)] == [5e-4, 5e-5, 2e-3]
    flow = SmokeSettings()
    assert (flow.lr, flow.lr_decay, flow.weight_decay) == (1e-3, 0.95, 4e-4)
    for one in (DoubleDigitSettings(), VolumeSettings(), ShapeSettings(), flow):
        assert (one.schedule, one.warmup, one.average) == ("constant", 0, 0)
        assert one.differing() == {}


def test_a_run_is_named_by_the_recipe_and_by_what_differs_from_it() -> None:
    one = DoubleDigitSettings(recipe="modern", lr=0.002, weight_decay=0.05)
    assert run_name(one) == "p-scnn-O2-O2-recipe=modern-seed0"
    assert run_name(replace(one, lr=5e-4)) == "p-scnn-O2-O2-lr=0.0005-recipe=modern-seed0"
    assert run_name(DoubleDigitSettings(schedule="cosine")) == "p-scnn-O2-O2-schedule=cosine-seed0"
    assert training.make_settings(one.to_dict()) == one


def test_the_rate_rises_and_falls_step_by_step() -> None:
    rates = [rate(modern(), step, 200) for step in range(200)]
    assert rates[:3] == pytest.approx([0.0001, 0.0002, 0.0003])
    assert max(rates) == rates[19] == rates[20] == 0.002
    assert rates[110] == pytest.approx(0.001)
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[20:]))
    assert 0 < rates[-1] < 1e-6
    assert rate(modern(warmup=0.0), 0, 200) == 0.002
    assert [rate(modern(warmup=1.0), step, 4) for step in range(4)] == pytest.approx([0.0005, 0.001, 0.0015, 0.002])
    paper = small(epochs=4, lr_decay=0.5)
    assert [rate(paper, step, 12) / paper.lr for step in range(12)] == [0.5 ** (step // 3) for step in range(12)]


def test_every_step_is_made_with_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = []
    step = torch.optim.AdamW.step

    def noted(self: torch.optim.AdamW, closure: Any = None) -> Any:
        used.extend({group["lr"] for group in self.param_groups})
        return step(self, closure)

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)
    train(modern(), tmp_path, 1, None)
    assert len(used) == 9  # three epochs of three batches, the first of them before the run was stopped
    assert used == [rate(modern(), k, 9) for k in range(9)]


@pytest.mark.parametrize("changes", [{}, {"average": 0.9}, {"average": 0.9, "select": "last"}])
def test_an_interrupted_modern_run_resumes_exactly(changes: dict[str, Any], tmp_path: Path) -> None:
    whole = train(modern(**changes), tmp_path / "whole")
    parts = train(modern(**changes), tmp_path / "parts", 1, 2, None)
    for name in ("last.ckpt", "best.ckpt"):
        first, second = (saved(folder, name) for folder in (whole, parts))
        assert first["state_dict"].keys() == second["state_dict"].keys()
        for part in ("state_dict", "trained"):
            for key, value in first.get(part, {}).items():
                assert torch.equal(value, second[part][key]), key
    results = [training.evaluate(folder, accelerator="cpu") for folder in (whole, parts)]
    assert {**results[0], "seconds": 0, "step_ms": 0} == {**results[1], "seconds": 0, "step_ms": 0}


def test_averaged_weights_are_tested_and_the_others_trained(tmp_path: Path) -> None:
    """Averaging changes what is tested and nothing about training."""
    plain, averaged = (train(modern(average=kept, select="last"), tmp_path) for kept in (0.0, 0.5))
    trained, found = saved(plain, "last.ckpt")["state_dict"], saved(averaged, "last.ckpt")
    assert all(torch.equal(found["trained"][name], value) for name, value in trained.items())
    name = next(name for name in trained if name.endswith("weight"))
    assert not torch.equal(found["state_dict"][name], trained[name])
    assert torch.equal(
        training.load(averaged).model.state_dict()[name.removeprefix("model.")], found["state_dict"][name]
    )
    assert "trained" not in saved(averaged, "best.ckpt")
    scores = [[row["validation/loss"] for row in training.history(folder)] for folder in (plain, averaged)]
    assert scores[0] != scores[1]
    losses = [[row["train/loss"] for row in training.history(folder)] for folder in (plain, averaged)]
    assert losses[0] == losses[1]


def test_the_average_is_that_of_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path: list[torch.Tensor] = []
    step = torch.optim.AdamW.step

    def noted(self: torch.optim.AdamW, closure: Any = None) -> Any:
        done = step(self, closure)
        path.append(self.param_groups[0]["params"][0].detach().clone())
        return done

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)
    folder = train(modern(average=0.3, epochs=2, select="last"), tmp_path)
    name = next(iter(dict(training.load(folder).model.named_parameters())))
    expected = path[0]
    for number, weight in enumerate(path[1:], 2):
        kept = min(0.3, (1 + number) / (10 + number))
        expected = kept * expected + (1 - kept) * weight
    torch.testing.assert_close(saved(folder, "last.ckpt")["state_dict"][f"model.{name}"], expected)


def test_labels_are_smoothed_in_training_only() -> None:
    learner = training.task_of(modern(label_smoothing=0.2)).learner()
    x, y = torch.randn(4, 1, 28, 28), torch.tensor([0, 1, 2, 3])
    learner.eval()
    scores = learner(x)
    smooth = -(0.8 * F.one_hot(y, 4) + 0.05) * F.log_softmax(scores, 1)
    torch.testing.assert_close(learner.task_loss(x, y), smooth.sum(1).mean())
    torch.testing.assert_close(learner.measure(x, y, "validation")["loss"], F.cross_entropy(scores, y))


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ConfigError, match="average cannot be used with exact alignment"):
        modern(average=0.9, alignment="exact")
    assert ShapeSettings(method="cnn", average=0.9).alignment == "exact"  # which has no effect there
    with pytest.raises(ConfigError, match="smoke has no setting 'label_smoothing'"):
        training.make_settings({"task": "smoke", "label_smoothing": 0.1})
    with pytest.raises(ConfigError, match="recipe must be one of paper, modern"):
        modern(recipe="secret")
    numbers = About((28, 28), 1, ("a",), "numbers", 0.0, 1.0, means=(0.0,), deviations=(1.0,)).to_json()
    assert OwnSettings(data="x", about=numbers, recipe="modern").label_smoothing == 0
    with pytest.raises(ConfigError, match="label_smoothing applies to classes"):
        OwnSettings(data="x", about=numbers, label_smoothing=0.1)

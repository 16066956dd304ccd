"""Methods that follow the course of training, and their settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import small, tiny

from pscnn import training
from pscnn.models import MEASURE_METHODS, METHODS, STRENGTHS, Constrained, Relaxed, read_kept
from pscnn.tasks.flows import JetFlowSettings, SmokeSettings
from pscnn.tasks.shapes import ShapeSettings
from pscnn.tasks.vectors import VectorSettings
from pscnn.training import ConfigError, make_settings

TIMES = {"seconds": 0, "step_ms": 0}


def trained(settings: Any, folder: Path, **how: Any) -> dict[str, Any]:
    run = training.start(settings, folder)
    return training.train(run, accelerator="cpu", progress=False, **how)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_trained_and_says_how_equivariant_it_is(method: str, tmp_path: Path) -> None:
    result = trained(tiny(method=method, epochs=2), tmp_path)
    assert result["step_ms"] > 0
    if method in ("scnn", "relaxation"):
        assert result["equivariance_error"] < 1e-5
    elif method in ("free", "twin", "rpp", "fixed", "ace", "projection"):
        assert result["equivariance_error"] > 1e-4


@pytest.mark.parametrize("method", ["relaxation", "ace", "interval", "augment", "augerino"])
def test_an_interrupted_run_of_any_method_resumes_exactly(method: str, tmp_path: Path) -> None:
    settings = small(method=method, group="O(2)")
    whole = training.start(settings, tmp_path / "whole")
    parts = training.start(settings, tmp_path / "parts")
    expected = training.train(whole, accelerator="cpu", progress=False)
    training.train(parts, accelerator="cpu", progress=False, epochs=1)
    torch.rand(5)
    found = training.train(parts, accelerator="cpu", progress=False)
    assert {**found, **TIMES} == {**expected, **TIMES}
    rows = [[{**row, **TIMES} for row in training.history(folder)] for folder in (whole, parts)]
    assert rows[0] == rows[1]


def test_training_tells_methods_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(Relaxed, "advance", lambda self, step, steps: seen.append((step, steps)))
    settings = small(method="relaxation", epochs=2, passes=2)
    trained(settings, tmp_path)
    data = training.Data(training.task_of(settings))
    layers = 6
    assert [step for step, _ in seen] == [step for step in range(2 * data.steps()) for _ in range(layers)]
    assert {steps for _, steps in seen} == {2 * data.steps()}


def test_multipliers_are_kept_with_the_network(tmp_path: Path) -> None:
    folder = training.start(small(method="ace"), tmp_path)
    training.train(folder, accelerator="cpu", progress=False)
    found = [m for m in training.load(folder).model.modules() if isinstance(m, Constrained)]
    assert len(found) == 6
    assert all(measure.multiplier > 0 for measure in found)


@pytest.mark.parametrize("method", ["ace", "interval", "augerino", "p-scnn"])
def test_what_measures_learn_does_not_decay(method: str) -> None:
    learner = training.task_of(tiny(method=method, weight_decay=0.1)).learner()
    decayed, spared = learner.make_optimizer().param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0)
    names = {id(p): name for name, p in learner.model.named_parameters()}
    assert {names[id(p)].split(".")[-1] for p in spared["params"]} <= {
        *("gamma", "angle", "reflection", "raw_width", "coefficients"),
    }
    assert all("likelihood" not in names[id(p)] for p in decayed["params"])
    assert len(decayed["params"]) + len(spared["params"]) == len(names)


def test_settings_of_methods() -> None:
    assert {method: tiny(method=method).strength for method in STRENGTHS} == STRENGTHS
    assert tiny(method="ace").differing().keys() & {"strength", "keep"} == set()
    assert tiny(method="ace", strength=2).density_options == {"strength": 2}
    assert tiny(method="fixed", keep="C4").density_options == {"keep": "C4"}
    assert tiny().density_options == {"alignment": "soft"}
    assert tiny(method="scnn").density_options == {}
    assert set(MEASURE_METHODS) > {"p-scnn", "free", "pe-mlp"}
    for method in ("free", "interval", "projection"):
        assert tiny(method=method, bandlimit=1).bandlimit == 1
    assert read_kept("C4").name == "C(4)"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"method": "p-scnn", "strength": 1.0},
            "strength has no effect with method p-scnn; it applies to projection or",
        ),
        (
            {"method": "scnn", "bandlimit": 3},
            "bandlimit has no effect with method scnn; it applies to p-scnn or projection",
        ),
        ({"method": "free", "kl_weight": 1.0}, "kl_weight has no effect with method free; it applies to p-scnn"),
        ({"method": "ace", "strength": 0}, "strength must be positive, got 0"),
        ({"method": "free", "keep": "C4"}, "keep has no effect with method free; it applies to fixed"),
        ({"method": "fixed", "keep": "some"}, "keep: keep must be a subgroup such as"),
        ({"method": "fixed", "group": "C4", "keep": "C3"}, r"keep: C\(3\) is not a subgroup of C\(4\)"),
        (
            {"method": "fixed", "group": "C4"},
            r"keep: Fixed: an angle to keep needs a continuous group, .*, got 45 and C\(4\)",
        ),
        (
            {"method": "fixed", "keep": "200"},
            r"keep: Fixed: an angle .* must lie between 0 and 180, got 200 and O\(2\)",
        ),
    ],
)
def test_settings_that_make_no_sense_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny(**changes)


def test_flows_take_measures_and_say_where_they_do_not_apply() -> None:
    assert SmokeSettings(method="projection", group="SO(2)").strength == STRENGTHS["projection"]
    assert not training.task_of(SmokeSettings(method="ace")).square_penalty
    assert training.task_of(SmokeSettings(method="rpp")).square_penalty
    with pytest.raises(ConfigError, match="augment turns whole fields, which must be square; those of jetflow are not"):
        JetFlowSettings(method="augment")
    with pytest.raises(
        ConfigError, match=r"group must be C\(4\) for lift, got SO\(2\): only rpp, rsteer, p-scnn, projection"
    ):
        SmokeSettings(method="lift", group="SO(2)")


def test_stored_settings_without_effect_are_left_out() -> None:
    values = {"task": "ddmnist", "method": "scnn", "kl_weight": 7.0, "bandlimit": 3}
    assert make_settings(values, stored=True) == replace(make_settings({"task": "ddmnist"}), method="scnn")
    with pytest.raises(ConfigError, match="has no effect"):
        make_settings(values)
    assert make_settings({"task": "vectors", "bandlimit": 3}, stored=True) == VectorSettings(bandlimit=3)


@pytest.mark.parametrize("method", ["relaxation", "ace"])
def test_volumes_are_trained_with_other_methods(method: str, tmp_path: Path) -> None:
    counts: dict[str, Any] = {"train_count": 4, "validation_count": 2, "test_count": 4}
    result = trained(ShapeSettings(method=method, group="SO(2)@z", epochs=1, batch_size=4, **counts), tmp_path)
    assert (result["equivariance_error"] < 1e-5) == (method == "relaxation")

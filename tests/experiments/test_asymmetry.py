"""Errors and densities as a known asymmetry grows, from the simulation to the figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import sheets_of
from typer.testing import CliRunner

from pscnn import likelihoods, training
from pscnn.cli import app
from pscnn.data import DataError, _windows, smoke
from pscnn.experiments import SHEETS, _flows
from pscnn.report import _pictures
from pscnn.tasks.flows import SmokeSettings
from pscnn.training import Store

TINY = SmokeSettings(width=2, layers=2, epochs=1, train_steps=2, test_steps=3)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four short simulations of three variants."""
    for name, value in {"STEPS": 24, "TASKS": (1, 2, 3, 4), "TRAIN_TASKS": (1, 2, 4), "DOMAIN_TASKS": (3,)}.items():
        monkeypatch.setattr(smoke, name, value)
    monkeypatch.setattr(smoke, "VARIANTS", (("push", 0.0), ("push", 2.0), ("box", 2.0)))
    starts = {"train": range(4), "validation": range(4, 6), "future": range(6, 8), "domain": range(3)}
    monkeypatch.setattr(_windows, "STARTS", starts)
    sheets = _flows.asymmetries(TINY)
    monkeypatch.setitem(SHEETS, "asymmetry", lambda: sheets)
    monkeypatch.setitem(SHEETS, "figure-asymmetry", lambda: [replace(one, picture="asymmetry") for one in sheets])


@pytest.mark.usefixtures("few")
def test_from_the_simulation_to_the_figure(tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path)]
    first = training.task_of(replace(TINY, asymmetry="box", asymmetry_strength=2.0))
    with pytest.raises(DataError, match="smoke --asymmetry box --strength 2 --data-dir"):
        first.load(tmp_path)
    done = CliRunner().invoke(app, ["data", "prepare", "asymmetry", *where])
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"smoke-symmetric", "smoke-push-2", "smoke-box-2"}
    store = Store(tmp_path / "runs")
    runs = sheets_of("asymmetry")[0].runs(1)
    assert len(runs) == 3 * 3
    for one in runs:
        result = training.train(store.start(one), tmp_path, accelerator="cpu", progress=False)
        windows = training.task_of(one).load(tmp_path)["future"]
        _, true = windows.frames(torch.arange(len(windows)), 3)
        assert result["future_relative"] == pytest.approx(result["future_rmse"] / true.square().mean().sqrt().item())
    for name in ("asymmetry", "figure-asymmetry"):
        done = CliRunner().invoke(app, ["reproduce", name, "--seeds", "1", "--runs", str(store.root), *where])
        assert done.exit_code == 0, done.output
    assert len(list((store.root / "figures").rglob("*.png"))) == 2


def test_variants_are_those_of_the_question() -> None:
    later, other = sheets_of("asymmetry")
    assert later.columns[:4] == ["none", "push 10 %", "push 50 %", "push 200 %"]
    assert later.rows == ["P-SCNN", "e2cnn", "CNN, equal size"]
    assert set(later.runs(2)) == set(other.runs(2))
    assert len(later.runs(2)) == 60


def test_the_departure_of_a_density_is_that_of_its_run(tmp_path: Path) -> None:
    model = training.task_of(TINY).build()
    torch.manual_seed(0)
    densities = {name: torch.nn.init.normal_(lam.coefficients, 0, 0.3) for name, lam in likelihoods(model).items()}
    arrays: dict[str, Any] = {name: value.detach().numpy() for name, value in densities.items()}
    np.savez(tmp_path / "densities.npz", **arrays)
    elements = [np.linalg.matrix_power(np.array([[0.0, -1.0], [1.0, 0.0]]), k) for k in range(4)]
    with torch.no_grad():
        expected = max(
            (lam.density(np.stack(elements)) - 1).abs().mean().item() / 2 for lam in likelihoods(model).values()
        )
    assert _pictures._departure(tmp_path, TINY) == pytest.approx(expected, rel=1e-5)
    assert expected > 0.01

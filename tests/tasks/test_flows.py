"""Forecasting: the roll-out, its loss and errors, and a whole run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import flow, sheet_of
from typer.testing import CliRunner

from pscnn import models, nn, training
from pscnn.cli import app
from pscnn.data import Windows, smoke
from pscnn.groups import rotation
from pscnn.report import html_report
from pscnn.tasks._forecasting import Forecasting
from pscnn.tasks.flows import JetFlow, JetFlowSettings, Smoke, SmokeSettings
from pscnn.training._settings import rate


@pytest.fixture
def few_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    velocity = flow(3, 30)
    found = {
        "train": Windows(velocity[:2], range(4)),
        "validation": Windows(velocity[:2], range(4, 6)),
        "future": Windows(velocity[:2], range(6, 8)),
        "domain": Windows(velocity[2:], range(3)),
    }
    monkeypatch.setattr(smoke, "load", lambda *_: found)


def tiny(**options: Any) -> SmokeSettings:
    start: dict[str, Any] = {"width": 2, "layers": 2, "epochs": 2, "batch_size": 4, "train_steps": 2, "test_steps": 3}
    return SmokeSettings(**{**start, **options})


def tiny_task(**options: Any) -> Smoke:
    return Smoke(tiny(**options))


@pytest.mark.parametrize("row", sheet_of("smoke").rows)
def test_training_starts_at_full_width_with_the_settings_of_the_table(row: str) -> None:
    config, _ = sheet_of("smoke").cells[row, "future"]
    assert isinstance(config, SmokeSettings)
    torch.manual_seed(0)
    model = models.build("flow", config.method, config.group, size=(6, 6), hidden=int(config.width))
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    frames = flow(4, 16, size=6)
    for _ in range(3):
        loss = (models.roll_out(model, frames[:, :10].flatten(1, 2), 6) - frames[:, 10:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert loss < 100 * frames[:, 10:].square().mean()  # which is the error of saying that nothing moves


@pytest.mark.parametrize(("method", "group"), [("p-scnn", "C(4)"), ("p-scnn", "SO(2)"), ("rpp", "C(4)")])
def test_kernels_are_expanded_once_per_forecast(method: str, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.build("flow", method, group, size=(8, 8), hidden=2, layers=3).double()
    past = torch.randn(2, 20, 8, 8, dtype=torch.float64)
    frames, slow = [], past
    for _ in range(3):
        frames.append(model(slow))
        slow = torch.cat([slow[:, 2:], frames[-1]], 1)
    calls: list[nn.SteerableMap] = []
    expand = nn.SteerableMap.kernel

    def counted(layer: nn.SteerableMap) -> torch.Tensor:
        calls.append(layer)
        return expand(layer)

    monkeypatch.setattr(nn.SteerableMap, "kernel", counted)
    found = models.roll_out(model, past, 3)
    assert len(calls) == 3  # layers
    torch.testing.assert_close(found, torch.stack(frames, 1))
    parameters = [p for p in model.parameters() if p.requires_grad]
    expected = torch.autograd.grad(torch.stack(frames, 1).square().sum(), parameters)
    for one, two in zip(torch.autograd.grad(found.square().sum(), parameters), expected, strict=True):
        torch.testing.assert_close(one, two)
    model(past)
    assert len(calls) == 6  # as ever afterwards
    with nn.expand_once(model):
        with torch.no_grad():
            model(past)
        last = model(past)  # a kernel that was made without gradients must not be used where there are some
        torch.autograd.grad(last.square().sum(), parameters)
        model.float()
        model(past.float())


def test_a_network_sees_its_own_frames() -> None:
    seen = []

    class Model(torch.nn.Module):
        def forward(self, past: torch.Tensor) -> torch.Tensor:
            seen.append(past)
            return past[:, -2:] + past[:, :2]

    past = torch.randn(3, 20, 4, 5)
    out = models.roll_out(Model(), past, 3)
    assert out.shape == (3, 3, 2, 4, 5)
    first = past[:, 18:] + past[:, :2]
    second = first + past[:, 2:4]
    torch.testing.assert_close(out, torch.stack([first, second, second + past[:, 4:6]], 1))
    assert torch.equal(seen[2], torch.cat([past[:, 4:], first, second], 1))


@pytest.mark.parametrize(("method", "group"), [("e2cnn", "C(4)"), ("p-scnn", "C(4)"), ("p-scnn", "SO(2)")])
def test_forecasts_turn_with_the_flow(method: str, group: str) -> None:
    """Space and vectors turn together, through all steps; densities are uniform at first."""
    torch.manual_seed(0)
    model = models.build("flow", method, group, hidden=3, layers=3, size=(9, 9)).double().eval()
    x = torch.randn(2, 20, 9, 9).double()
    quarter = torch.as_tensor(rotation(math.pi / 2))

    def turned(frames: torch.Tensor) -> torch.Tensor:  # (…, 2, H, W)
        return torch.einsum("ij,...jhw->...ihw", quarter, frames.rot90(1, (-2, -1)))

    past = turned(x.unflatten(1, (10, 2))).flatten(1, 2)
    straight, around = models.roll_out(model, x, 4), models.roll_out(model, past, 4)
    torch.testing.assert_close(around, turned(straight))
    assert (turned(straight) - straight).norm() > 0.1 * straight.norm()


def test_the_loss_is_a_sum_over_steps_and_the_penalty_is_squared() -> None:
    module = Forecasting(tiny_task(method="rpp"))
    x, y = torch.randn(4, 20, 64, 64), torch.randn(4, 2, 2, 64, 64)
    module.eval()
    terms = module.objective(x, y)
    errors = [(module.forecast(x, 2)[:, k] - y[:, k]).square().mean() for k in range(2)]
    torch.testing.assert_close(terms["task"], errors[0] + errors[1])
    penalty = models.penalty(module.model)
    assert penalty is not None
    torch.testing.assert_close(terms["penalty"], penalty.square())
    torch.testing.assert_close(terms["loss"], terms["task"] + terms["penalty"])


def test_the_optimiser_is_the_literatures() -> None:
    task = tiny_task()
    optimizer = Forecasting(task).make_optimizer()
    assert type(optimizer) is torch.optim.Adam
    assert [group["weight_decay"] for group in optimizer.param_groups] == [4e-4, 0.0]
    steps = 10 * task.settings.epochs
    assert [rate(task.settings, step, steps) for step in (9, 10)] == pytest.approx([1e-3, 0.95e-3])


@pytest.mark.usefixtures("few_windows")
def test_a_run_from_start_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Smoke, "evaluation_batch", 3)  # of 4 windows: the last batch is smaller
    folder = training.start(tiny(), tmp_path)
    assert folder.name.startswith("p-scnn-C4-forecast-train_steps=2-")
    result = training.train(folder, progress=False)
    assert result["data"] == training.Data(tiny_task()).digest
    model = training.load(folder).model
    for name, windows in smoke.load().items():
        if name in ("future", "domain"):
            past, following = windows.frames(torch.arange(len(windows)), 3)
            with torch.no_grad():
                mse = (models.roll_out(model, past, 3) - following).square().mean((0, 2, 3, 4))
            assert result[f"{name}_rmse"] == pytest.approx(mse.mean().sqrt().item(), rel=1e-5)
            assert result[f"{name}_rmse_by_step"] == pytest.approx(mse.sqrt().tolist(), abs=6e-5)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert result["validation_mse"] == min(row["validation/mse"] for row in rows)
    assert result["best_epoch"] == min(rows, key=lambda row: row["validation/mse"])["epoch"]
    assert not (folder / "confusion.npy").exists()
    page = html_report([folder]).read_text()
    assert "RMSE, later" in page
    assert "test accuracy" not in page
    for name in ("future", "domain"):
        assert f"{json.dumps(folder.name)}: {json.dumps(result[f'{name}_rmse_by_step'])}" in page
    assert page.count("data:image/gif;base64") == 1
    shown = CliRunner().invoke(app, ["evaluate", str(folder), "--accelerator", "cpu"]).output
    assert "domain rmse" in shown
    assert "by step" not in shown


@pytest.mark.usefixtures("few_windows")
def test_a_report_compares_runs_on_the_same_window(tmp_path: Path) -> None:
    folders = [training.start(tiny(method=method, epochs=1), tmp_path) for method in ("cnn", "e2cnn")]
    for folder in folders:
        training.train(folder, progress=False)
    page = html_report(folders).read_text()
    assert "Forecasts side by side" in page
    assert page.count("data:image/gif;base64") == 3
    assert "Forecasts side by side" not in html_report(folders[:1]).read_text()


@pytest.mark.usefixtures("few_windows")
def test_a_stopped_run_is_continued_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole, parts = (training.start(tiny(method="cnn"), tmp_path / name) for name in ("whole", "parts"))
    expected = training.train(whole, progress=False)
    assert training.train(parts, progress=False, epochs=1) == {}
    found = training.train(parts, progress=False)
    assert {k: v for k, v in found.items() if k not in ("seconds", "step_ms")} == {
        k: v for k, v in expected.items() if k not in ("seconds", "step_ms")
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": 4}, "kernel must be odd"),
        ({"layers": 1}, "layers must lie between 2 and 100"),
        ({"width": 2.5}, "width must be of type int, got 2.5"),
        ({"train_steps": 0}, "train_steps must lie between 1 and"),
        ({"method": "scnn"}, "method must be one of"),
        ({"nonlinearity": "fourier"}, "smoke has no setting 'nonlinearity' \\(ddmnist, .* have it\\)"),
        ({"balanced": True}, "smoke has no setting 'balanced'"),
        ({"method": "lift", "layers": 5, "width": 6}, "width must be a multiple of 4 for lift, got 6"),
        ({"group": "SO(3)"}, "needs a group of the plane"),
        ({"method": "e2cnn", "group": "SO(2)"}, "group must be C\\(4\\) for e2cnn"),
        (
            {"asymmetry_strength": 0.5},
            "no effect with the published asymmetry: use push, gravity, box",
        ),
        ({"asymmetry": "wind"}, "asymmetry must be one of published, push, gravity, box, got 'wind'"),
        ({"asymmetry": "box", "asymmetry_strength": 3.0}, "asymmetry_strength must be at most 2 for a box"),
        ({"method": "combo", "layers": 3}, "layers cannot be changed for combo"),
    ],
)
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(training.ConfigError, match=message):
        training.make_settings({**tiny().to_dict(), **options})


@pytest.mark.usefixtures("few_windows")
def test_forecasts_beyond_the_last_frame_are_refused_before_training() -> None:
    assert tiny_task(test_steps=11).load(None)
    with pytest.raises(training.ConfigError, match="future windows are followed by only 11 frames; cannot forecast 12"):
        tiny_task(test_steps=12).load(None)
    assert tiny_task(train_steps=3).load(None)
    with pytest.raises(
        training.ConfigError, match="forecasts of 4 steps would overlap with the frames of the test set future"
    ):
        tiny_task(train_steps=4).load(None)


def test_an_exported_network_takes_frames_that_are_not_square(tmp_path: Path) -> None:
    config = JetFlowSettings(method="cnn", width=2, layers=2)
    folder = training.start(config, tmp_path)
    torch.save({"state_dict": Forecasting(JetFlow(config)).state_dict()}, folder / "best.ckpt")
    program = torch.export.load(training.export_run(folder)).module()
    assert program(torch.zeros(5, 20, 62, 23)).shape == (5, 2, 62, 23)


@pytest.mark.usefixtures("few_windows")
@pytest.mark.parametrize("method", ["e2cnn", "relaxation", "projection", "ace", "interval", "augment", "augerino"])
def test_flows_are_forecast_with_any_relaxation(method: str, tmp_path: Path) -> None:
    group = "SO(2)" if method == "augerino" else "C4"
    folder = training.start(tiny(method=method, group=group, epochs=1), tmp_path)
    result = training.train(folder, accelerator="cpu", progress=False)
    assert (result["equivariance_error"] < 1e-5) == (method in ("e2cnn", "relaxation"))
    penalty = training.history(folder)[0].get("train/penalty")
    assert (penalty is None) == (method in ("e2cnn", "interval", "augment"))

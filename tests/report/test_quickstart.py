from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pscnn.cli import app
from pscnn.experiments import _quickstart


def test_quickstart_trains_the_networks_and_writes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {
        "epochs": 1,
        "train_per_class": 4,
        "validation_per_class": 2,
        "test_per_class": 2,
        "kinds": 2,
        "width": 0.1,
    }
    monkeypatch.setattr(_quickstart, "SETTINGS", {**_quickstart.SETTINGS, **quick})
    done = CliRunner().invoke(app, ["quickstart", "--runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for text in ("plain CNN", "plain CNN of equal size", "SCNN", "P-SCNN", "full height is λ", "report:"):
        assert text in done.output
    sizes = {}
    for run in (tmp_path / "ddmnist").glob("quickstart-*"):
        sizes[run.name] = json.loads((run / "result.json").read_text())["parameters"]
    ours = sizes["quickstart-p-scnn-seed0"]
    assert sizes["quickstart-cnn-seed0"] < 0.2 * ours
    assert sizes["quickstart-cnn-equal-seed0"] == pytest.approx(ours, rel=0.05)
    page = (tmp_path / "quickstart" / "report.html").read_text()
    assert page.count('class="run"') == 5
    assert page.count("<option value=") == 0  # one network has densities, so there is none to choose
    for label in ("partially equivariant (P-SCNN)", "equivariant (SCNN)", "plain CNN, width"):
        assert label in page

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import TINY_DIGITS
from typer.testing import CliRunner

from pscnn import training
from pscnn.cli import app
from pscnn.report._html import html_report
from pscnn.tasks.double_digits import DoubleDigitSettings


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
    text = (tmp_path / "r.html").read_text()
    for number, run in enumerate(runs, 1):
        assert f'<h2 id="run-{number}">{run.name}</h2>' in text
    page = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert page.count('class="figures densities"') == 2
    assert page.count("<svg") == 2
    assert page.count('class="figures confusion"') == 3
    assert "method: cnn" in page
    assert "on other digits" not in page  # which these runs have not seen
    for attribute in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert attribute.startswith(("#", "data:")), attribute  # nothing comes from a network


def test_reports_are_not_replaced(runs: list[Path]) -> None:
    first, second = html_report(runs[2:]), html_report(runs[2:])
    assert (first.name, second.name) == ("report.html", "report-2.html")
    assert first.parent == runs[2]


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


def test_reports_of_volumes_have_spheres(tmp_path: Path) -> None:
    settings = {"task": "shapes3d", "epochs": 1, "batch_size": 4, "group": "SO(3)", "lr": 0.05}
    counts = {"train_count": 6, "validation_count": 4, "test_count": 4}
    folder = training.start(training.make_settings({**settings, **counts}), tmp_path)
    training.train(folder, accelerator="cpu", progress=False)
    page = re.sub(r"<script>.*?</script>", "", html_report([folder]).read_text(), flags=re.DOTALL)
    assert page.count('class="figures spheres"') == 3
    assert page.count("<svg") == 1
    assert "shapes3d, chiral" in page
    shown = CliRunner().invoke(app, ["inspect", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert "groups of the plane" not in shown.output


def test_methods_without_densities_have_a_report(tmp_path: Path) -> None:
    runs = [finished(tmp_path, method=method) for method in ("ace", "rpp", "augment")]
    text = html_report(runs, tmp_path / "r.html").read_text()
    page = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert page.count("<h3>The measured error</h3>") == 2
    assert page.count("<svg") == 2
    assert page.count("How much of each kernel is not equivariant") == 3
    assert "Does the density match" not in page
    assert "γ = " in page

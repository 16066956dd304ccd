"""The command from people's own data to a report and an exported network."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from pscnn import experiments, training
from pscnn.cli import app
from pscnn.data import own
from pscnn.experiments import Discovery
from pscnn.experiments._discover import _engine, _networks, _plan
from pscnn.report import _discover as words_about


def pictures(root: Path, count: int = 10) -> Path:
    """Bright above or below: a task that no rotation keeps."""
    rng = np.random.default_rng(0)
    for label, rows in (("above", slice(0, 14)), ("below", slice(14, 28))):
        for k in range(count):
            image = rng.integers(0, 120, (28, 28), dtype=np.uint8)
            image[rows] += 100
            (root / label).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(root / label / f"{k}.png")
    return root


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plan, "STEPS", 4)
    monkeypatch.setattr(_plan, "SCOUT_STEPS", 2)
    monkeypatch.setattr(_networks, "RATES", (0.01,))
    monkeypatch.setattr(_networks, "MOST_EPOCHS", 1)


@pytest.mark.usefixtures("quick")
def test_discover_predict_and_export_on_a_folder_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = pictures(tmp_path / "sky")
    command = ["discover", str(source), "--width", "0.1", "--workers", "1", "--minutes", "1", "--accelerator", "cpu"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "reading" not in result.output  # a bar, which is for terminals
    assert "2 classes: 12 training, 4 validation, 4 test examples" in result.output
    assert "plan for 60 s with 1 process" in result.output
    assert "There are too few examples to say anything about symmetries." in result.output
    page = (tmp_path / "discover" / "sky" / "report.html").read_text()
    assert "What it costs to enforce a symmetry" in page
    assert "What the network does when examples are turned" in page
    assert "plain CNN" in page
    runs = {p.name.split("-O2")[0]: p for p in (tmp_path / "discover" / "sky" / "own").iterdir() if p.is_dir()}
    assert set(runs) == {"p-scnn", "cnn", "augment"}
    before = (runs["cnn"] / "result.json").stat().st_mtime
    assert CliRunner().invoke(app, ["report", str(tmp_path / "discover" / "sky")]).output.endswith("report-2.html\n")
    assert "What it costs" in (tmp_path / "discover" / "sky" / "report-2.html").read_text()
    monkeypatch.setattr(words_about, "write_discovery", lambda found: found)
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (runs["cnn"] / "result.json").stat().st_mtime == before  # nothing is trained again

    run = str(runs["p-scnn"])
    (tmp_path / "bad.png").write_text("no image")
    said = CliRunner().invoke(
        app, ["predict", run, str(source / "above"), str(tmp_path / "bad.png"), "--out", "answers.csv"]
    )
    assert said.exit_code == 1
    assert "bad.png is damaged" in said.output
    assert len(Path("answers.csv").read_text().splitlines()) == 11
    for kind, file in (("torch", "model.pt2"), ("onnx", "model.onnx")):
        done = CliRunner().invoke(app, ["export", run, "--format", kind])
        assert done.exit_code == 0, done.output
        assert (runs["p-scnn"] / file).exists()
    assert "exists" in CliRunner().invoke(app, ["export", run]).output
    whole = tmp_path / "discover" / "sky"
    found = Discovery.read(whole)
    assert found.recommended is not None
    answered = CliRunner().invoke(app, ["predict", str(whole), str(source / "above" / "0.png"), "--json"])
    assert f"the network that {whole} recommends: {whole / found.recommended.run}" in answered.stderr
    assert len(json.loads(answered.stdout)) == 1
    exported = CliRunner().invoke(app, ["export", str(whole), "--out", str(tmp_path / "best.pt2")])
    assert exported.exit_code == 0, exported.output
    inspected = CliRunner().invoke(app, ["inspect", str(whole)])
    assert f"the network that {whole} recommends" in inspected.stderr
    every = CliRunner().invoke(app, ["predict", str(whole), str(source), "--json"])  # in the folders of classes
    assert len(json.loads(every.stdout)) == 20
    (tmp_path / "begun").mkdir()
    replace(found, networks=[]).save(tmp_path / "begun")
    refused = CliRunner().invoke(app, ["export", str(tmp_path / "begun")])
    assert refused.exit_code == 1
    assert f"no network is finished in {tmp_path / 'begun'}" in refused.output
    model = training.load(run).model
    about = training.read_task(run).settings.holds
    x = own.read_example(source / "above" / "0.png", about)[None]
    torch.save(x, tmp_path / "x.pt")
    code = (
        "import sys; sys.modules['pscnn'] = None\n"
        f"import torch; x = torch.load({str(tmp_path / 'x.pt')!r})\n"
        f"y = torch.export.load({str(runs['p-scnn'] / 'model.pt2')!r}).module()(x)\n"
        "import onnxruntime, numpy\n"
        f"s = onnxruntime.InferenceSession({str(runs['p-scnn'] / 'model.onnx')!r})\n"
        "z = s.run(None, {'input': x.numpy()})[0]\n"
        "import json; print(json.dumps([y.tolist(), z.tolist()]))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    wanted = model(x).detach()
    for got in json.loads(printed):
        torch.testing.assert_close(torch.tensor(got), wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("quick")
def test_an_interruption_in_the_table_gives_a_report_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second(kind: str, *arguments: Any) -> Any:
        if kind == "cnn":
            raise KeyboardInterrupt
        return _networks.train_network(kind, *arguments)

    monkeypatch.setattr(_engine, "train_network", second)
    command = ["discover", str(pictures(tmp_path / "sky")), "--width", "0.1", "--workers", "1", "--minutes", "0.5"]
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out"), "--accelerator", "cpu"])
    assert result.exit_code == 130, result.output
    assert "interrupted: this is the answer so far; the same command continues" in result.output
    assert (tmp_path / "out" / "report.html").exists()


def test_prepared_data_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = experiments.prepared_file(pictures(tmp_path / "sky"), tmp_path / "prepared")

    def asked(data: Any, **how: Any) -> None:
        assert (data, how["out"]) == (path, None)
        raise training.ConfigError("asked")

    monkeypatch.setattr(experiments, "discover", asked)
    assert "asked" in CliRunner().invoke(app, ["discover", str(path)]).output
    result = CliRunner().invoke(app, ["discover", str(path), "--size", "20"])
    assert result.exit_code == 2
    assert "is prepared already: --size would have no effect" in result.output
    assert "--split-seed would have" in CliRunner().invoke(app, ["discover", str(path), "--split-seed", "0"]).output


def test_the_folder_of_an_answer_is_called_after_the_data_and_not_among_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pictures(tmp_path / "sky")
    monkeypatch.chdir(source / "above")
    assert experiments.folder_of("../../sky.csv", None) == Path("discover") / "sky"
    assert experiments.folder_of((np.zeros(3), np.zeros(3)), None) == Path("discover") / "data"
    for words in (["..", "--minutes", "1"], [str(source), "--out", str(source / "answer")], ["..", "--out", "."]):
        result = CliRunner().invoke(app, ["discover", *words])
        assert result.exit_code == 1
        assert "is a folder within the data" in " ".join(result.output.split())
    assert {path.name for path in source.iterdir()} == {"above", "below"}
    assert not (source / "above" / "discover").exists()
    monkeypatch.chdir(tmp_path)
    assert experiments.folder_of("sky/above/..", None) == Path("discover") / "sky"


def test_data_that_cannot_be_used_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    source = pictures(tmp_path / "sky", count=3)
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["discover", str(source), "--out", str(out)])
    assert result.exit_code == 1
    assert "the class 'above' has 3 examples; at least 5 are needed" in result.output
    assert not out.exists()
    assert CliRunner().invoke(app, ["discover", str(source), "--out", str(out / "deep" / "down")]).exit_code == 1
    assert not out.exists()
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["discover", str(source), "--out", str(tmp_path / "file" / "below")])
    assert result.exit_code == 1
    assert "cannot create the folder" in result.output

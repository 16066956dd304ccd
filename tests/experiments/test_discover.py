"""Symmetries of people's own data: the budget, the choice and its certainty, and the command from data to export."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from pscnn import models, training
from pscnn.cli import app
from pscnn.data import own
from pscnn.experiments import _discover
from pscnn.report import _discover as words_about

ALL = ("scnn", "p-scnn", "cnn")


def scores(**rates: float) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    names = dict(zip(ALL, (rates["s"], rates["p"], rates["c"]), strict=True))
    return {name: [(rng.random(300) < rate).astype(float) for _ in range(3)] for name, rate in names.items()}


def test_the_most_symmetric_network_is_chosen_unless_another_is_better_for_sure() -> None:
    for rates, method, sure in (
        ({"s": 0.9, "p": 0.9, "c": 0.6}, "scnn", False),
        ({"s": 0.5, "p": 0.9, "c": 0.7}, "p-scnn", True),
        ({"s": 0.5, "p": 0.7, "c": 0.95}, "cnn", True),
        ({"s": 0.9, "p": 0.7, "c": 0.6}, "scnn", True),
    ):
        choice, gaps = _discover.choose(scores(**rates))
        assert (choice.method, choice.sure) == (method, sure)
        assert {frozenset((gap.first, gap.second)) for gap in gaps} == {
            frozenset(pair) for pair in (("scnn", "p-scnn"), ("scnn", "cnn"), ("p-scnn", "cnn"))
        }


def test_the_interval_is_that_of_a_mean() -> None:
    rng = np.random.default_rng(1)
    found = {"p-scnn": [rng.standard_normal(400)], "scnn": [np.zeros(400)]}
    gap = _discover.difference("p-scnn", "scnn", found)
    half = 1.96 * found["p-scnn"][0].std() / 20
    assert gap.mean == pytest.approx(found["p-scnn"][0].mean())
    assert (gap.high - gap.low) / 2 == pytest.approx(half, rel=0.1)


def test_epochs_fill_the_budget_and_too_small_ones_are_refused() -> None:
    per_epoch = {"scnn": 2.0, "p-scnn": 3.0, "cnn": 1.0}
    alone, two = (_discover._epochs(per_epoch, 10, 3, workers) for workers in (1, 2))
    assert alone == int((0.8 * 600 / 3 - 15) / 6)
    assert two == int((0.8 * 600 / 3 - 15) / 3)
    with pytest.raises(training.ConfigError, match=r"1 minutes are too few: .* Give --minutes 2 or more"):
        _discover._epochs(per_epoch, 1, 3, 2)


def test_receptive_fields_are_those_of_kernels_and_strides() -> None:
    holds = own.About(2, 56, 1, ("a", "b"), False, 0.0, 1.0)
    model = models.build("ddmnist", "p-scnn", "SO(2)", size=56, width=0.1)
    found = list(_discover.receptive_fields(model, holds).values())
    # 7, then 5, 5 (pooling, to stride 2), 3 (to 4), 5 (to 8), 3 (to 16), ...; resizing adds a pixel or two
    expected, seen, stride = [], 1, 1
    for kernel, step, has_density in ((7, 1, 1), (5, 1, 1), (5, 2, 0), (3, 2, 1), (5, 2, 0), (3, 2, 1)):
        seen += (kernel - 1) * stride
        stride *= step
        if has_density:
            expected.append(min(seen, 56))
    assert len(found) == 6
    for got, wanted in zip(found, expected, strict=False):
        assert 0 <= got - wanted <= 2 or got == 56


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
def one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_discover, "FEWEST_EPOCHS", 1)
    monkeypatch.setattr(_discover, "MOST_EPOCHS", 1)


@pytest.mark.usefixtures("one_pass")
def test_discover_predict_and_export_on_a_folder_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = pictures(tmp_path / "sky")
    command = ["discover", str(source), "--width", "0.1", "--seeds", "1", "--workers", "1", "--minutes", "5"]
    command += ["--accelerator", "cpu"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "2 classes: 12 training, 4 validation, 4 test examples" in result.output
    page = (tmp_path / "discover" / "sky" / "report.html").read_text()
    assert "Answer" in page
    assert "plain CNN" in page
    runs = {p.name.split("-O2")[0]: p for p in (tmp_path / "discover" / "sky" / "own").iterdir() if p.is_dir()}
    assert set(runs) == set(ALL)
    before = (runs["cnn"] / "result.json").stat().st_mtime
    monkeypatch.setattr(words_about, "write_discovery", lambda found, out: out)
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
    model = training.load(run).model
    about = training.read_task(run).settings.holds  # type: ignore[attr-defined]
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


def test_data_that_cannot_be_used_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    source = pictures(tmp_path / "sky", count=3)
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["discover", str(source), "--out", str(out)])
    assert result.exit_code == 1
    assert "the class 'above' has 3 examples; at least 5 are needed" in result.output
    assert not out.exists()
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["discover", str(source), "--out", str(tmp_path / "file" / "below")])
    assert result.exit_code == 1
    assert "cannot create the folder" in result.output


def test_volumes_and_regressions_are_exported_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "v.npz", images=rng.random((12, 16, 16, 16)), labels=rng.random((12, 2)))
    about = own.prepare(tmp_path / "v.npz", tmp_path / "data.npz")
    config = training.make_settings(
        {"task": "own-volumes-regression", "data": str(tmp_path / "data.npz"), "group": "SO(3)", "epochs": 1}
    )
    run = training.start(config, tmp_path / "runs")
    result = training.train(run, accelerator="cpu", progress=False)
    assert np.isfinite(result["test_rmse"])
    for kind in ("torch", "onnx"):
        assert training.export_run(run, kind=kind).exists()
    np.save(tmp_path / "one.npy", rng.random((16, 16, 16)))
    ((_, answer),) = training.answers(run, [tmp_path / "one.npy"])
    assert set(answer) == set(about.names)  # type: ignore[arg-type]


def finding(method: str, rates: dict[str, float], *, kept: float, regression: bool = False) -> words_about.Discovery:
    holds = own.About(2, 28, 1, ("a", "b"), regression, 0.0, 1.0, counts=(10, 300, 10), source="sky")
    found = scores(**rates)
    choice, gaps = _discover.choose(found)
    assert choice.method == method
    first = words_about.LayerFinding("1 (2)", 8, ("O(2)",), {"O(2)": (0.9, 0.8, 1.0), "SO(2)": (0.95, 0.9, 1.0)})
    second = words_about.LayerFinding(
        "2 (4)", 12, ("O(2)",) if kept > 0.8 else ("SO(2)",), {"O(2)": (kept, kept, kept), "SO(2)": (0.9, 0.9, 0.9)}
    )
    means = {name: [float(s.mean()) for s in found[name]] for name in found}
    return words_about.Discovery(
        holds, "O(2)", {}, means, means, dict.fromkeys(ALL, 10), 0.5, choice, gaps, [first, second]
    )


def test_the_answer_in_words() -> None:
    partly = " ".join(words_about.discovery_words(finding("p-scnn", {"s": 0.6, "p": 0.95, "c": 0.7}, kept=0.3)))
    assert "Use the partially equivariant (P-SCNN) network." in partly
    assert "Patterns of up to 8 of 28 pixels keep O(2)." in partly
    assert "In layer 2 (4), which sees 12 of 28 pixels, O(2) is given up (kept to 30%" in partly
    assert "what is kept there: SO(2) 90%." in partly
    whole = " ".join(words_about.discovery_words(finding("scnn", {"s": 0.995, "p": 0.99, "c": 0.7}, kept=0.9)))
    assert "The task keeps the symmetry O(2)" in whole
    unsure = finding("scnn", {"s": 0.8, "p": 0.82, "c": 0.7}, kept=0.9)
    assert "Nothing here speaks against the symmetry O(2)" in " ".join(words_about.discovery_words(unsure))
    nothing = words_about.discovery_words(finding("scnn", {"s": 0.5, "p": 0.5, "c": 0.5}, kept=0.9))
    assert len(nothing) == 1
    assert "nothing can be said" in nothing[0]

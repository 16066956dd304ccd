"""The task of people's own data with every kind of target: networks, training, predictions, export."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pscnn import training
from pscnn.data import own
from pscnn.groups import explored, parse
from pscnn.report import _explore
from pscnn.tasks.own import OwnSettings

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 255, (12, 9, 11), dtype=np.uint8)
TARGETS: dict[str, Any] = {
    "classes": np.arange(12) % 2,
    "labels": np.array([[1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0]] * 3),
    "numbers": RNG.normal(size=(12, 2)) + 3,
    "vectors": RNG.normal(size=(12, 2)) * 5,
    "masks": (IMAGES > 100) * 7,
}
SCORES = {"classes": "accuracy", "labels": "auc", "numbers": "rmse", "vectors": "rmse", "masks": "iou"}


def prepared(kind: str, tmp_path: Path, images: np.ndarray = IMAGES) -> Path:
    out = tmp_path / f"{kind}.npz"
    own.prepare((images, TARGETS[kind]), out, target=kind)
    return out


@pytest.mark.parametrize("kind", own.KINDS)
def test_every_kind_of_target_is_learnt_predicted_and_exported(kind: str, tmp_path: Path) -> None:
    path = prepared(kind, tmp_path)
    about = own.read_about(path)
    method = "p-scnn" if kind in ("vectors", "masks") else "cnn"
    one = OwnSettings(data=str(path), method=method, group="C4", width=0.125, epochs=1, batch_size=4)
    folder = training.start(one, tmp_path / "runs")
    result = training.train(folder, accelerator="cpu", progress=False)
    assert math.isfinite(result[f"test_{SCORES[kind]}"])
    assert result["validation_" + training.read_task(folder).metric.name] is not None
    Image.fromarray(IMAGES[0]).save(tmp_path / "one.png")
    task, model = training.load(folder)
    with torch.no_grad():
        said = model(own.read_example(tmp_path / "one.png", about)[None])[0]
    places = {"masks": about.shape}.get(kind, ())
    assert said.shape == (len(about.names), *places)
    ((_, answer),) = training.answers(folder, [tmp_path / "one.png"])
    assert isinstance(answer, dict)
    wanted = task.target.answer(said)  # type: ignore[union-attr]
    assert answer == {name: pytest.approx(value) for name, value in wanted.items()}
    exported = torch.export.load(training.export_run(folder)).module()
    x = torch.randn(2, *task.input_shape)
    torch.testing.assert_close(exported(x), model(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_a_test_without_pairs_has_no_area_under_a_curve_and_did_not_diverge(kind: str, tmp_path: Path) -> None:
    images = RNG.integers(0, 255, (12, 9, 9, 9) if kind == "classes" else (12, 9, 11), dtype=np.uint8)
    values = TARGETS[kind]
    alike = np.repeat(values[:1], 12, 0)
    splits = {"train": (images, values), "val": (images, values), "test": (images, alike)}
    own.prepare(splits, tmp_path / "data.npz", target=kind)
    one = OwnSettings(data=str(tmp_path / "data.npz"), method="cnn", width=0.125, epochs=1, batch_size=4)
    result = training.train(training.start(one, tmp_path / "runs"), accelerator="cpu", progress=False)
    assert "test_auc" not in result
    assert math.isfinite(result["test_accuracy"])
    assert not training.diverged(result)


def test_predicted_masks_are_written_in_the_shape_and_values_of_the_users(tmp_path: Path) -> None:
    path = prepared("masks", tmp_path)
    one = OwnSettings(data=str(path), method="cnn", width=0.125, epochs=1, batch_size=4)
    folder = training.start(one, tmp_path / "runs")
    training.train(folder, accelerator="cpu", progress=False)
    Image.fromarray(RNG.integers(0, 255, (20, 15), dtype=np.uint8)).save(tmp_path / "one.png")
    ((_, answer),) = training.answers(folder, [tmp_path / "one.png"], tmp_path / "masks")
    assert isinstance(answer, dict)
    with Image.open(answer.pop("mask")) as image:
        mask = np.asarray(image)
    assert mask.shape == (20, 15)
    assert {*np.unique(mask).tolist()} <= {0, 7}
    assert answer == {"0": pytest.approx((mask == 0).mean()), "7": pytest.approx((mask == 7).mean())}
    ((_, again),) = training.answers(folder, [tmp_path / "one.png"], tmp_path / "masks")
    assert "exists; choose another folder for masks" in str(again)


@pytest.mark.parametrize(("kind", "group"), [("vectors", "D4"), ("masks", "D2"), ("numbers", "D4"), ("labels", "D2")])
def test_networks_for_other_shapes_transform_as_their_targets(kind: str, group: str, tmp_path: Path) -> None:
    """At the start, for symmetries of the grid; quarter turns would exchange the sides of an oblong."""
    square = IMAGES[:, :, :9] if group == "D4" else IMAGES
    path = prepared(kind, tmp_path, square)
    task = training.task_of(OwnSettings(data=str(path), group=group, width=0.125, bandlimit=1))
    torch.manual_seed(0)
    model = task.learner().model.eval()
    found = task.field_types()
    assert found is not None
    source, output = found
    x = torch.randn(2, *task.input_shape)
    with torch.no_grad():
        said = model(x)
        assert (said[0] - said[1]).abs().max() > 1e-4  # it looks at its input
        for element in parse(group).quadrature(4)[0]:
            wanted = said if output is None else output.transform(said, element)
            torch.testing.assert_close(model(source.transform(x, element)), wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("shape", [(9, 30), (64, 40), (8, 9, 12)])
def test_there_is_a_network_for_any_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = RNG.integers(0, 255, (12, *shape), dtype=np.uint8)
    path = prepared("classes", tmp_path, images)
    for method in ("cnn", "scnn"):
        one = OwnSettings(data=str(path), method=method, group="C4" if len(shape) == 2 else "C4@z", width=1)
        task = training.task_of(one)
        assert task.build()(torch.randn(2, *task.input_shape)).shape == (2, 2)


def test_what_no_network_is_for_is_one_sentence(tmp_path: Path) -> None:
    path = prepared("classes", tmp_path, IMAGES[:, :7])
    with pytest.raises(training.ConfigError, match="no network is for a side of 7 pixels: give 8 or more"):
        training.task_of(OwnSettings(data=str(path))).build()
    path = prepared("labels", tmp_path)
    with pytest.raises(training.ConfigError, match="balanced applies to classes, but these data are for labels"):
        OwnSettings(data=str(path), balanced=True)


def test_prepared_files_and_settings_of_earlier_versions_are_understood(tmp_path: Path) -> None:
    old = {"dimension": 2, "size": 28, "channels": 1, "names": ["a", "b"], "regression": False, "low": 0.0, "high": 1.0}
    old |= {"means": [], "deviations": [], "counts": [2, 1, 1], "notes": [], "source": "d"}
    pixels, split = np.zeros((4, 1, 28, 28), np.float16), np.array([0, 0, 1, 2], np.uint8)
    path = tmp_path / "old.npz"
    np.savez_compressed(path, about=json.dumps(old), pixels=pixels, targets=np.arange(4) % 2, split=split)
    stored = {"task": "own", "data": str(path), "about": json.dumps(old), "size": 28, "group": "C4", "width": 0.05}
    task = training.task_of(training.make_settings(stored, stored=True))
    assert len(task.load(None)["train"]) == 2
    assert task.input_shape == (1, 28, 28)
    assert len(list(task.build().children())) > 5  # the network for double digits, not a residual one
    Image.fromarray(IMAGES[0]).save(tmp_path / "one.png")
    assert task.files is not None
    assert own.read_example(tmp_path / "one.png", task.files).shape == (1, 28, 28)  # resized, as it was then


@pytest.mark.parametrize("kind", ["labels", "masks"])
def test_reports_show_answers_of_every_kind(kind: str, tmp_path: Path) -> None:
    task = training.task_of(OwnSettings(data=str(prepared(kind, tmp_path)), method="cnn", group="C2", width=0.125))
    split = task.load(None)["train"]
    x, y = task.batch("train", split, torch.arange(3), 0)
    found = _explore.tried({"plain": (task, task.build().eval())}, x, y, explored(parse("C2")))
    assert found["targets"] == list(own.read_about(prepared(kind, tmp_path)).names)
    values = np.array(found["networks"][0]["values"]).reshape(3, 2, len(found["targets"]))
    assert ((values >= 0) & (values <= 1)).all()
    if kind == "masks":
        assert values.sum(2) == pytest.approx(np.ones((3, 2)))
        assert [sum(map(float, one["true"].split(", "))) for one in found["examples"]] == pytest.approx(
            [1] * 3, abs=0.02
        )

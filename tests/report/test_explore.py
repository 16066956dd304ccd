"""What pages know about networks at some elements."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
import torch
from helpers import TINY_DIGITS, random_likelihood
from PIL import Image

from pscnn import likelihoods, training
from pscnn.data import transform
from pscnn.groups import O2, O3, SO3, C, D, Group, axis_angle, explored, rotation
from pscnn.groups._explored import AXES, SPACE_STEPS
from pscnn.report import _explore
from pscnn.report._spheres import globe


@pytest.mark.parametrize("group", [C(4), D(3), O2(), O2().about((0, 0, 1)), SO3(), O3()], ids=lambda g: g.name)
def test_elements_are_what_their_words_say(group: Group) -> None:
    found = explored(group)
    assert group.contains(found.matrices)
    words = found.words()
    assert len(words) == len(found.matrices) == len(found.axes) * len(found.sides) * len(found.angles)
    for h, said in zip(found.matrices, words, strict=True):
        if said.startswith("mirror line") and len(h) == 2:
            along = np.radians(float(said.removeprefix("mirror line at ").rstrip("°")))
            line = np.array([np.cos(along), np.sin(along)])
            np.testing.assert_allclose(h @ line, line, atol=1e-9)
        elif said.startswith("rotation") and len(h) == 2:
            np.testing.assert_allclose(h, rotation(np.radians(float(said.split()[2].rstrip("°")))), atol=1e-9)
        elif len(found.axes) > 1:
            sign = -1 if said.startswith("point reflection") else 1
            turn = axis_angle(np.array([AXES[said[-1]]]), np.radians(float(said.split("°")[0].split()[-1])))[0]
            np.testing.assert_allclose(h, sign * turn, atol=1e-9)


def test_globes_hold_the_density_as_bytes() -> None:
    lam = random_likelihood(O3(), 1)
    highest = lam.density(lam.grid()[0]).max().item()
    found = globe(lam, highest, points=6, angles=5)
    values = np.frombuffer(base64.b64decode(found["bytes"]), np.uint8).reshape(found["shape"])
    longitude, latitude = np.radians([-180 + 30 * 7.5, -90 + 30 * 4.5])
    axis = [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
    for side, sign in enumerate((1, -1)):
        expected = lam.density(sign * axis_angle(np.array([axis]), np.pi / 4)).item() / highest
        assert values[side, 1, 4, 7] == pytest.approx(min(255, 255 * expected), abs=0.51)


def test_layers_and_answers_are_those_of_the_network() -> None:
    task = training.task_of(training.make_settings(TINY_DIGITS))
    model = task.build().eval()
    torch.manual_seed(0)
    for likelihood in likelihoods(model).values():
        likelihood.coefficients.data.normal_(0, 0.3)
    split = task.load(None)["test"]
    x, y = task.batch("test", split, torch.arange(7), 0)
    elements = explored(O2())
    layers = _explore.layers_of(model, task, x, elements)
    assert [row["sees"] for row in layers] == sorted(row["sees"] for row in layers)
    assert layers[-1]["sees"] <= 28
    for row in layers:
        assert max(row["shares"]) <= 1
        assert row["errors"][0] == pytest.approx(0, abs=1e-3)  # at the identity
        assert len(row["errors"]) == len(elements.matrices)
    tried = json.loads(json.dumps(_explore.tried({"ours": (task, model)}, x, y, elements)))
    assert len(tried["examples"]) == _explore.SHOWN
    with torch.no_grad():
        said = model(transform(x[2:3], torch.from_numpy(elements.matrices[30]))).softmax(-1)[0]
    shown = slice(3 * 30, 3 * 30 + 3)
    top = said.topk(3)
    assert tried["networks"][0]["classes"][2][shown] == top.indices.tolist()
    assert tried["networks"][0]["percents"][2][shown] == pytest.approx((100 * top.values).tolist(), abs=0.51)
    picture = Image.open(io.BytesIO(base64.b64decode(tried["examples"][2]["src"].split(",")[1])))
    scaled = (x[2, 0] - x[:6].min()) / (x[:6].max() - x[:6].min()) * 255
    np.testing.assert_allclose(np.asarray(picture), scaled.numpy(), atol=0.51)


def test_numbers_that_are_none_are_valid_json() -> None:
    assert _explore.numbers([float("nan"), 0.123456, float("inf")]) == [None, 0.12346, None]
    assert SPACE_STEPS % 4 == 0  # a quarter turn is among them

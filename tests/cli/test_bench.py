"""The command that measures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pscnn.cli import app

SMALL = ["--batch", "2", "--rounds", "2", "--device", "cpu"]


def test_networks_are_compared_with_their_twin(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    arguments = ["bench", "--group", "C(4)", "--size", "28", "--width", "0.1", *SMALL, "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "p-scnn" in done.output
    (result,) = json.loads(out.read_text())["results"]
    for found in result["networks"].values():
        assert len(found["train_ms"]) == len(found["infer_ms"]) == 2
        assert min(found["train_ms"]) > 0
    assert result["case"]["group"] == "C(4)"
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 1
    assert "exists; choose another" in " ".join(again.output.split())


def test_every_method_can_be_measured(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    methods = ["relaxation", "ace", "interval", "augment", "rpp"]
    chosen = [word for name in methods for word in ("--method", name)]
    done = CliRunner().invoke(app, ["bench", "--size", "28", "--width", "0.1", *chosen, *SMALL, "--out", str(out)])
    assert done.exit_code == 0, done.output
    (result,) = json.loads(out.read_text())["results"]
    assert [*result["networks"]] == ["twin", *methods]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--group", "X"], "unknown group 'X'"),
        (["--precision", "fp8"], "unknown precision 'fp8'"),
        (["--nonlinearity", "relu"], "unknown nonlinearity 'relu': use one of gated, gated-fields"),
        (["--method", "twin"], "unknown method 'twin': use one of cnn, scnn"),
        (["--group", "SO(3)", "--method", "restricted"], "unknown method 'restricted'"),
        (["--device", "tpu"], "cannot measure on 'tpu'"),
        (["--size", "33"], "networks over O(2) exist for side lengths 28, 56, got 33"),
        (["--group", "SO(3)", "--size", "56"], "networks over SO(3) exist for side lengths 16, 28, 64, got 56"),
    ],
)
def test_what_cannot_be_measured_is_named(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["bench", *arguments])
    assert done.exit_code == 1
    assert message in " ".join(done.output.split())

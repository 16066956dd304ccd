"""Timings: that they are taken and compared, not what they are."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from pscnn.cli import app
from pscnn.experiments import _bench, _escnn, ratio
from pscnn.experiments._sheets import weights_of

SMALL = ["--batch", "2", "--rounds", "2", "--device", "cpu"]


def test_volumes_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_bench, "STEPS", 1)
    methods = [word for name in ("p-scnn", "cnn", "augment") for word in ("--method", name)]
    done = CliRunner().invoke(app, ["bench", "--group", "SO(3)", "--size", "16", "--width", "1", *methods, *SMALL])
    assert done.exit_code == 0, done.output
    assert "SO(3), gated, batch 2, fp32, eager" in done.output


def test_plain_networks_are_as_large_as_the_others() -> None:
    for group, width, size in (("SO(3)", 2.0, 28), ("SO(3)", 1.0, 16), ("O(2)", 0.3, 28)):
        case = _bench.BenchCase(group, width=width, size=size)
        ours, plain, turned = (weights_of(_bench._network(case, name)) for name in ("p-scnn", "cnn", "augment"))
        assert plain == turned
        assert abs(plain / ours - 1) < 0.2


def test_another_library_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TypeError("no such group\nin any version")

    monkeypatch.setattr(_bench, "STEPS", 1)
    monkeypatch.setattr(_escnn, "available", lambda: True)
    monkeypatch.setattr(_escnn, "EscnnDoubleDigits", fail)
    done = CliRunner().invoke(app, ["bench", "--group", "C(4)", "--size", "28", "--width", "0.1", *SMALL])
    assert done.exit_code == 0, done.output
    assert "TypeError: no such group" in " ".join(done.output.split())


def test_a_ratio_is_one_of_medians() -> None:
    networks = {"twin": {"train_ms": [1, 2, 30]}, "p-scnn": {"train_ms": [3, 4, 50]}}
    assert ratio({"networks": networks}, "p-scnn", "train_ms") == 2

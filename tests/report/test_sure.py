"""Intervals, and what kinds of networks are called."""

from __future__ import annotations

import pytest
from helpers import TINY_DIGITS
from scipy import stats

from pscnn import training
from pscnn.report._sure import interval, network_labels, untested


def test_intervals_are_those_of_scipy() -> None:
    one = interval([0.9], 50)
    low, high = stats.binomtest(45, 50).proportion_ci(method="wilson")
    assert (one["low"], one["high"]) == pytest.approx((low, high), abs=1e-4)
    values = [0.5, 0.6, 0.8]
    low, high = stats.t.interval(0.95, 2, loc=sum(values) / 3, scale=stats.sem(values))
    assert (interval(values, 50)["low"], interval(values, 50)["high"]) == pytest.approx((low, high), abs=1e-4)
    assert interval([0.5], None)["low"] is None


def test_labels_tell_kinds_apart_but_not_seeds() -> None:
    kinds: list[dict[str, object]] = [
        {"method": "cnn"},
        {"method": "cnn", "width": 0.3},
        {"method": "p-scnn"},
        {"method": "p-scnn", "seed": 1},
    ]
    tasks = [training.task_of(training.make_settings({**TINY_DIGITS, **kind})) for kind in kinds]
    ours = "partially equivariant (P-SCNN)"
    assert network_labels(tasks) == ["plain CNN, width 0.15", "plain CNN, width 0.3", ours, ours]


def test_single_seeds_are_named_as_untested() -> None:
    single = [{"rows": [{"points": [0.5]}]}]
    assert "Other random seeds" in untested(single, None, 0)[0]
    assert untested([{"rows": [{"points": [0.5, 0.6]}]}], None, 0) == []
    assert "16 test examples" in " ".join(untested(single, "all rotations", 16))

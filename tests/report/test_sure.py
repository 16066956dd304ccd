"""Intervals, and what kinds of networks are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import TINY_DIGITS
from scipy import stats

from pscnn import Likelihood, training
from pscnn.groups import SO2
from pscnn.report._folded import cautions
from pscnn.report._sure import Finished, interval, network_labels, score_words, untested


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


def test_networks_that_learnt_nothing_are_said_to_be_so() -> None:
    task = training.task_of(training.make_settings(TINY_DIGITS))
    counts = np.array([[30, 10], [10, 30]])
    good = score_words(Finished(Path(), task, {"test_accuracy": 0.75}, 80), counts)
    assert good == "Test accuracy: 0.750 on 80 examples (always the same answer: 0.500)."
    assert "mean little" in score_words(Finished(Path(), task, {"test_accuracy": 0.55}, 80), counts)
    assert "do not trust" in score_words(Finished(Path(), task, {"test_accuracy": float("nan")}, 80), counts)


def test_single_seeds_are_named_as_untested() -> None:
    single = [{"rows": [{"points": [0.5]}]}]
    assert "Other random seeds" in untested(single, None, 0)[0]
    assert untested([{"rows": [{"points": [0.5, 0.6]}]}], None, 0) == []
    assert "16 test examples" in " ".join(untested(single, "all rotations", 16))


def test_densities_that_cannot_be_read_are_named() -> None:
    shifted = Likelihood(SO2(), 1, initial=lambda h: 2.0 * h[:, 1, 0])  # its peak is at 90°
    (caution,) = cautions(torch.nn.ModuleDict({"conv": shifted}))
    assert "is misaligned" in caution
    assert cautions(torch.nn.ModuleDict({"conv": Likelihood(SO2(), 1)})) == []

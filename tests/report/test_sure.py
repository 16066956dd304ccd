"""Intervals, and what kinds of networks are called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import TINY_DIGITS
from scipy import stats

from pscnn import Likelihood, training
from pscnn.data import own
from pscnn.groups import SO2
from pscnn.report._folded import cautions
from pscnn.report._sure import Finished, comparisons, interval, network_labels, score_words, untested
from pscnn.tasks.own import OwnSettings


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


def test_only_seeds_of_one_network_are_pooled_and_each_seed_once() -> None:
    kinds: list[dict[str, object]] = [
        {"width": 1.0},
        {"width": 1.0, "epochs": 7, "batch_size": 16, "lr": 0.1},
        {"width": 0.25},
        {"width": 0.25, "seed": 1},
        {"width": 0.25, "seed": 1, "compile": True},  # the same run
    ]
    tasks = [training.task_of(training.make_settings({**TINY_DIGITS, **kind})) for kind in kinds]
    labels = network_labels(tasks)
    assert len({*labels[:3]}) == 3
    assert labels[2] == labels[3] == labels[4]
    scores = zip(tasks, (0.2, 0.9, 0.95, 1.0, 1.0), strict=True)
    runs = [Finished(Path(), task, {"test_accuracy": score, "parameters": 1}, 9) for task, score in scores]
    (figure,) = comparisons(runs, labels)
    assert [row["points"] for row in figure["rows"]] == [[0.2], [0.9], [0.95, 1.0]]
    assert figure["rows"][2]["high"] == 1.0
    assert figure["rows"][2]["covers"].startswith("2 seeds")


def test_networks_for_different_data_of_one_name_are_told_apart(tmp_path: Path) -> None:
    own.prepare((np.eye(8)[None].repeat(12, 0), np.arange(12) % 2), tmp_path / "data.npz")
    about = own.read_about(tmp_path / "data.npz")
    abouts = [about, replace(about, counts=(7, 1, 1)), about]
    tasks = [training.task_of(OwnSettings(data="data.npz", about=one.to_json())) for one in abouts]
    first, second, third = network_labels(tasks)
    assert first == third != second


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
    assert caution.startswith("Misaligned: layer 1 (conv).")
    assert cautions(torch.nn.ModuleDict({"conv": Likelihood(SO2(), 1)})) == []

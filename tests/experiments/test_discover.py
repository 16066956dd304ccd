"""Symmetries of people's own data: the budget, the choice and its certainty, and the command from data to export."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import scores

from pscnn import models, training
from pscnn.data import own
from pscnn.experiments import _discover


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
    holds = own.About((56, 56), 1, ("a", "b"), "classes", 0.0, 1.0)
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

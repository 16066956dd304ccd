"""Symmetries in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import random_likelihood

from pscnn import Likelihood
from pscnn.densities import layer_summaries
from pscnn.groups import MIRROR, O2, O3, C
from pscnn.report._phrases import answer_words, group_words, kept_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("C(3)", "turns by 120° (C3)"),
        ("D(1)", "the left–right mirror (D1)"),
        ("D(2)", "half turns, the left–right and the top–bottom mirror (D2)"),
        ("mirror line at 93°", "the left–right mirror (line at 93°)"),
        ("mirror line at 45°", "the mirror line at 45°"),
        ("rotations about (0.00, 0.00, -1.00)", "rotations about the z axis"),
        ("rotations about (0.10, -0.20, 0.97)", "rotations about the axis (0.1, −0.2, 1.0)"),
        ("e", "no symmetry"),
    ],
)
def test_symbols_are_explained(name: str, words: str) -> None:
    assert group_words(name) == words


def test_the_best_mirror_line_is_named_where_no_group_has_it() -> None:
    lam = Likelihood(O2(), 2, initial=lambda h: 3.0 * (h[:, 0, 0] + 0.0))  # e, and −MIRROR, which keeps the x axis
    here, there = lam.density(np.stack([np.eye(2), -MIRROR])).tolist()
    assert here == pytest.approx(there, rel=1e-5)
    (row,) = layer_summaries(torch.nn.ModuleDict({"conv": lam}))
    assert row.kept == ("mirror line at 0°",)
    assert kept_words(row) == "the top–bottom mirror"
    rows = [*layer_summaries(torch.nn.ModuleDict({"a": Likelihood(O2()), "b": lam}))]
    assert answer_words(rows, [5, 9], 28, "pixels") == (
        "All rotations and mirrors are kept for patterns of up to 5 of 28 pixels; seeing more, the network gives part "
        "of them up, and in the end it keeps the top–bottom mirror."
    )
    assert answer_words(rows[:1], [5], 28, "pixels") == "All rotations and mirrors are kept in every layer."
    assert answer_words(rows[1:], [None], 28, "pixels").startswith("From its first layer on, the network gives up part")
    assert "up to layer 1; after that" in answer_words(rows, [None, None], 28, "pixels")


def test_every_summary_has_words() -> None:
    for lam in (random_likelihood(C(4)), random_likelihood(O3(), 1), Likelihood(O2(), support=C(4))):
        (row,) = layer_summaries(torch.nn.ModuleDict({"conv": lam}))
        assert kept_words(row)

"""Curves over transformations, drawn and read."""

from __future__ import annotations

import io

import numpy as np
import pytest

from pscnn.experiments import Curve
from pscnn.groups import O2, O3, SO2, C, Group, explored
from pscnn.report import curve_figure, curve_words


def made(group: Group, turned: float, kind: str = "classes", sure: bool = True) -> Curve:
    """At the identity right, elsewhere in a share of the examples."""
    elements = explored(group, 8)
    n = len(elements.matrices)
    mean = np.full(n, turned)
    mean[0] = 0.99
    around = np.stack([mean, mean - 0.05, mean + 0.05], 1)
    back = np.tile([0.99, 0.97, 1.0], (n, 1))
    lost = back - around
    lost[:, 1] = lost[:, 0] / 2 if sure else -0.1
    return Curve(elements, around, back, lost, around, 200, kind)


@pytest.mark.parametrize("group", [C(4), SO2(), O2(), O2().about((0, 0, 1)), O3()], ids=lambda g: g.name)
def test_lines_are_the_means(group: Group) -> None:
    found = made(group, 0.6)
    figure = curve_figure(found)
    figure.savefig(io.BytesIO(), format="png")
    panels = figure.axes
    assert len(panels) == len(found.elements.axes) * len(found.elements.sides)
    labels = [line.get_label() for line in panels[0].get_lines()]
    assert labels == ["turned there and back", "turned or mirrored", "same answer"]
    x, y = (np.asarray(v) for v in panels[0].get_lines()[1].get_data())
    np.testing.assert_allclose(x[: len(found.elements.angles)], found.elements.angles)
    np.testing.assert_allclose(y[: len(found.elements.angles)], found.turned[: len(found.elements.angles), 0])
    assert len(x) == len(found.elements.angles) + (group.order is None)  # closed where the group is


def test_mirrors_stand_at_the_line_that_stays() -> None:
    found = made(O2(), 0.6)
    found.turned[8, 0] = 0.9  # the left–right mirror, whose line is upright
    x, y = (np.asarray(v) for v in curve_figure(found).axes[1].get_lines()[1].get_data())
    assert x[np.argmax(y)] == 90
    assert sorted(x[:-1]) == list(x[:-1])


def test_words_name_the_largest_loss_beside_what_interpolation_costs() -> None:
    found = made(O2(), 0.6)
    found.turned[1, 0], found.lost[1, 0], found.lost[1, 1] = 0.52, 0.47, 0.4
    said = curve_words(found)
    assert said[0].startswith(
        "After a rotation by 45° the network is right in 52 % of the examples (there and back: 99 %), and that is the "
        "largest loss; over all rotations, 59 %."
    )
    assert "reflection in the line at" in said[1]
    assert said[-1] == "Measured on 200 examples."


def test_losses_within_chance_are_called_so() -> None:
    said = curve_words(made(SO2(), 0.97, sure=False))
    assert said[0].startswith("No rotation costs more than chance: after a rotation by ")
    assert len(said) == 2


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("labels", "gets right 60 % of the labels"),
        ("masks", "gets right 60 % of the pixels"),
        ("vectors", "explains 60 % of the variance"),
        ("numbers", "explains 60 % of the variance"),
    ],
)
def test_words_fit_the_targets(kind: str, words: str) -> None:
    assert words in curve_words(made(SO2(), 0.6, kind))[0]


def test_what_is_worse_than_a_constant_answer_explains_nothing() -> None:
    found = made(SO2(), -3.0, "numbers")
    assert "explains 0 % of the variance" in curve_words(found)[0]
    assert np.asarray(curve_figure(found).axes[0].get_lines()[1].get_ydata()).min() == 0

"""The small networks of the quickstart; with more seeds, a table, and the search for the recipe of each."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from pscnn.experiments._sheets import Cells, Sheet, equal_width, measured
from pscnn.tasks.double_digits import DoubleDigitSettings

SETTINGS: dict[str, Any] = {
    "group": "O(2)",
    "source": "digits",
    "symmetry": "O2",
    "kinds": 4,
    "size": 28,
    "width": 0.15,
    "nonlinearity": "fourier",
    "train_per_class": 60,
    "validation_per_class": 30,
    "test_per_class": 60,
    "epochs": 36,
    "batch_size": 64,
    "recipe": "modern",
    "lr": 0.02,
}
QUICKSTART_LABELS = {
    "cnn": "plain CNN",
    "cnn-equal": "plain CNN of equal size",
    "twin": "free twin",
    "scnn": "equivariant (SCNN)",
    "p-scnn": "partially equivariant (P-SCNN)",
}
GATES = "P-SCNN with gates"
SEARCHED: dict[str, tuple[float, ...]] = {
    "paper": (0.001, 0.003, 0.01, 0.02),
    "modern": (0.001, 0.003, 0.01, 0.02, 0.04),
}
"""Learning rates, by recipe."""


def quickstart_networks(**settings: Any) -> dict[str, DoubleDigitSettings]:
    """What the quickstart trains, by the names of ``QUICKSTART_LABELS``, each as the search found best.

    Args:
        settings: Others than usual, such as the seed.
    """
    return {name: replace(one, **settings) for name, one in _networks().items() if name != GATES}


def _networks() -> dict[str, DoubleDigitSettings]:
    base = DoubleDigitSettings(**SETTINGS)
    gated = replace(base, nonlinearity="gated")
    return {
        "cnn": replace(gated, method="cnn", width=0.2),
        "cnn-equal": replace(gated, method="cnn", width=equal_width(base), lr=0.01),
        "twin": replace(gated, method="twin", width=0.125),  # slightly more weights; with Fourier fields it is worse
        "scnn": replace(base, method="scnn"),
        "p-scnn": replace(base, uniform_first=True),  # or the densities of the first layers drift
        GATES: replace(gated, width=0.2, lr=0.01, uniform_first=True),
    }


def _rows() -> dict[str, DoubleDigitSettings]:
    return {QUICKSTART_LABELS.get(name, name): one for name, one in _networks().items()}


def quickstart_sheet() -> Sheet:
    """Weights and accuracies of these networks, and of the P-SCNN with gates."""
    columns = {"weights": "parameters", "test accuracy": "test_accuracy"}
    return Sheet("The networks of the quickstart", None, measured(_rows(), columns), column_digits={"weights": 0})


def search_sheet() -> Sheet:
    """The same nine recipes for each of them, judged on validation digits."""
    cells: Cells = {}
    for (row, one), (recipe, rates) in itertools.product(_rows().items(), SEARCHED.items()):
        for lr in rates:
            # A recipe says what is not given: nothing of the other one is carried over.
            own = one.differing() | {"recipe": recipe, "lr": lr}
            cells[row, f"{recipe}, {lr:g}"] = DoubleDigitSettings(**own), "validation_accuracy"
    return Sheet("Validation accuracy of the networks of the quickstart, by recipe and learning rate", None, cells)

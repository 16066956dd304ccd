"""The small networks of the quickstart; with more seeds, the modern recipe and a free twin of their size, a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pscnn.experiments._sheets import Cells, Sheet, equal_width
from pscnn.tasks.double_digits import DoubleDigitSettings

SETTINGS: dict[str, Any] = {
    "group": "O(2)",
    "source": "digits",
    "symmetry": "O2",
    "kinds": 4,
    "size": 28,
    "width": 0.2,
    "train_per_class": 60,
    "validation_per_class": 30,
    "test_per_class": 60,
    "epochs": 36,
    "batch_size": 64,
    "lr": 3e-3,
}
QUICKSTART_LABELS = {
    "cnn": "plain CNN",
    "cnn-equal": "plain CNN of equal size",
    "scnn": "equivariant (SCNN)",
    "p-scnn": "partially equivariant (P-SCNN)",
}
TWIN_WIDTH = 0.12
"""At which the free twin has about as many weights as the P-SCNN."""


def quickstart_networks(**settings: Any) -> dict[str, DoubleDigitSettings]:
    """What the quickstart trains, by the names of ``QUICKSTART_LABELS``.

    Args:
        settings: Others than usual, such as the seed.
    """
    ours = DoubleDigitSettings(**SETTINGS | settings)
    return {
        "cnn": replace(ours, method="cnn"),
        "cnn-equal": replace(ours, method="cnn", width=equal_width(ours)),
        "scnn": replace(ours, method="scnn"),
        "p-scnn": ours,
    }


def quickstart_sheet() -> Sheet:
    """Their weights and accuracies, and those of a free twin with slightly fewer weights."""
    cells: Cells = {}
    columns = {"test accuracy": {}, "with the modern recipe": {"recipe": "modern", "lr": None}}
    for column, settings in columns.items():
        networks = quickstart_networks(**settings)
        rows = {label: networks[name] for name, label in QUICKSTART_LABELS.items()}
        rows["free twin"] = replace(networks["p-scnn"], method="twin", width=TWIN_WIDTH)
        for row, one in rows.items():
            if column == "test accuracy":
                cells[row, "weights"] = one, "parameters"
            cells[row, column] = one, "test_accuracy"
    return Sheet("The networks of the quickstart", None, cells, column_digits={"weights": 0})

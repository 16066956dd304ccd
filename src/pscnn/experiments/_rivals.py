"""Double digits with rivals of equal size, all trained with the modern recipe; and with fewer training images."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pscnn.experiments._sheets import METHODS, Cells, Sheet, equal_width, varied
from pscnn.tasks.double_digits import WAYS, DoubleDigitSettings

BASE = DoubleDigitSettings(source="mnist", recipe="modern")
FOURIER = replace(BASE, nonlinearity="fourier")
GRID = {"lr": (0.001, 0.002, 0.004), "weight_decay": (0.0, 0.05), "label_smoothing": (0.0, 0.1)}
EPOCHS = 25
"""Of the search, which is to find a recipe and not a result."""
COUNTS = (5, 10, 25, 50, 100)
"""Training images per class."""


def plain(rival: DoubleDigitSettings) -> DoubleDigitSettings:
    """The plain network with as many weights."""
    return replace(BASE, method="cnn", width=equal_width(rival))


def every_rival() -> dict[str, DoubleDigitSettings]:
    """The paper's plain network, two of the P-SCNNs' sizes, and all methods over O(2) with both nonlinearities."""
    rows = {"CNN": replace(BASE, method="cnn"), "CNN, equal size": plain(BASE)}
    rows["CNN, size of Fourier"] = plain(FOURIER)
    for word, base in {"gated": BASE, "Fourier": FOURIER}.items():
        rows |= {f"{word} {label}": replace(base, method=method) for label, method in METHODS.items()}
    return rows


def fair() -> Sheet:
    """All rivals on digits of all symmetries."""
    return Sheet("Double digits, rivals of equal size", None, varied(every_rival(), "symmetry", WAYS))


def nonlinearities() -> Sheet:
    """What gates and Fourier nonlinearities differ in, one thing at a time: fields, gates, weights."""
    rows: dict[str, dict[str, Any]] = {
        "gated": {},
        "gated, as many weights as Fourier": {"width": 1.3},
        "one gate per field": {"nonlinearity": "gated-fields"},
        "one gate per field, as many weights as gated": {"nonlinearity": "gated-fields", "width": 1.23},
        "gated, the irreps of Fourier, as many weights": {"nonlinearity": "gated-functions", "width": 0.77},
        "Fourier": {"nonlinearity": "fourier"},
        "Fourier, as many weights as gated": {"nonlinearity": "fourier", "width": 0.77},
    }
    cells: Cells = {}
    for row, changes in rows.items():
        for label in ("P-SCNN", "Free twin"):
            cells[row, label] = replace(BASE, method=METHODS[label], **changes), "test_accuracy"
    return Sheet("Gates and Fourier nonlinearities, O2 digits", None, cells)


def search() -> Sheet:
    """The same few recipes for every rival, judged on validation digits."""
    cells: Cells = {}
    for row, one in every_rival().items():
        for values in itertools.product(*GRID.values()):
            changes: dict[str, Any] = dict(zip(GRID, values, strict=True))
            label = ", ".join(f"{value:g}" for value in values)
            cells[row, label] = replace(one, epochs=EPOCHS, **changes), "validation_accuracy"
    words = "highest learning rate, weight decay, label smoothing"
    return Sheet(f"Validation accuracy on O2 digits after {EPOCHS} epochs, by {words}", None, cells)


def fewer() -> list[Sheet]:
    """Fewer training images, gone through more often: as many steps with each number of them."""
    rows = {"Fourier P-SCNN": FOURIER, "CNN, equal size": plain(FOURIER)}
    rows["gated Free twin"] = replace(BASE, method=METHODS["Free twin"])  # with all images the best of the plain ones
    rows |= {f"Fourier {label}": replace(FOURIER, method=METHODS[label]) for label in ("Free twin", "RPP", "SCNN")}
    sheets = []
    for way in ("O2", "D1"):
        cells: Cells = {}
        for row, one in rows.items():
            for count in COUNTS:
                changes: dict[str, Any] = {"train_per_class": count, "passes": max(COUNTS) // count}
                cells[row, f"{way}, {count}"] = replace(one, symmetry=way, **changes), "test_accuracy"
        sheets.append(Sheet(f"{way} digits, accuracy by training images per class", None, cells))
    return sheets


SHEETS: dict[str, Callable[[], Sheet | list[Sheet]]] = {
    "fair": fair,
    "nonlinearities": nonlinearities,
    "recipe-search": search,
    "data-efficiency": fewer,
}
FIGURES: dict[str, Callable[[], Sheet | list[Sheet]]] = {
    "figure-data-efficiency": lambda: [replace(sheet, picture="counts") for sheet in fewer()],
}

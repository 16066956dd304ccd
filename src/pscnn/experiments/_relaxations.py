"""All ways to relax equivariance in one network, on double digits: equal settings, an equal search for own numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pscnn.experiments._rivals import BASE, EPOCHS, FOURIER, plain
from pscnn.experiments._sheets import Cells, Sheet
from pscnn.models import STEERABLE, STRENGTHS
from pscnn.tasks.double_digits import WAYS, DoubleDigitSettings

PLAIN = ("cnn", "augment", "augerino")
"""Methods of the plain network, which has as many weights as the P-SCNN."""
COLUMNS = {
    "accuracy": "test_accuracy",
    "equivariance error": "equivariance_error",
    "weights": "parameters",
}
DIGITS = {"weights": 0}
WEAK = {"projection": 0.01, "relaxation": 0.01}
"""Penalties that hardly hold a network: rows of their own, to show what the strength decides."""
FACTORS = (0.1, 1.0, 10.0)
"""Of a method's own number in the search."""


def rows() -> dict[str, DoubleDigitSettings]:
    """The same settings for all methods, O(2) and Fourier nonlinearities for all that know a group."""
    width = plain(FOURIER).width
    steerable = {name: replace(FOURIER, method=name) for name in STEERABLE}
    return steerable | {name: replace(BASE, method=name, width=width) for name in PLAIN}


def tables() -> list[Sheet]:
    """A table for every symmetry of the digits."""
    weak = {
        f"{name}, {strength:g}": replace(FOURIER, method=name, strength=strength) for name, strength in WEAK.items()
    }
    sheets = []
    for way in WAYS:
        cells: Cells = {}
        for row, one in (rows() | weak).items():
            cells |= {(row, f"{way} {name}"): (replace(one, symmetry=way), key) for name, key in COLUMNS.items()}
        digits = {f"{way} {name}": count for name, count in DIGITS.items()}
        sheets.append(Sheet(f"Ways to relax equivariance, {way} digits", None, cells, column_digits=digits))
    return sheets


def figures() -> list[Sheet]:
    """Accuracy against equivariance error, a figure for every symmetry of the digits."""
    return [replace(sheet, picture="trade-off") for sheet in tables()]


def own_numbers() -> dict[str, tuple[str, float]]:
    """What is searched of a method, and the middle of what is tried: its strength, or the weight of divergences."""
    middle = STRENGTHS | {"relaxation": 10.0}  # its usual value was found by this search
    return {name: ("strength", value) for name, value in middle.items()} | {"p-scnn": ("kl_weight", BASE.kl_weight)}


def search() -> Sheet:
    """As many trials for every method that has a number of its own, judged on validation digits."""
    cells: Cells = {}
    for row, (name, middle) in own_numbers().items():
        for factor in FACTORS:
            changes: dict[str, Any] = {name: factor * middle, "epochs": EPOCHS}
            place = f"{row} ({name.replace('_', ' ')} {middle:g})", f"× {factor:g}"
            cells[place] = replace(rows()[row], **changes), "validation_accuracy"
    title = f"Validation accuracy on O2 digits after {EPOCHS} epochs, by factor of the method's own number"
    return Sheet(title, None, cells)


SHEETS: dict[str, Callable[[], Sheet | list[Sheet]]] = {
    "relaxations": lambda: [*tables(), *figures()],
    "relaxations-search": search,
}

"""The paper's tables and figures on medical volumes, and the competitive settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pscnn.experiments._digits import BASE as DIGITS
from pscnn.experiments._sheets import Cells, Sheet, bandlimit_rows, measured, method_rows, picture, published, varied
from pscnn.tasks.volumes import VolumeSettings
from pscnn.training import Settings

FRACTIONS = (1.0, 0.75, 0.5, 0.25, 0.125, 0.0625)
LABELS = ("SCNN", "RPP", "P-SCNN")


def table_2() -> Sheet:
    """All methods, groups and data sets."""
    cells: Cells = {}
    for dataset in ("nodule", "synapse", "organ"):  # on which the learning rate depends
        rows = method_rows(VolumeSettings(dataset=dataset), ("SO(3)", "O(3)"), LABELS)
        cells |= measured(rows, {dataset: "test_accuracy"})
    return Sheet("Medical volumes", "medmnist", cells)


def bandlimits() -> Sheet:
    """Networks over SO(3) and O(3)."""
    cells: Cells = {}
    for dataset in ("synapse", "nodule", "organ"):
        rows = bandlimit_rows(VolumeSettings(dataset=dataset), {"SO(3)": (1, 2, 3, 4), "O(3)": (0, 1, 2)})
        cells |= measured(rows, {dataset: "test_accuracy"})
    return Sheet("Band-limits, medical volumes", "medmnist_bandlimit", cells)


def competitive() -> Sheet:
    """Fourier nonlinearities and heads that are not invariant, beside gates and invariant ones."""
    cells: Cells = {}
    bases: dict[str, tuple[Settings, str]] = {"organ": (VolumeSettings(), "(3)"), "ddmnist_o2": (DIGITS, "(2)")}
    changes: dict[str, dict[str, Any]] = {"fourier": {"nonlinearity": "fourier", "invariant": False}, "gated": {}}
    for name, (base, space) in bases.items():
        for kind, own_changes in changes.items():
            rows: dict[str, Settings] = {"CNN": replace(base, method="cnn")}
            for family in ("SO", "O"):
                own = replace(base, group=family + space, **own_changes)
                rows |= {f"{family}(n) {label}": replace(own, method=label.lower()) for label in ("SCNN", "RPP")}
                rows |= {f"{family}(n) P-SCNN, L = {n}": replace(own, bandlimit=n) for n in (2, 3, 4)}
            cells |= measured(rows, {f"{name}_{kind}": "test_accuracy"})
    printed = published("competitive")
    return Sheet("Competitive settings", "competitive", {p: c for p, c in cells.items() if p[1] in printed[p[0]]})


def fractions() -> Sheet:
    """Fewer training volumes."""
    rows: dict[str, Settings] = {}
    for dataset in ("organ", "synapse", "nodule"):
        every = method_rows(VolumeSettings(dataset=dataset), ("SO(3)",), LABELS)
        rows |= {f"{row}, {dataset}": one for row, one in every.items()}
    return Sheet("Fewer training volumes", "data_ablation", varied(rows, "fraction", FRACTIONS))


SHEETS: dict[str, Callable[[], Sheet]] = {
    "medmnist": table_2,
    "medmnist-bandlimit": bandlimits,
    "competitive": competitive,
    "data-ablation": fractions,
}
FIGURES: dict[str, Callable[[], Sheet]] = {
    "figure-confusion-organ": partial(
        picture,
        "confusion",
        "Confusion, organs",
        {"CNN": VolumeSettings(method="cnn")}
        | {label: VolumeSettings(group="O(3)", method=label.lower()) for label in LABELS},
    ),
    "figure-spheres": partial(
        picture,
        "spheres",
        "The density of the second block of the O(3) P-SCNN on medical volumes",
        {name: VolumeSettings(group="O(3)", dataset=name) for name in ("organ", "synapse")},
    ),
    "figure-data-ablation": lambda: replace(fractions(), title="Accuracy by training volumes", picture="fractions"),
}

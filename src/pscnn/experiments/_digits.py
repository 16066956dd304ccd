"""The paper's tables and figures on double digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pscnn.experiments._paper import published
from pscnn.experiments._sheets import Cells, Sheet, bandlimit_rows, column
from pscnn.tasks.double_digits import SWITCHES, WAYS, DoubleDigitSettings
from pscnn.training import Settings

METHODS = {"SCNN": "scnn", "R-SCNN": "restricted", "RPP": "rpp", "P-SCNN": "p-scnn"}
BASE = DoubleDigitSettings(source="mnist")


def table_1() -> Sheet:
    """All methods, groups and symmetries of digits."""
    cells: Cells = {("CNN", way): (replace(BASE, symmetry=way, method="cnn"), "test_accuracy") for way in WAYS}
    for group, text in (("C(4)", "C4"), ("D(4)", "D4"), ("SO(2)", "SO(2)"), ("O(2)", "O(2)")):
        for label, method in METHODS.items():
            for way in WAYS:
                one = replace(BASE, symmetry=way, method=method, group=group)
                cells[f"{text} {label}", way] = one, "test_accuracy"
    return Sheet("Double digits", "ddmnist", cells)


def generalisation() -> Sheet:
    """Trained on digits at quarter turns and mirrored, tested on those and on digits at any angle."""
    base = replace(BASE, symmetry="D4", other_symmetry="O2")
    rows: dict[str, Settings] = {"CNN": replace(base, method="cnn")}
    for group in ("SO(2)", "O(2)"):
        for label in ("R-SCNN", "RPP", "P-SCNN"):
            rows[f"{group} {label}"] = replace(base, method=METHODS[label], group=group)
    tests = (("test_D4", "test_accuracy"), ("test_O2", "other_accuracy"))
    cells: Cells = {(row, name): (one, result) for row, one in rows.items() for name, result in tests}
    return Sheet("Trained on D4 digits", "generalisability", cells)


def bandlimits() -> Sheet:
    """Networks over SO(2) and O(2)."""
    cells: Cells = {}
    for group, levels in (("SO(2)", (1, 2, 3, 4)), ("O(2)", (0, 1, 2, 3, 4))):
        for way in ("SO2", "O2"):
            cells |= column(way, "test_accuracy", bandlimit_rows(group, replace(BASE, symmetry=way), levels))
    return Sheet("Band-limits, double digits", "ddmnist_bandlimit", cells)


def with_and_without(title: str, paper: str, without: dict[str, Any]) -> Sheet:
    """P-SCNN over O(2) on O2 digits, with and without one term of the loss."""
    return Sheet(title, paper, column("accuracy", "test_accuracy", {"with": BASE, "without": replace(BASE, **without)}))


def ablation() -> Sheet:
    """From the released code to ours, one change after another; then ours with a single part of the released code."""
    rows: dict[str, Settings] = {"released code": replace(BASE, released="all")}
    for k, name in enumerate(SWITCHES[:-1], 1):
        rows[f"then our {name}"] = replace(BASE, released=",".join(SWITCHES[k:]))
    rows["ours"] = BASE  # the last change
    rows |= {f"ours, but {name} as released": replace(BASE, released=name) for name in SWITCHES}
    mean, deviation = published("ddmnist")["O(2) P-SCNN"]["O2"]
    title = f"From the released code to ours, O(2) double digits (the paper: {mean:.3f} ± {deviation:.3f})"
    return Sheet(title, None, column("accuracy", "test_accuracy", rows))


def picture(kind: str, title: str, rows: Mapping[str, Settings]) -> Sheet:
    """A figure of single networks."""
    return Sheet(title, None, column("", "test_accuracy", rows), kind, seeds=1)


def _levels(way: str, levels: tuple[int, ...]) -> dict[str, Settings]:
    return {f"L = {level}": replace(BASE, symmetry=way, bandlimit=level) for level in levels}


_NETWORK = "the O(2) P-SCNN on O2 digits"
_NO_KL = {"with": BASE, "without": replace(BASE, kl_weight=0.0)}
SHEETS: dict[str, Callable[[], Sheet]] = {
    "ddmnist": table_1,
    "bandlimit": bandlimits,
    "generalisability": generalisation,
    "align": lambda: with_and_without("Alignment loss, double digits", "align_ddmnist", {"align_weight": 0.0}),
    "kl": lambda: with_and_without("KL divergence, double digits", "kl_ddmnist", {"kl_weight": 0.0}),
    "ablation": ablation,
}
FIGURES: dict[str, Callable[[], Sheet]] = {
    "figure-confusion": lambda: picture(
        "confusion",
        "Confusion, O2 digits",
        {row: replace(BASE, method=method) for row, method in (("CNN", "cnn"), ("SCNN", "scnn"), ("P-SCNN", "p-scnn"))},
    ),
    "figure-degrees": lambda: picture(
        "degrees",
        "Densities and errors of the O(2) P-SCNN on O2 and C1 digits",
        {way: replace(BASE, symmetry=way) for way in ("O2", "C1")},
    ),
    "figure-bandlimit": lambda: picture("degrees", "The same on SO2 digits, by L", _levels("SO2", (1, 2, 3, 4))),
    "figure-bandlimit-o2": lambda: picture("degrees", "The same on O2 digits, by L", _levels("O2", (0, 1, 2, 3, 4))),
    "figure-align": lambda: picture(
        "degrees",
        f"Densities and errors of {_NETWORK}, with and without the alignment loss",
        {"with": BASE, "without": replace(BASE, align_weight=0.0)},
    ),
    "figure-kl": lambda: picture(
        "degrees", f"Densities and errors of {_NETWORK}, with and without the KL divergence", _NO_KL
    ),
    "figure-kl-training": lambda: picture(
        "training", f"Training of {_NETWORK}, with and without the KL divergence", _NO_KL
    ),
}

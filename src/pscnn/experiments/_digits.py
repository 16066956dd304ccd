"""The paper's tables and figures on double digits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from pscnn.experiments._sheets import (
    METHODS,
    Cells,
    Sheet,
    bandlimit_rows,
    equal_width,
    measured,
    method_rows,
    picture,
    published,
    varied,
)
from pscnn.tasks.double_digits import SWITCHES, WAYS, DoubleDigitSettings
from pscnn.training import Settings

BASE = DoubleDigitSettings(source="mnist")
_cells = partial(measured, results={"accuracy": "test_accuracy"})
LABELS = ("SCNN", "R-SCNN", "RPP", "P-SCNN")
LEVELS = {"SO(2)": (1, 2, 3, 4), "O(2)": (0, 1, 2, 3, 4)}


def table_1() -> Sheet:
    """All methods, groups and symmetries of digits, and the plain networks that the paper lacks."""
    steerable = method_rows(BASE, ("C(4)", "D(4)", "SO(2)", "O(2)"), LABELS)
    plain = steerable.pop("CNN")
    rows = {"CNN": plain, "CNN, equal size": replace(BASE, method="cnn", width=equal_width(BASE))}
    rows |= {row.replace("(4)", "4"): one for row, one in steerable.items()}  # as the paper writes them
    rows["O(2) Free twin"] = replace(BASE, method="twin")
    return Sheet("Double digits", "ddmnist", varied(rows, "symmetry", WAYS))


def generalisation() -> Sheet:
    """Trained on digits at quarter turns and mirrored, tested on those and on digits at any angle."""
    base = replace(BASE, symmetry="D4", other_symmetry="O2")
    rows = method_rows(base, ("SO(2)", "O(2)"), ("R-SCNN", "RPP", "P-SCNN"))
    cells = measured(rows, {"test_D4": "test_accuracy", "test_O2": "other_accuracy"})
    return Sheet("Trained on D4 digits", "generalisability", cells)


def bandlimits() -> Sheet:
    """Networks over SO(2) and O(2)."""
    cells = varied(bandlimit_rows(BASE, LEVELS), "symmetry", ("SO2", "O2"))
    return Sheet("Band-limits, double digits", "ddmnist_bandlimit", cells)


def _without(weight: str) -> dict[str, Settings]:
    """P-SCNN over O(2) on O2 digits, with and without one term of the loss."""
    off: dict[str, Any] = {weight: 0.0}
    return {"with": BASE, "without": replace(BASE, **off)}


def ablation() -> Sheet:
    """From the released code to ours, one change after another; then ours with a single part of the released code."""
    rows: dict[str, Settings] = {"released code": replace(BASE, released="all")}
    for k, name in enumerate(SWITCHES[:-1], 1):
        rows[f"then our {name}"] = replace(BASE, released=",".join(SWITCHES[k:]))
    rows["ours"] = BASE  # the last change
    rows |= {f"ours, but {name} as released": replace(BASE, released=name) for name in SWITCHES}
    mean, deviation = published("ddmnist")["O(2) P-SCNN"]["O2"]
    title = f"From the released code to ours, O(2) double digits (the paper: {mean:.3f} ± {deviation:.3f})"
    return Sheet(title, None, _cells(rows))


def ablation_by_method() -> Sheet:
    """The released code and ours, for every method; what is about densities is left out where there are none."""
    cells: Cells = {}
    for label in LABELS:
        ours = replace(BASE, method=METHODS[label])
        switches = "all" if label == "P-SCNN" else ",".join(SWITCHES[3:])
        cells |= {
            (label, "released code"): (replace(ours, released=switches), "test_accuracy"),
            (label, "ours"): (ours, "test_accuracy"),
        }
    return Sheet("The released code and ours by method, O(2) double digits", None, cells)


def _levels(way: str, levels: Iterable[int]) -> dict[str, Settings]:
    return {f"L = {level}": replace(BASE, symmetry=way, bandlimit=level) for level in levels}


SHEETS: dict[str, Callable[[], Sheet]] = {
    "ddmnist": table_1,
    "bandlimit": bandlimits,
    "generalisability": generalisation,
    "align": partial(Sheet, "Alignment loss, double digits", "align_ddmnist", _cells(_without("align_weight"))),
    "kl": partial(Sheet, "KL divergence, double digits", "kl_ddmnist", _cells(_without("kl_weight"))),
    "ablation": ablation,
    "ablation-methods": ablation_by_method,
}
_SHOWN = "Densities and errors of the O(2) P-SCNN on O2"
_NO_KL = "digits, with and without the KL divergence"
_FIGURES: dict[str, tuple[str, str, dict[str, Settings]]] = {
    "confusion": (
        "confusion",
        "Confusion, O2 digits",
        {label: replace(BASE, method=label.lower()) for label in ("CNN", "SCNN", "P-SCNN")},
    ),
    "degrees": ("degrees", f"{_SHOWN} and C1 digits", {way: replace(BASE, symmetry=way) for way in ("O2", "C1")}),
    "bandlimit": ("degrees", "The same on SO2 digits, by L", _levels("SO2", (0, 2, 3))),
    "bandlimit-o2": ("degrees", "The same on O2 digits, by L", _levels("O2", LEVELS["O(2)"])),
    "align": ("degrees", f"{_SHOWN} digits, with and without the alignment loss", _without("align_weight")),
    "kl": ("degrees", f"{_SHOWN} {_NO_KL}", _without("kl_weight")),
    "kl-training": ("training", f"Training of the O(2) P-SCNN on O2 {_NO_KL}", _without("kl_weight")),
}
FIGURES: dict[str, Callable[[], Sheet]] = {
    f"figure-{name}": partial(picture, *parts) for name, parts in _FIGURES.items()
}

"""The paper's tables on flows, and the sizes of the networks beside those that it prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pscnn.data import smoke
from pscnn.experiments._sheets import Cells, Sheet, equal_width, measured, paper, parameter_count, published
from pscnn.tasks.flows import FlowSettings, JetFlowSettings, SmokeSettings

RESULTS = {"future": "future_rmse", "domain": "domain_rmse"}
_SETTINGS: dict[str, FlowSettings] = {"smoke": SmokeSettings(), "jetflow": JetFlowSettings()}
FLOW_DATASETS = (*_SETTINGS, "smoke-bandlimit")
LEVELS = (1, 2, 4, 6)
SHORT = SmokeSettings(epochs=7, lr_decay=0.481)
"""Seven epochs in which the learning rate decreases as far as in 100."""


class FlowSize(NamedTuple):
    """How many parameters a network has here, what the paper prints, and why they differ."""

    method: str
    parameters: int
    paper: str
    remark: str


def flow_sizes(dataset: str) -> list[FlowSize]:
    """The networks of the paper's Table 3 for "smoke" or "jetflow", except CLCNN, of which no size is published.

    Of "smoke-bandlimit" those over SO(2), with kernels of 3 × 3 and 5 × 5 pixels.
    """
    if dataset not in FLOW_DATASETS:
        raise ValueError(f"unknown data set {dataset!r}: use one of {', '.join(FLOW_DATASETS)}")
    out = []
    if dataset in _SETTINGS:
        for method, printed in paper()["sizes"].items():
            count = parameter_count(replace(_SETTINGS[dataset], method=method))
            out.append(FlowSize(method, count, printed[dataset], printed.get("remark", "")))
        return out
    rows = over_so2()
    remark = "ours has gates, which are channels"
    for label, printed in paper()["sizes_so2"].items():
        for kernel in (3, 5):
            count = parameter_count(replace(rows[label], kernel=kernel))
            out.append(FlowSize(f"{label}, {kernel} × {kernel}", count, printed[str(kernel)], remark))
    return out


def equal_cnn(rival: FlowSettings) -> FlowSettings:
    """The plain network with as many weights."""
    return replace(rival, method="cnn", width=int(equal_width(rival)))


def table_3(dataset: str, title: str) -> Sheet:
    """All methods, and the plain network of P-SCNN's size that the paper lacks."""
    base = _SETTINGS[dataset]
    # With a kernel at every pixel, the others' 92 channels would be a billion weights; its size is not published.
    own: dict[str, dict[str, Any]] = {"clcnn": {"width": min(base.width, 32)}}
    methods = {label: label.lower() for label in published(dataset)}
    rows = {label: replace(base, method=method, **own.get(method, {})) for label, method in methods.items()}
    rows["CNN, equal size"] = equal_cnn(base)
    return Sheet(title, dataset, measured(rows, RESULTS))


def over_so2() -> dict[str, FlowSettings]:
    """The paper's networks over SO(2), with irreps up to frequency 2."""
    base: FlowSettings = SmokeSettings(group="SO(2)")
    rivals = {label: replace(base, method=label.lower()) for label in ("RPP", "RSteer")}
    return rivals | {f"P-SCNN, L = {level}": replace(base, bandlimit=level) for level in LEVELS}


def bandlimits() -> Sheet:
    """Networks over SO(2)."""
    return Sheet("Band-limits, smoke, SO(2)", "smoke_bandlimit", measured(over_so2(), RESULTS))


def asymmetries(base: SmokeSettings = SHORT) -> list[Sheet]:
    """Errors, relative to the flows, as a known asymmetry grows; at later times and in other simulations."""
    rows: dict[str, FlowSettings] = {"P-SCNN": base, "e2cnn": replace(base, method="e2cnn")}
    rows["CNN, equal size"] = equal_cnn(base)
    sheets = []
    for words, result in {"later times": "future_relative", "other simulations": "domain_relative"}.items():
        cells: Cells = {}
        for row, one in rows.items():
            for asymmetry, strength in smoke.VARIANTS:
                changes: dict[str, Any] = {"asymmetry": asymmetry, "asymmetry_strength": strength}
                label = f"{asymmetry} {100 * strength:g} %" if strength else "none"
                cells[row, label] = replace(one, **changes), result
        sheets.append(Sheet(f"Relative error by asymmetry, {words}", None, cells))
    return sheets


SHEETS: dict[str, Callable[[], Sheet | list[Sheet]]] = {
    "smoke": partial(table_3, "smoke", "Smoke, regenerated"),
    "smoke-bandlimit": bandlimits,
    "jetflow": partial(table_3, "jetflow", "JetFlow"),
    "asymmetry": asymmetries,
}
FIGURES: dict[str, Callable[[], Sheet | list[Sheet]]] = {
    "figure-asymmetry": lambda: [replace(sheet, picture="asymmetry") for sheet in asymmetries()],
}

"""The paper's tables on flows, and the sizes of the networks beside those that it prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pscnn.experiments._sheets import Cells, Sheet
from pscnn.models import FLOW_METHODS
from pscnn.tasks.flows import FlowSettings, JetFlowSettings, SmokeSettings
from pscnn.training import task_of

METHODS = {
    "MLP": "mlp",
    "CNN": "cnn",
    "e2cnn": "e2cnn",
    "RPP": "rpp",
    "Combo": "combo",
    "CLCNN": "clcnn",
    "Lift": "lift",
    "RGroup": "rgroup",
    "RSteer": "rsteer",
    "P-SCNN": "p-scnn",
}
TESTS = ("future", "domain")
_SETTINGS: dict[str, FlowSettings] = {"smoke": SmokeSettings(), "jetflow": JetFlowSettings()}
_PRINTED = {
    "mlp": ("8.33 M", "510 k"),
    "cnn": ("0.25 M", "10 k"),
    "e2cnn": ("0.62 M", "21 k"),
    "rpp": ("4.36 M", "145 k"),
    "combo": ("0.53 M", "19 k"),
    "lift": ("3.32 M", "479 k"),
    "rgroup": ("1.88 M", "63 k"),
    "rsteer": ("5.60 M", "185 k"),
    "p-scnn": ("3.12 M", "105 k"),
}
_REMARKS = {
    "rpp": "the paper's code counts 8 more, of a normalisation that it never uses",
    "p-scnn": "the paper's kernel basis has duplicate elements, which carry weights of their own",
}
FLOW_DATASETS = tuple(_SETTINGS)


class FlowSize(NamedTuple):
    """How many parameters a network has here, what the paper prints, and why they differ."""

    method: str
    parameters: int
    paper: str
    remark: str


def flow_sizes(dataset: str) -> list[FlowSize]:
    """The networks of the paper's Table 3 for "smoke" or "jetflow", except CLCNN, of which no size is published."""
    if dataset not in _SETTINGS:
        raise ValueError(f"unknown data set {dataset!r}: use one of {', '.join(_SETTINGS)}")
    out = []
    for method in FLOW_METHODS:
        if method in _PRINTED:
            model = task_of(replace(_SETTINGS[dataset], method=method)).build()
            count = sum(p.numel() for p in model.parameters())
            printed = _PRINTED[method][FLOW_DATASETS.index(dataset)]
            out.append(FlowSize(method, count, printed, _REMARKS.get(method, "")))
    return out


def table_3(base: FlowSettings, paper: str, title: str) -> Sheet:
    """All methods."""
    own: dict[str, dict[str, Any]] = {
        # With a kernel at every pixel, the others' 92 channels would be a billion weights; its size is not published.
        "clcnn": {"width": min(base.width, 32)},
        # It has no normalisation: with the others' learning rate, its second step makes numbers of 10¹².
        "rgroup": {"lr": 1e-4},
    }
    cells: Cells = {}
    for label, method in METHODS.items():
        one = replace(base, method=method, **own.get(method, {}))
        cells |= {(label, test): (one, f"{test}_rmse") for test in TESTS}
    return Sheet(title, paper, cells)


def bandlimits() -> Sheet:
    """P-SCNN over SO(2)."""
    rows = {f"P-SCNN, L = {level}": SmokeSettings(group="SO(2)", bandlimit=level) for level in (1, 2, 4, 6)}
    cells: Cells = {(row, test): (one, f"{test}_rmse") for row, one in rows.items() for test in TESTS}
    return Sheet("Band-limits, smoke, SO(2)", "smoke_bandlimit", cells)


SHEETS: dict[str, Callable[[], Sheet]] = {
    "smoke": lambda: table_3(_SETTINGS["smoke"], "smoke", "Smoke, regenerated"),
    "smoke-bandlimit": bandlimits,
    "jetflow": lambda: table_3(_SETTINGS["jetflow"], "jetflow", "JetFlow"),
}

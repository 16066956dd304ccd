"""Sizes of the forecasting networks beside those that the paper prints."""

from __future__ import annotations

from typing import NamedTuple

from pscnn import models
from pscnn.models import FLOW_METHODS

_SETTINGS = {"smoke": (92, (64, 64)), "jetflow": (16, (62, 23))}
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
    hidden, size = _SETTINGS[dataset]
    out = []
    for method in FLOW_METHODS:
        if method in _PRINTED:
            model = models.build("flow", method, "C4", hidden=hidden, size=size)
            count = sum(p.numel() for p in model.parameters())
            printed = _PRINTED[method][FLOW_DATASETS.index(dataset)]
            out.append(FlowSize(method, count, printed, _REMARKS.get(method, "")))
    return out

"""The paper's tables and figures on vectors, and the same tasks in space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pscnn.data.vectors import TARGETS
from pscnn.experiments._sheets import Sheet, measured, varied
from pscnn.tasks.vectors import VectorSettings
from pscnn.training import Settings

NOISE = 0.01
"""Of the preliminary approach; the paper says "a small amount"."""
BASE = VectorSettings()


def _table(
    title: str, paper: str | None, rows: Mapping[str, Settings], targets: Iterable[str] = ("angle", "norm")
) -> Sheet:
    return Sheet(title, paper, varied(rows, "target", targets, "test_error"), digits=4)


def _methods() -> Sheet:
    rows: dict[str, Settings] = {"MLP, ELU": replace(BASE, method="mlp")}
    approaches: dict[str, dict[str, Any]] = {
        "E-MLP": {"method": "e-mlp"},
        "PE-MLP (preliminary)": {"method": "preliminary"},
        "PE-MLP (preliminary + noise)": {"method": "preliminary", "noise": NOISE},
        "PE-MLP (probabilistic)": {"method": "pe-mlp"},
    }
    for name, changes in approaches.items():
        for label, nonlinearity in (("Gated", "gated"), ("FourierELU", "fourier")):
            rows[f"{name}, {label}"] = replace(BASE, nonlinearity=nonlinearity, **changes)
    return _table("Methods", "vectors", rows)


def vector_sheets() -> list[Sheet]:
    """The tables, with the settings of this library and with two of the released code; and the figures."""
    sheets = [_methods()]
    released = replace(BASE, uniform_first=True, detached=True)
    for how, one in (("", BASE), (", trained as the released code does", released)):
        shared = {"shared": replace(one, shared=True), "individual": one}
        sheets.append(_table(f"One density for all layers, or one each{how}", "shared", shared))
        terms = {"with": one, "without": replace(one, align_weight=0.0)}
        sheets.append(_table(f"Alignment loss{how}", "align_vectors", terms))
        terms = {"with": one, "without": replace(one, kl_weight=0.0)}
        sheets.append(_table(f"KL divergence{how}", "kl_vectors", terms))
    return [*sheets, *_figures()]


def _figures() -> list[Sheet]:
    norm = replace(BASE, target="norm")
    targets = {"angle": BASE, "norm": norm}
    shared = {f"{t}, one density for all layers": replace(one, shared=True) for t, one in targets.items()}
    kinds = {f"{t}, {k}": replace(one, nonlinearity=k) for t, one in targets.items() for k in ("gated", "fourier")}
    align = {"with the alignment loss": BASE, "without": replace(BASE, align_weight=0.0)}
    no_kl = {"with the KL term": norm, "without": replace(norm, kl_weight=0.0)}
    shown = {"": "test_error"}
    layers = (("shared", shared), ("second-layer", kinds), ("alignment", align))
    seeds = [Sheet(name, None, measured(rows, shown), "seeds", {"layer": k}) for k, (name, rows) in enumerate(layers)]
    return [*seeds, Sheet("kl", None, measured(no_kl, shown), "kl")]


def space_sheets() -> list[Sheet]:
    """The same tasks in space, which the paper leaves out."""
    base = replace(BASE, group="SO(3)")
    rows: dict[str, Settings] = {"MLP": replace(base, method="mlp")}
    for group in ("SO(3)", "O(3)"):
        rows[f"E-MLP, {group}"] = replace(base, method="e-mlp", group=group)
        rows[f"PE-MLP, {group}"] = replace(base, method="pe-mlp", group=group, bandlimit=2)
    return [_table("Vectors in space", None, rows, TARGETS)]

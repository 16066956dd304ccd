"""The paper's tables and figures on vectors, and the same tasks in space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pscnn.data.vectors import TARGETS
from pscnn.experiments._sheets import Cells, Sheet
from pscnn.tasks.vectors import VectorSettings

NOISE = 0.01
"""Of the preliminary approach; the paper says "a small amount"."""
BASE = VectorSettings()


def _table(
    title: str, paper: str | None, rows: Mapping[str, VectorSettings], targets: tuple[str, ...] = ("angle", "norm")
) -> Sheet:
    cells: Cells = {(row, t): (replace(one, target=t), "test_error") for row, one in rows.items() for t in targets}
    return Sheet(title, paper, cells, digits=4)


def _methods() -> Sheet:
    rows = {"MLP, ELU": replace(BASE, method="mlp")}
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
        for title, paper, rows in (
            (
                "One density for all layers, or one each",
                "shared",
                {"shared": replace(one, shared=True), "individual": one},
            ),
            ("Alignment loss", "align_vectors", {"with": one, "without": replace(one, align_weight=0.0)}),
            ("KL divergence", "kl_vectors", {"with": one, "without": replace(one, kl_weight=0.0)}),
        ):
            sheets.append(_table(title + how, paper, rows))
    return [*sheets, *_figures()]


def _figures() -> list[Sheet]:
    norm = replace(BASE, target="norm")
    targets = {"angle": BASE, "norm": norm}
    kinds = ("gated", "fourier")
    figures: dict[str, tuple[str, dict[str, VectorSettings], dict[str, Any]]] = {
        "shared": (
            "seeds",
            {f"{t}, one density for all layers": replace(one, shared=True) for t, one in targets.items()},
            {"layer": 0},
        ),
        "second-layer": (
            "seeds",
            {f"{t}, {kind}": replace(one, nonlinearity=kind) for t, one in targets.items() for kind in kinds},
            {"layer": 1},
        ),
        "alignment": (
            "seeds",
            {"with the alignment loss": BASE, "without": replace(BASE, align_weight=0.0)},
            {"layer": 2},
        ),
        "kl": ("kl", {"with the KL term": norm, "without": replace(norm, kl_weight=0.0)}, {}),
    }
    return [
        Sheet(name, None, {(row, ""): (one, "test_error") for row, one in rows.items()}, kind, options)
        for name, (kind, rows, options) in figures.items()
    ]


def space_sheets() -> list[Sheet]:
    """The same tasks in space, which the paper leaves out."""
    base = replace(BASE, group="SO(3)")
    rows = {"MLP": replace(base, method="mlp")}
    for group in ("SO(3)", "O(3)"):
        rows[f"E-MLP, {group}"] = replace(base, method="e-mlp", group=group)
        rows[f"PE-MLP, {group}"] = replace(base, method="pe-mlp", group=group, bandlimit=2)
    return [_table("Vectors in space", None, rows, TARGETS)]

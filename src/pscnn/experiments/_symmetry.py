"""Does a learnt density tell the truth? Tasks whose symmetries are known, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pscnn.experiments._sheets import Sheet, measured
from pscnn.tasks.symmetry import TARGETS, SymmetrySettings
from pscnn.training import Settings

SCORES = {"AUC": "auc", "variation": "total_variation", "error": "train_task"}
VARIATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "alignment": {
        "exact": {},
        "loss": {"alignment": "soft", "align_weight": 1.0},
        "construction": {"alignment": "construction"},
        "none": {"alignment": "soft"},
    },
    "kl": {str(weight): {"kl_weight": weight} for weight in (0.0, 0.003, 0.03, 0.3)},
    "bandlimit": {str(limit): {"bandlimit": limit} for limit in (1, 2, 3, 4)},
    "densities": {which: {"densities": which} for which in ("last", "each", "shared")},
}
"""What can be varied, and the settings of each variant."""


def symmetry_sheet(targets: Iterable[str] | None = None, vary: str | None = None, **settings: Any) -> Sheet:
    """A row per target, or per target and variant.

    Args:
        targets: Names of ``tasks.symmetry.TARGETS``; all by default.
        vary: A name of ``VARIATIONS``.
        settings: Replace those of every run.
    """
    rows: dict[str, Settings] = {}
    for target in targets or TARGETS:
        for label, changes in (VARIATIONS[vary] if vary else {"": {}}).items():
            rows[f"{target}, {label}" if label else target] = SymmetrySettings(target=target, **{**changes, **settings})
    return Sheet("Do densities tell known symmetries?", None, measured(rows, SCORES))

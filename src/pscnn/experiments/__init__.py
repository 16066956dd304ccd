"""The paper's tables as data, and further experiments."""

from collections.abc import Callable

from pscnn.experiments import _digits, _flows, _relaxations, _rivals, _volumes
from pscnn.experiments._archive import save_runs, take_runs
from pscnn.experiments._bench import BenchCase, machine, ratio, run_bench
from pscnn.experiments._curve import Curve, curve
from pscnn.experiments._discover import (
    DISCOVER_METHODS,
    Choice,
    Difference,
    choose,
    discover_plan,
    finished,
    prepared_file,
    receptive_fields,
    validation_scores,
)
from pscnn.experiments._flows import FLOW_DATASETS, flow_sizes
from pscnn.experiments._presence import Presence, presence
from pscnn.experiments._sheets import Cell, Sheet, check_settings, check_words, equal_width, published, select, spread
from pscnn.experiments._symmetry import VARIATIONS, symmetry_sheet
from pscnn.experiments._vectors import space_sheets, vector_sheets

SHEETS: dict[str, Callable[[], Sheet | list[Sheet]]] = {
    **_digits.SHEETS,
    **_rivals.SHEETS,
    **_relaxations.SHEETS,
    **_volumes.SHEETS,
    **_flows.SHEETS,
    "vectors": vector_sheets,
    "vectors-3d": space_sheets,
    "symmetry": symmetry_sheet,
    **_digits.FIGURES,
    **_rivals.FIGURES,
    **_volumes.FIGURES,
    **_flows.FIGURES,
}
"""Tables and figures, one or several, by the name under which ``pscnn reproduce`` knows them."""

__all__ = [
    "DISCOVER_METHODS",
    "FLOW_DATASETS",
    "SHEETS",
    "VARIATIONS",
    "BenchCase",
    "Cell",
    "Choice",
    "Curve",
    "Difference",
    "Presence",
    "Sheet",
    "check_settings",
    "check_words",
    "choose",
    "curve",
    "discover_plan",
    "equal_width",
    "finished",
    "flow_sizes",
    "machine",
    "prepared_file",
    "presence",
    "published",
    "ratio",
    "receptive_fields",
    "run_bench",
    "save_runs",
    "select",
    "space_sheets",
    "spread",
    "symmetry_sheet",
    "take_runs",
    "validation_scores",
    "vector_sheets",
]

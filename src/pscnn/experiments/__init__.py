"""The paper's tables as data, and further experiments."""

from collections.abc import Callable

from pscnn.experiments import _digits, _flows, _relaxations, _rivals, _volumes
from pscnn.experiments._archive import save_runs, take_runs
from pscnn.experiments._bench import BenchCase, machine, ratio, run_bench
from pscnn.experiments._curve import Curve, curve, wilson
from pscnn.experiments._discover import (
    FEWEST,
    LABELS,
    Difference,
    Discovery,
    Network,
    Statement,
    Subgroup,
    discover,
    folder_of,
    is_prepared,
    prepared_file,
    trained_network,
)
from pscnn.experiments._flows import FLOW_DATASETS, flow_sizes
from pscnn.experiments._known import OUTCOMES, judge
from pscnn.experiments._known_answers import answer_counts, answer_rows, ask, read_answers, write_answers
from pscnn.experiments._presence import Presence, presence
from pscnn.experiments._quickstart import QUICKSTART_LABELS, quickstart_networks, quickstart_sheet, search_sheet
from pscnn.experiments._receptive import receptive_fields
from pscnn.experiments._sheets import Cell, Sheet, check_settings, check_words, equal_width, published, select, spread
from pscnn.experiments._symmetry import VARIATIONS, symmetry_sheet
from pscnn.experiments._vectors import space_sheets, vector_sheets

SHEETS: dict[str, Callable[[], Sheet | list[Sheet]]] = {
    **_digits.SHEETS,
    **_rivals.SHEETS,
    **_relaxations.SHEETS,
    **_volumes.SHEETS,
    **_flows.SHEETS,
    "quickstart": quickstart_sheet,
    "quickstart-search": search_sheet,
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
    "FEWEST",
    "FLOW_DATASETS",
    "LABELS",
    "OUTCOMES",
    "QUICKSTART_LABELS",
    "SHEETS",
    "VARIATIONS",
    "BenchCase",
    "Cell",
    "Curve",
    "Difference",
    "Discovery",
    "Network",
    "Presence",
    "Sheet",
    "Statement",
    "Subgroup",
    "answer_counts",
    "answer_rows",
    "ask",
    "check_settings",
    "check_words",
    "curve",
    "discover",
    "equal_width",
    "flow_sizes",
    "folder_of",
    "is_prepared",
    "judge",
    "machine",
    "prepared_file",
    "presence",
    "published",
    "quickstart_networks",
    "ratio",
    "read_answers",
    "receptive_fields",
    "run_bench",
    "save_runs",
    "select",
    "space_sheets",
    "spread",
    "symmetry_sheet",
    "take_runs",
    "trained_network",
    "vector_sheets",
    "wilson",
    "write_answers",
]

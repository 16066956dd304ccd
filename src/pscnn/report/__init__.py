"""Plots, text summaries and the HTML report. Pictures need the extra ``plots``, reports of runs ``training``, too."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pscnn.densities import LayerSummary, layer_summaries, summary
from pscnn.report._degree import agreement, agreement_figure, degree_figure, plane_elements
from pscnn.report._density import density_chart, density_curves, density_figure
from pscnn.report._dials import dial_figure
from pscnn.report._forecast import comparison_animation, forecast_animation, forecast_figure
from pscnn.report._measure import measure_figure
from pscnn.report._results import ablation_figure, confusion_figure, tradeoff_figure, training_figure
from pscnn.report._spheres import sphere_figure

if TYPE_CHECKING:
    from pscnn.report._curve import curve_figure, curve_words
    from pscnn.report._discover import (
        discovery_costs,
        discovery_headline,
        discovery_scores,
        discovery_words,
        write_discovery,
    )
    from pscnn.report._html import check_report, html_report
    from pscnn.report._known import draw_known
    from pscnn.report._pictures import check_drawable, draw_sheets
    from pscnn.report._presence import presence_words, subgroup_words
    from pscnn.report._quickstart import quickstart
    from pscnn.report._rows import FORMATS, finished_runs, run_rows, sheet_rows, write_rows

__all__ = [
    "FORMATS",
    "LayerSummary",
    "ablation_figure",
    "agreement",
    "agreement_figure",
    "check_drawable",
    "check_report",
    "comparison_animation",
    "confusion_figure",
    "curve_figure",
    "curve_words",
    "degree_figure",
    "density_chart",
    "density_curves",
    "density_figure",
    "dial_figure",
    "discovery_costs",
    "discovery_headline",
    "discovery_scores",
    "discovery_words",
    "draw_known",
    "draw_sheets",
    "finished_runs",
    "forecast_animation",
    "forecast_figure",
    "html_report",
    "layer_summaries",
    "measure_figure",
    "plane_elements",
    "presence_words",
    "quickstart",
    "run_rows",
    "sheet_rows",
    "sphere_figure",
    "subgroup_words",
    "summary",
    "tradeoff_figure",
    "training_figure",
    "write_discovery",
    "write_rows",
]


_HOMES = ("_rows", "_html", "_pictures", "_quickstart", "_discover", "_known", "_curve", "_presence")


def __getattr__(name: str) -> Any:
    """Import what is about runs when it is asked for: pictures of a network need no extra ``training``."""
    for home in _HOMES if name in __all__ else ():
        module = importlib.import_module(f"pscnn.report.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

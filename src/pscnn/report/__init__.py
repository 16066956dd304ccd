"""Plots, text summaries and the HTML report. Pictures need the extra ``plots``."""

from __future__ import annotations

from pscnn.densities import LayerSummary, layer_summaries, summary
from pscnn.report._degree import agreement, agreement_figure, degree_figure, plane_elements
from pscnn.report._density import density_curves, density_figure
from pscnn.report._forecast import forecast_animation, forecast_figure
from pscnn.report._results import ablation_figure, confusion_figure, training_figure
from pscnn.report._spheres import sphere_figure, sphere_panels
from pscnn.report._terminal import density_chart

__all__ = [
    "LayerSummary",
    "ablation_figure",
    "agreement",
    "agreement_figure",
    "confusion_figure",
    "degree_figure",
    "density_chart",
    "density_curves",
    "density_figure",
    "forecast_animation",
    "forecast_figure",
    "layer_summaries",
    "plane_elements",
    "sphere_figure",
    "sphere_panels",
    "summary",
    "training_figure",
]

"""The densities of a whole model: their losses and alignment, what they kept, and how equivariant the layers are."""

from pscnn.densities._degree import degree, typed_layers
from pscnn.densities._equivariance import LayerError, checked_elements, equivariance_error, grid_elements, layer_errors
from pscnn.densities._measure import LayerMeasure, Measurement, measure
from pscnn.densities._regularization import Regularization, align, likelihoods, parameter_groups, regularization
from pscnn.densities._summary import KEPT, NEAR, LayerSummary, apart, layer_summaries, summary

__all__ = [
    "KEPT",
    "NEAR",
    "LayerError",
    "LayerMeasure",
    "LayerSummary",
    "Measurement",
    "Regularization",
    "align",
    "apart",
    "checked_elements",
    "degree",
    "equivariance_error",
    "grid_elements",
    "layer_errors",
    "layer_summaries",
    "likelihoods",
    "measure",
    "parameter_groups",
    "regularization",
    "summary",
    "typed_layers",
]

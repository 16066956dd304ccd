"""Steerable networks that learn how much symmetry to keep."""

from __future__ import annotations

from pscnn import groups, nn, testing
from pscnn.densities import (
    LayerError,
    Regularization,
    align,
    equivariance_error,
    layer_errors,
    likelihoods,
    regularization,
)
from pscnn.likelihood import Likelihood
from pscnn.nn import FieldType
from pscnn.report import summary

__version__ = "0.1.0"

__all__ = [
    "FieldType",
    "LayerError",
    "Likelihood",
    "Regularization",
    "align",
    "equivariance_error",
    "groups",
    "layer_errors",
    "likelihoods",
    "nn",
    "regularization",
    "summary",
    "testing",
]

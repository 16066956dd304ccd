"""Steerable networks that learn how much symmetry to keep."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pscnn import densities, groups, nn, testing
    from pscnn._extras import MissingExtraError, PscnnError
    from pscnn.densities import (
        LayerError,
        Measurement,
        Regularization,
        align,
        degree,
        equivariance_error,
        layer_errors,
        likelihoods,
        measure,
        parameter_groups,
        regularization,
        summary,
    )
    from pscnn.experiments import Discovery, discover
    from pscnn.likelihood import Likelihood
    from pscnn.nn import FieldType

__version__ = "0.1.0"

__all__ = [
    "Discovery",
    "FieldType",
    "LayerError",
    "Likelihood",
    "Measurement",
    "MissingExtraError",
    "PscnnError",
    "Regularization",
    "align",
    "degree",
    "densities",
    "discover",
    "equivariance_error",
    "groups",
    "layer_errors",
    "likelihoods",
    "measure",
    "nn",
    "parameter_groups",
    "regularization",
    "summary",
    "testing",
]
_HOMES = {"FieldType": "nn", "Likelihood": "likelihood", "MissingExtraError": "_extras", "PscnnError": "_extras"}
_HOMES |= {"Discovery": "experiments", "discover": "experiments"}
_ROOMS = (
    *("groups", "kernels", "measures", "likelihood", "nn", "densities", "models", "testing"),
    *("data", "training", "experiments", "report"),
)


def __getattr__(name: str) -> Any:
    """Import what is asked for: the mathematics of ``pscnn.groups`` must not take the seconds that torch takes."""
    if name in _ROOMS:
        return importlib.import_module(f"pscnn.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"pscnn.{_HOMES.get(name, 'densities')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})

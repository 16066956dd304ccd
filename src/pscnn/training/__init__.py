"""Training: the objective, the run and its folder. Needs the extra ``training``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pscnn.training._config import (
        EXPERIMENTS,
        Config,
        ConfigError,
        DoubleDigitConfig,
        FlowConfig,
        JetFlowConfig,
        OwnConfig,
        ShapeConfig,
        SmokeConfig,
        VolumeConfig,
    )
    from pscnn.training._data import Data
    from pscnn.training._export import answers, export_run
    from pscnn.training._module import Classification, Forecasting, Learner, Regression, roll_out
    from pscnn.training._run import RunError, evaluate, history, load, read_config, start, train
    from pscnn.training._seeds import last_epoch, start_seeds, train_together

__all__ = [
    "EXPERIMENTS",
    "Classification",
    "Config",
    "ConfigError",
    "Data",
    "DoubleDigitConfig",
    "FlowConfig",
    "Forecasting",
    "JetFlowConfig",
    "Learner",
    "OwnConfig",
    "Regression",
    "RunError",
    "ShapeConfig",
    "SmokeConfig",
    "VolumeConfig",
    "answers",
    "evaluate",
    "export_run",
    "history",
    "last_epoch",
    "load",
    "read_config",
    "roll_out",
    "start",
    "start_seeds",
    "train",
    "train_together",
]
_CONFIGS = ("Config", "ConfigError", "DoubleDigitConfig", "FlowConfig", "JetFlowConfig", "ShapeConfig", "SmokeConfig")
_HOMES = {
    **dict.fromkeys(("EXPERIMENTS", *_CONFIGS, "OwnConfig", "VolumeConfig"), "_config"),
    "Data": "_data",
    **dict.fromkeys(("answers", "export_run"), "_export"),
    **dict.fromkeys(("Classification", "Forecasting", "Learner", "Regression", "roll_out"), "_module"),
    **dict.fromkeys(("last_epoch", "start_seeds", "train_together"), "_seeds"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: reading a configuration must not take the seconds that Lightning's import takes."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pscnn._extras import require

    home = _HOMES.get(name, "_run")
    for module in ("yaml",) if home == "_config" else ("yaml", "lightning", "torchmetrics"):
        require(module, "training", "Training")
    return getattr(importlib.import_module(f"pscnn.training.{home}"), name)

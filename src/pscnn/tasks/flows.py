"""Forecasts of flows (paper, Table 3): simulated smoke and measured jets."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from pscnn import models
from pscnn.data import Windows, jetflow, smoke
from pscnn.models import FLOW_METHODS, MEASURE_METHODS, PAPER_FLOW_METHODS, PAST, WRAPPERS
from pscnn.nn import FieldType
from pscnn.training import ConfigError, Metric, Task, TrainerSettings, setting

if TYPE_CHECKING:
    from pscnn.training import Learner


@dataclass(frozen=True)
class FlowSettings(TrainerSettings):
    """Of forecasting networks; the defaults are the paper's."""

    dimension: ClassVar[int] = 2
    paper: ClassVar[Mapping[str, Any]] = {"lr": 1e-3, "lr_decay": 0.95, "weight_decay": 4e-4}

    method: str = setting("p-scnn", choices=FLOW_METHODS)
    group: str = "C(4)"
    epochs: int = 100
    batch_size: int = 16
    lr: float = setting(None, "Learning rate of Adam, at its highest; by default 0.001, with the modern recipe 0.002.")
    lr_decay: float = setting(
        None, "Factor of the learning rate after every epoch; by default 0.95, with the modern recipe 1."
    )
    weight_decay: float = setting(None, "Weight decay; by default 0.0004, with the modern recipe 0.05.")
    width: int = setting(92, "Fields per layer.", section="network", least=1, most=10**4)
    kernel: int = setting(3, "Kernel size; odd.", section="network", least=1, most=31)
    layers: int = setting(5, "Number of convolutions.", section="network", least=2, most=100)
    train_steps: int = setting(6, "Number of frames to forecast in training.", least=1, most=10**4)
    test_steps: int = setting(20, "Number of frames to forecast in tests.", least=1, most=10**4)

    def check(self) -> None:
        """What a method needs."""
        super().check()
        if self.kernel % 2 == 0:
            raise ConfigError(f"kernel must be odd, got {self.kernel}")
        free = (*MEASURE_METHODS, *WRAPPERS)
        if self.method not in free and self.group != "C(4)":
            others = ", ".join(name for name in FLOW_METHODS if name in free)
            raise ConfigError(
                f"group must be C(4) for {self.method}, got {self.group}: only {others} take other groups"
            )
        if self.method in ("combo", "lift") and self.layers != FlowSettings.layers:
            raise ConfigError(f"layers cannot be changed for {self.method}")
        if self.method == "lift" and self.width % 4:
            raise ConfigError(f"width must be a multiple of 4 for lift, got {self.width}")


class FlowTask(Task):
    """A network continues a flow from its own frames."""

    settings: Any
    source: ClassVar[Any]
    """The module of the data."""
    grid: ClassVar[tuple[int, int]]
    """Height and width of the fields."""
    evaluation_batch = 50
    adamw = False
    forecasts = True

    variant = "forecast"
    metric = Metric("mse", more_is_better=False)
    scores: Mapping[str, str] = {"future_rmse": "RMSE, later", "domain_rmse": "RMSE, other runs"}
    tests = ("future", "domain")

    def __init__(self, settings: FlowSettings) -> None:
        super().__init__(settings)
        self.input_shape = 2 * PAST, *self.grid
        self.square_penalty = settings.method in PAPER_FLOW_METHODS

    def learner(self) -> "Learner":
        from pscnn.tasks._forecasting import Forecasting

        return Forecasting(self)

    def field_types(self) -> tuple[FieldType, FieldType]:
        group = self.settings.parsed_group
        return FieldType(group, PAST * [group.vector]), FieldType(group, [group.vector])

    def build(self) -> nn.Module:
        own = self.settings
        return models.build(
            "flow",
            own.method,
            own.parsed_group,
            size=self.grid,
            hidden=own.width,
            layers=own.layers,
            kernel=own.kernel,
            bandlimit=own.bandlimit,
            density=own.density_options,
        )

    def load(self, folder: str | Path | None) -> Mapping[str, Windows]:
        """Data in which every window has frames enough after it, and training does not reach those of the test."""
        data: dict[str, Windows] = self.source.load(folder)
        steps = self.settings.train_steps
        if steps > data["future"].starts[0] - data["train"].starts[-1]:
            raise ConfigError(
                f"train_steps: forecasts of {steps} steps would overlap with the frames of the test set future"
            )
        for name, windows in data.items():
            steps, most = self._steps(name), windows.most_steps
            if steps > most:
                raise ConfigError(f"{name} windows are followed by only {most} frames; cannot forecast {steps}")
        return data

    def _steps(self, split: str) -> int:
        return self.settings.test_steps if split in self.tests else self.settings.train_steps

    def batch(self, name: str, split: Any, rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = split.frames(rows, self._steps(name))
        return found


_REMOVED = {"nonlinearity": "gated", "invariant": True, "balanced": False}


@dataclass(frozen=True)
class SmokeSettings(FlowSettings):
    """Smoke in a closed box, simulated with ``pscnn data prepare smoke``."""

    task: ClassVar[str] = "smoke"
    removed: ClassVar[Mapping[str, Any]] = {**_REMOVED, "size": smoke.SIZE}


class Smoke(FlowTask):
    """Forecasts of simulated smoke in a closed box."""

    settings_type = SmokeSettings
    source: ClassVar[Any] = smoke
    grid = (smoke.SIZE, smoke.SIZE)


@dataclass(frozen=True)
class JetFlowSettings(FlowSettings):
    """Measured jets of air, from published files."""

    task: ClassVar[str] = "jetflow"
    removed: ClassVar[Mapping[str, Any]] = {**_REMOVED, "size": jetflow.SIZE[0]}

    width: int = 16

    def check(self) -> None:
        """Quarter turns do not map these fields to themselves."""
        super().check()
        if self.method in WRAPPERS:
            raise ConfigError(f"{self.method} turns whole fields, which must be square; those of jetflow are not")


class JetFlow(FlowTask):
    """Forecasts of measured jets of air."""

    settings_type = JetFlowSettings
    source: ClassVar[Any] = jetflow
    grid = jetflow.SIZE

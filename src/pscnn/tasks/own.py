"""The user's own data, as ``pscnn.data.own`` prepares them: images or volumes, with classes or numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from pscnn import models
from pscnn.data import DataError, own
from pscnn.models import METHODS, VOLUME_METHODS
from pscnn.tasks._classes import ImageSettings, ImageTask, VolumeTask
from pscnn.training import ConfigError, Metric, setting

if TYPE_CHECKING:
    from pscnn.training import Learner


@dataclass(frozen=True)
class OwnSettings(ImageSettings):
    """Settings whose default is None depend on the data."""

    task: ClassVar[str] = "own"
    paper: ClassVar[Mapping[str, Any]] = {"lr": 3e-3}

    method: str = setting("p-scnn", choices=tuple(dict.fromkeys((*METHODS, *VOLUME_METHODS))))
    group: str = setting(None, "The group H; by default O(2) for images, O(3) for volumes.")
    size: int = setting(None, "Side length; by default that of the data.")
    width: float = setting(None, "Width of the network; by default 0.25 for images, 1 for volumes.")
    batch_size: int = setting(None, "Batch size; by default 64 images or 32 volumes.")
    lr: float = setting(None, "Learning rate of Adam, at its highest; by default 0.003, with the modern recipe 0.002.")
    alignment: str = "exact"
    kl_weight: float = 1.0
    uniform_first: bool = True
    data: str = setting("", "Prepared data, a file written by pscnn discover.")
    about: str = setting("", "Description of the data; read from the file.")

    @cached_property
    def holds(self) -> own.About:
        """What the data are."""
        return own.About.from_json(self.about)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """Of images or volumes."""
        return self.holds.dimension

    def fill(self) -> None:
        """What the data say."""
        if not self.about and not self.data:
            raise ConfigError("own needs --data, a file written by pscnn discover")
        try:
            if not self.about:
                self.assign("about", own.read_about(self.data).to_json())
            k = self.dimension - 2
        except (DataError, ValueError) as error:
            raise ConfigError(str(error)) from None
        usual = {"group": ("O(2)", "O(3)")[k], "width": (0.25, 1.0)[k], "batch_size": (64, 32)[k]}
        for name, value in {**usual, "size": self.holds.size}.items():
            if getattr(self, name) is None:
                self.assign(name, value)
        if self.holds.regression and self.label_smoothing is None:
            self.assign("label_smoothing", 0.0)
        super().fill()

    def check(self) -> None:
        """Whether settings fit the data."""
        super().check()
        if self.size != self.holds.size:
            raise ConfigError(
                f"{self.data} has side length {self.holds.size}, not {self.size}: prepare it again with pscnn discover"
            )
        methods = METHODS if self.dimension == 2 else VOLUME_METHODS
        if self.method not in methods:
            raise ConfigError(f"method must be one of {', '.join(methods)} for these data, got {self.method!r}")
        for name in ("balanced", "label_smoothing"):
            if getattr(self, name) and self.holds.regression:
                raise ConfigError(f"{name} applies to classes, but these data are for regression")


class Own(ImageTask):
    """Your own data: classification or regression of images or volumes."""

    settings_type = OwnSettings
    named = ("data", "about")
    settings: OwnSettings

    def __init__(self, settings: OwnSettings) -> None:
        holds = settings.holds
        super().__init__(settings, Path(holds.source).stem, holds.names, channels=holds.channels)
        self.files = holds
        if settings.dimension == 3:
            self.scores = VolumeTask.scores
        if holds.regression:
            self.class_names, self.metric = None, Metric("mse", more_is_better=False)
            self.scores = {"test_rmse": "RMSE, in deviations"}

    def learner(self) -> "Learner":
        if not self.settings.holds.regression:
            return super().learner()
        from pscnn.training import Regression

        return Regression(self, self.settings.holds.deviations)

    def build(self) -> nn.Module:
        network = super().build()
        if not self.settings.holds.regression:
            return network
        holds = self.settings.holds
        return nn.Sequential(*network.children(), models.Rescale(holds.means, holds.deviations))

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        path = own.find(self.settings.data, self.folder)
        splits = own.load(path)
        if own.read_about(path) != self.settings.holds:
            raise DataError(f"{path} holds other data than those that this run is about")
        return splits

"""What tasks on images and volumes share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from pscnn import models
from pscnn.data.own import About
from pscnn.models import NONLINEARITIES
from pscnn.nn import FieldType
from pscnn.training import ConfigError, Task, TrainerSettings, setting


@dataclass(frozen=True)
class ImageSettings(TrainerSettings):
    """Of networks on images and volumes."""

    nonlinearity: str = setting("gated", "Nonlinearity of the features.", section="network", choices=NONLINEARITIES)
    invariant: bool = setting(True, "Use only invariant features in the classifier.", section="network")
    size: int = setting(56, "Side length.", section="network")
    width: float = setting(1.0, "Factor of the numbers of fields.", section="network", positive=True, most=100)
    label_smoothing: float = setting(
        None,
        "Share of every label that is spread over all classes; by default 0, with the modern recipe 0.1.",
        section="optimiser",
        least=0,
        most=1,
    )
    balanced: bool = setting(False, "Weight classes by the inverse of their frequency.", section="optimiser")

    @property
    def counts_fields(self) -> bool:
        """Whether the width is the number of fields of the first layer, as in the paper's network for volumes."""
        return self.dimension == 3

    def check(self) -> None:
        """Whole numbers of fields."""
        super().check()
        if self.counts_fields and self.width != int(self.width):
            raise ConfigError(f"width must be an integer for volumes, got {self.width}")


class ImageTask(Task):
    """Classes, or numbers, of images or volumes; the network sees brightnesses between two ends as −1 to 1."""

    settings: Any

    def __init__(
        self,
        settings: Any,
        variant: str,
        names: tuple[str, ...],
        channels: int = 1,
        ends: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        super().__init__(settings)
        self.variant, self.class_names, self.outputs = variant, names, len(names)
        self.input_shape = channels, *[settings.size] * settings.dimension
        self.files = About(self.input_shape[1:], channels, names, "classes", *ends)

    def field_types(self) -> tuple[FieldType, FieldType | None]:
        group = self.settings.parsed_group
        return FieldType(group, self.input_shape[0] * [group.trivial]), None

    def build(self) -> nn.Module:
        settings = self.settings
        in_plane = settings.dimension == 2
        return models.build(
            "images" if in_plane else "volumes",
            settings.method,
            settings.parsed_group,
            bandlimit=settings.bandlimit,
            nonlinearity=settings.nonlinearity,
            invariant=settings.invariant,
            size=settings.size,
            width=settings.width if in_plane else int(settings.width),
            classes=self.outputs,
            channels=self.input_shape[0],
            density=settings.density_options,
        )


class VolumeTask(ImageTask):
    """Classes of volumes, tested by the area under the curve, too."""

    evaluation_batch = 48
    scores: Mapping[str, str] = {"test_accuracy": "test accuracy", "test_auc": "AUC"}

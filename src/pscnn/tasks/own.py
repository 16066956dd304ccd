"""The user's own data, as ``pscnn.data.own`` prepares them: images or volumes, with classes or numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from pscnn import models
from pscnn.data import DataError, own
from pscnn.models import DIGIT_SIZES, METHODS, VOLUME_METHODS, VOLUME_SIZES
from pscnn.nn import FieldType
from pscnn.tasks._classes import ImageSettings, ImageTask, VolumeTask
from pscnn.training import ConfigError, Target, setting, target_of

if TYPE_CHECKING:
    from pscnn.training import Learner

SCORES = {
    "labels": {"test_accuracy": "labels that are right", "test_auc": "AUC"},
    "numbers": {"test_rmse": "RMSE, in deviations"},
    "vectors": {"test_rmse": "RMSE, in deviations"},
    "masks": {"test_iou": "intersection over union"},
}
PIXELS_AT_ONCE = 2**22
"""When nothing is learnt."""


@dataclass(frozen=True)
class OwnSettings(ImageSettings):
    """Settings whose default is None depend on the data."""

    task: ClassVar[str] = "own"
    paper: ClassVar[Mapping[str, Any]] = {"lr": 3e-3}

    method: str = setting("p-scnn", choices=tuple(dict.fromkeys((*METHODS, *VOLUME_METHODS))))
    group: str = setting(None, "The group H; by default O(2) for images, O(3) for volumes.")
    size: int = setting(None, "The longest side; by default that of the data.")
    width: float = setting(None, "Width of the network; by default 0.25 for images, 1 for volumes.")
    batch_size: int = setting(None, "Batch size; by default 64 images or 32 volumes.")
    lr: float = setting(None, "Learning rate of Adam, at its highest; by default 0.003, with the modern recipe 0.002.")
    alignment: str = "exact"
    kl_weight: float = 1.0
    uniform_first: bool = True
    network: str = setting(
        "paper",
        "The paper's network, if it has this size; own: one for any size that lets through less between right angles; "
        "or resnet: a ResNet-18, with 64 times the width as channels of its first stage.",
        section="network",
        choices=("paper", "own", "resnet"),
    )
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

    @property
    def has_paper_network(self) -> bool:
        """Whether it is asked for and exists for these data."""
        holds, sizes = self.holds, DIGIT_SIZES if self.dimension == 2 else VOLUME_SIZES
        scalars = target_of(holds).output == "scalars"
        return self.network == "paper" and scalars and set(holds.shape) <= {holds.size} and holds.size in sizes

    @property
    def counts_fields(self) -> bool:
        """Only in the paper's network."""
        return super().counts_fields and self.has_paper_network

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
        wide = (0.25, 1.0 if self.has_paper_network else 0.25)[k]
        usual = {"group": ("O(2)", "O(3)")[k], "width": wide, "batch_size": (64, 32)[k]}
        for name, value in {**usual, "size": self.holds.size}.items():
            if getattr(self, name) is None:
                self.assign(name, value)
        if self.holds.kind != "classes" and self.label_smoothing is None:
            self.assign("label_smoothing", 0.0)
        super().fill()

    def check(self) -> None:
        """Whether settings fit the data."""
        super().check()
        if self.size != self.holds.size:
            raise ConfigError(
                f"{self.data} has a longest side of {self.holds.size}, not {self.size}: pscnn discover prepares data"
            )
        methods = METHODS if self.dimension == 2 else VOLUME_METHODS
        if self.method not in methods:
            raise ConfigError(f"method must be one of {', '.join(methods)} for these data, got {self.method!r}")
        for name in ("balanced", "label_smoothing"):
            if getattr(self, name) and self.holds.kind != "classes":
                what = "regression" if self.holds.kind == "numbers" else self.holds.kind
                raise ConfigError(f"{name} applies to classes, but these data are for {what}")


class Own(ImageTask):
    """Your own data: classes, labels, numbers, vectors or masks of images or volumes."""

    settings_type = OwnSettings
    named = ("data", "about")
    settings: OwnSettings
    target: Target

    def __init__(self, settings: OwnSettings) -> None:
        holds = settings.holds
        super().__init__(settings, Path(holds.source).stem, holds.names, channels=holds.channels)
        self.files, self.target = holds, target_of(holds)
        self.input_shape = holds.channels, *holds.shape
        self.metric = self.target.metric
        self.evaluation_batch = max(1, min(self.evaluation_batch, PIXELS_AT_ONCE // math.prod(holds.shape)))
        if holds.kind != "classes":
            self.class_names, self.scores = None, SCORES[holds.kind]
        elif settings.dimension == 3:
            self.scores = VolumeTask.scores

    def learner(self) -> "Learner":
        if self.settings.holds.kind == "classes":
            return super().learner()
        from pscnn.training import Supervised

        return Supervised(self, self.target)

    def field_types(self) -> tuple[FieldType, FieldType | None]:
        source, _ = super().field_types()
        group, output = self.settings.parsed_group, self.target.output
        if output == "scalars":
            return source, None
        return source, FieldType(group, [group.vector] if output == "vector" else self.outputs * [group.trivial])

    def build(self) -> nn.Module:
        settings, holds = self.settings, self.settings.holds
        network = super().build() if settings.has_paper_network else self._own_network()
        if not holds.regression:
            return network
        return nn.Sequential(*network.children(), models.Rescale(holds.means, holds.deviations))

    def _own_network(self) -> nn.Module:
        """For any shape and all kinds of targets."""
        settings, holds = self.settings, self.settings.holds
        if min(holds.shape) < own.SMALLEST:
            raise ConfigError(f"no network is for a side of {min(holds.shape)} pixels: give {own.SMALLEST} or more")
        output = self.target.output
        return models.build(
            "own",
            settings.method,
            settings.parsed_group,
            shape=holds.shape,
            channels=holds.channels,
            outputs=1 if output == "vector" else self.outputs,
            output=output,
            bandlimit=settings.bandlimit,
            invariant=settings.invariant,
            width=settings.width,
            density=settings.density_options,
            residual=settings.network == "resnet",
        )

    def batch(self, name: str, split: Any, rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        x, y = super().batch(name, split, rows, seed)
        return x, y.long() if self.settings.holds.kind == "masks" else y  # masks are kept in fewer bits

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        path = own.find(self.settings.data, self.folder)
        splits = own.load(path)
        if own.read_about(path) != self.settings.holds:
            raise DataError(f"{path} holds other data than those that this run is about")
        return splits

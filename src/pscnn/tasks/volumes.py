"""Medical volumes (paper, Table 2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pscnn.data import medmnist3d
from pscnn.models import VOLUME_METHODS
from pscnn.tasks._classes import ImageSettings, VolumeTask
from pscnn.training import setting


@dataclass(frozen=True)
class VolumeSettings(ImageSettings):
    """The defaults are the paper's."""

    task: ClassVar[str] = "medmnist3d"
    dimension: ClassVar[int] = 3

    method: str = setting("p-scnn", choices=VOLUME_METHODS)
    group: str = setting("SO(3)", "The group H, such as SO(3), O(3), SO(2)@z.")
    size: int = setting(28, choices=medmnist3d.SIZES)
    width: float = setting(6.0, "Number of fields in the first block.")
    epochs: int = 100
    batch_size: int = 32
    lr: float = setting(None, "Learning rate of Adam; by default 5e-05 for organs, 1e-05 for others; modern: 0.002.")
    kl_weight: float = 1.0
    select: str = "last"
    dataset: str = setting("organ", "Data set.", choices=tuple(medmnist3d.CLASSES))
    fraction: float = setting(1.0, "Fraction of the training volumes to use.", positive=True, most=1)

    def fill(self) -> None:
        """The paper's learning rate."""
        if self.lr is None and self.recipe == "paper":
            self.assign("lr", 5e-5 if self.dataset == "organ" else 1e-5)
        super().fill()


class Volumes(VolumeTask):
    """Classification of medical volumes (MedMNIST)."""

    settings_type = VolumeSettings
    named = ("dataset",)
    settings: VolumeSettings

    def __init__(self, settings: VolumeSettings) -> None:
        super().__init__(settings, settings.dataset, medmnist3d.CLASSES[settings.dataset])

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        own = self.settings
        return medmnist3d.load(own.dataset, size=own.size, fraction=own.fraction, folder=folder)

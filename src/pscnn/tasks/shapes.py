"""Bodies whose symmetries are known, in volumes that need no download."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pscnn.data import shapes3d
from pscnn.models import VOLUME_METHODS
from pscnn.tasks._classes import ImageSettings, VolumeTask
from pscnn.training import setting


@dataclass(frozen=True)
class ShapeSettings(ImageSettings):
    """The defaults give an answer in minutes on a CPU."""

    task: ClassVar[str] = "shapes3d"
    dimension: ClassVar[int] = 3
    paper: ClassVar[Mapping[str, Any]] = {"lr": 2e-3}

    method: str = setting("p-scnn", choices=VOLUME_METHODS)
    group: str = setting("O(3)", "The group H, such as SO(3), O(3), SO(2)@z.")
    size: int = setting(16, choices=shapes3d.SIZES)
    width: float = setting(1.0, "Number of fields in the first block.")
    epochs: int = 20
    batch_size: int = 32
    lr: float = setting(None, "Learning rate of Adam, at its highest; by default 0.002.")
    alignment: str = "exact"
    kl_weight: float = 0.03
    uniform_first: bool = True
    select: str = "last"  # accuracy is 1 long before the densities have settled
    variant: str = setting(
        "chiral", "Variant, which determines the symmetry of the classes.", choices=shapes3d.VARIANTS
    )
    train_count: int = setting(400, "Number of training volumes.", least=2, most=10**6)
    validation_count: int = setting(100, "Number of validation volumes.", least=2, most=10**6)
    test_count: int = setting(200, "Number of test volumes.", least=2, most=10**6)


class Shapes(VolumeTask):
    """Two classes of 3D bodies with known symmetries."""

    settings_type = ShapeSettings
    named = ("variant",)
    settings: ShapeSettings

    def __init__(self, settings: ShapeSettings) -> None:
        super().__init__(settings, settings.variant, ("0", "1"))

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        own = self.settings
        counts = {"train": own.train_count, "validation": own.validation_count, "test": own.test_count}
        return shapes3d.load(own.variant, size=own.size, **counts)

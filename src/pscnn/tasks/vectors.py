"""Norms and angles of vectors (paper, Table 4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from pscnn import models
from pscnn.data import vectors
from pscnn.densities import likelihoods
from pscnn.models import VECTOR_METHODS, VECTOR_NONLINEARITIES
from pscnn.training import Settings, Task, setting

TEST_COUNT = 2000


@dataclass(frozen=True)
class VectorSettings(Settings):
    """The defaults are those that give the paper's numbers."""

    task: ClassVar[str] = "vectors"

    method: str = setting("pe-mlp", choices=VECTOR_METHODS)
    group: str = setting("O(2)", "The group H, in 2D or 3D.")
    nonlinearity: str = setting(
        "gated", "Nonlinearity of the features.", section="network", choices=VECTOR_NONLINEARITIES
    )
    shared: bool = setting(False, "Share one density between all layers.", section="density")
    noise: float = setting(
        0.0, "Noise on the zero initial weights of the preliminary approach.", section="network", least=0
    )
    detached: bool = setting(False, "No gradient through batch statistics, as in the paper's code.", section="network")
    bandlimit: int = 4
    kl_weight: float = 25.0
    epochs: int = 100
    batch_size: int = 1024
    target: str = setting("angle", "Target to predict.", choices=vectors.TARGETS)
    count: int = setting(10_000, "Number of training vectors.", least=2, most=10**8)
    distribution: str = setting("cube", "Distribution of the vectors.", choices=vectors.DISTRIBUTIONS)


class Split(NamedTuple):
    """Vectors and targets."""

    x: Tensor
    y: Tensor


class Vectors(Task):
    """Predicting the norm of a vector, or its angle to an axis."""

    settings_type = VectorSettings
    named = ("target",)
    stacked = True
    settings: VectorSettings

    scores: Mapping[str, str] = {"test_error": "error"}

    def __init__(self, settings: VectorSettings) -> None:
        super().__init__(settings)
        self.variant, self.input_shape = settings.target, (settings.parsed_group.dimension,)

    def build(self) -> nn.Module:
        own = self.settings
        model = models.build(
            "vectors",
            own.method,
            own.parsed_group,
            nonlinearity=own.nonlinearity,
            bandlimit=own.bandlimit,
            shared=own.shared,
            noise=own.noise,
            density={"alignment": own.density_alignment},
        )
        return models.as_released(model, ("statistics",)) if own.detached else model

    def load(self, folder: str | Path | None) -> Mapping[str, Split]:
        seed = 2 * self.settings.seed
        return {"train": self._draw(self.settings.count, seed), "test": self._draw(TEST_COUNT, seed + 1)}

    def _draw(self, count: int, seed: int) -> Split:
        dimension, distribution = self.settings.parsed_group.dimension, self.settings.distribution
        return Split(*vectors.load(count, dimension=dimension, distribution=distribution, seed=seed))

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return vectors.error(model(x), y, self.settings.target)

    def measure(self, model: nn.Module, splits: Mapping[str, Any]) -> dict[str, Any]:
        sizes = {name: lam.effective_size().item() for name, lam in likelihoods(model).items()}
        return {"test_error": self.loss(model, *splits["test"]).item(), "effective_sizes": sizes}

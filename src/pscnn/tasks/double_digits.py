"""Double digits (paper, Table 1), with the switches of the paper's released code."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pscnn import models
from pscnn.data import ddmnist
from pscnn.data.ddmnist import MEAN, STD
from pscnn.densities import Regularization, likelihoods, regularization
from pscnn.models import DIGIT_SIZES, METHODS
from pscnn.tasks._classes import ImageSettings, ImageTask
from pscnn.training import ConfigError, setting

SWITCHES = ("sampling", "alignment", "first-kl", "gate-bias", "statistics", "basis", "artefact", "overlap")
"""Parts of the released code: densities, losses, network, data; ``docs/reproduce.md`` says what each is."""
WAYS = ddmnist.SYMMETRIES


@dataclass(frozen=True)
class DoubleDigitSettings(ImageSettings):
    """The defaults are the paper's, on bundled digits."""

    task: ClassVar[str] = "ddmnist"
    dimension: ClassVar[int] = 2

    method: str = setting("p-scnn", choices=METHODS)
    size: int = setting(56, choices=DIGIT_SIZES)
    source: str = setting("digits", "Source of the digits: scikit-learn's (bundled) or MNIST.", choices=ddmnist.SOURCES)
    symmetry: str = setting("O2", "Group by which each digit is transformed.", choices=WAYS)
    kinds: int = setting(10, "Number of digits: 0 to kinds - 1, which gives kinds x kinds classes.", least=2, most=10)
    train_per_class: int = setting(100, "Training images per class.", least=1, most=10**5)
    validation_per_class: int = setting(20, "Validation images per class.", least=1, most=10**5)
    test_per_class: int = setting(50, "Test images per class.", least=1, most=10**5)
    other_symmetry: str = setting("", "Also test with digits transformed by this group.", choices=("", *WAYS))
    released: str = setting(
        "", f"Follow the paper's released code in these points: all, or some of {', '.join(SWITCHES)}."
    )

    def check(self) -> None:
        """Bring the list of switches into its order."""
        super().check()
        self.assign("released", ",".join(parse_switches(self.released)))


class DoubleDigits(ImageTask):
    """Pairs of digits, each rotated and mirrored independently."""

    settings_type = DoubleDigitSettings
    named = ("symmetry",)
    settings: DoubleDigitSettings

    def __init__(self, settings: DoubleDigitSettings) -> None:
        kinds = range(settings.kinds)
        names = tuple(f"{left}{right}" for left in kinds for right in kinds)
        super().__init__(settings, settings.symmetry, names, ends=(MEAN - STD, MEAN + STD))
        if settings.other_symmetry:
            self.tests, self.scores = ("test", "other"), {**self.scores, "other_accuracy": "on other digits"}

    @property
    def switches(self) -> tuple[str, ...]:
        """What is taken from the released code, by name."""
        return parse_switches(self.settings.released)

    def build(self) -> nn.Module:
        return models.as_released(super().build(), self.switches)

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        own = self.settings
        counts = {"train": own.train_per_class, "validation": own.validation_per_class, "test": own.test_per_class}
        common: dict[str, Any] = {"seed": own.seed, "size": own.size, "per_class": counts, "kinds": own.kinds}
        common |= {"released_rotation": "artefact" in self.switches, "overlap": "overlap" in self.switches}
        splits = ddmnist.load(own.source, own.symmetry, folder=folder, **common)
        if not own.other_symmetry:
            return splits
        return {**splits, "other": ddmnist.load(own.source, own.other_symmetry, folder=folder, **common)["test"]}

    def regularization(self, model: nn.Module) -> Regularization:
        """As the released code has it where switched.

        With "alignment", the error is that of the logits, summed: Σ max f − f(e) over all densities. With "first-kl",
        the KL divergence of the first density to the uniform one joins, and all terms are divided by the number of
        densities; with one term each, that is their mean.
        """
        uniform_first = self.settings.uniform_first or "first-kl" in self.switches
        found = regularization(model, uniform_first=uniform_first)
        return found._replace(alignment=logit_alignment(model)) if "alignment" in self.switches else found


def parse_switches(text: str) -> tuple[str, ...]:
    """Names from a list such as "basis, overlap", in the order of ``SWITCHES``; "all" stands for all of them.

    Example:
        >>> parse_switches("overlap,basis")
        ('basis', 'overlap')
    """
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    unknown = [name for name in names if name not in (*SWITCHES, "all")]
    if unknown:
        raise ConfigError(f"released must list some of {', '.join(SWITCHES)}, or be 'all', got {unknown[0]!r}")
    return tuple(name for name in SWITCHES if name in names or "all" in names)


def logit_alignment(model: nn.Module) -> Tensor:
    """Σ max f − f(e), the maximum over the grid and the points near the identity."""
    logits = [likelihood.logits() for likelihood in likelihoods(model).values()]
    return torch.stack([f.max() - f[-1] for f in logits]).sum()

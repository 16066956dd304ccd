"""Everything that defines a run, in one place with all defaults visible."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from pscnn.data.ddmnist import SOURCES, SYMMETRIES
from pscnn.groups import parse
from pscnn.models import METHODS, NONLINEARITIES

PRECISIONS = ("fp32", "tf32", "bf16")
ALIGNMENTS = ("soft", "exact", "construction")
"""By the alignment error in the loss; by ``pscnn.align`` after every epoch; by positive definite coefficients."""


class ConfigError(ValueError):
    """A setting is unknown or has a value that cannot be used."""


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Config:
    """The settings of one training run on double digits; the defaults are the paper's, on bundled digits."""

    method: str = _setting("p-scnn", f"How layers are built: {', '.join(METHODS)}.")
    group: str = _setting("O(2)", "The group H: C(N), D(N), SO(2) or O(2).")
    bandlimit: int = _setting(2, "L, the highest frequency of the densities.")
    nonlinearity: str = _setting("gated", f"One of {', '.join(NONLINEARITIES)}.")
    invariant: bool = _setting(True, "Let the classifier see invariant features only.")
    alignment: str = _setting("soft", f"How densities are aligned: {', '.join(ALIGNMENTS)} (soft is by a loss).")
    source: str = _setting("digits", "Where digits come from: digits (bundled) or mnist.")
    symmetry: str = _setting("O2", f"How each digit may move: {', '.join(SYMMETRIES)}.")
    kinds: int = _setting(10, "Use the digits 0 to kinds - 1; there are kinds x kinds classes.")
    size: int = _setting(56, "Side length of the images, 56 or 28.")
    width: float = _setting(1.0, "Multiplies the numbers of fields.")
    train_per_class: int = _setting(100, "Training images per class.")
    validation_per_class: int = _setting(20, "Validation images per class.")
    test_per_class: int = _setting(50, "Test images per class.")
    epochs: int = _setting(50, "Passes over the training images.")
    batch_size: int = _setting(256, "Images per step and process.")
    lr: float = _setting(5e-4, "Learning rate of Adam.")
    weight_decay: float = _setting(0.0, "Of AdamW, on everything but the densities.")
    align_weight: float = _setting(5.0, "Weight of the alignment error (soft alignment).")
    kl_weight: float = _setting(3.0, "Weight of the KL divergence between consecutive layers.")
    uniform_first: bool = _setting(False, "Let the KL divergence of the first density to the uniform one count too.")
    seed: int = _setting(0, "Seeds weights, data and order.")
    precision: str = _setting("fp32", f"One of {', '.join(PRECISIONS)}.")
    compile: bool = _setting(False, "Compile the training step (pays on long runs on a GPU).")

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for setting in dataclasses.fields(self):
            value, wanted = getattr(self, setting.name), hints[setting.name]
            if wanted is float and isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(self, setting.name, float(value))
            elif type(value) is not wanted:
                raise ConfigError(f"{setting.name} must be of type {wanted.__name__}, got {value!r}")
        choices = {
            "method": METHODS,
            "nonlinearity": NONLINEARITIES,
            "alignment": ALIGNMENTS,
            "source": SOURCES,
            "symmetry": SYMMETRIES,
            "precision": PRECISIONS,
            "size": (28, 56),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                listed = ", ".join(map(str, allowed))
                raise ConfigError(f"{name} must be one of {listed}, got {getattr(self, name)!r}")
        for name in (
            "train_per_class",
            "validation_per_class",
            "test_per_class",
            "epochs",
            "batch_size",
            "lr",
            "width",
        ):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("bandlimit", "weight_decay", "align_weight", "kl_weight", "seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if self.batch_size < 2:
            raise ConfigError("batch_size must be 2 or more: batch statistics need two images")
        if not 2 <= self.kinds <= 10:
            raise ConfigError(f"kinds must lie between 2 and 10, got {self.kinds}")
        try:
            group = parse(self.group)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if group.dimension != 2:
            raise ConfigError(f"double digits need a group of the plane, got {group.name}")
        object.__setattr__(self, "group", group.name)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """A configuration from settings by name; an unknown name is an error."""
        known = [setting.name for setting in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ConfigError(f"unknown setting {name!r}; there are {', '.join(known)}")
        return cls(**values)

    @classmethod
    def read(cls, path: str | Path) -> dict[str, Any]:
        """Settings from a YAML file, checked but not yet merged with others."""
        path = Path(path)
        try:
            values = yaml.safe_load(path.read_text()) or {}
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid YAML: {error}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{path} must hold settings such as 'epochs: 50', got {type(values).__name__}")
        cls.from_dict(values)
        return values

    def to_dict(self) -> dict[str, Any]:
        """All settings by name."""
        return dataclasses.asdict(self)

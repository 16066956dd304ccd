"""Everything that defines a run, in one place with all defaults visible."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import yaml
from torch import Tensor, nn

from pscnn import models
from pscnn._errors import PscnnError
from pscnn.data import DataError, ddmnist, jetflow, medmnist3d, own, shapes3d, smoke
from pscnn.data._windows import Windows
from pscnn.groups import parse
from pscnn.models import METHODS, NONLINEARITIES, VOLUME_METHODS
from pscnn.training._released import SWITCHES, parse_switches

PRECISIONS = ("fp32", "tf32", "bf16")
ALIGNMENTS = ("soft", "exact", "construction")
"""By the alignment error in the loss; by ``pscnn.align`` after every epoch; by positive definite coefficients."""
SELECTIONS = ("best", "last")


class ConfigError(PscnnError, ValueError):
    """A setting is unknown or has a value that cannot be used."""


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Config:
    """The settings that all training runs have. One subclass per experiment adds its own."""

    experiment: ClassVar[str]
    dimension: ClassVar[int]
    methods: ClassVar[tuple[str, ...]]
    sizes: ClassVar[tuple[int, ...]]
    positive: ClassVar[tuple[str, ...]] = ("epochs", "batch_size", "lr", "lr_decay", "width")
    judged_by: ClassVar[tuple[str, bool]] = ("accuracy", True)
    """What is measured on validation and test splits, and whether more of it is better."""
    decoupled_decay: ClassVar[bool] = True
    """Whether weights decay apart from the gradient, as in AdamW, or as a part of it."""
    square_penalty: ClassVar[bool] = False
    """Whether a method's own penalty enters the loss squared, as in the code of the forecasting literature."""
    ends: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """The brightnesses, from 0 to 1, that the network sees as −1 and 1."""

    method: str = _setting("p-scnn", f"How layers are built: {', '.join(METHODS)}; for volumes also resnet18.")
    group: str = _setting("", "The group H: C(N), D(N), SO(2), O(2); SO(3), O(3) for volumes.")
    bandlimit: int = _setting(2, "L, the highest frequency of the densities.")
    nonlinearity: str = _setting("gated", f"One of {', '.join(NONLINEARITIES)}.")
    invariant: bool = _setting(True, "Let the classifier see invariant features only.")
    alignment: str = _setting("soft", f"How densities are aligned: {', '.join(ALIGNMENTS)} (soft is by a loss).")
    size: int = _setting(0, "Side length of images (28, 56) or volumes (16, 28, 64).")
    width: float = _setting(1.0, "Multiplies the numbers of fields; for volumes, the fields of the first block.")
    epochs: int = _setting(50, "Passes over the training images.")
    batch_size: int = _setting(256, "Images per step and process.")
    lr: float = _setting(5e-4, "Learning rate of Adam.")
    lr_decay: float = _setting(1.0, "Factor of the learning rate after every epoch.")
    weight_decay: float = _setting(0.0, "Of AdamW (flows: of Adam), on everything but the densities.")
    align_weight: float = _setting(5.0, "Weight of the alignment error (soft alignment).")
    kl_weight: float = _setting(3.0, "Weight of the KL divergence between consecutive layers.")
    uniform_first: bool = _setting(False, "Let the KL divergence of the first density to the uniform one count too.")
    balanced: bool = _setting(False, "Weight classes by the inverse of their frequency.")
    select: str = _setting("best", "Which epoch to test: best on validation images, or last.")
    seed: int = _setting(0, "Seeds weights, data and order.")
    precision: str = _setting("fp32", f"One of {', '.join(PRECISIONS)}.")
    compile: bool = _setting(False, "Compile the training step (pays on long runs on a GPU).")

    # -- what an experiment must say ------------------------------------------------------------------------------

    @property
    def classes(self) -> int:
        """How many."""
        raise NotImplementedError

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, if they have any."""
        return None

    @property
    def task(self) -> str:
        """The task in a few words, for tables and folders' names."""
        raise NotImplementedError

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        """The splits "train", "validation" and those to test on."""
        raise NotImplementedError

    def batch(self, name: str, split: Any, rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of some rows of a split, on their device; a seed for whatever is random about them."""
        return split.images(rows, seed), split.labels[rows]

    @property
    def tests(self) -> tuple[str, ...]:
        """Splits to test on; the first is the one that counts."""
        return ("test",)

    @property
    def family(self) -> str:
        """Method and group, for folders' names."""
        return f"{self.method}-{self.group.replace('(', '').replace(')', '')}"

    # -- what follows ---------------------------------------------------------------------------------------------

    @property
    def channels(self) -> int:
        """Of the images."""
        return 1

    def build(self) -> nn.Module:
        """The network."""
        return models.build(
            "ddmnist" if self.dimension == 2 else "medmnist3d",
            self.method,
            parse(self.group),
            bandlimit=self.bandlimit,
            nonlinearity=self.nonlinearity,
            invariant=self.invariant,
            size=self.size,
            width=self.width if self.dimension == 2 else int(self.width),
            classes=self.classes,
            channels=self.channels,
            density={"alignment": "construction" if self.alignment == "construction" else "soft"},
        )

    def _choices(self) -> dict[str, tuple[Any, ...]]:
        return {
            "method": self.methods,
            "nonlinearity": NONLINEARITIES,
            "alignment": ALIGNMENTS,
            "precision": PRECISIONS,
            "select": SELECTIONS,
            "size": self.sizes,
        }

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for setting in dataclasses.fields(self):
            value, wanted = getattr(self, setting.name), hints[setting.name]
            if wanted is float and isinstance(value, int) and not isinstance(value, bool):
                object.__setattr__(self, setting.name, float(value))
            elif type(value) is not wanted:
                raise ConfigError(f"{setting.name} must be of type {wanted.__name__}, got {value!r}")
        for name, allowed in self._choices().items():
            if getattr(self, name) not in allowed:
                listed = ", ".join(map(str, allowed))
                raise ConfigError(f"{name} must be one of {listed}, got {getattr(self, name)!r}")
        for name in self.positive:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("bandlimit", "weight_decay", "align_weight", "kl_weight", "seed"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if self.dimension == 3 and self.width != int(self.width):
            raise ConfigError(f"width must be a whole number for volumes, got {self.width}")
        if self.batch_size < 2:
            raise ConfigError("batch_size must be 2 or more: batch statistics need two images")
        try:
            group = parse(self.group)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if group.dimension != self.dimension:
            kind = "the plane" if self.dimension == 2 else "space, such as SO(3)"
            raise ConfigError(f"{self.experiment} needs a group of {kind}, got {group.name}")
        object.__setattr__(self, "group", group.name)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """A configuration from settings by name, with "experiment" among them; an unknown name is an error."""
        values = dict(values)
        experiment = values.pop("experiment", None)
        if experiment is None:
            raise ConfigError(f"name an experiment: one of {', '.join(EXPERIMENTS)}")
        if experiment not in EXPERIMENTS:
            raise ConfigError(f"unknown experiment {experiment!r}: use one of {', '.join(EXPERIMENTS)}")
        make = EXPERIMENTS[experiment]
        known = [setting.name for setting in dataclasses.fields(make)]
        for name in values:
            if name not in known:
                raise ConfigError(f"{experiment} has no setting {name!r}; it has {', '.join(known)}")
        return make(**values)

    @classmethod
    def read(cls, path: str | Path) -> dict[str, Any]:
        """Settings from a YAML file, not yet checked."""
        path = Path(path)
        try:
            values = yaml.safe_load(path.read_text()) or {}
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid YAML: {error}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{path} must hold settings such as 'epochs: 50', got {type(values).__name__}")
        return values

    def to_dict(self) -> dict[str, Any]:
        """All settings by name, the experiment first."""
        return {"experiment": self.experiment, **dataclasses.asdict(self)}


@dataclass(frozen=True)
class DoubleDigitConfig(Config):
    """Double digits; the defaults are the paper's, on bundled digits."""

    experiment: ClassVar[str] = "ddmnist"
    dimension: ClassVar[int] = 2
    ends: ClassVar[tuple[float, float]] = (ddmnist.MEAN - ddmnist.STD, ddmnist.MEAN + ddmnist.STD)
    methods: ClassVar[tuple[str, ...]] = METHODS
    sizes: ClassVar[tuple[int, ...]] = models.DIGIT_SIZES
    positive: ClassVar[tuple[str, ...]] = (
        *Config.positive,
        "train_per_class",
        "validation_per_class",
        "test_per_class",
    )

    group: str = _setting("O(2)", "")
    size: int = _setting(56, "")
    source: str = _setting("digits", "Where digits come from: digits (bundled) or mnist.")
    symmetry: str = _setting("O2", f"How each digit may move: {', '.join(ddmnist.SYMMETRIES)}.")
    kinds: int = _setting(10, "Use the digits 0 to kinds - 1; there are kinds x kinds classes.")
    train_per_class: int = _setting(100, "Training images per class.")
    validation_per_class: int = _setting(20, "Validation images per class.")
    test_per_class: int = _setting(50, "Test images per class.")
    other_symmetry: str = _setting("", "Test on the same digits that move in this way, too.")
    released: str = _setting("", f"Take these from the paper's released code: all, or some of {', '.join(SWITCHES)}.")

    def _choices(self) -> dict[str, tuple[Any, ...]]:
        ways = ddmnist.SYMMETRIES
        return {**super()._choices(), "source": ddmnist.SOURCES, "symmetry": ways, "other_symmetry": ("", *ways)}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.kinds <= 10:
            raise ConfigError(f"kinds must lie between 2 and 10, got {self.kinds}")
        try:
            object.__setattr__(self, "released", ",".join(parse_switches(self.released)))
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def classes(self) -> int:
        return self.kinds**2

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return tuple(f"{left}{right}" for left in range(self.kinds) for right in range(self.kinds))

    @property
    def task(self) -> str:
        return self.symmetry

    @property
    def tests(self) -> tuple[str, ...]:
        return ("test", "other") if self.other_symmetry else ("test",)

    @property
    def switches(self) -> tuple[str, ...]:
        """What is taken from the released code, by name."""
        return parse_switches(self.released)

    def build(self) -> nn.Module:
        return models.as_released(super().build(), self.switches)

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        counts = {"train": self.train_per_class, "validation": self.validation_per_class, "test": self.test_per_class}
        common: dict[str, Any] = {"seed": self.seed, "size": self.size, "per_class": counts, "kinds": self.kinds}
        common |= {"released_rotation": "artefact" in self.switches, "overlap": "overlap" in self.switches}
        splits = ddmnist.load(self.source, self.symmetry, folder=folder, **common)
        if not self.other_symmetry:
            return splits
        return {**splits, "other": ddmnist.load(self.source, self.other_symmetry, folder=folder, **common)["test"]}


@dataclass(frozen=True)
class VolumeConfig(Config):
    """Medical volumes; the defaults are the paper's."""

    experiment: ClassVar[str] = "medmnist3d"
    dimension: ClassVar[int] = 3
    methods: ClassVar[tuple[str, ...]] = VOLUME_METHODS
    sizes: ClassVar[tuple[int, ...]] = medmnist3d.SIZES

    group: str = _setting("SO(3)", "")
    size: int = _setting(28, "")
    width: float = _setting(6.0, "")
    epochs: int = _setting(100, "")
    batch_size: int = _setting(32, "")
    lr: float = _setting(0.0, "")  # 0 stands for the paper's
    kl_weight: float = _setting(1.0, "")
    select: str = _setting("last", "")
    dataset: str = _setting("organ", f"Which volumes: {', '.join(medmnist3d.CLASSES)}.")
    fraction: float = _setting(1.0, "Share of the training volumes to use.")

    def _choices(self) -> dict[str, tuple[Any, ...]]:
        return {**super()._choices(), "dataset": tuple(medmnist3d.CLASSES)}

    def __post_init__(self) -> None:
        if self.lr == 0:
            object.__setattr__(self, "lr", 5e-5 if self.dataset == "organ" else 1e-5)
        super().__post_init__()
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"fraction must lie in (0, 1], got {self.fraction}")

    @property
    def classes(self) -> int:
        return len(medmnist3d.CLASSES[self.dataset])

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return medmnist3d.CLASSES[self.dataset]

    @property
    def task(self) -> str:
        return self.dataset

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        return medmnist3d.load(self.dataset, size=self.size, fraction=self.fraction, folder=folder)


@dataclass(frozen=True)
class ShapeConfig(Config):
    """Bodies whose symmetries are known, in volumes that need no download."""

    experiment: ClassVar[str] = "shapes3d"
    dimension: ClassVar[int] = 3
    methods: ClassVar[tuple[str, ...]] = VOLUME_METHODS
    sizes: ClassVar[tuple[int, ...]] = shapes3d.SIZES
    positive: ClassVar[tuple[str, ...]] = (*Config.positive, "train_count", "validation_count", "test_count")

    group: str = _setting("O(3)", "")
    size: int = _setting(16, "")
    width: float = _setting(1.0, "")
    epochs: int = _setting(20, "")
    batch_size: int = _setting(32, "")
    lr: float = _setting(2e-3, "")
    alignment: str = _setting("exact", "")
    kl_weight: float = _setting(0.03, "")
    uniform_first: bool = _setting(True, "")
    select: str = _setting("last", "")  # accuracy is 1 long before the densities have settled
    variant: str = _setting("chiral", f"What the class depends on: {', '.join(shapes3d.VARIANTS)}.")
    train_count: int = _setting(400, "Training volumes.")
    validation_count: int = _setting(100, "Validation volumes.")
    test_count: int = _setting(200, "Test volumes.")

    def _choices(self) -> dict[str, tuple[Any, ...]]:
        return {**super()._choices(), "variant": shapes3d.VARIANTS}

    @property
    def classes(self) -> int:
        return 2

    @property
    def task(self) -> str:
        return self.variant

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        return shapes3d.load(
            self.variant,
            size=self.size,
            train=self.train_count,
            validation=self.validation_count,
            test=self.test_count,
        )


@dataclass(frozen=True)
class FlowConfig(Config):
    """Forecasts of a flow by the networks of the paper's Table 3; the defaults are the paper's."""

    dimension: ClassVar[int] = 2
    methods: ClassVar[tuple[str, ...]] = models.FLOW_METHODS
    positive: ClassVar[tuple[str, ...]] = (*Config.positive, "train_steps", "test_steps")
    judged_by: ClassVar[tuple[str, bool]] = ("mse", False)
    decoupled_decay: ClassVar[bool] = False
    square_penalty: ClassVar[bool] = True

    group: str = _setting("C(4)", "")
    epochs: int = _setting(100, "")
    batch_size: int = _setting(16, "")
    lr: float = _setting(1e-3, "")
    lr_decay: float = _setting(0.95, "")
    weight_decay: float = _setting(4e-4, "")
    kernel: int = _setting(3, "Side length of kernels (flows).")
    layers: int = _setting(5, "Convolutions (flows).")
    train_steps: int = _setting(6, "Frames to forecast in training.")
    test_steps: int = _setting(20, "Frames to forecast in tests.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width != int(self.width):
            raise ConfigError(f"width must be a whole number for flows, got {self.width}")
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ConfigError(f"kernel must be odd, got {self.kernel}")
        if self.layers < 2:
            raise ConfigError(f"layers must be 2 or more, got {self.layers}")
        if self.nonlinearity != "gated":
            raise ConfigError(f"nonlinearity must be 'gated' for flows, got {self.nonlinearity!r}")
        if self.method != "p-scnn" and parse(self.group).name != "C(4)":
            raise ConfigError(f"group is C(4) for {self.method}, got {self.group}: of flows, p-scnn alone takes others")
        if self.method in ("combo", "lift") and self.layers != FlowConfig.layers:
            raise ConfigError(f"layers: {self.method} has its own number of them")
        if self.method == "lift" and self.width % 4:
            raise ConfigError(f"width must be a multiple of 4 for lift, got {self.width:g}")

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width of the fields."""
        raise NotImplementedError

    @property
    def task(self) -> str:
        return "forecast"

    @property
    def tests(self) -> tuple[str, ...]:
        return "future", "domain"

    def build(self) -> nn.Module:
        return models.build(
            "flow",
            self.method,
            parse(self.group),
            size=self.grid,
            hidden=int(self.width),
            layers=self.layers,
            kernel=self.kernel,
            bandlimit=self.bandlimit,
            density={"alignment": "construction" if self.alignment == "construction" else "soft"},
        )

    def check(self, data: Mapping[str, Windows]) -> Mapping[str, Windows]:
        """The same data, if every window has frames enough after it, and training does not reach those of the test."""
        if self.train_steps > data["future"].starts[0] - data["train"].starts[-1]:
            raise ConfigError(f"train_steps: frames {self.train_steps} steps ahead are frames of the future test")
        for name, windows in data.items():
            steps, most = self._steps(name), windows.most_steps
            if steps > most:
                raise ConfigError(f"{name} windows are followed by {most} frames; {steps} are to be forecast")
        return data

    def _steps(self, split: str) -> int:
        return self.test_steps if split in self.tests else self.train_steps

    def batch(self, name: str, split: Any, rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = split.frames(rows, self._steps(name))
        return found


@dataclass(frozen=True)
class SmokeConfig(FlowConfig):
    """Smoke in a closed box, simulated with ``pscnn data prepare smoke``."""

    experiment: ClassVar[str] = "smoke"
    sizes: ClassVar[tuple[int, ...]] = (smoke.SIZE,)

    size: int = _setting(smoke.SIZE, "")
    width: float = _setting(92.0, "")

    @property
    def grid(self) -> tuple[int, int]:
        return self.size, self.size

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        return self.check(smoke.load(folder))


@dataclass(frozen=True)
class JetFlowConfig(FlowConfig):
    """Measured jets of air, from published files."""

    experiment: ClassVar[str] = "jetflow"
    sizes: ClassVar[tuple[int, ...]] = jetflow.SIZE[:1]

    size: int = _setting(jetflow.SIZE[0], "")
    width: float = _setting(16.0, "")

    @property
    def grid(self) -> tuple[int, int]:
        return jetflow.SIZE

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        return self.check(jetflow.load(folder))


@dataclass(frozen=True)
class OwnConfig(Config):
    """People's own data, as ``pscnn.data.own`` prepares them; subclasses for images, volumes, classes and numbers."""

    group: str = _setting("O(2)", "")
    size: int = _setting(0, "")  # 0 stands for that of the data
    width: float = _setting(0.25, "")
    batch_size: int = _setting(64, "")
    lr: float = _setting(3e-3, "")
    alignment: str = _setting("exact", "")
    kl_weight: float = _setting(1.0, "")
    uniform_first: bool = _setting(True, "")
    data: str = _setting("", "File of prepared data, made by pscnn discover.")
    about: str = _setting("", "What the file holds; read from it.")

    def __post_init__(self) -> None:
        if not self.about:
            if not self.data:
                raise ConfigError(f"{self.experiment} needs --data, a file that pscnn discover makes")
            try:
                object.__setattr__(self, "about", own.read_about(self.data).to_json())
            except DataError as error:
                raise ConfigError(str(error)) from None
        if self.size not in (0, self.holds.size):
            raise ConfigError(f"{self.data} has side length {self.holds.size}, not {self.size}: prepare it again")
        object.__setattr__(self, "size", self.holds.size)
        super().__post_init__()
        if self.holds.dimension != self.dimension or self.holds.regression != (self.judged_by[0] == "mse"):
            raise ConfigError(f"{self.data} is not for {self.experiment}, but for {own_experiment(self.holds)}")

    @property
    def holds(self) -> own.About:
        """What the data are."""
        return own.About.from_json(self.about)

    @property
    def classes(self) -> int:
        return len(self.holds.names)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return self.holds.names

    @property
    def channels(self) -> int:
        return self.holds.channels

    @property
    def task(self) -> str:
        return Path(self.holds.source).stem

    def build(self) -> nn.Module:
        network = super().build()
        if not self.holds.regression:
            return network
        return nn.Sequential(*network.children(), models.Rescale(self.holds.means, self.holds.deviations))

    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        return own.load(self.data)


@dataclass(frozen=True)
class OwnImageConfig(OwnConfig):
    """Classes of images."""

    experiment: ClassVar[str] = "own-images"
    dimension: ClassVar[int] = 2
    methods: ClassVar[tuple[str, ...]] = METHODS
    sizes: ClassVar[tuple[int, ...]] = own.SIDES[2]


@dataclass(frozen=True)
class OwnVolumeConfig(OwnConfig):
    """Classes of volumes."""

    experiment: ClassVar[str] = "own-volumes"
    dimension: ClassVar[int] = 3
    methods: ClassVar[tuple[str, ...]] = VOLUME_METHODS
    sizes: ClassVar[tuple[int, ...]] = own.SIDES[3]

    group: str = _setting("O(3)", "")
    width: float = _setting(1.0, "")
    batch_size: int = _setting(32, "")


@dataclass(frozen=True)
class OwnImageRegressionConfig(OwnImageConfig):
    """Numbers that belong to images."""

    experiment: ClassVar[str] = "own-images-regression"
    judged_by: ClassVar[tuple[str, bool]] = ("mse", False)


@dataclass(frozen=True)
class OwnVolumeRegressionConfig(OwnVolumeConfig):
    """Numbers that belong to volumes."""

    experiment: ClassVar[str] = "own-volumes-regression"
    judged_by: ClassVar[tuple[str, bool]] = ("mse", False)


EXPERIMENTS: dict[str, type[Config]] = {
    make.experiment: make
    for make in (
        DoubleDigitConfig,
        VolumeConfig,
        ShapeConfig,
        SmokeConfig,
        JetFlowConfig,
        OwnImageConfig,
        OwnVolumeConfig,
        OwnImageRegressionConfig,
        OwnVolumeRegressionConfig,
    )
}


def own_experiment(about: own.About) -> str:
    """The experiment that prepared data are for."""
    return f"own-{'images' if about.dimension == 2 else 'volumes'}{'-regression' if about.regression else ''}"


def settings() -> dict[str, tuple[Any, str]]:
    """Every setting of every experiment: its type, and its help with the defaults."""
    kinds: dict[str, Any] = {}
    texts: dict[str, str] = {setting.name: setting.metadata["help"] for setting in dataclasses.fields(Config)}
    defaults: dict[str, dict[str, Any]] = {}
    for experiment, make in EXPERIMENTS.items():
        for setting in dataclasses.fields(make):
            kinds[setting.name] = get_type_hints(make)[setting.name]
            texts.setdefault(setting.name, setting.metadata["help"])
            defaults.setdefault(setting.name, {})[experiment] = setting.default
    out = {}
    for name, found in defaults.items():
        several = len(set(found.values())) > 1
        listed = ", ".join(f"{e} {v}" for e, v in found.items()) if several else str(next(iter(found.values())))
        out[name] = (kinds[name], f"{texts[name]} [{listed}]")
    return out

"""Settings: everything that defines a run, with defaults, checked by type, range and applicability."""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal, get_type_hints

from pscnn._extras import PscnnError
from pscnn._words import short
from pscnn.groups import O3, SO3, Group, parse
from pscnn.models import DENSITY_METHODS, MEASURE_METHODS, STEERABLE, STRENGTHS

SECTIONS = ("task", "network", "density", "optimiser", "run")
"""What a setting belongs to; options of the command line are shown in these groups."""
PRECISIONS = ("fp32", "tf32", "bf16")
ALIGNMENTS = ("soft", "exact", "construction")
"""By the alignment error in the loss; by ``pscnn.align`` after every epoch; by positive definite coefficients."""
LARGEST_GROUP = 1000
"""Elements of a finite group; what more of them could tell, SO(2) tells in less time."""
HIGHEST_IN_SPACE = 6
"""Band-limit of densities on all rotations of space."""
RECIPES: dict[str, dict[str, Any]] = {
    "paper": {
        "lr": 5e-4,
        "schedule": "constant",
        "warmup": 0.0,
        "lr_decay": 1.0,
        "weight_decay": 0.0,
        "label_smoothing": 0.0,
    },
    "modern": {
        "lr": 2e-3,
        "schedule": "cosine",
        "warmup": 0.1,
        "lr_decay": 1.0,
        "weight_decay": 0.05,
        "label_smoothing": 0.1,
    },
}
"""What settings are that are not given; tasks say what the paper's are where they differ."""


class ConfigError(PscnnError, ValueError):
    """A setting is unknown or has a value that cannot be used."""


def setting(default: Any, text: str = "", **limits: Any) -> Any:
    """A field of a ``Settings`` class.

    A subclass that gives an inherited setting another default keeps its text and limits unless it gives new ones.

    Args:
        default: Its value if none is given; None stands for one that depends on other settings.
        text: What it is, for the help.
        limits: ``section``, one of ``SECTIONS``; ``choices``, the values allowed; ``least`` and ``most``, the bounds,
            included; ``positive=True`` for numbers above zero; ``identifies=False`` for how a run is executed, which is
            no part of what is trained; ``methods``, those with which it has an effect, which for the section "density"
            are those with densities.
    """
    return field(default=default, metadata={**({"text": text} if text else {}), **limits})


@dataclass(frozen=True)
class Option:
    """What is known of one setting of a class."""

    name: str
    kind: type
    default: Any
    text: str = ""
    section: str = "task"
    choices: tuple[Any, ...] | None = None
    least: float | None = None
    most: float | None = None
    positive: bool = False
    identifies: bool = True
    methods: tuple[str, ...] | None = None

    def check(self, value: Any) -> Any:
        """The value as its type, or an error that says what was expected."""
        if value is None and self.default is None:
            return None
        if self.kind in (int, float) and isinstance(value, str):
            with contextlib.suppress(ValueError):  # YAML takes 1e-3 for text
                value = float(value)
        if self.kind is float and type(value) is int:
            with contextlib.suppress(OverflowError):
                value = float(value)
        elif self.kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not self.kind:
            raise ConfigError(f"{self.name} must be of type {self.kind.__name__}, got {short(value)}")
        if self.choices is not None and value not in self.choices:
            raise ConfigError(f"{self.name} must be one of {', '.join(map(str, self.choices))}, got {short(value)}")
        wanted = self._range(value)
        if wanted:
            raise ConfigError(f"{self.name} must {wanted}, got {short(value)}")
        return value

    def _range(self, value: Any) -> str:
        """What a number that is out of range should do."""
        if not isinstance(value, int | float):
            return ""
        if isinstance(value, float) and not math.isfinite(value):
            return "be a finite number"
        low = not value > 0 if self.positive else self.least is not None and value < self.least
        if not low and (self.most is None or value <= self.most):
            return ""
        if self.most is None:
            return "be positive" if self.positive else f"be {self.least} or more"
        return f"lie in (0, {self.most:g}]" if self.positive else f"lie between {self.least} and {self.most}"


@dataclass(frozen=True)
class Settings:
    """The settings that all runs have. One subclass per task adds its own.

    Attributes:
        task: The task's name.
        removed: Settings that stored runs of earlier versions have and that had no effect, with their values.
    """

    task: ClassVar[str] = ""
    removed: ClassVar[Mapping[str, Any]] = {}
    plain: ClassVar[tuple[str, ...]] = ("cnn", "mlp", "clcnn", "resnet18")
    """Methods that know no group."""
    dimension: ClassVar[int | None] = None
    """Of the space on which the group acts; None if both will do."""

    method: str = setting("p-scnn", "Method, which determines the kind of layers.", section="network")
    group: str = setting("O(2)", "The group H, such as C(4), D(4), SO(2), O(2).", section="network")
    bandlimit: int = setting(
        2,
        "Band-limit L, the highest frequency of the densities.",
        section="density",
        least=0,
        most=32,
        methods=MEASURE_METHODS,
    )
    alignment: str = setting(
        "soft",
        "Alignment of the densities: by a loss, exactly after every epoch, or by construction.",
        section="density",
        choices=ALIGNMENTS,
    )
    align_weight: float = setting(5.0, "Weight of the alignment error (soft alignment).", section="density", least=0)
    kl_weight: float = setting(3.0, "Weight of the KL divergence between layers.", section="density", least=0)
    uniform_first: bool = setting(
        False, "Include the KL divergence of the first density from uniform.", section="density"
    )
    epochs: int = setting(50, "Number of epochs.", section="optimiser", least=1, most=10**6)
    batch_size: int = setting(256, "Batch size, per process.", section="optimiser", least=2, most=10**6)
    lr: float = setting(5e-4, "Learning rate of Adam.", section="optimiser", positive=True)
    lr_decay: float = setting(
        1.0, "Factor by which the learning rate is multiplied after every epoch.", section="optimiser", positive=True
    )
    weight_decay: float = setting(0.0, "Weight decay, for everything but the densities.", section="optimiser", least=0)
    seed: int = setting(0, "Random seed of weights, data and their order.", section="run", least=0, most=2**32 - 1)

    @property
    def parsed_group(self) -> Group:
        """The group H."""
        return parse(self.group)

    @property
    def uses_group(self) -> bool:
        """Whether the method knows the group."""
        return self.method not in self.plain

    @property
    def density_alignment(self) -> Literal["soft", "construction"]:
        """What densities are made with; "soft" stands for whatever is not their own affair."""
        return "construction" if self.alignment == "construction" else "soft"

    @classmethod
    @cache
    def options(cls) -> dict[str, Option]:
        """All settings, in the order of the sections."""
        hints = get_type_hints(cls)
        known: dict[str, dict[str, Any]] = {}
        for parent in reversed(cls.__mro__):
            for name, one in vars(parent).get("__dataclass_fields__", {}).items():
                known.setdefault(name, {}).update(one.metadata)
        out = {f.name: Option(f.name, hints[f.name], f.default, **known[f.name]) for f in dataclasses.fields(cls)}
        return dict(sorted(out.items(), key=lambda item: SECTIONS.index(item[1].section)))

    def fill(self) -> None:
        """Replace None by the value that it stands for, with ``assign``."""

    def check(self) -> None:
        """Raise a ``ConfigError`` if settings do not go together."""

    def assign(self, name: str, value: Any) -> None:
        """Set a setting; only while the object is made."""
        object.__setattr__(self, name, value)

    def __post_init__(self) -> None:
        options = self.options()
        for name, option in options.items():
            self.assign(name, option.check(getattr(self, name)))
        self.fill()
        try:
            group = self.parsed_group
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if self.dimension not in (None, group.dimension):
            kind = "the plane" if self.dimension == 2 else "space, such as SO(3)"
            raise ConfigError(f"{self.task} needs a group of {kind}, got {group.name}")
        self.assign("group", group.name)
        if group.order is not None and group.order > LARGEST_GROUP:
            raise ConfigError(f"{group.name} has {group.order} elements, more than {LARGEST_GROUP}: use SO(2) or O(2)")
        if group in (SO3(), O3()) and self.bandlimit > HIGHEST_IN_SPACE and self.uses("bandlimit"):
            raise ConfigError(
                f"bandlimit must be {HIGHEST_IN_SPACE} or less over {group.name}, where memory grows with its sixth "
                f"power, got {self.bandlimit}"
            )
        for name, option in options.items():
            if not self.uses(name) and getattr(self, name) != option.default:
                known = options["method"].choices
                methods = " or ".join(m for m in self.methods_with(name) or () if known is None or m in known)
                raise ConfigError(f"{name} has no effect with method {self.method}; it applies to {methods}")
        self.check()

    def uses(self, name: str) -> bool:
        """Whether a setting has an effect with the method."""
        methods = self.methods_with(name)
        return methods is None or self.method in methods

    @classmethod
    def methods_with(cls, name: str) -> tuple[str, ...] | None:
        """The methods with which a setting has an effect; None stands for all."""
        option = cls.options()[name]
        return option.methods or (DENSITY_METHODS if option.section == "density" else None)

    def to_dict(self) -> dict[str, Any]:
        """All settings by name, the task first."""
        return {"task": self.task, **dataclasses.asdict(self)}

    def identity(self) -> "Settings":
        """The same without what does not identify a run: equal for runs that are the same."""
        usual: dict[str, Any] = {k: option.default for k, option in self.options().items() if not option.identifies}
        return dataclasses.replace(self, **usual)

    def differing(self) -> dict[str, Any]:
        """The settings that are not the defaults."""
        open_ones: dict[str, Any] = {name: None for name, option in self.options().items() if option.default is None}
        usual = {k: option.default for k, option in self.options().items()}
        filled = dataclasses.replace(self, **open_ones)
        usual |= {name: getattr(filled, name) for name in open_ones}
        return {name: getattr(self, name) for name, default in usual.items() if getattr(self, name) != default}


@dataclass(frozen=True)
class TrainerSettings(Settings):
    """The settings of runs that are trained epoch by epoch, with validation.

    Attributes:
        paper: What differs from ``RECIPES["paper"]``.
    """

    paper: ClassVar[Mapping[str, Any]] = {}

    lr: float = setting(None, "Learning rate of Adam, at its highest; by default 0.0005, with the modern recipe 0.002.")
    weight_decay: float = setting(
        None, "Weight decay, for everything but the densities; by default 0, with the modern recipe 0.05."
    )
    recipe: str = setting(
        "paper",
        "How to train where no other setting says so: as the paper, or with a schedule and decay of weights.",
        section="optimiser",
        choices=tuple(RECIPES),
    )
    schedule: str = setting(
        None,
        "Learning rate over the steps: constant, or along a cosine to zero; by default as the recipe.",
        section="optimiser",
        choices=("constant", "cosine"),
    )
    warmup: float = setting(
        None,
        "Share of the steps in which the learning rate rises to its highest; by default 0, with the modern recipe 0.1.",
        section="optimiser",
        least=0,
        most=1,
    )
    average: float = setting(
        0.0,
        "Test an exponential moving average of the weights; how much of it a step keeps, such as 0.99. 0: no average.",
        section="optimiser",
        least=0,
        most=0.999999,
    )
    passes: int = setting(
        1, "How often an epoch goes through the training data.", section="optimiser", least=1, most=10**4
    )
    select: str = setting(
        "best",
        "Epoch to test: the best on validation data, or the last.",
        section="optimiser",
        choices=("best", "last"),
    )
    strength: float = setting(
        None,
        "The method's own number: the weight of its penalty (projection, relaxation), the price of deviations (ace), "
        f"what width earns (augerino); by default {', '.join(f'{value:g} ({k})' for k, value in STRENGTHS.items())}.",
        section="network",
        positive=True,
        methods=tuple(STRENGTHS),
    )
    keep: str = setting(
        None,
        "What the method fixed keeps: a subgroup such as C(4), or an angle in degrees; by default 45.",
        section="network",
        methods=("fixed",),
    )
    precision: str = setting("fp32", "Floating-point precision.", section="run", choices=PRECISIONS)
    compile: bool = setting(
        False, "Compile the training step instead of recording it as a CUDA graph.", section="run", identifies=False
    )

    def fill(self) -> None:
        """What the recipe and the method say."""
        values = {**RECIPES[self.recipe], **(self.paper if self.recipe == "paper" else {})}
        for name in values.keys() & self.options().keys():
            if getattr(self, name) is None:
                self.assign(name, values[name])
        if self.strength is None:
            self.assign("strength", STRENGTHS.get(self.method))
        if self.keep is None and self.method == "fixed":
            self.assign("keep", "45")

    @property
    def density_options(self) -> dict[str, Any]:
        """What the measures of the method are made with."""
        found = {"alignment": self.density_alignment, "strength": self.strength, "keep": self.keep}
        return {name: value for name, value in found.items() if self.uses(name) and value is not None}

    def check(self) -> None:
        """Exact alignment moves weights between steps, which an average over steps would mix with others."""
        if self.average and self.alignment == "exact" and self.uses("alignment"):
            raise ConfigError("average cannot be used with exact alignment, which moves the weights after every epoch")
        if self.method == "fixed":
            try:
                STEERABLE["fixed"].density(self.parsed_group, self.bandlimit, keep=self.keep)
            except ValueError as error:
                raise ConfigError(f"keep: {error}") from None


def rate(settings: TrainerSettings, step: int, steps: int) -> float:
    """The learning rate at a step of a run of so many, all epochs together.

    Example:
        >>> from pscnn.tasks.double_digits import DoubleDigitSettings
        >>> modern = DoubleDigitSettings(recipe="modern")
        >>> [round(rate(modern, step, 100), 4) for step in (0, 9, 54, 99)]
        [0.0002, 0.002, 0.001, 0.0]
    """
    rising = settings.warmup * steps
    factor = settings.lr_decay ** (step * settings.epochs // steps)
    if step < rising:
        factor *= min(1.0, (step + 1) / rising)
    elif settings.schedule == "cosine":
        factor *= (1 + math.cos(math.pi * (step - rising) / (steps - rising))) / 2
    return settings.lr * factor

"""Does a learnt density tell the truth? Small tasks whose symmetries are known exactly, and a score.

Two vectors u, v go in, one or two numbers come out. Each task's target is unchanged by a known subset S of H and by
nothing else. A network that starts equivariant to H learns it; then its density should be high on S and low elsewhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn._types import Array
from pscnn.densities import likelihoods
from pscnn.groups import O2, SO2, SO3, Group
from pscnn.likelihood import Likelihood
from pscnn.nn import FieldType
from pscnn.tasks.vectors import Split
from pscnn.training import Settings, Task, setting

NEAR, FAR = np.radians(15), np.radians(40)
"""Elements this close to S count as its members; elements farther than the second angle as outside."""


@dataclass(frozen=True)
class Target:
    """A task and its symmetries.

    Attributes:
        group: H.
        function: From u and v, shape (…, n) each, to (…, outputs).
        distance: How far elements (N, n, n) are from S, as an angle in radians, shape (N,).
        words: What S is.
    """

    group: Group
    function: Callable[[Tensor, Tensor], Tensor]
    distance: Callable[[Array], Array]
    words: str


def _turn(elements: Array) -> Array:
    """The rotation angle of elements of O(2), of the rotation behind the left–right mirror for reflections."""
    mirrored = np.linalg.det(elements) < 0
    plain = np.where(mirrored[:, None, None], elements @ np.diag([-1.0, 1.0]), elements)
    return np.arctan2(plain[:, 1, 0], plain[:, 0, 0])


def _proper(elements: Array, distance: Array) -> Array:
    """The distance of rotations; reflections are as far away as can be."""
    return np.where(np.linalg.det(elements) < 0, np.pi, distance)


def _sector(u: Tensor, v: Tensor) -> Tensor:
    """The direction of u, rounded to right angles."""
    angle = torch.round(torch.atan2(u[..., 1], u[..., 0]) / (torch.pi / 2)) * (torch.pi / 2)
    return torch.stack([angle.cos(), angle.sin()], -1)


TARGETS: dict[str, Target] = {
    "all": Target(O2(), lambda u, v: (u * v).sum(-1, True), lambda h: np.zeros(len(h)), "all of O(2)"),
    "rotations": Target(
        O2(),
        lambda u, v: u[..., :1] * v[..., 1:] - u[..., 1:] * v[..., :1],
        lambda h: _proper(h, np.zeros(len(h))),
        "SO(2) in O(2)",
    ),
    "half-turn": Target(
        O2(),
        lambda u, v: u[..., :1] * u[..., 1:] + v[..., :1] ** 2,
        lambda h: _proper(h, np.abs(np.arcsin(np.clip(np.sin(_turn(h)), -1, 1)))),
        "C(2) in O(2)",
    ),
    "mirror": Target(
        O2(),
        lambda u, v: u[..., 1:] + u[..., :1] * v[..., :1],
        lambda h: np.abs(_turn(h)),
        "the identity and one reflection in O(2)",
    ),
    "none": Target(
        O2(), lambda u, v: u[..., :1] + v[..., 1:], lambda h: _proper(h, np.abs(_turn(h))), "the identity in O(2)"
    ),
    "up to 45°": Target(
        SO2(), _sector, lambda h: np.maximum(np.abs(_turn(h)) - np.pi / 4 + NEAR, 0), "rotations up to 45° in SO(2)"
    ),
    "axis": Target(
        SO3(),
        lambda u, v: u[..., 2:] + v[..., 2:] * (u * v).sum(-1, True),
        lambda h: np.arccos(np.clip(h[:, 2, 2], -1, 1)),
        "rotations about z in SO(3)",
    ),
}


class SymmetryScore(NamedTuple):
    """How well a density matches S.

    Attributes:
        auc: The probability that a random member of S has a higher density than a random element far from S; None if
            there are none far from it.
        total_variation: ½ ∫ |λ − λ_S|, where λ_S is uniform on the members of S: 0 at best, 1 at worst.
    """

    auc: float | None
    total_variation: float


@torch.no_grad()
def symmetry_score(likelihood: Likelihood, distance: Callable[[Array], Array]) -> SymmetryScore:
    """Compare a density with a subset of its group.

    Args:
        likelihood: The density.
        distance: How far elements are from the subset, in radians.
    """
    nodes, weights = likelihood.grid()
    away = distance(nodes)
    inside, outside = away <= NEAR + 1e-9, away > FAR
    density = likelihood.density(nodes).double().cpu().numpy()
    ideal = inside / (weights * inside).sum()
    variation = 0.5 * float((weights * np.abs(density - ideal)).sum())
    if not outside.any():
        return SymmetryScore(None, variation)
    from scipy.stats import rankdata  # slow to import

    ranks = rankdata(density[inside | outside])
    members = inside[inside | outside]
    positive, negative = members.sum(), (~members).sum()
    auc = (ranks[members].sum() - positive * (positive + 1) / 2) / (positive * negative)
    return SymmetryScore(float(auc), variation)


@dataclass(frozen=True)
class SymmetrySettings(Settings):
    """The settings of the benchmark."""

    task: ClassVar[str] = "symmetry"

    method: str = setting("p-scnn", choices=("p-scnn",))
    group: str = setting(None, "The group H; by default that of the target.")
    densities: str = setting(
        "last",
        "Which layers have a density: the last, each, or all a shared one.",
        section="density",
        choices=("last", "each", "shared"),
    )
    alignment: str = "exact"
    align_weight: float = 0.0
    kl_weight: float = 0.03
    uniform_first: bool = True
    epochs: int = 100
    lr: float = 5e-3
    weight_decay: float = 2e-2
    target: str = setting("mirror", "Target function.", choices=tuple(TARGETS))
    count: int = setting(2000, "Number of training examples, pairs of vectors.", least=2, most=10**8)

    def fill(self) -> None:
        """The group of the target."""
        if self.group is None:
            self.assign("group", TARGETS[self.target].group.name)


class Symmetry(Task):
    """A function of two vectors whose symmetries are known exactly."""

    settings_type = SymmetrySettings
    named = ("target",)
    tests = ()
    stacked = True
    settings: SymmetrySettings

    scores: Mapping[str, str] = {"auc": "AUC", "total_variation": "variation", "train_task": "error"}

    def __init__(self, settings: SymmetrySettings) -> None:
        super().__init__(settings)
        self.variant, self.input_shape = settings.target, (2 * settings.parsed_group.dimension,)

    def build(self) -> tnn.Module:
        own, group = self.settings, self.settings.parsed_group

        def density() -> Likelihood:
            return Likelihood(group, own.bandlimit, alignment=own.density_alignment)

        one = density() if own.densities == "shared" else None

        def linear(source: FieldType, target: FieldType, last: bool = False) -> nn.Linear:
            has_one = own.densities == "each" or last
            return nn.Linear(source, target, likelihood=one or (density() if has_one else None))

        probe = torch.zeros(1, group.dimension)
        outputs = TARGETS[own.target].function(probe, probe).shape[-1]
        hidden = FieldType(group, 4 * [group.functions(2)])
        fields = FieldType(group, 2 * [group.vector])
        layers: list[tnn.Module] = []
        for _ in range(2):
            layers += [linear(fields, hidden), nn.BatchNorm(hidden), nn.FourierPointwise(hidden)]
            fields = hidden
        return tnn.Sequential(*layers, linear(fields, FieldType(group, outputs * [group.trivial]), last=True))

    def load(self, folder: str | Path | None) -> Mapping[str, Split]:
        own = self.settings
        generator = torch.Generator().manual_seed(own.seed)
        x = torch.randn(own.count, 2, own.parsed_group.dimension, generator=generator)
        y = TARGETS[own.target].function(x[:, 0], x[:, 1])
        return {"train": Split(x.flatten(1), (y - y.mean(0)) / y.std())}

    def loss(self, model: tnn.Module, x: Tensor, y: Tensor) -> Tensor:
        return (model(x) - y).square().mean()

    def measure(self, model: tnn.Module, splits: Mapping[str, Any]) -> dict[str, Any]:
        """How well the density of the last layer matches the target's symmetries."""
        return symmetry_score([*likelihoods(model).values()][-1], TARGETS[self.settings.target].distance)._asdict()

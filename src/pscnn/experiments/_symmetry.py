"""Does a learnt density tell the truth? Small tasks whose symmetries are known exactly, and a score.

Two vectors u, v go in, one or two numbers come out. Each task's target is unchanged by a known subset S of H and by
nothing else. A network that starts equivariant to H learns it; then its density should be high on S and low elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn._types import AnyArray, Array
from pscnn.densities import align, likelihoods, regularization
from pscnn.groups import O2, SO2, SO3, Group
from pscnn.likelihood import Likelihood
from pscnn.nn import FieldType
from pscnn.training._together import fit_together, refresh_statistics

NEAR, FAR = np.radians(15), np.radians(40)
"""Elements this close to S count as its members; elements farther than the second angle as outside."""


@dataclass(frozen=True)
class SymmetryTask:
    """A task and its symmetries.

    Attributes:
        group: H.
        target: From u and v, shape (…, n) each, to (…, outputs).
        distance: How far elements (N, n, n) are from S, as an angle in radians, shape (N,).
        words: What S is.
    """

    group: Group
    target: Callable[[Tensor, Tensor], Tensor]
    distance: Callable[[Array], Array]
    words: str


def _turn(elements: Array) -> Array:
    """The rotation angle of elements of O(2), of the rotation behind the left–right mirror for reflections."""
    mirrored = np.linalg.det(elements) < 0
    plain = np.where(mirrored[:, None, None], elements @ np.diag([-1.0, 1.0]), elements)
    return np.arctan2(plain[:, 1, 0], plain[:, 0, 0])


def _reflects(elements: Array) -> AnyArray:
    return np.linalg.det(elements) < 0


def _unless(condition: AnyArray, distance: Array) -> Array:
    return np.where(condition, np.pi, distance)


def _sector(u: Tensor, v: Tensor) -> Tensor:
    """The direction of u, rounded to right angles."""
    angle = torch.round(torch.atan2(u[..., 1], u[..., 0]) / (torch.pi / 2)) * (torch.pi / 2)
    return torch.stack([angle.cos(), angle.sin()], -1)


def _number(values: Tensor) -> Tensor:
    return values[..., None]


TASKS: dict[str, SymmetryTask] = {
    "all": SymmetryTask(O2(), lambda u, v: _number((u * v).sum(-1)), lambda h: np.zeros(len(h)), "all of O(2)"),
    "rotations": SymmetryTask(
        O2(),
        lambda u, v: _number(u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]),
        lambda h: _unless(_reflects(h), np.zeros(len(h))),
        "SO(2) in O(2)",
    ),
    "half-turn": SymmetryTask(
        O2(),
        lambda u, v: _number(u[..., 0] * u[..., 1] + v[..., 0] ** 2),
        lambda h: _unless(_reflects(h), np.abs(np.arcsin(np.clip(np.sin(_turn(h)), -1, 1)))),
        "C(2) in O(2)",
    ),
    "mirror": SymmetryTask(
        O2(),
        lambda u, v: _number(u[..., 1] + u[..., 0] * v[..., 0]),
        lambda h: np.abs(_turn(h)),
        "the identity and one reflection in O(2)",
    ),
    "none": SymmetryTask(
        O2(),
        lambda u, v: _number(u[..., 0] + v[..., 1]),
        lambda h: _unless(_reflects(h), np.abs(_turn(h))),
        "the identity in O(2)",
    ),
    "up to 45°": SymmetryTask(
        SO2(), _sector, lambda h: np.maximum(np.abs(_turn(h)) - np.pi / 4 + NEAR, 0), "rotations up to 45° in SO(2)"
    ),
    "axis": SymmetryTask(
        SO3(),
        lambda u, v: _number(u[..., 2] + v[..., 2] * (u * v).sum(-1)),
        lambda h: np.arccos(np.clip(h[:, 2, 2], -1, 1)),
        "rotations about z in SO(3)",
    ),
}


@dataclass(frozen=True)
class SymmetryScore:
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
    ranks = rankdata(density[inside | outside])
    members = inside[inside | outside]
    positive, negative = members.sum(), (~members).sum()
    auc = (ranks[members].sum() - positive * (positive + 1) / 2) / (positive * negative)
    return SymmetryScore(float(auc), variation)


@dataclass(frozen=True)
class SymmetryConfig:
    """The settings of the benchmark."""

    bandlimit: int = 2
    alignment: str = "exact"  # "exact": by pscnn.align, after training; "soft": by the loss; "construction"
    align_weight: float = 0.0  # of the alignment loss
    kl_weight: float = 0.03  # of KL(λ_{n+1} ‖ λ_n), where the first density follows the uniform one
    densities: str = "last"  # "last": of the last layer only; "each": one per layer; "shared": one for all
    penalty: float = 1e-2  # on the squares of all weights except the densities'
    count: int = 2000
    batch_size: int = 256
    epochs: int = 100
    lr: float = 5e-3
    seeds: int = 3


VARIATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "alignment": {
        "exact": {},
        "loss": {"alignment": "soft", "align_weight": 1.0},
        "construction": {"alignment": "construction"},
        "none": {"alignment": "soft"},
    },
    "kl": {str(weight): {"kl_weight": weight} for weight in (0.0, 0.003, 0.03, 0.3)},
    "bandlimit": {str(limit): {"bandlimit": limit} for limit in (1, 2, 3, 4)},
    "densities": {which: {"densities": which} for which in ("last", "each", "shared")},
}
"""What can be varied, and the settings of each variant."""


class _Objective(tnn.Module):
    def __init__(self, task: SymmetryTask, config: SymmetryConfig) -> None:
        super().__init__()
        group = task.group
        self.config = config
        density: Any = {"alignment": "construction" if config.alignment == "construction" else "soft"}
        one = Likelihood(group, config.bandlimit, **density) if config.densities == "shared" else None

        def linear(source: FieldType, target: FieldType, last: bool = False) -> nn.Linear:
            own = one
            if config.densities == "each" or last:
                own = one or Likelihood(group, config.bandlimit, **density)
            return nn.Linear(source, target, likelihood=own)

        probe = torch.zeros(1, group.dimension)
        outputs = task.target(probe, probe).shape[-1]
        hidden = FieldType(group, 4 * [group.functions(2)])
        fields = FieldType(group, 2 * [group.vector])
        layers: list[tnn.Module] = []
        for _ in range(2):
            layers += [linear(fields, hidden), nn.BatchNorm(hidden), nn.FourierPointwise(hidden)]
            fields = hidden
        self.model = tnn.Sequential(*layers, linear(fields, FieldType(group, outputs * [group.trivial]), last=True))

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The loss and the error."""
        error = (self.model(x) - y).square().mean()
        terms = regularization(self.model, uniform_first=True)
        loss = error + self.config.align_weight * terms.alignment + self.config.kl_weight * terms.kl
        for name, parameter in self.model.named_parameters():
            if not name.endswith("coefficients"):
                loss = loss + self.config.penalty * parameter.square().sum()
        return {"loss": loss, "error": error}


def run_symmetry(
    name: str, config: SymmetryConfig | None = None
) -> tuple[list[SymmetryScore], list[float], list[tnn.Module]]:
    """Train networks on a task and score the density of their last layer.

    Args:
        name: One of ``TASKS``.
        config: Settings.

    Returns:
        Scores, errors as a share of the target's variance, and networks, one per seed.
    """
    config = config or SymmetryConfig()
    task = TASKS[name]
    objectives, inputs = [], []
    for seed in range(config.seeds):
        torch.manual_seed(seed)
        objectives.append(_Objective(task, config))
        inputs.append(torch.randn(config.count, 2, task.group.dimension))
    x = torch.stack(inputs)
    y = task.target(x[:, :, 0], x[:, :, 1])
    y = (y - y.mean((0, 1))) / y.std()
    x = x.flatten(2)

    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(config.count, generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(config.batch_size):
            yield x[:, rows], y[:, rows]

    history = fit_together(objectives, batches, epochs=config.epochs, lr=config.lr)
    scores = []
    for objective, own in zip(objectives, x, strict=True):
        refresh_statistics(objective.model, own)
        if config.alignment == "exact":
            align(objective.model)
        scores.append(symmetry_score(list(likelihoods(objective.model).values())[-1], task.distance))
    return scores, history[-1]["error"], [objective.model.eval() for objective in objectives]

"""Examples in parts: a probe is trained on all parts but one, and scored on that one, which it has not seen."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pscnn._files import plain_file, written_whole
from pscnn._types import AnyArray, Array
from pscnn.data import own
from pscnn.experiments._discover._probe import Probe
from pscnn.experiments._discover._subgroups import Subgroup
from pscnn.groups import parse
from pscnn.training import Target, choose_device, suitable_threads, target_of

PARTS = 4
RATE = 5e-3
DECAY = 1e-2
RISING = 0.15
"""Share of the steps in which the learning rate rises."""
VIEWS = 8
"""Random turns of a held-out example over which an answer is averaged."""
DENSE_VIEWS = 1
PIXELS, EVERY = 6, 6
"""Of masks: pixels of an example that a step looks at, and how many there are to every one that is scored."""
FEWEST_STEPS = 20


@dataclass(frozen=True)
class PartResult:
    """What one probe says of the part that was held out.

    Attributes:
        rows: Of the examples, among those of training and validation together.
        scores: (subgroups, rows).
        constant: Of the best answer that looks at no example, (rows,).
        losses: Of training, at its end, (subgroups,).
        steps: Taken.
        seconds: Of one step, including whatever else the machine did.
    """

    rows: AnyArray
    scores: Array
    constant: Array
    losses: Array
    steps: int
    seconds: float

    def save(self, path: Path) -> None:
        """As a file, whole or not at all."""
        with written_whole(path) as partial:
            np.savez(partial, **self.__dict__)

    @classmethod
    def read(cls, path: Path) -> PartResult:
        """From a file."""
        with np.load(plain_file(path), allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in cls.__dataclass_fields__}
        return cls(**found | {"steps": int(found["steps"]), "seconds": float(found["seconds"])})

    def check(self, subgroups: int, examples: int) -> None:
        """Raise a ``ValueError`` unless it can be of so many subgroups and examples."""
        shape = subgroups, len(self.rows)
        if self.rows.ndim != 1 or self.rows.dtype.kind != "i" or self.losses.shape != shape[:1]:
            raise ValueError("of other subgroups")
        if {self.scores.dtype.kind, self.constant.dtype.kind, self.losses.dtype.kind} != {"f"}:
            raise ValueError("no scores")
        if self.scores.shape != shape or self.constant.shape != shape[1:] or len(np.unique(self.rows)) < shape[1]:
            raise ValueError("of other examples")
        if len(self.rows) and not 0 <= self.rows.min() <= self.rows.max() < examples:
            raise ValueError("of examples that are not there")


def pooled(path: Path) -> tuple[Tensor, Tensor]:
    """Examples and targets of training and validation; those for testing stay unseen."""
    splits = own.load(path)
    kept = [splits[name] for name in ("train", "validation")]
    return torch.cat([one.pixels for one in kept]).float(), torch.cat([one.labels for one in kept])


def parts_of(y: Tensor, kind: str, seed: int) -> list[AnyArray]:
    """Rows of the parts; every class is spread over all of them."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    if kind == "classes":
        order = order[np.argsort(y.numpy()[order], kind="stable")]
    return [np.sort(order[k::PARTS]) for k in range(PARTS)]


def train_part(
    path: Path,
    group: str,
    subgroups: Sequence[Subgroup],
    part: int,
    seed: int,
    steps: int,
    seconds: float,
    batch_size: int,
    held: bool = True,
    accelerator: str = "cpu",
) -> PartResult:
    """Train a probe on all parts but one, for so many steps or seconds, and score it on that part.

    Args:
        path: Prepared data.
        group: H.
        subgroups: Those that are enforced.
        part: The number of the one that is held out.
        seed: Of the parts and of the weights.
        steps: At most.
        seconds: At most, from now.
        batch_size: Examples of a step.
        held: Whether to score it; what is asked for its training losses needs none.
        accelerator: "auto", "cpu" or "gpu".
    """
    began = time.monotonic()
    about = own.read_about(path)
    target = target_of(about)
    x, y = pooled(path)
    parts = parts_of(y, about.kind, seed)
    rows = parts[part]
    train = np.concatenate([own for k, own in enumerate(parts) if k != part])
    centre, scale = x[train].mean(), x[train].std().clamp_min(1e-6)
    device = choose_device(accelerator)
    x, y = ((x - centre) / scale).to(device), y.to(device)
    rng = np.random.default_rng([seed, part])
    with torch.random.fork_rng(()), contextlib.ExitStack() as stack:
        torch.manual_seed(1000 * seed + part)
        dense = about.kind == "masks"  # whose pixels beside a smaller disk could not be told
        share = 1.0 if dense or not about.content else min(about.content) / max(about.shape)
        how: dict[str, Any] = {"vectors": about.kind == "vectors", "dense": dense, "share": share}
        probe = Probe(parse(group), subgroups, about.channels, about.shape, len(about.names), **how)
        probe.to(device)
        if probe.trunk.is_smaller(x):  # before they are turned: that takes as long as they are large
            x = probe.trunk.averaged(x)
            y = probe.on_grid(y).unflatten(1, probe.trunk.sides) if dense else y
        stack.enter_context(suitable_threads(probe))
        losses, done = _train(probe, x, y, train, target, _Units.of(about), rng, steps, seconds, batch_size, began)
        took = (time.monotonic() - began) / max(1, done)
        if not held:
            rows = rows[:0]
        seen = probe.on_grid(y[train]) if dense else y[train]
        scores, constant = _scores(probe.eval(), x[rows], y[rows], seen, target, _Units.of(about), rng)
    return PartResult(rows, scores, constant, losses, done, took)


@dataclass(frozen=True)
class _Units:
    """Of the targets of a regression: networks work with numbers of order one."""

    means: Tensor | float = 0.0
    deviations: Tensor | float = 1.0

    @classmethod
    def of(cls, about: own.About) -> _Units:
        return cls(torch.tensor(about.means), torch.tensor(about.deviations)) if about.regression else cls()

    def __call__(self, said: Tensor) -> Tensor:
        if isinstance(self.means, Tensor) and isinstance(self.deviations, Tensor):
            return said * self.deviations.to(said) + self.means.to(said)
        return said


def _train(
    probe: Probe,
    x: Tensor,
    y: Tensor,
    train: AnyArray,
    target: Target,
    units: _Units,
    rng: np.random.Generator,
    steps: int,
    seconds: float,
    batch_size: int,
    began: float,
) -> tuple[Array, int]:
    """Until all steps are taken or the time is up, whichever comes first; the learning rate follows either."""
    optimizer = torch.optim.AdamW(probe.parameters(), lr=RATE, weight_decay=DECAY)
    recent = torch.zeros(len(probe.subgroups), device=x.device)
    order: list[int] = []
    done, progress = 0, 0.0
    while progress < 1:
        if len(order) < min(batch_size, len(train)):
            order += rng.permutation(train).tolist()
        chosen, order = torch.tensor(order[:batch_size]), order[batch_size:]
        rising = min(1.0, (progress + 1e-3) / RISING)
        falling = (1 + math.cos(math.pi * max(0.0, progress - RISING) / (1 - RISING))) / 2
        for settings in optimizer.param_groups:
            settings["lr"] = RATE * rising * falling
        said, wanted = _said(probe, x[chosen], y[chosen], probe.shifts(x[chosen], rng), rng, PIXELS)
        losses = torch.stack([target.loss(units(own), wanted) for own in said])
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        done += 1
        recent = recent.lerp(losses.detach(), 1 / min(done, 20))
        spent = (time.monotonic() - began) / seconds
        progress = max(done / steps, spent if done >= FEWEST_STEPS else 0.0)
    return recent.double().cpu().numpy(), done


def _said(
    probe: Probe, x: Tensor, y: Tensor, shifts: Tensor, rng: np.random.Generator, pixels: int | None
) -> tuple[Tensor, Tensor]:
    """What all ends say of examples, or of some pixels of theirs, and what would be right."""
    if not probe.trunk.local:
        return probe(x, shifts, rng), y
    inside = (probe.trunk.disk.flatten() > 0.5).nonzero()[:, 0]
    if pixels is None:
        places = inside[::EVERY]
    else:
        places = inside[torch.as_tensor(rng.integers(len(inside), size=pixels), device=inside.device)]
    return probe.at_pixels(x, y, places, shifts, rng)


@torch.no_grad()
def _scores(
    probe: Probe, x: Tensor, y: Tensor, seen: Tensor, target: Target, units: _Units, rng: np.random.Generator
) -> tuple[Array, Array]:
    """(subgroups, examples): of the mean answer over random turns; of masks, the mean over turns of the score.

    And of a constant answer, from the targets that were ``seen`` in training: of the same pixels, if these are masks.
    """
    if not len(x):
        return np.zeros((len(probe.subgroups), 0)), np.zeros(0)
    out, constant = [], []
    dense = bool(probe.trunk.local)
    for chosen in torch.arange(len(x)).split(8 if dense else 256):
        moves = probe.shifts(x[chosen], rng)  # the same for all turns: their average would tell where an example lies
        views = (_said(probe, x[chosen], y[chosen], moves, rng, None) for _ in range(DENSE_VIEWS if dense else VIEWS))
        if dense:
            turns = [*views]
            scores = [torch.stack([target.score(own, wanted) for own in said]) for said, wanted in turns]
            out.append(torch.stack(scores).mean(0))
            constant.append(torch.stack([target.constant_score(wanted, seen) for _, wanted in turns]).mean(0))
        else:
            said = torch.stack([said for said, _ in views]).mean(0)
            out.append(torch.stack([target.score(units(own), y[chosen]) for own in said]))
            constant.append(target.constant_score(y[chosen], seen))
    return torch.cat(out, 1).double().cpu().numpy(), torch.cat(constant).double().cpu().numpy()

"""Whether the examples themselves have a symmetry, before any training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from pscnn._files import write_whole
from pscnn.data import own
from pscnn.experiments._discover._parts import pooled
from pscnn.experiments._discover._subgroups import Subgroup, within
from pscnn.experiments._presence import presence
from pscnn.groups import O2, O3, SO2, SO3, C, D, Group, parse


@dataclass(frozen=True)
class Poses:
    """Whether examples come transformed by a subgroup as often as not.

    Attributes:
        subgroup: K.
        statistic: Share of held-out pairs in which a classifier finds the transformed copy; 0.5 is chance.
        low: Lower end of its interval.
        high: Upper end.
        present: None if it cannot be told.
    """

    subgroup: Subgroup
    statistic: float
    low: float
    high: float
    present: bool | None

    def to_json(self) -> list[object]:
        """From which ``from_json`` makes it again."""
        return [self.subgroup.to_json(), self.statistic, self.low, self.high, self.present]

    @classmethod
    def from_json(cls, value: Sequence[object]) -> Poses:
        """The other way round."""
        subgroup, statistic, low, high, present = value
        numbers = (float(str(number)) for number in (statistic, low, high))
        return cls(Subgroup.from_json(subgroup), *numbers, None if present is None else bool(present))  # type: ignore[arg-type]


def asked(group: Group) -> list[Subgroup]:
    """The subgroups that are tested; quarter turns and the like follow from them."""
    if group.dimension == 3:
        some = [SO2().about(axis) for axis in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
        return within(group, [*map(Subgroup, some), Subgroup(SO3()), Subgroup(O3())])
    some = [Subgroup(C(2)), Subgroup(C(3)), Subgroup(C(4)), Subgroup(D(1), 90.0), Subgroup(SO2()), Subgroup(O2())]
    return within(group, some)


def find_poses(path: Path, group: str, seconds: float) -> list[Poses]:
    """Test the examples of training and validation.

    Args:
        path: Prepared data.
        group: H.
        seconds: After which no further test begins.
    """
    x, y = pooled(path)
    about, tested = own.read_about(path), asked(parse(group))
    classes = y if about.kind == "classes" else None
    with torch.random.fork_rng(()):
        found = presence(x, parse(group), tested, seconds=seconds, classes=classes)
    return [
        Poses(one, float(p.statistic), float(p.low), float(p.high), p.present)
        for one, p in zip(tested, found, strict=True)
    ]


def write_poses(found: list[Poses], path: Path) -> None:
    """As a file."""
    write_whole(path, json.dumps([one.to_json() for one in found]) + "\n")


def read_poses(path: Path) -> list[Poses]:
    """From a file."""
    return [Poses.from_json(one) for one in json.loads(path.read_text(encoding="utf-8"))]


def folds(found: Sequence[Poses]) -> tuple[int, ...]:
    """How many rotations the groups have that are tried: two and four, and three or six if the examples have them.

    Where examples come in a few poses only, a third of a turn takes none to another, and could be enforced whatever the
    task is.
    """
    present = {one.subgroup.group for one in found if one.present}
    three = C(3) in present or SO2() in present or O2() in present
    six = three and (C(2) in present or SO2() in present or O2() in present)
    return (2, *([3] if three else []), 4, *([6] if six else []))

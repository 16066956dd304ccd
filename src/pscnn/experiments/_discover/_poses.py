"""Whether the examples themselves have a symmetry, before any training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from pscnn._files import check_record, from_json, plain_file, write_whole
from pscnn.data import own
from pscnn.experiments._discover._parts import pooled
from pscnn.experiments._discover._subgroups import Subgroup, within
from pscnn.experiments._presence import Presence, presence
from pscnn.groups import O2, O3, SO2, SO3, C, D, Group, parse


def asked(group: Group) -> list[Subgroup]:
    """The subgroups that are tested; quarter turns and the like follow from them."""
    if group.dimension == 3:
        about = [Subgroup(SO2().about(axis)) for axis in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
        return within(group, [*about, Subgroup(SO3()), Subgroup(O3())])
    some = [Subgroup(C(2)), Subgroup(C(3)), Subgroup(C(4)), Subgroup(D(1), 90.0), Subgroup(SO2()), Subgroup(O2())]
    return within(group, some)


def find_poses(path: Path, group: str, subgroups: Sequence[Subgroup], seconds: float) -> list[Presence]:
    """Test the examples of training and validation.

    Args:
        path: Prepared data.
        group: H.
        subgroups: Which are tested.
        seconds: After which no further test begins.
    """
    about = own.read_about(path)
    x, y = pooled(path)
    for axis, n in enumerate(about.content, 2):  # padding would tell how an example was turned
        x = x.narrow(axis, (x.shape[axis] - n) // 2, n)
    with torch.random.fork_rng(()):
        return presence(x, parse(group), subgroups, seconds=seconds, classes=y if about.kind == "classes" else None)


def presence_to_json(one: Presence) -> dict[str, Any]:
    """From which ``presence_from_json`` makes it again."""
    assert isinstance(one.group, Subgroup)
    return {**{field.name: getattr(one, field.name) for field in fields(one)}, "group": one.group.to_json()}


def presence_from_json(values: dict[str, Any]) -> Presence:
    """The other way round."""
    return Presence(**values | {"group": Subgroup.from_json(values["group"])})


def write_poses(found: list[Presence], path: Path) -> None:
    """As a file."""
    write_whole(path, json.dumps([presence_to_json(one) for one in found]) + "\n")


def read_poses(path: Path) -> list[Presence]:
    """From a file."""
    found = [presence_from_json(one) for one in from_json(plain_file(path).read_text(encoding="utf-8"))]
    for one in found:
        check_record(one)
    return found


def folds(found: Sequence[Presence]) -> tuple[int, ...]:
    """How many rotations the groups have that are tried: two and four, and three or six if the examples have them.

    Where examples come in a few poses only, a third of a turn takes none to another, and could be enforced whatever the
    task is.
    """
    present = {one.group.group for one in found if one.present and isinstance(one.group, Subgroup)}
    three = C(3) in present or SO2() in present or O2() in present
    six = three and (C(2) in present or SO2() in present or O2() in present)
    return (2, *([3] if three else []), 4, *([6] if six else []))

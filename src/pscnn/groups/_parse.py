"""Groups by name."""

from __future__ import annotations

import contextlib
import re

from pscnn.groups._group import Group
from pscnn.groups._planar import O2, SO2, C, D, PlanarGroup
from pscnn.groups._spatial import O3, SO3

_PATTERN = re.compile(r"(C|D|SO|O)(?:\((\d+)\)|(\d+))(?:@([XYZ]|\(.*\))(, *TURN)?)?")
_AXES = {"X": (1, 0, 0), "Y": (0, 1, 0), "Z": (0, 0, 1)}


def parse(name: str) -> Group:
    """The group with this name, so that ``parse(group.name) == group``.

    The brackets around a number are optional and case does not matter. ``@`` and an axis, x, y, z or three numbers,
    let a group of the plane act on space; with ``, turn`` its reflections are half-turns. See ``Axial``.

    Example:
        >>> parse("O(2)"), parse("c4"), parse("SO3")
        (O2(), C(4), SO3())
        >>> parse("SO(2)@z"), parse("D(4)@(1, 1, 0), turn")
        (SO2().about((0, 0, 1)), D(4).about((1, 1, 0), 'turn'))
    """
    match = _PATTERN.fullmatch(name.strip().upper()) if isinstance(name, str) else None
    if match:
        with contextlib.suppress(ValueError):  # such as C(0), or an axis of length 0
            return _group(match[1], int(match[2] or match[3]), match[4], bool(match[5]))
    raise ValueError(
        f"unknown group {name!r}: use C(N), D(N), SO(2), O(2), SO(3) or O(3), for example 'O(2)' or 'C4'; "
        "groups of the plane about an axis of space have names such as 'SO(2)@z', 'C(4)@(1, 1, 0)' or 'D(4)@x, turn'"
    )


def _group(family: str, number: int, axis: str | None, turn: bool) -> Group:
    known: dict[tuple[str, int], Group] = {("SO", 2): SO2(), ("O", 2): O2(), ("SO", 3): SO3(), ("O", 3): O3()}
    group = C(number) if family == "C" else D(number) if family == "D" else known.get((family, number))
    if group is not None and axis is None:
        return group
    if not isinstance(group, PlanarGroup) or axis is None:
        raise ValueError("no such group, or not one of the plane")
    direction = _AXES.get(axis) or [float(a) for a in axis[1:-1].split(",")]
    return group.about(direction, "turn" if turn else "mirror")

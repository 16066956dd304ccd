"""What ``discover`` says about tasks whose symmetries are known: right, or not, or that it cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pscnn._types import Array
from pscnn.data.known import Kept, KnownTask

OUTCOMES = ("right", "cannot tell", "too little", "confidently wrong")
EQUAL, CLEARLY_ONE, CLEARLY_ANOTHER = 7.0, 3.0, 12.0
"""Degrees between mirror lines (or axes) that are the same; that are so for sure; and that may still be."""


class SubgroupLike(Protocol):
    """What ``discover`` calls a subgroup; ``Kept`` is one as well."""

    @property
    def name(self) -> str:
        """Such as C(2), or the identity."""

    @property
    def angle(self) -> float | None:
        """Of one of its mirror lines to the x axis, in degrees."""

    def elements(self) -> Array:
        """All of them, or many of a continuous group, (N, n, n)."""


@dataclass(frozen=True)
class Verdict:
    """How good an answer is.

    Attributes:
        outcome: One of ``OUTCOMES``.
        why: What was said that is not so, in sentences.
    """

    outcome: str
    why: tuple[str, ...] = ()


def judge(task: KnownTask, kept: SubgroupLike | None, statements: Sequence[Any]) -> Verdict:
    """Compare an answer with the truth.

    Args:
        task: What was asked about.
        kept: The largest subgroup that can be enforced, as was found; None for "cannot tell".
        statements: About single subgroups, each with ``subgroup`` and ``verdict``.

    Example:
        >>> from pscnn.data.known import TASKS
        >>> judge(TASKS["bars"], Kept("D(2)", 3), []).outcome
        'right'
        >>> judge(TASKS["bars"], Kept("SO(2)"), []).outcome
        'confidently wrong'
    """
    why = []
    for one in statements:
        if one.verdict == "kept" and not within(one.subgroup, task.truth, CLEARLY_ANOTHER):
            why.append(f"{words(one.subgroup)} is said to be kept")
        if one.verdict == "broken" and (not task.truth or within(one.subgroup, task.truth, CLEARLY_ONE)):
            why.append(f"{words(one.subgroup)} is said to be broken")
    if kept is not None and not within(kept, task.truth, CLEARLY_ANOTHER):
        why.append(f"{words(kept)} is said to be the largest")
    if why:
        return Verdict("confidently wrong", tuple(dict.fromkeys(why)))
    if kept is None:
        return Verdict("cannot tell" if task.truth and not task.may_abstain else "right")
    same = any(_plain(kept) == _plain(one) and within(kept, [one], EQUAL) for one in task.truth)
    return Verdict("right") if same else Verdict("too little", (f"{words(kept)} is not the largest",))


def words(subgroup: SubgroupLike | None) -> str:
    """As D(1) at 30°, or O(2)@z."""
    if subgroup is None:
        return "cannot tell"
    plain = _plain(subgroup)
    if plain == "C(1)":
        return "the identity"
    if subgroup.angle is not None:
        return f"{subgroup.name} at {subgroup.angle:g}°"
    return f"{plain} at any angle" if subgroup.name.startswith("D") and "@" not in subgroup.name else subgroup.name


def within(subgroup: SubgroupLike, others: Sequence[Kept], degrees: float) -> bool:
    """Whether a subgroup lies in one of others, up to mirror lines and axes that differ by some degrees."""
    elements = np.asarray(subgroup.elements())
    return any((_distances(elements, _at(other, subgroup)) <= 2 * degrees + 1e-6).all() for other in others)


def _plain(subgroup: SubgroupLike) -> str:
    """The name without the axis."""
    name = subgroup.name.split("@")[0].strip()
    return "C(1)" if name in ("the identity", "e") else name


def _at(one: Kept, like: SubgroupLike) -> Kept:
    """A dihedral group at any angle, at that of another one."""
    free = one.name.startswith("D") and one.angle is None and like.angle is not None
    return one._replace(angle=like.angle) if free else one


def _distances(elements: Array, other: Kept) -> Array:
    """Degrees by which elements have to be turned to lie in a group; infinite where that does not help."""
    sign = np.linalg.det(elements).round()
    if other.name in ("SO(3)", "O(3)"):
        return np.where((sign > 0) | (other.name == "O(3)"), 0.0, np.inf)
    members = other.elements()
    cosine = (np.einsum("aij,bij->ab", elements, members) - (elements.shape[1] - 2)) / 2
    same = sign[:, None] == np.linalg.det(members).round()
    return np.where(same, np.degrees(np.arccos(cosine.clip(-1, 1))), np.inf).min(1)

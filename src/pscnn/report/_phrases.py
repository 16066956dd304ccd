"""Symmetries in words that need no knowledge of groups."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from pscnn._types import Array
from pscnn.densities import KEPT, NEAR, LayerSummary, apart
from pscnn.groups import parse

WHOLE = {
    "O(2)": "all rotations and mirrors (O(2))",
    "SO(2)": "all rotations (SO(2))",
    "O(3)": "all rotations and reflections in space (O(3))",
    "SO(3)": "all rotations in space (SO(3))",
}
MIRRORS = {0: "the top–bottom mirror", 90: "the left–right mirror"}


def group_words(name: str) -> str:
    """A group, a mirror line or an axis in words, its symbol behind it.

    Example:
        >>> group_words("C(2)"), group_words("D(4)")
        ('half turns (C2)', 'quarter turns and 4 mirror lines (D4)')
        >>> group_words("mirror line at 0°"), group_words("SO(2)@z")
        ('the top–bottom mirror', 'all rotations about z (SO(2)@z)')
    """
    symbol, _, axis = name.partition("@")
    if axis.endswith(", turn"):
        axis = axis.removesuffix(", turn")
        turns = plain(group_words(f"{parse(symbol).rotations.name}@{axis}"))
        across = f"half turns about {'an axis' if symbol == 'D(1)' else 'axes'} across {axis} ({name})"
        return across if symbol == "D(1)" else f"{turns} and {across}"
    if axis:
        inner = group_words(symbol)
        return f"{inner[: inner.rindex(' (')]} about {axis} ({name})" if " (" in inner else f"{inner} about {axis}"
    if name in WHOLE:
        return WHOLE[name]
    if found := re.fullmatch(r"([CD])\((\d+)\)", name):
        return _finite(found[1], int(found[2]))
    if found := re.fullmatch(r"mirror line at (\d+)°", name):
        return _mirror(int(found[1]))
    if found := re.fullmatch(r"rotations about \((.+), (.+), (.+)\)", name):
        along = [abs(float(x)) for x in found.groups()]
        named = next((axis for axis, length in zip("xyz", along, strict=True) if length == 1), None)
        rounded = ", ".join(f"{float(x) + 0.0:.1f}".replace("-", "−") for x in found.groups())
        return f"rotations about the {named} axis" if named else f"rotations about the axis ({rounded})"
    return "no symmetry" if name in ("e", "the identity") else name


def mirror_words(elements: Array) -> str | None:
    """A single mirror in space by the axis that it turns round; None if the other element is no mirror.

    Args:
        elements: Of the group, (2, 3, 3).
    """
    mirror = elements[np.abs(elements - np.eye(3)).max((1, 2)) > 1e-6][0]
    values, vectors = np.linalg.eigh((mirror + mirror.T) / 2)
    if not np.allclose(values, [-1, 1, 1], atol=1e-6):
        return None
    along = np.abs(vectors[:, 0])
    named = {"x": "left and right", "y": "front and back", "z": "top and bottom"}
    for axis, name, length in zip(named, named.values(), along, strict=True):
        if length > 1 - 1e-6:
            return f"the mirror that exchanges {name}, {axis} and −{axis}"
    return f"the mirror along ({', '.join(f'{x:.1f}' for x in vectors[:, 0] + 0.0)})"


def _mirror(angle: int) -> str:
    for level, words in MIRRORS.items():
        if apart(angle, level) <= NEAR:
            return words if angle == level else f"{words} (line at {angle}°)"
    return f"the mirror line at {angle}°"


def _finite(kind: str, n: int) -> str:
    turns = {1: "", 2: "half turns", 4: "quarter turns"}.get(n, f"turns by {360 / n:g}°")
    if kind == "C":
        return f"{turns} (C{n})" if turns else "no symmetry"
    if n == 1:
        return "the left–right mirror (D1)"
    if n == 2:
        return "half turns, the left–right and the top–bottom mirror (D2)"
    return f"{turns} and {n} mirror lines (D{n})"


def kept_words(row: LayerSummary) -> str:
    """What a layer kept, as the end of a sentence."""
    return listed([group_words(name) for name in row.kept])


def listed(words: Sequence[str]) -> str:
    """With commas, and "and" before the last."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def answer_words(rows: Sequence[LayerSummary], seen: Sequence[int | None], size: int, unit: str) -> str:
    """One sentence about a network with densities.

    Args:
        rows: Its densities, in the order of what they see.
        seen: How many pixels each sees along one side, if that is known.
        size: The side of the image or volume.
        unit: What it is counted in.
    """
    whole = plain(group_words(rows[0].support))
    lost = next((k for k, row in enumerate(rows) if row.degrees[row.support] < KEPT), None)
    if lost is None:
        return f"{whole[0].upper()}{whole[1:]} are kept in every layer."
    end = plain(kept_words(rows[-1]))
    if lost == 0:
        return f"From its first layer on, the network gives up part of {whole}; in the end it keeps {end}."
    upto = f"for patterns of up to {seen[lost - 1]} of {size} {unit}" if seen[lost - 1] else f"up to layer {lost}"
    more = "seeing more" if seen[lost - 1] else "after that"
    return (
        f"{whole[0].upper()}{whole[1:]} are kept {upto}; {more}, the network gives part of them up, and in the end it "
        f"keeps {end}."
    )


def plain(words: str) -> str:
    """Without symbols in brackets."""
    return re.sub(r" \((?:[SOCD]+\(?\d+\)?(?:@[^)]*)?|line at \d+°)\)", "", words)

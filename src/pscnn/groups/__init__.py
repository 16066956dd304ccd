"""Who H is: compact groups H ≤ O(n), their elements, irreps, representations and Fourier transforms.

Everything here is exact mathematics in NumPy float64, memoised in the process and usable without a network.
"""

from __future__ import annotations

import re

from pscnn.groups._axial import Axial
from pscnn.groups._functions import FunctionSpace
from pscnn.groups._group import Group
from pscnn.groups._planar import MIRROR, O2, SO2, C, D, PlanarGroup, rotation
from pscnn.groups._representation import DirectSum, Irrep, Representation, clebsch_gordan, direct_sum
from pscnn.groups._spatial import O3, SO3, axis_angle, octahedral_sphere_rule, quaternion_rotation, rotation_to

__all__ = [
    "MIRROR",
    "O2",
    "O3",
    "SO2",
    "SO3",
    "Axial",
    "C",
    "D",
    "DirectSum",
    "FunctionSpace",
    "Group",
    "Irrep",
    "PlanarGroup",
    "Representation",
    "axis_angle",
    "clebsch_gordan",
    "direct_sum",
    "octahedral_sphere_rule",
    "parse",
    "quaternion_rotation",
    "rotation",
    "rotation_to",
]


def parse(name: str) -> Group:
    """The group with this name; brackets are optional and case does not matter.

    Example:
        >>> parse("O(2)"), parse("c4"), parse("SO3")
        (O2(), C(4), SO3())
    """
    match = re.fullmatch(r"(C|D|SO|O)(?:\((\d+)\)|(\d+))", name.strip().upper()) if isinstance(name, str) else None
    if match:
        family, number = match[1], int(match[2] or match[3])
        if family in "CD" and number >= 1:
            return C(number) if family == "C" else D(number)
        known: dict[tuple[str, int], Group] = {("SO", 2): SO2(), ("O", 2): O2(), ("SO", 3): SO3(), ("O", 3): O3()}
        if (family, number) in known:
            return known[family, number]
    raise ValueError(f"unknown group {name!r}: use C(N), D(N), SO(2), O(2), SO(3) or O(3), for example 'O(2)' or 'C4'")

"""The symmetries of the shapes that known tasks draw; the proofs of their answers rest on them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pscnn._types import Array
from pscnn.data.known import Kept


class Some(NamedTuple):
    """A subgroup by its elements."""

    name: str
    matrices: Array
    angle: float | None = None

    def elements(self) -> Array:
        return self.matrices


_about_x = Kept("O(2)@x").elements()
_AXIAL = Some("about x, and the inversion", np.concatenate([_about_x, -_about_x]))
OWN: dict[str, Kept | Some] = {
    "arrow": Kept("D(1)", 0), "comet": Kept("D(1)", 0), "dot": Kept("D(1)", 0), "bar": Kept("D(2)", 0),
    "plus": Kept("D(4)", 0), "square": Kept("D(4)", 0), "triangle": Kept("D(3)", 0), "star": Kept("D(5)", 0),
    "saw": Kept("C(4)"), "N": Kept("C(2)"), "S": Kept("C(2)"), "b": Kept("C(1)"), "six": Kept("C(1)"),
    "hand": Kept("D(1)", 0), "L": Kept("C(1)"), "coarse": Kept("D(2)", 0), "fine": Kept("D(2)", 0),
    "mesh": Kept("D(4)", 0),
    "trousers": Kept("D(1)", 90), "shirt": Kept("D(1)", 90), "dress": Kept("D(1)", 90),
    "shoe": Kept("C(1)"), "bag": Kept("D(1)", 90),
    "comet in space": Kept("O(2)@x"), "helix": Kept("C(2)@y"), "rod": _AXIAL, "ring": _AXIAL,
}  # fmt: skip
"""The symmetries of the shapes themselves; data/test_known.py compares pictures of them."""

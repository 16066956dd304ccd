"""How the fields of a feature type repeat, so that one small basis serves all of its copies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from math import gcd

import numpy as np

from pscnn._memo import memo
from pscnn._types import IntArray
from pscnn.groups import DirectSum, Representation, direct_sum


@dataclass(frozen=True, eq=False)
class Layout:
    """A list of fields as ``copies`` repetitions of one composite representation.

    Attributes:
        copies: How often the composite repeats.
        composite: The repeating representation.
        order: Where each channel of the type stands among the repetitions, or None if they are already in order.
    """

    copies: int
    composite: DirectSum
    order: IntArray | None


@memo
def layout(fields: tuple[Representation, ...]) -> Layout:
    """Find the shortest composite: the period of the list if it has one, otherwise the greatest common divisor."""
    count = len(fields)
    for period in range(1, count // 2 + 1):
        if count % period == 0 and fields == fields[:period] * (count // period):
            return Layout(count // period, direct_sum(list(fields[:period])), None)
    numbers = Counter(fields)
    copies = reduce(gcd, numbers.values())
    if copies == 1:
        return Layout(1, direct_sum(list(fields)), None)
    composite = [rho for rho, number in numbers.items() for _ in range(number // copies)]
    # The m-th field of some kind in the list is the m-th field of that kind among the repetitions.
    starts = np.cumsum([0, *(rho.size for rho in composite * copies)])
    places: dict[Representation, list[int]] = {}
    for rho, start in zip(composite * copies, starts[:-1], strict=True):
        places.setdefault(rho, []).append(int(start))
    queues = {rho: iter(where) for rho, where in places.items()}
    order = np.concatenate([next(queues[rho]) + np.arange(rho.size) for rho in fields])
    return Layout(copies, direct_sum(composite), order)

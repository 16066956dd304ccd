from __future__ import annotations

import numpy as np
import pytest

from pscnn.groups import D, Representation, direct_sum
from pscnn.kernels import layout

KINDS = {"a": D(4).trivial, "b": D(4).irrep(1, 1), "r": D(4).regular, "v": D(4).vector + D(4).trivial}


def fields(letters: str) -> tuple[Representation, ...]:
    return tuple(KINDS[letter] for letter in letters)


@pytest.mark.parametrize(
    ("letters", "copies", "composite"),
    [
        ("a", 1, "a"),
        ("aaaaa", 5, "a"),
        ("ababab", 3, "ab"),
        ("abrbabrb", 2, "abrb"),
        ("vrvrvrvr", 4, "vr"),
        ("abb", 1, "abb"),
        ("ababa", 1, "ababa"),
        ("bbaa", 2, "ba"),
        ("aabbbb", 2, "abb"),
        ("abba", 2, "ab"),
        ("rrrbababa", 3, "rba"),
        ("baabrbar", 1, "baabrbar"),
        ("avvabrrb", 2, "avbr"),
    ],
)
def test_repetitions_rebuild_the_fields_in_their_order(letters: str, copies: int, composite: str) -> None:
    found = layout(fields(letters))
    assert found.copies == copies
    assert found.composite == direct_sum(list(fields(composite)))
    h = D(4).sample(6, seed=0)
    repeated = direct_sum([found.composite for _ in range(copies)])(h)
    if found.order is not None:
        np.testing.assert_array_equal(np.sort(found.order), np.arange(repeated.shape[1]))
        repeated = repeated[:, found.order][:, :, found.order]
    np.testing.assert_allclose(repeated, direct_sum(list(fields(letters)))(h), atol=1e-12)


def test_fields_already_in_order_need_no_permutation() -> None:
    assert layout(fields("ababab")).order is None
    assert layout(fields("abb")).order is None
    order = layout(fields("bbaa")).order
    assert order is not None
    assert order.tolist() == [0, 1, 3, 4, 2, 5]

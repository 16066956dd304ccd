"""Examples that are there more than once: networks that have seen one of them seem to know the others."""

from __future__ import annotations

import hashlib

import numpy as np

from pscnn._types import AnyArray


def copies(pixels: AnyArray, targets: AnyArray, split: AnyArray) -> list[str]:
    """What is to be said of examples that equal others to the last bit, in a sentence; nothing if there are none.

    Args:
        pixels: Examples, along the first axis.
        targets: Theirs.
        split: What each of them is for.
    """
    digests = [hashlib.blake2b(np.ascontiguousarray(one).tobytes(), digest_size=16).digest() for one in pixels]
    _, groups = np.unique(np.array(digests, dtype="V16"), return_inverse=True)
    total = int(groups.max()) + 1
    if total == len(pixels):
        return []
    where = [
        f"{words}: {count}"
        for words, count in (
            ("in several of training, validation and test", _mixed(groups, split, total)),
            ("with different targets", _mixed(groups, targets.reshape(len(targets), -1), total)),
        )
        if count
    ]
    more = f" ({'; '.join(where)})" if where else ""
    return [
        f"{len(pixels) - total} of {len(pixels)} examples are copies of others{more}. A network seems to know what it "
        "has seen: leave one of each."
    ]


def _mixed(groups: AnyArray, values: AnyArray, total: int) -> int:
    """In how many groups of examples values differ."""
    _, first = np.unique(groups, return_index=True)
    differs = (values != values[first[groups]]).reshape(len(values), -1).any(1)
    return int((np.bincount(groups, weights=differs, minlength=total) > 0).sum())

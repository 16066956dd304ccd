"""From scores on held-out examples to statements about subgroups, each with an interval, none against another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, ndtr, stdtrit

from pscnn._types import AnyArray, Array
from pscnn.experiments._discover._subgroups import Subgroup

FEWEST = 50
"""Held-out examples below which nothing is said."""
TOLERANCE = 0.03
"""Loss of accuracy, or share of the variance, up to which a symmetry counts as kept."""
NOTICEABLE = 0.01
"""Loss above which one counts as broken."""
CONFIDENCE = 0.95
DRAWS = 4000
AT_ONCE = 10_000_000
"""Random signs in memory."""
LEAST = 2.5
"""Deviations to either side of a mean at least: where no scores differ, draws tell nothing."""
KEPT, BROKEN, UNCLEAR = "kept", "broken", "cannot tell"


@dataclass(frozen=True)
class Statement:
    """What enforcing a subgroup costs.

    Attributes:
        subgroup: K.
        verdict: "kept" if the interval lies below the tolerance, "broken" if it lies above what is noticeable, else
            "cannot tell"; also "kept" within a larger one that is kept, and "broken" around a smaller one.
        cost: Mean score lost on held-out examples, in accuracy or in variances of the target; negative if enforcing it
            helps.
        low: Lower end of its 95 % interval, which all intervals of an answer cover at the same time.
        high: Upper end.
        score: Mean score with K enforced.
        layers: "last": early layers keep H, K is what the rest of the network keeps.
        because: The subgroup from whose statement this verdict follows; None if it is from its own interval.
    """

    subgroup: Subgroup
    verdict: str
    cost: float
    low: float
    high: float
    score: float
    layers: str = "last"
    because: Subgroup | None = None


@dataclass(frozen=True)
class Comparison:
    """All that is said from the scores.

    Attributes:
        statements: One for each subgroup but the identity, in the order of the candidates.
        kept: The largest subgroup that can be enforced without loss; the identity if all others are broken; None if
            it cannot be told.
        learnt: Whether networks are better than a constant answer for sure.
        examples: Held-out examples.
        free: Mean score without any symmetry.
        constant: Mean score of a constant answer.
    """

    statements: list[Statement]
    kept: Subgroup | None
    learnt: bool
    examples: int
    free: float
    constant: float


def compare(
    subgroups: Sequence[Subgroup], scores: Array, constant: Array, parts: AnyArray, *, binary: bool
) -> Comparison:
    """Compare every subgroup with the identity, and with every smaller one.

    Args:
        subgroups: The identity first.
        scores: (subgroups, examples).
        constant: Of a constant answer, (examples,).
        parts: Which network scored each example in every round, (rounds, examples).
        binary: Whether scores are 0 or 1, or shares of labels.
    """
    count = scores.shape[1]
    smaller = [
        [j for j, other in enumerate(subgroups) if j != k and one.includes(other)] for k, one in enumerate(subgroups)
    ]
    pairs = [(j, k) for k in range(len(subgroups)) for j in smaller[k]]
    gaps = np.stack([scores[j] - scores[k] for j, k in pairs] + [constant - own for own in scores])
    if count < 2:
        means = np.zeros(len(gaps))
        half = np.full(len(gaps), np.inf)
    else:
        means, half = intervals(gaps, parts, binary=binary)
    low, high = (dict(zip(pairs, ends[: len(pairs)], strict=True)) for ends in (means - half, means + half))
    better = (means + half)[len(pairs) :] < 0
    learnt = bool(better.any()) and count >= FEWEST and len(np.unique(parts)) > 1  # one network may be chance
    error = float("inf") if binary else max(1e-6, -float(scores[0].mean()))
    tolerance = min(TOLERANCE, error)
    noticeable = min(NOTICEABLE, 0.2 * error)
    own = [KEPT if learnt else UNCLEAR] * len(subgroups)
    for k in sorted(range(1, len(subgroups)), key=lambda k: subgroups[k].rank) if learnt else ():
        # Where a smaller one can be enforced, and helps, more must not undo that.
        harmless = all(high[j, k] < tolerance for j in smaller[k] if own[j] == KEPT)
        if any(low[j, k] > noticeable for j in smaller[k]) and not harmless:
            own[k] = BROKEN
        else:
            own[k] = KEPT if harmless and better[k] else UNCLEAR
    verdicts, because = consistent(subgroups, own)
    statements = []
    for k, one in enumerate(subgroups[1:], 1):
        j = 0
        if verdicts[k] == BROKEN and low[0, k] <= noticeable and because[k] is None:
            j = max((low[j, k], j) for j in smaller[k])[1]
        cost, score = (float(scores[j].mean() - scores[k].mean()), float(scores[k].mean())) if count else (0.0, 0.0)
        reason = because[k]
        statements.append(
            Statement(
                one, verdicts[k], cost, float(low[j, k]), float(high[j, k]), score,
                because=None if reason is None else subgroups[reason],
            )
        )  # fmt: skip
    kept = _largest(subgroups, verdicts, scores) if learnt else None
    return Comparison(
        statements, kept, learnt, count, *(float(v.mean()) if count else 0.0 for v in (scores[0], constant))
    )


def intervals(gaps: Array, parts: AnyArray, *, binary: bool) -> tuple[Array, Array]:
    """Means over examples, and half the widths of intervals that cover all of them at the same time.

    The width is that of the largest deviation among all means, from draws with random signs. Networks differ, too: if
    the means of the parts differ by more than their examples explain, widths grow by as much. Where (almost) no scores
    differ, the intervals of shares are those of counts with a few differences more, so that none has a width of zero.

    Args:
        gaps: Differences of scores, (comparisons, examples).
        parts: Which network scored each example in every round, (rounds, examples).
        binary: Whether scores are 0 or 1.
    """
    count = gaps.shape[1]
    finite = np.isfinite(gaps).all(1)
    if not finite.all():  # of networks that diverged nothing is known
        means, half = np.zeros(len(gaps)), np.full(len(gaps), np.inf)
        if finite.any():
            means[finite], half[finite] = intervals(gaps[finite], parts, binary=binary)
        return means, half
    means = gaps.mean(1)
    spread = gaps - means[:, None]
    variance = spread.var(1, ddof=1) / count
    excess, networks = (np.stack(some) for some in zip(*(_between(gaps, own, variance) for own in parts), strict=True))
    total = 1 + excess.sum(0)
    variance = variance * total
    # By how much networks differ is known from few of them: Welch and Satterthwaite's degrees of freedom.
    freedom = total**2 / np.maximum((excess**2 / (networks[:, None] - 1).clip(1)).sum(0), 1e-9)
    deviation = np.sqrt(np.maximum(variance, 1e-18))
    rng = np.random.default_rng(0)
    scale = np.sqrt(np.maximum(spread.var(1), 1e-18) * count)
    at_once = max(1, AT_ONCE // count)
    signs = (rng.choice([-1.0, 1.0], size=(min(at_once, DRAWS - k), count)) for k in range(0, DRAWS, at_once))
    largest = np.concatenate([np.abs((some @ spread.T) / scale).max(1) for some in signs])
    times = stdtrit(freedom, ndtr(max(LEAST, float(np.quantile(largest, CONFIDENCE)))))
    if binary:
        deviation = np.sqrt(deviation**2 + times**2 / 2 / count**2)
    return means, times * deviation


def _between(gaps: Array, parts: AnyArray, variance: Array) -> tuple[Array, int]:
    """What networks add to the variance of a mean, as a share of that of its examples, and how many networks tell so.

    From the means of the parts of a round.
    """
    labels = np.unique(parts[parts >= 0])
    if len(labels) < 2:
        return np.zeros(len(gaps)), len(labels)
    means = np.stack([gaps[:, parts == label].mean(1) for label in labels])
    known = variance > 1e-12
    ratios = means.var(0, ddof=1) / len(labels) / np.maximum(variance, 1e-12)
    freedom = len(labels) - 1
    # What most comparisons say; a few may differ for reasons of their own, such as ends that learnt little.
    usual = float(np.median(ratios[known])) * freedom / chdtri(freedom, 0.5) if known.any() else 1.0
    unusual = known & (ratios > chdtri(freedom, 0.001) / freedom)
    return np.maximum(1.0, np.where(unusual, np.maximum(ratios, usual), usual)) - 1, len(labels)


def consistent(subgroups: Sequence[Subgroup], own: Sequence[str]) -> tuple[list[str], list[int | None]]:
    """What is broken is broken in every larger group, what is kept is kept in every smaller one.

    Where both would be said, neither is.
    """
    count = len(own)
    inside = [[j for j in range(count) if j != k and subgroups[k].includes(subgroups[j])] for k in range(count)]
    doubtful = {
        index for k in range(count) for j in inside[k] if own[k] == KEPT and own[j] == BROKEN for index in (j, k)
    }
    first = [UNCLEAR if k in doubtful else verdict for k, verdict in enumerate(own)]
    verdicts = list(first)
    because: list[int | None] = [None] * count
    for k in range(count):
        if first[k] != UNCLEAR:
            continue
        above = [i for i in range(count) if k in inside[i] and first[i] == KEPT]
        below = [j for j in inside[k] if first[j] == BROKEN]
        if bool(above) != bool(below):
            verdicts[k], because[k] = (KEPT, above[0]) if above else (BROKEN, below[0])
    return verdicts, because


def _largest(subgroups: Sequence[Subgroup], verdicts: Sequence[str], scores: Array) -> Subgroup | None:
    """The largest that is kept, the better mean where two are equally large; None where any larger one is unclear."""
    kept = [k for k, verdict in enumerate(verdicts) if verdict == KEPT]
    best = max(kept, key=lambda k: (*subgroups[k].rank, scores[k].mean(), -k))
    one = subgroups[best]
    if any(v == UNCLEAR and other.rank > one.rank for v, other in zip(verdicts, subgroups, strict=True)):
        return None
    return one

"""How sure one can be: runs of one kind as points, with an interval, and what nobody has tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._types import AnyArray
from pscnn.report._rows import LABELS
from pscnn.training import Task


@dataclass(frozen=True)
class Finished:
    """A run, its task and what came of it; how many examples were classified in the test, if any were."""

    folder: Path
    task: Task
    result: Mapping[str, Any]
    tested: int | None


def network_labels(tasks: Sequence[Task]) -> list[str]:
    """A name for each run's kind of network: the method and whatever else tells kinds apart, but not the seed."""
    kinds = [{**task.settings.to_dict(), "seed": None} for task in tasks]
    names = [LABELS.get(task.settings.method, task.settings.method) for task in tasks]
    out = []
    for name, kind in zip(names, kinds, strict=True):
        rivals = [other for n, other in zip(names, kinds, strict=True) if n == name]
        keys = [k for k in kind if k != "about" and any(other.get(k) != kind[k] for other in rivals)]
        out.append(", ".join([name, *(f"{key.replace('_', ' ')} {kind[key]}" for key in keys[:3])]))
    return out


def comparisons(runs: Sequence[Finished], labels: Sequence[str]) -> list[dict[str, Any]]:
    """A figure per task: for each kind of network, its seeds' scores, their mean and a 95 % interval."""
    out = []
    for title in dict.fromkeys(_title(run.task) for run in runs):
        here = [(run, label) for run, label in zip(runs, labels, strict=True) if _title(run.task) == title]
        key, score = next(iter(here[0][0].task.scores.items()))
        rows = []
        for label in dict.fromkeys(label for _, label in here):
            same = [run for run, other in here if other == label and run.result.get(key) is not None]
            values = [float(run.result[key]) for run in same]
            if values and np.isfinite(values).all():
                tested = same[0].tested if key.endswith("accuracy") else None
                found = interval(values, tested)
                found["covers"] += f", {same[0].result['parameters']:,} weights"
                rows.append({"label": label, **found})
        out.append({"title": title, "score": score, "rows": rows})
    return out


def _title(task: Task) -> str:
    return f"{task.settings.task}, {task.variant}"


def interval(values: Sequence[float], tested: int | None) -> dict[str, Any]:
    """The mean of some seeds' scores with a 95 % interval, and what it covers.

    Of several seeds, Student's interval of the mean. Of one, Wilson's interval of an accuracy on a number of test
    examples, which says nothing about other seeds; without that number there is none.

    Example:
        >>> interval([0.5], 100)["low"], interval([0.5], 100)["high"]
        (0.4038, 0.5962)
        >>> interval([0.4, 0.6], None)["covers"]
        '2 seeds'
    """
    mean, count = float(np.mean(values)), len(values)
    low = high = None
    covers = "1 seed, no interval"
    if count > 1:
        from scipy.special import stdtrit

        half = float(stdtrit(count - 1, 0.975) * np.std(values, ddof=1) / sqrt(count))
        low, high, covers = mean - half, mean + half, f"{count} seeds"
    elif tested:
        z, n = 1.959964, tested
        middle = (mean + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
        low, high, covers = middle - half, middle + half, f"1 seed, {n} test examples"
    ends = {name: None if value is None else round(value, 4) for name, value in (("low", low), ("high", high))}
    return {"points": [round(v, 4) for v in values], "mean": round(mean, 4), **ends, "covers": covers}


def score_words(run: Finished, counts: AnyArray | None) -> str:
    """How good the network is whose densities are shown: those of one that has learnt nothing mean nothing.

    Args:
        run: A run.
        counts: Its confusion, if there are classes.
    """
    key, label = next(iter(run.task.scores.items()))
    value = run.result.get(key)
    if value is None or not np.isfinite(value):
        return "Its training diverged or was not tested: do not trust its densities."
    words = f"{label[0].upper()}{label[1:]}: {value:.3f}"
    if counts is None or not key.endswith("accuracy"):
        return f"{words}."
    constant = float(counts.sum(1).max() / counts.sum())
    words += f" on {run.tested} examples (always the same answer: {constant:.3f})."
    if (interval([value], run.tested)["low"] or 0) <= constant:
        words += " That is not clearly better than always giving the same answer, so its densities mean little."
    return words


def untested(compared: Sequence[Mapping[str, Any]], group: str | None, measured: int) -> list[str]:
    """What the page does not know, in sentences."""
    rows = [row for one in compared for row in one["rows"]]
    out = []
    if any(len(row["points"]) == 1 for row in rows):
        out.append(
            "Other random seeds of networks with a single point: their interval, if there is one, covers the choice of "
            "test examples only."
        )
    if group is not None:
        out += [
            f"Transformations outside {group}: shifts, scalings, changes of brightness.",
            f"Errors on other examples than the {measured} test examples on which they were measured. They are those "
            "of the layers with kernels turned in continuous space; what the grid of pixels adds is left out.",
            "Whether a symmetry that a layer gave up would help on other data: a density says what was useful in this "
            "training.",
        ]
    return out

"""How sure one can be: runs of one kind as points, with an interval, and what nobody has tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._types import AnyArray
from pscnn.experiments import wilson
from pscnn.report._rows import LABELS
from pscnn.training import Settings, Task

SHOWN = 3
"""Settings in the label of a network; more where these do not tell networks apart."""
SHARES = ("accuracy", "auc", "iou")
"""How the names of scores end that lie between 0 and 1."""


@dataclass(frozen=True)
class Finished:
    """A run, its task and what came of it; how many examples were classified in the test, if any were."""

    folder: Path
    task: Task
    result: Mapping[str, Any]
    tested: int | None


def kind_of(task: Task) -> Settings:
    """What the seeds of one network have in common: all settings that say what is trained, but the seed."""
    return replace(task.settings.identity(), seed=0)


def network_labels(tasks: Sequence[Task]) -> list[str]:
    """A name for each run's kind of network, different for different kinds: the method and what tells them apart."""
    kinds = [kind_of(task) for task in tasks]
    labels: dict[Settings, str] = {}
    for method in dict.fromkeys(kind.method for kind in kinds):
        rivals = {kind: kind.to_dict() for kind in kinds if kind.method == method}
        known = dict.fromkeys(name for kind in rivals for name in ("task", *kind.options()) if name != "about")
        names = [name for name in known if len({values.get(name) for values in rivals.values()}) > 1]
        for count in range(min(SHOWN, len(names)), len(names) + 1):
            words = [[f"{n.replace('_', ' ')} {v[n]}" for n in names[:count] if n in v] for v in rivals.values()]
            found = [", ".join([LABELS.get(method, method), *one]) for one in words]
            if len({*found}) == len(found):
                break
        else:  # they differ in what their data are, which takes pages to say
            found = [f"{label}, data {number}" for number, label in enumerate(found, 1)]
        labels |= zip(rivals, found, strict=True)
    return [labels[kind] for kind in kinds]


def comparisons(runs: Sequence[Finished], labels: Sequence[str]) -> list[dict[str, Any]]:
    """A figure per task: for each kind of network, its seeds' scores, their mean and a 95 % interval.

    A seed counts once, however many of the folders have it.
    """
    out = []
    for title in dict.fromkeys(_title(run.task) for run in runs):
        here = [(run, label) for run, label in zip(runs, labels, strict=True) if _title(run.task) == title]
        key, score = next(iter(here[0][0].task.scores.items()))
        kinds: dict[Settings, dict[int, Finished]] = {}
        for run, _ in here:
            if run.result.get(key) is not None:
                kinds.setdefault(kind_of(run.task), {}).setdefault(run.task.settings.seed, run)
        names = {kind_of(run.task): label for run, label in here}
        rows = []
        for kind, seeds in kinds.items():
            values = [float(run.result[key]) for run in seeds.values()]
            if np.isfinite(values).all():
                first = next(iter(seeds.values()))
                found = interval(values, first.tested if key.endswith("accuracy") else None, share=key.endswith(SHARES))
                found["covers"] += f", {first.result['parameters']:,} weights"
                rows.append({"label": names[kind], **found})
        out.append({"title": title, "score": score, "rows": rows})
    return out


def _title(task: Task) -> str:
    return f"{task.settings.task}, {task.variant}"


def interval(values: Sequence[float], tested: int | None, *, share: bool = False) -> dict[str, Any]:
    """The mean of some seeds' scores with a 95 % interval, and what it covers.

    Of several seeds, Student's interval of the mean. Of one, Wilson's interval of an accuracy on a number of test
    examples, which says nothing about other seeds; without that number there is none. That of a share ends at 0 and 1.

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
        low, high = map(float, wilson(mean, tested))
        covers = f"1 seed, {tested} test examples"
    if share and low is not None and high is not None:
        low, high = max(0.0, low), min(1.0, high)
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

"""What was discovered about people's own data, in words, numbers and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pscnn import experiments, training
from pscnn.data import own
from pscnn.densities import KEPT, layer_summaries
from pscnn.experiments import DISCOVER_METHODS, Choice, Difference, spread
from pscnn.report._html import html_report
from pscnn.report._phrases import group_words, inside, listed, plain
from pscnn.report._rows import LABELS, plus_minus
from pscnn.tasks.own import OwnSettings
from pscnn.training import Store

LEARNT = 0.05
"""By how much the best network must surpass a constant answer for the data to say anything."""

NO_GAIN = 0.03
"""A gain, in accuracy or share of the variance, below which giving up a symmetry counts as no help."""


@dataclass(frozen=True)
class LayerFinding:
    """What the densities of one layer say, over all seeds."""

    label: str  # number and name
    pixels: int  # how much of the input it sees, along one side
    kept: tuple[str, ...]  # the largest subgroups that are kept on average
    degrees: dict[str, tuple[float, float, float]]  # how far subgroups are kept: mean, lowest and highest of the seeds


@dataclass(frozen=True)
class Discovery:
    """The answer and what it rests on, by kind of network."""

    holds: own.About
    group: str
    runs: dict[str, list[Path]]
    validation: dict[str, list[float]]  # by seed: accuracies, or minus the mean square errors
    test: dict[str, list[float]]  # by seed: accuracies, or root mean square errors
    parameters: dict[str, int]
    constant: float  # the score of always giving the same answer
    choice: Choice
    differences: list[Difference]
    layers: list[LayerFinding]

    @property
    def seeds(self) -> int:
        """Networks of each kind."""
        return len(self.validation["scnn"])

    @property
    def learnt(self) -> bool:
        """Whether any kind of network learnt the task."""
        return max(float(np.mean(v)) for v in self.validation.values()) > self.constant + LEARNT


def read_discovery(settings: Sequence[OwnSettings], store: Store) -> Discovery:
    """Put together what finished runs say."""
    runs = experiments.finished(settings, store)
    if not runs["p-scnn"]:
        raise training.RunError(f"no seed is finished for all of {', '.join(DISCOVER_METHODS)} yet; run it again")
    holds = settings[0].holds
    scores = {m: [experiments.validation_scores(folder) for folder in runs[m]] for m in runs}
    results = {m: [training.read_result(folder) or {} for folder in runs[m]] for m in runs}
    choice, differences = experiments.choose(scores)
    task = training.read_task(runs["p-scnn"][0])
    train, validation = (task.load(None)[split].labels for split in ("train", "validation"))
    constant = float(training.target_of(holds).constant_score(validation, train).mean())
    key = next(iter(task.scores))
    return Discovery(
        holds,
        settings[0].group,
        runs,
        validation={m: [float(s.mean()) for s in scores[m]] for m in runs},
        test={m: [r[key] for r in results[m]] for m in runs},
        parameters={m: results[m][0]["parameters"] for m in runs},
        constant=constant,
        choice=choice,
        differences=differences,
        layers=_layers(runs["p-scnn"], holds),
    )


def _layers(folders: Sequence[Path], holds: own.About) -> list[LayerFinding]:
    models = [training.load(folder).model for folder in folders]
    seen = experiments.receptive_fields(models[0], holds)
    out = []
    for first, *rest in zip(*(layer_summaries(model) for model in models), strict=True):
        degrees: dict[str, tuple[float, float, float]] = {}
        kept: list[str] = []
        for name in first.degrees:  # from the largest subgroup on
            if all(name in row.degrees for row in rest):
                values = [row.degrees[name] for row in (first, *rest)]
                degrees[name] = (float(np.mean(values)), min(values), max(values))
                if degrees[name][0] >= KEPT and not any(inside(name, other) for other in kept):
                    kept.append(name)
        out.append(LayerFinding(first.label, seen[first.name], tuple(kept) or ("the identity",), degrees))
    return out


def discovery_words(found: Discovery) -> list[str]:
    """The answer in sentences: which network, which symmetries at which scale, how sure."""
    holds, choice = found.holds, found.choice
    if not found.learnt:
        kind = "explains the targets" if holds.regression else "classifies"
        return [
            f"No network {kind} noticeably better than a constant answer does (validation: "
            f"{_score(found.constant, holds):.3f}), so nothing can be said about symmetries. Give more --minutes, more "
            "data or a larger --width."
        ]
    basis = f"How sure: {found.seeds} networks of each kind, {holds.counts[1]} validation examples. "
    if choice.sure:
        basis += "The differences that decide are larger than their uncertainty."
    else:
        basis += (
            "Not all differences are larger than their uncertainty; where they are not, the more symmetric network "
            "is recommended, since it has less to learn. More seeds (--seeds), minutes or examples would tell more."
        )
    return [f"Use the {LABELS[choice.method]} network. {_why(found)}", *_symmetries(found), basis]


def _why(found: Discovery) -> str:
    method, parts = found.choice.method, []
    for gap in [gap for gap in found.differences if method in (gap.first, gap.second)][:2]:
        sign, other = (1, gap.second) if gap.first == method else (-1, gap.first)
        mean, low, high = (_gap(sign * value, found.holds) for value in (gap.mean, *(gap.low, gap.high)[::sign]))
        parts.append(f"against the {LABELS[other]} {mean} [{low}, {high}]")
    unit = "Mean square error in variances, less is better" if found.holds.regression else "Validation accuracy"
    return f"{unit}: {'; '.join(parts)} (95 % intervals)."


def _symmetries(found: Discovery) -> list[str]:
    """Which symmetries were kept, and at which scale."""
    group, layers = found.group, found.layers
    lost = next((k for k, row in enumerate(layers) if row.degrees[group][0] < KEPT), None)
    if found.choice.method == "scnn":
        gap = next(gap for gap in found.differences if (gap.first, gap.second) == ("p-scnn", "scnn"))
        if gap.high < NO_GAIN:
            text = f"The task keeps the symmetry {group}: giving it up does not help."
        else:
            text = f"Nothing here speaks against the symmetry {group}: giving it up brought no significant gain."
        if lost is not None:
            text += " That densities of the partially equivariant network are not uniform is no evidence against it."
        return [text]
    if lost is None:
        return [f"The densities stay close to uniform: the partially equivariant network kept {group} at every scale."]
    row, last = layers[lost], layers[-1]
    mean, low, high = row.degrees[group]
    out = [f"Patterns of up to {_sees(layers[lost - 1], found)} keep {group}."] if lost else []
    out.append(
        f"In layer {row.label}, which sees {_sees(row, found)}, {group} is given up (kept to {mean:.0%}, {low:.0%} to "
        f"{high:.0%} over {found.seeds} seeds); what is kept there: {_kept(row)}."
    )
    if last is not row:
        out.append(f"In the end, in layer {last.label}, what is kept: {_kept(last)}.")
    return out


def _kept(row: LayerFinding) -> str:
    return ", ".join(f"{name} {row.degrees[name][0]:.0%}" if name in row.degrees else name for name in row.kept)


def _sees(row: LayerFinding, found: Discovery) -> str:
    return f"{row.pixels} of {found.holds.size} {'pixels' if found.holds.dimension == 2 else 'voxels'}"


def _gap(value: float, holds: own.About) -> str:
    value += 0.0  # no minus before zero
    return f"{0.0 - value:+.3f}" if holds.regression else f"{100 * value:+.1f} points"


def _score(value: float, holds: own.About) -> float:
    return -value if holds.regression else value


def discovery_scores(found: Discovery) -> list[list[str]]:
    """Heading and one row per kind of network."""
    holds = found.holds
    units = ("error in variances", "RMSE in deviations") if holds.regression else ("accuracy", "accuracy")
    out = [["network", f"validation {units[0]}", f"test {units[1]}", "parameters"]]
    for method in DISCOVER_METHODS:
        mean, deviation = spread(found.validation[method])
        validation = plus_minus(_score(mean, holds), deviation, found.seeds)
        test = plus_minus(*spread(found.test[method]), found.seeds)
        mark = " ←" if method == found.choice.method and found.learnt else ""
        out.append([LABELS[method] + mark, validation, test, f"{found.parameters[method]:,}"])
    return [*out, ["a constant answer", f"{_score(found.constant, holds):.3f}", "", ""]]


def discovery_layers(found: Discovery, *, everything: bool = True) -> list[list[str]]:
    """Heading and one row per density: what it sees, what it keeps, how far; for all subgroups or for H alone."""
    names = [name for name in found.layers[0].degrees if all(name in row.degrees for row in found.layers)]
    names = names if everything else names[:1]
    out = [["layer", "sees", "keeps", *names]]
    for row in found.layers:
        cells = ("{:.0%} ({:.0%}–{:.0%})".format(*row.degrees[name]) for name in names)
        out.append([row.label, _sees(row, found), _kept(row), *cells])
    return out


def write_discovery(found: Discovery, out: Path) -> Path:
    """The report: the answer, then the runs of the first seed."""
    counts = ", ".join(map("{} for {}".format, found.holds.counts, ("training", "validation", "testing")))
    names = found.holds.names
    kind = "targets: " if found.holds.regression else f"{len(names)} classes: "
    kind += ", ".join(names if found.holds.regression else names[:20])
    answer = {
        "headline": _headline(found),
        "words": discovery_words(found),
        "data": f"Data: {found.holds.source}; {counts}; {kind}. {' '.join(found.holds.notes)}",
        "scores": discovery_scores(found),
        "unit": "in variances of the target" if found.holds.regression else "in percentage points",
        "differences": _differences(found),
        "about_layers": "For every subgroup, the lowest density on it as a share of the highest of all: mean "
        f"(lowest–highest) over {found.seeds} seeds. From {KEPT:.0%} on it counts as kept. The dials are those of the "
        "network of the first seed.",
        "layers": discovery_layers(found),
    }
    runs = [folder for method in ("p-scnn", "scnn", "cnn") for folder in found.runs[method]]
    return html_report(runs, out, answer=answer)


def _headline(found: Discovery) -> str:
    """The answer in a sentence or two, without symbols."""
    method, whole, layers = found.choice.method, plain(group_words(found.group)), found.layers
    if not found.learnt:
        return "These networks learnt too little to say anything about symmetries."
    head = f"Use the {LABELS[method]} network"
    if method == "scnn":
        return f"{head}: giving up {whole} brought no gain that is larger than chance."
    if method == "cnn":
        return f"{head}: it is better than both that know about {whole}."
    lost = next((k for k, row in enumerate(layers) if row.degrees[found.group][0] < KEPT), None)
    if lost is None:
        return f"{head}. It kept {whole} at every scale."
    start = (
        f"For patterns of up to {_sees(layers[lost - 1], found)} it keeps {whole}"
        if lost
        else "It begins to choose early"
    )
    end = plain(listed([group_words(name) for name in layers[-1].kept]))
    return f"{head}. {start}; in its last layer, which sees {_sees(layers[-1], found)}, it keeps {end}."


def _differences(found: Discovery) -> dict[str, Any]:
    factor = 1 if found.holds.regression else 100
    rows = [
        {
            "label": f"{LABELS[gap.first]} minus {LABELS[gap.second]}",
            **{end: round(factor * getattr(gap, end), 4) for end in ("mean", "low", "high")},
        }
        for gap in found.differences
    ]
    return {"rows": rows, "digits": 3 if found.holds.regression else 1}

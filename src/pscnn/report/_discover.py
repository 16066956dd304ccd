"""What was discovered about people's own data, in words, numbers and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pscnn import training
from pscnn._types import Array
from pscnn.data import own
from pscnn.densities import KEPT, layer_summaries
from pscnn.experiments import (
    DISCOVER_METHODS,
    Choice,
    Difference,
    choose,
    finished,
    receptive_fields,
    spread,
    validation_scores,
)
from pscnn.groups import parse
from pscnn.report._html import html_report, svg
from pscnn.tasks.own import OwnSettings
from pscnn.training import Store

LABELS = {"scnn": "equivariant (SCNN)", "p-scnn": "partially equivariant (P-SCNN)", "cnn": "plain CNN"}
LEARNT = 0.05
"""By how much the best network must surpass a constant answer for the data to say anything."""

NO_GAIN = 0.03
"""A gain, in accuracy or share of the variance, below which giving up a symmetry counts as no help."""


@dataclass(frozen=True)
class LayerFinding:
    """What the densities of one layer say, over all seeds.

    Attributes:
        label: Number and name.
        pixels: How much of the input it sees, along one side.
        kept: The largest subgroups that are kept on average.
        degrees: Per subgroup, how far it is kept: mean, lowest and highest over the seeds.
    """

    label: str
    pixels: int
    kept: tuple[str, ...]
    degrees: dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Discovery:
    """The answer and what it rests on.

    Attributes:
        holds: The data.
        group: H.
        runs: Folders of the runs, by kind of network.
        validation: Scores on validation examples, by kind and seed: accuracies, or minus the mean square errors.
        test: Results on test examples, by kind and seed: accuracies, or root mean square errors.
        parameters: By kind.
        constant: The score of always giving the same answer.
        choice: Which kind to use.
        differences: Between kinds.
        layers: What the densities say.
    """

    holds: own.About
    group: str
    runs: dict[str, list[Path]]
    validation: dict[str, list[float]]
    test: dict[str, list[float]]
    parameters: dict[str, int]
    constant: float
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
    runs = finished(settings, store)
    if not runs["p-scnn"]:
        raise training.RunError(f"no seed is finished for all of {', '.join(DISCOVER_METHODS)} yet; run it again")
    holds = settings[0].holds
    scores: dict[str, list[Array]] = {m: [validation_scores(folder) for folder in runs[m]] for m in runs}
    results = {m: [training.read_result(folder) or {} for folder in runs[m]] for m in runs}
    choice, differences = choose(scores)
    targets = own.load(settings[0].data)["validation"].labels.numpy()
    if holds.regression:
        constant = -float((((targets - np.array(holds.means)) / np.array(holds.deviations)) ** 2).mean())
    else:
        constant = float(np.bincount(targets).max() / len(targets))
    key = "test_rmse" if holds.regression else "test_accuracy"
    return Discovery(
        holds,
        settings[0].group,
        runs,
        {m: [float(s.mean()) for s in scores[m]] for m in runs},
        {m: [r[key] for r in results[m]] for m in runs},
        {m: results[m][0]["parameters"] for m in runs},
        constant,
        choice,
        differences,
        _layers(runs["p-scnn"], holds),
    )


def _layers(folders: Sequence[Path], holds: own.About) -> list[LayerFinding]:
    models = [training.load(folder).model for folder in folders]
    seen = receptive_fields(models[0], holds)
    out = []
    for rows in zip(*(layer_summaries(model) for model in models), strict=True):
        names = [name for name in rows[0].degrees if all(name in row.degrees for row in rows)]
        degrees = {}
        for name in names:
            values = [row.degrees[name] for row in rows]
            degrees[name] = (float(np.mean(values)), min(values), max(values))
        largest: list[str] = []
        for name in names:  # from the largest subgroup on
            if degrees[name][0] >= KEPT and not any(_inside(name, other) for other in largest):
                largest.append(name)
        out.append(LayerFinding(rows[0].label, seen[rows[0].name], tuple(largest) or ("the identity",), degrees))
    return out


def _inside(name: str, other: str) -> bool:
    """Whether one symmetry lies in another; mirror lines and axes have a description instead of a group's name."""
    try:
        large = parse(other)
    except ValueError:
        return False
    try:
        return parse(name).is_subgroup_of(large)
    except ValueError:
        return large.order is None and (large.has_reflections or name.startswith("rotations"))


def discovery_words(found: Discovery) -> list[str]:
    """The answer in sentences: which network, which symmetries at which scale, how sure."""
    holds, choice = found.holds, found.choice
    if not found.learnt:
        kind = "explains the targets" if holds.regression else "classifies"
        return [
            f"No network {kind} noticeably better than a constant answer does (validation: "
            f"{_score(found.constant, holds)}), so nothing can be said about symmetries. Give more --minutes, more "
            "data or a larger --width."
        ]
    out = [f"Use the {LABELS[choice.method]} network. {_why(found)}"]
    lost = next((k for k, row in enumerate(found.layers) if row.degrees[found.group][0] < KEPT), None)
    if choice.method == "scnn":
        gap = next(gap for gap in found.differences if (gap.first, gap.second) == ("p-scnn", "scnn"))
        if gap.high < NO_GAIN:
            text = f"The task keeps the symmetry {found.group}: giving it up does not help."
        else:
            text = f"Nothing here speaks against the symmetry {found.group}: giving it up brought no significant gain."
        if lost is not None:
            text += " That densities of the partially equivariant network are not uniform is no evidence against it."
        out.append(text)
    elif lost is None:
        out.append(
            f"The densities stay close to uniform: the partially equivariant network kept {found.group} at every scale."
        )
    else:
        if lost:
            before = found.layers[lost - 1]
            out.append(f"Patterns of up to {before.pixels} of {holds.size} {_unit(holds)} keep {found.group}.")
        row = found.layers[lost]
        whole = row.degrees[found.group]
        out.append(
            f"In layer {row.label}, which sees {row.pixels} of {holds.size} {_unit(holds)}, {found.group} is given up "
            f"(kept to {whole[0]:.0%}, {whole[1]:.0%} to {whole[2]:.0%} over {found.seeds} seeds); what is kept there: "
            f"{_kept(row)}."
        )
        last = found.layers[-1]
        if last is not row:
            out.append(f"In the end, in layer {last.label}, what is kept: {_kept(last)}.")
    basis = f"How sure: {found.seeds} networks of each kind, {holds.counts[1]} validation examples. "
    if choice.sure:
        out.append(basis + "The differences that decide are larger than their uncertainty.")
    else:
        out.append(
            basis
            + "Not all differences are larger than their uncertainty; where they are not, the more symmetric network "
            "is recommended, since it has less to learn. More seeds (--seeds), minutes or examples would tell more."
        )
    return out


def _kept(row: LayerFinding) -> str:
    return ", ".join(f"{name} {row.degrees[name][0]:.0%}" if name in row.degrees else name for name in row.kept)


def _why(found: Discovery) -> str:
    decisive = [gap for gap in found.differences if found.choice.method in (gap.first, gap.second)][:2]
    parts = []
    for gap in decisive:
        other = gap.second if gap.first == found.choice.method else gap.first
        sign = 1 if gap.first == found.choice.method else -1
        low, high = sorted((sign * gap.low, sign * gap.high))
        amount = f"{_gap(sign * gap.mean, found.holds)} [{_gap(low, found.holds)}, {_gap(high, found.holds)}]"
        parts.append(f"against the {LABELS[other]} {amount}")
    unit = "Mean square error in variances, less is better" if found.holds.regression else "Validation accuracy"
    return f"{unit}: {'; '.join(parts)} (95 % intervals)."


def _unit(holds: own.About) -> str:
    return "pixels" if holds.dimension == 2 else "voxels"


def _gap(value: float, holds: own.About) -> str:
    value += 0.0  # no minus before zero
    return f"{0.0 - value:+.3f}" if holds.regression else f"{100 * value:+.1f} points"


def _score(value: float, holds: own.About) -> str:
    return f"{-value:.3f}" if holds.regression else f"{value:.3f}"


def discovery_scores(found: Discovery) -> list[list[str]]:
    """Heading and one row per kind of network."""
    unit = "error in variances" if found.holds.regression else "accuracy"
    test = "test RMSE in deviations" if found.holds.regression else "test accuracy"
    out = [["network", f"validation {unit}", test, "parameters"]]
    for method in DISCOVER_METHODS:
        mean, deviation = spread(found.validation[method])
        own_mean, own_deviation = spread(found.test[method])
        out.append(
            [
                LABELS[method] + (" ←" if method == found.choice.method and found.learnt else ""),
                _score(mean, found.holds) + (f" ± {deviation:.3f}" if found.seeds > 1 else ""),
                f"{own_mean:.3f}" + (f" ± {own_deviation:.3f}" if found.seeds > 1 else ""),
                f"{found.parameters[method]:,}",
            ]
        )
    out.append(["a constant answer", _score(found.constant, found.holds), "", ""])
    return out


def discovery_layers(found: Discovery, *, everything: bool = True) -> list[list[str]]:
    """Heading and one row per density: what it sees, what it keeps, how far; for all subgroups or for H alone."""
    names = [name for name in found.layers[0].degrees if all(name in row.degrees for row in found.layers)]
    names = names if everything else names[:1]
    out = [["layer", "sees", "keeps", *names]]
    for row in found.layers:
        cells = [f"{row.degrees[n][0]:.0%} ({row.degrees[n][1]:.0%}–{row.degrees[n][2]:.0%})" for n in names]
        out.append([row.label, f"{row.pixels} of {found.holds.size} {_unit(found.holds)}", _kept(row), *cells])
    return out


def write_discovery(found: Discovery, out: Path) -> Path:
    """The report: the answer, then the runs of the first seed."""
    uses = zip(found.holds.counts, ("training", "validation", "testing"), strict=True)
    counts = ", ".join(f"{n} for {what}" for n, what in uses)
    names = found.holds.names
    kind = (
        f"targets: {', '.join(names)}" if found.holds.regression else f"{len(names)} classes: {', '.join(names[:20])}"
    )
    answer = {
        "words": discovery_words(found),
        "data": f"Data: {found.holds.source}; {counts}; {kind}. {' '.join(found.holds.notes)}",
        "scores": discovery_scores(found),
        "differences": svg(_differences_figure(found)),
        "about_layers": "For every subgroup, the lowest density on it as a share of the highest of all: mean "
        f"(lowest–highest) over {found.seeds} seeds. From {KEPT:.0%} on it counts as kept. Below are the networks of "
        "the first seed.",
        "layers": discovery_layers(found),
    }
    folders = [found.runs[method][0] for method in ("p-scnn", "scnn", "cnn")]
    return html_report(folders, out, answer=answer)


def _differences_figure(found: Discovery) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.6 + 0.45 * len(found.differences)), layout="constrained")
    axes = figure.subplots()
    factor = 1 if found.holds.regression else 100
    for row, gap in enumerate(found.differences):
        axes.plot([factor * gap.low, factor * gap.high], [row, row], color="#1f77b4", linewidth=2)
        axes.plot([factor * gap.mean], [row], "o", color="#1f77b4")
    short = {"scnn": "SCNN", "p-scnn": "P-SCNN", "cnn": "CNN"}
    labels = [f"{short[gap.first]} minus {short[gap.second]}" for gap in found.differences]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.axvline(0, color="#999", linewidth=1)
    unit = "variances of the target" if found.holds.regression else "percentage points"
    axes.set_xlabel(f"how much better on validation examples, {unit}, 95 % intervals")
    axes.spines[["top", "right"]].set_visible(False)
    return figure

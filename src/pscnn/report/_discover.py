"""What was discovered about people's own data, in words, numbers and pictures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pscnn.experiments import FEWEST, LABELS, Difference, Discovery, Network, Statement, curve
from pscnn.groups import parse
from pscnn.report._curve import curve_figure, curve_words
from pscnn.report._folded import address
from pscnn.report._html import html_report
from pscnn.report._phrases import listed, plain
from pscnn.report._presence import presence_words, subgroup_words
from pscnn.training import RunError, load, read_task, suitable_threads

TOLERANCE = {False: "3 points", True: "3 % of the variance, and no more than the error without any symmetry"}
MOST_LISTED = 4
CURVE_EXAMPLES, CURVE_STEPS = {2: 100, 3: 16}, 12
"""Test examples that are transformed for the report, and angles."""
SHOWN_POSES = ("SO(2)", "D(1)", "SO(3)", "SO(2)@x", "SO(2)@y", "SO(2)@z")
"""Of the symmetries of the examples, those that get a sentence."""


def discovery_headline(found: Discovery) -> str:
    """The answer in a sentence or two, without symbols."""
    if not found.learnt:
        if not found.examples and not found.complete:
            return "Nothing has been compared yet."
        if found.examples < FEWEST:
            return "There are too few examples to say anything about symmetries."
        return "These networks learnt too little to say anything about symmetries."
    if found.kept is None:
        sure = _maximal([one for one in found.statements if one.verdict == "kept"])
        guess = None if found.doubt else found.guess
        more = "" if guess is None else f" The best guess is {plain(subgroup_words(guess))}."
        if not sure:
            return f"Which symmetry the task has cannot be told from these examples.{more}"
        known = plain(listed([subgroup_words(one.subgroup) for one in sure[:MOST_LISTED]]))
        return f"It is safe to enforce {known}; whether more can be enforced cannot be told.{more}"
    if found.kept.group.order == 1:
        return "No symmetry that was tried can be enforced without loss."
    whole = plain(subgroup_words(found.kept))
    if found.kept.group.name == found.group:
        return f"{whole[:1].upper()}{whole[1:]} can be enforced: that costs nothing that matters."
    kept = [one for one in found.statements if one.verdict == "kept"]
    others = [one.subgroup for one in _maximal(kept) if one.subgroup != found.kept]
    if not others:
        return f"The largest symmetry that can be enforced without loss: {whole}."
    more = plain(listed([subgroup_words(one) for one in others[:MOST_LISTED]]))
    return f"The largest symmetry that was tried and can be enforced without loss: {whole}; by itself also {more}."


def discovery_words(found: Discovery) -> list[str]:
    """The answer in sentences: what can be kept, what cannot, which network to use, how sure."""
    out = [discovery_headline(found), *_symmetries(found), *_use(found)]
    if not found.complete:
        out.append("This is the answer so far: it was interrupted. The same command continues.")
    return out


def _symmetries(found: Discovery) -> list[str]:
    if not found.learnt:
        if not found.examples and not found.complete:
            return []
        if found.examples < FEWEST:
            return [
                f"There are {found.examples} examples that networks could be compared on; below {FEWEST} no verdict is "
                "given."
            ]
        return [
            f"On {found.examples} held-out examples none of the networks that compare symmetries is better than a "
            f"constant answer for sure ({score(found.free, found)} without any symmetry, the constant "
            f"{score(found.constant, found)}). More examples or more --minutes may help."
        ]
    kept, broken, unclear = (
        [one for one in found.statements if one.verdict == verdict] for verdict in ("kept", "broken", "cannot tell")
    )
    out = []
    if largest := _maximal(kept):
        said = "; ".join(f"{subgroup_words(one.subgroup)} {cost(one, found)}" for one in largest[:MOST_LISTED])
        out.append(f"Can be enforced, and what it costs: {said}.")
    if smallest := _minimal(broken):
        smallest = sorted(smallest, key=lambda one: (one.subgroup.rank, -one.cost))  # the simplest first
        said = "; ".join(f"{subgroup_words(one.subgroup)} {cost(one, found)}" for one in smallest[:MOST_LISTED])
        out.append(f"Cannot be enforced without loss: {said}.")
    if unclear:
        said = "; ".join(f"{subgroup_words(one.subgroup)} {cost(one, found)}" for one in unclear[:MOST_LISTED])
        more = f" and {len(unclear) - MOST_LISTED} more" if len(unclear) > MOST_LISTED else ""
        out.append(f"Cannot be told: {said}{more}. More examples or more --minutes may tell.")
    if found.doubt is not None:
        out.append(_doubt(found.doubt, found))
    out.append(
        f"How sure: {found.examples} held-out examples, {found.trained} networks; all intervals together hold with "
        "95 % confidence. A symmetry counts as kept if for sure it costs less than "
        f"{TOLERANCE[found.about.regression]}."
    )
    return [*out, *_poses(found)]


def _doubt(gap: Difference, found: Discovery) -> str:
    unit = "" if found.about.regression else "points "
    return (
        f"Doubt: in the table the {LABELS[gap.first]} is better than the {_name(gap.second, found)} by "
        f"{change(gap.mean, found, sign=False)} {unit}[{change(gap.low, found, sign=False)}, "
        f"{change(gap.high, found, sign=False)}], so that enforcing this may cost more than the comparison says. The "
        "networks that compare symmetries see the largest disk of an example only, and may not have learnt all that "
        "matters."
    )


def _poses(found: Discovery) -> list[str]:
    """What the examples come like, beside what the answer depends on."""
    verdicts = {one.subgroup: one.verdict for one in found.statements}
    shown = [
        one
        for one in found.presence
        if one.group in verdicts and (one.group.name in SHOWN_POSES or one.group == found.kept)
    ]
    return presence_words(shown, [verdicts[one.group] for one in shown])  # type: ignore[index]


def _use(found: Discovery) -> list[str]:
    best = found.recommended
    if best is None:
        return []
    label, gaps = network_label(best, found), found.differences
    unit = "mean square error in variances, less is better" if found.about.regression else "validation score"
    parts = [
        f"against the {_name(gap.second, found)} {change(gap.mean, found)} [{change(gap.low, found)}, "
        f"{change(gap.high, found)}]"
        for gap in gaps
    ]
    said = f" ({unit}: {'; '.join(parts)})" if parts else ""
    if not found.useful:
        out = [
            "No network of the table is better than a constant answer for sure, so use none of them "
            f"({score(best.mean, found)} at best, the constant {score(found.score_to_beat, found)}). More examples or "
            "more --minutes may help."
        ]
    elif found.sure:
        return [f"Use the network that is best for sure: {label}{said}."]
    elif gaps and all(gap.low <= 0 for gap in gaps):
        out = [f"No network of the table is better than the others for sure; the best mean has the {label}{said}."]
    else:
        out = [f"Use, as the better guess, the network with the best mean: {label}{said}."]
        if any(gap.low <= 0 for gap in gaps):
            out[0] += " Not all differences are certain."
    if found.hasty:
        names = listed([f"the {network_label(one, found)} {one.epochs}" for one in found.hasty])
        out.append(
            f"The table says little: in the time that was left some networks had few epochs ({names}). Give more "
            "--minutes, a smaller --size or a GPU."
        )
    return out


def _name(kind: str, found: Discovery) -> str:
    return network_label(next(one for one in found.networks if one.kind == kind), found)


def network_label(one: Network, found: Discovery) -> str:
    """What a network is called in the table."""
    if one.kind == "kept":
        return f"equivariant network ({found.kept or found.guess})"
    return LABELS[one.kind]


def _maximal(some: Sequence[Statement]) -> list[Statement]:
    return [one for one in some if not any(b is not one and b.subgroup.includes(one.subgroup) for b in some)]


def _minimal(some: Sequence[Statement]) -> list[Statement]:
    return [one for one in some if not any(b is not one and one.subgroup.includes(b.subgroup) for b in some)]


def cost(one: Statement, found: Discovery) -> str:
    """What enforcing a subgroup costs, with its interval."""
    mean, low, high = (change(value, found, sign=False) for value in (one.cost, one.low, one.high))
    return f"{mean} {'' if found.about.regression else 'points '}[{low}, {high}]"


def change(value: float, found: Discovery, *, sign: bool = True) -> str:
    """A difference of scores: in points, or in variances of the target."""
    number = value if found.about.regression else 100 * value
    text = f"{number:+.3f}" if found.about.regression else f"{number:+.1f}"
    text = text.removeprefix("+") if not sign or float(text) == 0 else text
    return ("0" + text.lstrip("-0") if float(text) == 0 else text).replace("-", "−")


def score(value: float, found: Discovery) -> str:
    """A mean score as tables show it."""
    return f"{-value if found.about.regression else value:.3f}"


def discovery_scores(found: Discovery) -> list[list[str]]:
    """Heading and one row per network."""
    unit = "error in variances" if found.about.regression else "score" if found.about.kind != "classes" else "accuracy"
    out = [["network", f"validation {unit}", f"test {unit}", "parameters", "epochs", "learning rate"]]
    best = found.recommended
    for one in found.networks:
        mark = " ←" if one is best or (best is not None and one.kind == best.kind) else ""
        numbers = f"{one.parameters:,}", str(one.epochs), f"{one.lr:g}"
        out.append([network_label(one, found) + mark, score(one.mean, found), score(one.test, found), *numbers])
    return [*out, ["a constant answer", score(found.score_to_beat, found), "", "", "", ""]]


def discovery_costs(found: Discovery) -> list[list[str]]:
    """Heading and one row per subgroup."""
    last = "error" if found.about.regression else "score"
    out = [["enforced", "verdict", "cost", "95 % interval", last]]
    for one in found.statements:
        mean, low, high = (change(value, found, sign=False) for value in (one.cost, one.low, one.high))
        because = "" if one.because is None else f" (as {one.because} is)"
        out.append([str(one.subgroup), one.verdict + because, mean, f"[{low}, {high}]", score(one.score, found)])
    return out


def write_discovery(found: Discovery | str | Path, out: str | Path | None = None) -> Path:
    """Write the report: the answer, then the networks of the table.

    Args:
        found: A discovery, or its folder.
        out: The file; ``report.html`` in the folder of the discovery by default.
    """
    found = found if isinstance(found, Discovery) else Discovery.read(found)
    order = ("p-scnn", "kept", "cnn", "augment")
    runs = [found.folder / one.run for kind in order for one in found.networks if one.kind == kind]
    if not runs:
        raise RunError(f"no network is finished in {found.folder}: run the same command again to continue")
    for run in runs:
        if read_task(run).files != found.about:
            raise RunError(f"{run} is a run on other data than those of {found.folder}: run pscnn discover again")
    counts = ", ".join(map("{} for {}".format, found.about.counts, ("training", "validation", "testing")))
    names = found.about.names
    kind = f"{found.about.kind}: {', '.join(names[:20])}"
    partial = next((one for one in found.networks if one.kind == "p-scnn"), None)
    answer = {
        "headline": discovery_headline(found),
        "epochs": partial.epochs if partial else None,
        "words": discovery_words(found)[1:],
        "data": f"Data: {found.about.source}; {counts}; {kind}. {' '.join(found.about.notes)}",
        "scores": discovery_scores(found),
        "costs": discovery_costs(found),
        "unit": "in variances of the target" if found.about.regression else "in percentage points",
        "curve": _curve(found),
        "figures": {"costs": _costs(found), "differences": _differences(found)},
    }
    return html_report(runs, out if out is not None else found.folder / "report.html", answer=answer)


def _rows(found: Discovery, rows: Sequence[tuple[str, float, float, float]]) -> dict[str, Any]:
    factor, digits = (1, 3) if found.about.regression else (100, 1)  # rounded here as in the words
    numbers = [
        {"label": label, **dict(zip(("mean", "low", "high"), (round(factor * v, digits) for v in values), strict=True))}
        for label, *values in rows
    ]
    return {"rows": numbers, "digits": digits}


def _costs(found: Discovery) -> dict[str, Any]:
    shown = [(f"{one.subgroup}: {one.verdict}", one.cost, one.low, one.high) for one in found.statements]
    return _rows(found, shown if found.learnt else [])


def _differences(found: Discovery) -> dict[str, Any]:
    best = found.recommended
    rows = [
        (f"{network_label(best, found)} minus {_name(gap.second, found)}", gap.mean, gap.low, gap.high)
        for gap in found.differences
        if best is not None
    ]
    return _rows(found, rows)


def _curve(found: Discovery) -> dict[str, Any]:
    """What the recommended network does with transformed test examples: a picture and sentences."""
    best = found.recommended
    assert best is not None
    task, model = load(found.folder / best.run)
    split = task.load(None)["test"]
    rows = torch.linspace(0, len(split) - 1, min(len(split), CURVE_EXAMPLES[found.about.dimension])).long().unique()
    if len(rows) < 2:
        return {"label": network_label(best, found), "words": [], "picture": ""}
    x, y = task.batch("test", split, rows, 0)
    buffer = io.BytesIO()
    with suitable_threads(model):
        drawn = curve(model, x, y, parse(found.group), found.about.kind, steps=CURVE_STEPS)
    curve_figure(drawn).savefig(buffer, format="svg")
    return {
        "label": network_label(best, found),
        "words": curve_words(drawn),
        "picture": address("svg+xml", buffer.getvalue()),
    }

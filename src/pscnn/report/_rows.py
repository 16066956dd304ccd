"""Tables of runs as text: for a terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pscnn._words import aligned
from pscnn.experiments import Cell, Sheet, spread
from pscnn.groups import parse
from pscnn.training import (
    ConfigError,
    RunError,
    Settings,
    Task,
    diverged,
    make_settings,
    read_result,
    read_task,
    task_of,
)

LABELS = {
    "cnn": "plain CNN",
    "augment": "plain CNN, transformed copies",
    "twin": "free twin",
    "scnn": "equivariant (SCNN)",
    "fixed": "equivariant to a subgroup",
    "p-scnn": "partially equivariant (P-SCNN)",
}
FORMATS = ("text", "markdown", "latex", "csv")
_LATEX = str.maketrans({"_": "\\_", "%": "\\%", "&": "\\&", "±": "$\\pm$", "–": "--", "|": "$|$"})
Run = tuple[Path, dict[str, Any], dict[str, Any]]
"""Folder, settings by name, result."""


def score_labels(tasks: Sequence[Task]) -> dict[str, str]:
    """The results that tables of some tasks show, with their labels."""
    return {key: label for task in tasks for key, label in task.scores.items()}


def sheet_rows(sheet: Sheet, filled: Mapping[tuple[str, str], Cell | None]) -> list[list[str]]:
    """A table with its head: ours as mean ± spread (seeds), the paper's behind it, * where they differ.

    They differ where ours is more than two of the paper's standard deviations away.
    """
    out = [["", *sheet.columns]]
    digits = {column: sheet.column_digits.get(column, sheet.digits) for column in sheet.columns}
    for row in sheet.rows:
        places = [(row, column) for column in sheet.columns]
        out.append([row, *(_cell(filled[p], digits[p[1]]) if p in sheet.cells else "" for p in places)])
    return out


def _cell(cell: Cell | None, digits: int) -> str:
    if cell is None:
        return "–"
    ours = f"{plus_minus(cell.mean, cell.std, cell.count, digits)} ({cell.count})"
    if cell.diverged:
        ours = f"{cell.diverged} of {cell.count} diverged"
    if cell.paper is None:
        return ours
    return f"{ours}{'*' if cell.differs else ''} | {plus_minus(*cell.paper)}"


def plus_minus(mean: float, deviation: float, count: int = 2, digits: int = 3) -> str:
    """A mean and, of more than one value, their standard deviation."""
    if not digits and not deviation:
        return f"{mean:,.0f}"
    return f"{mean:.{digits}f}" + (f" ± {deviation:.{digits}f}" if count > 1 else "")


def finished_runs(
    root: Path, settings: Mapping[str, str], warn: Callable[[str], None] = lambda message: None
) -> list[Run]:
    """Finished runs under a folder that have some settings, given as text; of what cannot be read it warns."""
    out = []
    unknown = set(settings)
    for path in sorted(_found(root)):
        try:
            values, result = read_task(path.parent).settings.to_dict(), read_result(path.parent) or {}
        except RunError as error:
            warn(str(error))
            continue
        unknown -= values.keys()
        if all(_is(values.get(name), value) for name, value in settings.items()):
            out.append((path.parent, values, result))
    if unknown:
        raise ConfigError(f"no run in {root} has a setting {min(unknown)!r}")
    return out


def _found(root: Path) -> Iterator[Path]:
    """Results under a folder; folders that may not be read, or vanish meanwhile, have none."""
    for folder, _, names in os.walk(root):
        if "result.json" in names:
            yield Path(folder) / "result.json"


def _is(setting: Any, text: str) -> bool:
    """Whether a setting has this value: O2 is O(2), 5e-4 is 0.0005, true is True."""
    if str(setting) == text:
        return True
    if isinstance(setting, bool):
        return text.lower() == str(setting).lower()
    try:
        if isinstance(setting, int | float):
            return float(text) == setting
        return isinstance(setting, str) and parse(text) == parse(setting)
    except ValueError:
        return False


def run_rows(runs: Sequence[Run], compare: str | None = None) -> list[list[str]]:
    """A table of runs with its head; or, for each value of a setting, the mean and spread of their results.

    Only runs that differ in nothing else but the seed are averaged, each seed once; what they differ in has columns of
    its own. Data that differ in what is known about them are numbered.
    """
    settings = [make_settings(values) for _, values, _ in runs]
    known = score_labels([task_of(one) for one in settings])
    labels = {key: label for key, label in known.items() if any(key in result for _, _, result in runs)}
    if compare is None:
        out = [["run", "task", "method", "group", "seed", "epochs", *labels.values(), "seconds"]]
        for folder, values, result in runs:
            own = [_score(result, key) for key in labels]
            words = [str(values.get(name, "")) for name in ("task", "method", "group", "seed")]
            out.append([str(folder), *words, str(result["epochs"]), *own, f"{result['seconds']:.0f}"])
        return out
    unknown = [folder for folder, values, _ in runs if compare not in values]
    if unknown:
        raise ConfigError(f"{unknown[0]} has no setting {compare!r}")
    kinds = [_others(one, compare) for one in settings]
    abouts = list(dict.fromkeys(kind["about"] for kind in kinds if "about" in kind))
    kinds = [kind | {"about": str(abouts.index(kind["about"]) + 1)} if "about" in kind else kind for kind in kinds]
    names = dict.fromkeys(name for kind in kinds for name in kind)
    differing = [name for name in names if len({kind[name] for kind in kinds if name in kind}) > 1]
    rows: dict[tuple[str, ...], dict[Any, dict[int, Mapping[str, Any]]]] = {}
    for kind, (_, values, result) in zip(kinds, runs, strict=True):
        others = tuple(kind.get(name, "–") for name in differing)
        rows.setdefault(others, {}).setdefault((str(values[compare]), *kind.items()), {}).setdefault(
            values["seed"], result
        )
    order = [*dict.fromkeys(str(values[compare]) for _, values, _ in runs)]
    out = [[compare, *differing, "runs", *labels.values()]]
    for others, found in rows.items():
        for (value, *_), seeds in sorted(found.items(), key=lambda item: order.index(item[0][0])):
            chosen = list(seeds.values())
            lost = sum(map(diverged, chosen))
            scores = ([result[key] for result in chosen if result.get(key) is not None] for key in labels)
            cells = [plus_minus(*spread(numbers), len(numbers), 4) if numbers else "" for numbers in scores]
            out.append([value, *others, str(len(chosen)), *([f"{lost} diverged"] * len(cells) if lost else cells)])
    return out


def _others(settings: Settings, compare: str) -> dict[str, str]:
    """What runs differ in otherwise: the settings that say what is trained and have an effect, but the seed."""
    found = settings.identity().to_dict()
    return {n: str(v) for n, v in found.items() if n not in (compare, "seed") and (n == "task" or settings.uses(n))}


def _score(result: Mapping[str, Any], key: str) -> str:
    if result.get(key) is None:
        return ""
    return "diverged" if diverged(result) else f"{result[key]:.4f}"


def write_rows(rows: Sequence[Sequence[str]], form: str) -> str:
    """Rows, the first of which is the head, as text of one of ``FORMATS``."""
    if form == "csv":
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(rows)
        return buffer.getvalue()
    if form == "markdown":
        escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        escaped.insert(1, ["---"] * len(rows[0]))
        return "".join(f"| {' | '.join(line)} |\n" for line in escaped)
    if form == "latex":
        head, *body = (f"{' & '.join(cell.translate(_LATEX) for cell in row)} \\\\\n" for row in rows)
        top = f"\\begin{{tabular}}{{l{'c' * (len(rows[0]) - 1)}}}\n\\toprule\n"
        return f"{top}{head}\\midrule\n{''.join(body)}\\bottomrule\n\\end{{tabular}}\n"
    return "".join(line + "\n" for line in aligned(rows, "<" * len(rows[0])))

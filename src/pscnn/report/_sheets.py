"""Tables of runs as text: for a terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pscnn.experiments import Cell, Sheet
from pscnn.experiments._tables import spread
from pscnn.groups import parse
from pscnn.training import Config, ConfigError

FORMATS = ("text", "markdown", "latex", "csv")
SCORES = {
    "test_accuracy": "test accuracy",
    "other_accuracy": "on other digits",
    "test_auc": "AUC",
    "test_rmse": "RMSE, in deviations",
    "future_rmse": "RMSE, later",
    "domain_rmse": "RMSE, other runs",
}


def sheet_rows(sheet: Sheet, filled: Mapping[tuple[str, str], tuple[Cell, int] | None]) -> list[list[str]]:
    """A table with its head: ours as mean ± spread (seeds), the paper's behind it, * where they differ.

    They differ where ours is more than two of the paper's standard deviations away.
    """
    out = [["", *sheet.columns]]
    for row in sheet.rows:
        out.append([row, *(_cell(sheet, filled, row, column) for column in sheet.columns)])
    return out


def _cell(sheet: Sheet, filled: Mapping[tuple[str, str], tuple[Cell, int] | None], row: str, column: str) -> str:
    if (row, column) not in sheet.cells:
        return ""
    found = filled[row, column]
    if found is None:
        return "–"
    cell, count = found
    ours = f"{cell.mean:.3f}" + (f" ± {cell.std:.3f}" if count > 1 else "") + f" ({count})"
    if cell.paper is None:
        return ours
    return f"{ours}{'*' if cell.differs else ''} | {cell.paper[0]:.3f} ± {cell.paper[1]:.3f}"


def found_runs(root: Path, settings: Mapping[str, str]) -> list[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """Finished runs under a folder that have some settings, given as text: folder, configuration, result."""
    out = []
    unknown = set(settings)
    for path in sorted(root.rglob("result.json")):
        try:
            config, result = Config.read(path.with_name("config.yaml")), json.loads(path.read_text())
        except (ConfigError, json.JSONDecodeError):
            continue  # another program's file
        unknown -= config.keys()
        if all(_is(config.get(name), value) for name, value in settings.items()):
            out.append((path.parent, config, result))
    if unknown:
        raise ConfigError(f"no run in {root} has a setting {min(unknown)!r}")
    return out


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


def run_rows(
    runs: Sequence[tuple[Path, dict[str, Any], dict[str, Any]]], compare: str | None = None
) -> list[list[str]]:
    """A table of runs with its head; or, for each value of a setting, the mean and spread of their results."""
    scores = [key for key in SCORES if any(key in result for _, _, result in runs)]
    if compare is None:
        head = ["run", "experiment", "method", "group", "seed", "epochs", *(SCORES[key] for key in scores), "seconds"]
        out = [head]
        for folder, config, result in runs:
            own = [f"{result[key]:.4f}" if key in result else "" for key in scores]
            words = [str(config.get(name, "")) for name in ("experiment", "method", "group", "seed")]
            out.append([str(folder), *words, str(result["epochs"]), *own, f"{result['seconds']:.0f}"])
        return out
    unknown = [folder for folder, config, _ in runs if compare not in config]
    if unknown:
        raise ConfigError(f"{unknown[0]} has no setting {compare!r}")
    out = [[compare, "runs", *(SCORES[key] for key in scores)]]
    for value in dict.fromkeys(str(config[compare]) for _, config, _ in runs):
        chosen = [result for _, config, result in runs if str(config[compare]) == value]
        row = [value, str(len(chosen))]
        for key in scores:
            numbers = [result[key] for result in chosen if key in result]
            mean, deviation = map("{:.4f}".format, spread(numbers)) if numbers else ("", "")
            row.append(f"{mean} ± {deviation}" if len(numbers) > 1 else mean)
        out.append(row)
    return out


def write_rows(rows: Sequence[Sequence[str]], form: str) -> str:
    """Rows, the first of which is the head, as text of one of ``FORMATS``."""
    if form == "csv":
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(rows)
        return buffer.getvalue()
    if form == "markdown":
        escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
        lines = [escaped[0], ["---"] * len(rows[0]), *escaped[1:]]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    if form == "latex":
        cells = [[_latex(cell) for cell in row] for row in rows]
        body = [f"{' & '.join(line)} \\\\\n" for line in cells]
        columns = "l" + "c" * (len(rows[0]) - 1)
        top = f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n"
        return f"{top}{body[0]}\\midrule\n{''.join(body[1:])}\\bottomrule\n\\end{{tabular}}\n"
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


def _latex(text: str) -> str:
    for plain, special in (("_", "\\_"), ("%", "\\%"), ("&", "\\&"), ("±", "$\\pm$"), ("–", "--"), ("|", "$|$")):
        text = text.replace(plain, special)
    return text

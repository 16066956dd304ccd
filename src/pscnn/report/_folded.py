"""What the report folds away: curves, confusions, commands, files to download."""

from __future__ import annotations

import base64
import csv
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pscnn.densities import degree, summary, typed_layers
from pscnn.groups import Elements, Group
from pscnn.report._degree import agreement_figure, degree_figure
from pscnn.report._explore import numbers
from pscnn.report._forecast import comparison_animation, forecast_animation, forecast_figure
from pscnn.training import Task, read_environment

CURVES: dict[str, tuple[str, ...]] = {
    "accuracy": ("/accuracy",),
    "mean square error": ("/mse",),
    "loss": ("/loss", "/task"),
    "alignment, KL divergence, priors": ("/alignment", "/kl", "/penalty"),
}
"""Figures of the training, and how the names of their lines end."""


def cautions(model: nn.Module) -> list[str]:
    """What its summary says of densities that cannot be read: diverged, misaligned, or that regain what was lost."""
    _, _, verdict = summary(model).rpartition("\n\n")
    return [line for line in verdict.splitlines() if not line.startswith(("Equivariance is ",))]


def train_command(task: Task) -> str:
    """The command that makes a run again."""
    words = ["pscnn", "train", task.settings.task]
    for name, value in task.settings.differing().items():
        option = name.replace("_", "-")
        if name == "about":  # is read from the data
            continue
        words += [f"--{'' if value else 'no-'}{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    return shlex.join(words)


def error_figure(model: nn.Module, inputs: Tensor) -> Any:
    """The measured errors of layers without densities; nothing if no layer maps fields."""
    from markupsafe import Markup

    typed = typed_layers(model)
    if not typed:
        return ""
    in_plane = all(layer.in_type.group.dimension == 2 for layer in typed.values())
    buffer = io.StringIO()
    (degree_figure if in_plane else agreement_figure)(model, inputs).savefig(buffer, format="svg")
    text = buffer.getvalue()
    return Markup(text[text.index("<svg") :])  # matplotlib escapes what it writes


def not_equivariant(model: nn.Module, group: Group | None) -> list[list[str]]:
    """A table of the share of every layer's kernel that is not equivariant."""
    shares = degree(model, group)
    return [["layer", "not equivariant"], *([name, f"{share:.1%}"] for name, share in shares.items())]


def environment_text(run: Path) -> str:
    """Where a run was trained, as it was stored; what was received without it has none."""
    found = read_environment(run)
    return "not known" if found is None else json.dumps(found, indent=2)


def curves(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was logged, epoch by epoch."""
    out, names = [], history[0] if history else {}
    for title, ends in CURVES.items():
        lines = {n: numbers([row[n] for row in history]) for n in names if n.endswith(ends)}
        if lines:
            out.append({"title": title, "counted": "epoch", "lines": lines})
    return out


def confusion_shares(counts: Any, task: Task) -> dict[str, Any] | None:
    """The percentage of each true class that was given each label."""
    if counts is None:
        return None
    percents = 100 * counts / counts.sum(1, keepdims=True).clip(1)
    return {"names": list(task.class_names or ()), "rows": percents.round().astype(int).tolist()}


def errors_by_step(
    runs: Sequence[str], results: Sequence[Mapping[str, Any]], labels: Mapping[str, str]
) -> list[dict[str, Any]]:
    """How the errors of forecasts grow, all runs in one figure per test; nothing for other tasks."""
    out = []
    for key, label in labels.items():
        lines = {run: v for run, result in zip(runs, results, strict=True) if (v := result.get(f"{key}_by_step"))}
        if lines:
            out.append({"title": label, "counted": "step", "lines": {k: numbers(v) for k, v in lines.items()}})
    return out


def csv_files(
    table: list[list[str]], networks: Sequence[Mapping[str, Any]], elements: Elements | None
) -> dict[str, str]:
    """Files to download, by name."""
    out = {"results.csv": table}
    if elements is not None:
        head = ["run", "layer", "name", "element", "density as a share of its maximum", "equivariance error"]
        out["densities.csv"] = [head]
        for network in networks:
            words = network["elements"]["words"] if network["elements"] else elements.words()
            for layer in network["layers"]:
                both = zip(words, layer.get("shares", ()), layer.get("errors", [""] * len(words)), strict=False)
                out["densities.csv"] += [[network["name"], layer["number"], layer["name"], *row] for row in both]
    files = {}
    for name, rows in out.items():
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(rows)
        content = buffer.getvalue().encode(errors="backslashreplace")  # names of files may be no Unicode
        files[name] = f"data:text/csv;base64,{base64.b64encode(content).decode()}"
    return files


def forecast_pictures(predicted: Tensor, true: Tensor) -> list[str]:
    """A forecast beside the truth, still and moving, as addresses."""
    buffer = io.BytesIO()
    forecast_figure(predicted, true).savefig(buffer, format="png", dpi=110)
    return [address("png", buffer.getvalue()), address("gif", forecast_animation(predicted, true))]


def forecasts_side_by_side(forecasts: Mapping[str, Sequence[Tensor]]) -> list[str]:
    """An animation for all runs, several at least, that forecast the same flow; forecasts come with the truth."""
    groups: list[tuple[Tensor, dict[str, Tensor]]] = []
    for name, (predicted, true) in forecasts.items():
        same = next((group for truth, group in groups if truth.equal(true)), None)
        if same is None:
            groups.append((true, same := {}))
        same[name] = predicted
    return [address("gif", comparison_animation(group, true)) for true, group in groups if len(group) > 1]


def address(kind: str, content: bytes) -> str:
    """A picture within the page."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"

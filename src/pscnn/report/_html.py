"""One self-contained HTML file about one or several runs."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from pscnn import training
from pscnn._extras import require
from pscnn._files import write_whole
from pscnn.densities import likelihoods, summary
from pscnn.groups import O3, SO3
from pscnn.models import roll_out
from pscnn.report._degree import agreement_figure, degree_figure
from pscnn.report._forecast import forecast_animation, forecast_figure
from pscnn.report._panels import confusion_panel, curve_panels, density_panels, html_of, line_panel
from pscnn.report._rows import score_labels
from pscnn.report._spheres import sphere_panels
from pscnn.training import RunError, Task

IMAGES, VOLUMES = 16, 4
"""Test images, and volumes, on which equivariance errors are measured."""


def html_report(
    folders: Sequence[str | Path],
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    answer: Mapping[str, Any] | None = None,
) -> Path:
    """Write a report of finished runs; it opens in a browser without a server or a network.

    Args:
        folders: The runs.
        out: The file; by default ``report.html`` in the first run's folder. An existing file is never replaced: the new
            one gets a number.
        data_dir: Data folder, to measure equivariance errors on images of the runs' own test sets.
        answer: What ``discover`` puts first.
    """
    check_report()
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    runs = [read_run(Path(folder), data_dir) for folder in folders]
    path = _free(Path(out) if out is not None else Path(folders[0]) / "report.html")
    labels = score_labels([run["task"] for run in runs])
    # Whatever is not Markup is escaped: names of files and classes come from anywhere.
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        files("pscnn.report").joinpath("page.html").read_text(encoding="utf-8")
    )
    page = template.render(
        plotly=Markup(get_plotlyjs()),
        answer=answer,
        heads=("run", "task", "method", "group", *labels.values(), "epoch", "parameters", "device"),
        steps=_errors_by_step(runs, labels),
        runs=[_shown(run, labels) for run in runs],
    )
    try:
        write_whole(path, page)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}. Choose another file with --out") from None
    return path


def check_report() -> None:
    """Raise an error if what reports need is not installed."""
    for module in ("plotly", "matplotlib", "jinja2"):
        require(module, "plots", "The HTML report")


def read_run(folder: Path, data_dir: str | Path | None) -> dict[str, Any]:
    """What a report shows of a finished run: its network, results, curves, and test examples."""
    training.read_task(folder)  # says it if this is not a run at all
    result = training.read_result(folder)
    if result is None:
        raise RunError(f"{folder} is not finished: continue it with: pscnn train --resume {folder}")
    task, model = training.load(folder)
    name = task.tests[0] if task.tests else "train"
    images, forecast = _examples(task, model, name, data_dir)
    return {
        "name": folder.name,
        "task": task,
        "model": model,
        "result": result,
        "history": training.history(folder),
        "confusion": training.read_confusion(folder, len(task.class_names)) if task.class_names else None,
        "forecast": forecast,
        "images": images,
    }


def _examples(
    task: Task, model: nn.Module, name: str, data_dir: str | Path | None
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Test examples, and of networks that forecast, what the first one says and the truth."""
    split = task.load(data_dir)[name]
    if task.stacked:
        return split.x[:IMAGES], None
    wanted = IMAGES if task.settings.dimension == 2 else VOLUMES
    rows = torch.linspace(0, len(split) - 1, min(wanted, len(split))).long()
    images, targets = task.batch(name, split, rows, 0)
    if not task.forecasts:
        return images, None
    with torch.no_grad():
        return images, (roll_out(model, images[:1], targets.shape[1])[0], targets[0])


def _free(path: Path) -> Path:
    if not path.exists():
        return path
    numbered = (path.with_name(f"{path.stem}-{k}{path.suffix}") for k in range(2, 10_000))
    return next(candidate for candidate in numbered if not candidate.exists())


def _shown(run: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """What the page says about a run."""
    task, model, result, confusion = (run[name] for name in ("task", "model", "result", "confusion"))
    settings = task.settings
    found = likelihoods(model)
    shown: dict[str, Any] = {
        "name": run["name"],
        "cells": [
            f"{settings.task}, {task.variant}",
            settings.method,
            settings.group if settings.uses_group else "–",
            *(f"{result[key]:.4f}" if result.get(key) is not None else "–" for key in labels),
            result["best_epoch"] + 1,
            f"{result['parameters']:,}",
            result["device"],
        ],
        "count": len(run["images"]),
        "summary": summary(model) if found else "",
        "densities": html_of(density_panels(model)),
        "spheres": {
            f"layer {number} ({name})": html_of(sphere_panels(lam))
            for number, (name, lam) in enumerate(found.items(), 1)
            if lam.group in (SO3(), O3())
        },
        "degrees": svg(_draw_degrees(model, run["images"])) if found else "",
        "curves": html_of(curve_panels(run["history"])),
        "confusion": None,
        "forecast": _pictures(*run["forecast"]) if run["forecast"] else None,
        "settings": yaml.safe_dump(settings.to_dict(), sort_keys=False),
    }
    if confusion is not None:
        (shown["confusion"],) = html_of([confusion_panel(confusion, task.class_names)])
    return shown


def _errors_by_step(runs: list[dict[str, Any]], labels: Mapping[str, str]) -> list[Any]:
    """How the errors of forecasts grow, all runs in one figure per test; nothing for other tasks."""
    figures = []
    for key, label in labels.items():
        lines = {run["name"]: run["result"].get(f"{key}_by_step") for run in runs}
        if any(lines.values()):
            figure = line_panel(label, "step", {name: values for name, values in lines.items() if values})
            figures.append(figure.update_yaxes(rangemode="tozero"))
    return html_of(figures)


def _draw_degrees(model: nn.Module, images: Tensor) -> Any:
    """Over the angle for groups of the plane; for others, error against density."""
    of_the_plane = all(lam.group.dimension == 2 for lam in likelihoods(model).values())
    return degree_figure(model, images) if of_the_plane else agreement_figure(model, images)


def _pictures(predicted: Tensor, true: Tensor) -> list[str]:
    buffer = io.BytesIO()
    forecast_figure(predicted, true).savefig(buffer, format="png", dpi=110)
    pictures = (("png", buffer.getvalue()), ("gif", forecast_animation(predicted, true)))
    return [f"data:image/{kind};base64,{base64.b64encode(content).decode()}" for kind, content in pictures]


def svg(figure: Any) -> Any:
    """A figure of matplotlib, which escapes what it writes, as a part of a page."""
    from markupsafe import Markup

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    return Markup(text[text.index("<svg") :])

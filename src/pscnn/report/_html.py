"""One self-contained HTML file about one or several runs."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from pscnn import training
from pscnn._extras import require
from pscnn._files import write_whole
from pscnn.densities import degree, likelihoods, summary, typed_layers
from pscnn.groups import O3, SO3, Group
from pscnn.models import roll_out
from pscnn.report._degree import agreement_figure, degree_figure
from pscnn.report._forecast import comparison_animation, forecast_animation, forecast_figure
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
        out: The file, or the folder for ``report.html``; by default the first run's. An existing
            file is never replaced: the new one gets a number.
        data_dir: Data folder, to measure equivariance errors on images of the runs' own test sets.
        answer: What ``discover`` puts first.
    """
    check_report()
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    runs = [Path(folder) for folder in folders]
    labels = score_labels([training.read_task(run) for run in runs])  # says it if one is not a run at all
    path = Path(out) if out is not None else runs[0]
    path = _free(path / "report.html" if path.is_dir() else path)
    # Whatever is not Markup is escaped: names of files and classes come from anywhere.
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        files("pscnn.report").joinpath("page.html").read_text(encoding="utf-8")
    )
    shown = [_shown(run, labels, data_dir) for run in runs]
    methods = [training.read_task(run).settings.method for run in runs]
    names = methods if len({*methods}) == len(runs) else [run.name for run in runs]
    frames = {name: one["frames"] for name, one in zip(names, shown, strict=True) if one["frames"]}
    page = template.render(
        plotly=Markup(get_plotlyjs()),
        answer=answer,
        heads=("run", "task", "method", "group", *labels.values(), "epoch", "parameters", "device"),
        steps=_errors_by_step(runs, labels),
        runs=shown,
        comparisons=_comparisons(frames),
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


def _result(folder: Path) -> dict[str, Any]:
    result = training.read_result(folder)
    if result is None:
        raise RunError(f"{folder} is not finished: continue it with: pscnn train --resume {folder}")
    return result


def examples_of(task: Task, model: nn.Module, data_dir: str | Path | None) -> tuple[Tensor, list[Tensor]]:
    """Test examples, and of networks that forecast, what the first one says and the truth."""
    name = task.tests[0] if task.tests else "train"
    split = task.load(data_dir)[name]
    if task.stacked:
        return split.x[:IMAGES], []
    wanted = IMAGES if task.settings.dimension == 2 else VOLUMES
    rows = torch.linspace(0, len(split) - 1, min(wanted, len(split))).long()
    images, targets = task.batch(name, split, rows, 0)
    with torch.no_grad():
        return images, [roll_out(model, images[:1], targets.shape[1])[0], targets[0]] if task.forecasts else []


def _known_group(settings: Any) -> Group | None:
    """The group, by which also plain convolutions are measured; vectors have none."""
    return None if settings.dimension is None else settings.parsed_group


def _free(path: Path) -> Path:
    numbered = (path.with_name(f"{path.stem}-{k}{path.suffix}") for k in count(2))
    return next(candidate for candidate in chain([path], numbered) if not candidate.exists())


def _shown(folder: Path, labels: Mapping[str, str], data_dir: str | Path | None) -> dict[str, Any]:
    """What the page says about a run."""
    result = _result(folder)
    task, model = training.load(folder)
    images, forecast = examples_of(task, model, data_dir)
    confusion = training.read_confusion(folder, len(task.class_names)) if task.class_names else None
    settings = task.settings
    found, typed, shares = likelihoods(model), typed_layers(model), degree(model, _known_group(settings))
    of_the_plane = all(layer.in_type.group.dimension == 2 for layer in typed.values())
    draw = degree_figure if of_the_plane else agreement_figure  # over the angle, or error against density
    return {
        "name": folder.name,
        "cells": [
            f"{settings.task}, {task.variant}",
            settings.method,
            settings.group if settings.uses_group else "–",
            *(f"{result[key]:.4f}" if result.get(key) is not None else "–" for key in labels),
            result["best_epoch"] + 1,
            f"{result['parameters']:,}",
            result["device"],
        ],
        "count": len(images),
        "summary": summary(model) if typed else "",
        "learnt": bool(found),
        "shares": [["layer", "not equivariant"], *([name, f"{share:.1%}"] for name, share in shares.items())],
        "densities": html_of(density_panels(model)),
        "spheres": {
            f"layer {number} ({name})": html_of(sphere_panels(lam))
            for number, (name, lam) in enumerate(found.items(), 1)
            if lam.group in (SO3(), O3())
        },
        "degrees": svg(draw(model, images)) if typed else "",
        "curves": html_of(curve_panels(training.history(folder))),
        "confusion": None if confusion is None else html_of([confusion_panel(confusion, task.class_names)])[0],
        "forecast": _pictures(*forecast) if forecast else None,
        "frames": forecast,
        "settings": yaml.safe_dump(settings.to_dict(), sort_keys=False),
    }


def _errors_by_step(runs: Sequence[Path], labels: Mapping[str, str]) -> list[Any]:
    """How the errors of forecasts grow, all runs in one figure per test; nothing for other tasks."""
    results, figures = [(run, _result(run)) for run in runs], []
    for key, label in labels.items():
        lines = {run.name: values for run, result in results if (values := result.get(f"{key}_by_step"))}
        if lines:
            figures.append(line_panel(label, "step", lines).update_yaxes(rangemode="tozero"))
    return html_of(figures)


def _comparisons(forecasts: Mapping[str, list[Tensor]]) -> list[str]:
    """An animation for all runs, several at least, that forecast the same flow; forecasts come with the truth."""
    groups: list[tuple[Tensor, dict[str, Tensor]]] = []
    for name, (predicted, true) in forecasts.items():
        same = next((group for truth, group in groups if torch.equal(truth, true)), None)
        if same is None:
            groups.append((true, same := {}))
        same[name] = predicted
    return [_source("gif", comparison_animation(group, true)) for true, group in groups if len(group) > 1]


def _pictures(predicted: Tensor, true: Tensor) -> list[str]:
    buffer = io.BytesIO()
    forecast_figure(predicted, true).savefig(buffer, format="png", dpi=110)
    return [_source("png", buffer.getvalue()), _source("gif", forecast_animation(predicted, true))]


def _source(kind: str, content: bytes) -> str:
    """A picture within the page."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def svg(figure: Any) -> Any:
    """A figure of matplotlib, which escapes what it writes, as a part of a page."""
    from markupsafe import Markup

    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    return Markup(text[text.index("<svg") :])

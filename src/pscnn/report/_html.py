"""One self-contained HTML file about one or several runs."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor, nn

from pscnn import training
from pscnn._extras import require
from pscnn._files import write_whole
from pscnn.densities import likelihoods, summary
from pscnn.groups import O3, SO3
from pscnn.report._degree import agreement_figure, degree_figure
from pscnn.report._density import REFLECTIONS, ROTATIONS, density_curves, planar
from pscnn.report._forecast import forecast_animation, forecast_figure
from pscnn.report._sheets import SCORES
from pscnn.report._spheres import sphere_panels

IMAGES, VOLUMES = 16, 4
"""Test images, and volumes, on which equivariance errors are measured."""


def html_report(
    folders: Sequence[str | Path],
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    intro: str = "",
) -> Path:
    """Write a report of finished runs; it opens in a browser without a server or a network.

    Args:
        folders: The runs.
        out: The file; by default ``report.html`` in the first run's folder. An existing file is never replaced: the new
            one gets a number.
        data_dir: Data folder, to measure equivariance errors on images of the runs' own test sets.
        intro: HTML that comes first.
    """
    require("plotly", "plots", "The HTML report")
    require("matplotlib", "plots", "The HTML report")
    runs = [read_run(Path(folder), data_dir) for folder in folders]
    path = _free(Path(out) if out is not None else Path(folders[0]) / "report.html")
    sections = [intro, _results(runs), _errors_by_step(runs), *(_section(run) for run in runs)]
    page = _PAGE.format(plotly=_plotly_script(), body="\n".join(sections))
    try:
        write_whole(path, page)
    except OSError as error:
        raise training.RunError(f"cannot write {path}: {error.strerror}. Choose another file with --out") from None
    return path


def read_run(folder: Path, data_dir: str | Path | None) -> dict[str, Any]:
    """What a report shows of a finished run: its network, results, curves, and test images."""
    if not (folder / "result.json").exists():
        training.read_config(folder)  # says it if this is not a run at all
        raise training.RunError(f"{folder} is not finished: continue it with: pscnn train --resume {folder}")
    module = training.load(folder)
    config = module.config
    name = config.tests[0]
    test = config.load(data_dir)[name]
    rows = _rows(len(test), IMAGES if config.dimension == 2 else VOLUMES)
    images, targets = config.batch(name, test, rows, 0)
    forecast = None
    if isinstance(module, training.Forecasting):
        with torch.no_grad():
            forecast = module.forecast(images[:1], targets.shape[1])[0], targets[0]
    confusion = folder / "confusion.npy"
    return {
        "name": folder.name,
        "config": module.config,
        "model": module.model,
        "result": json.loads((folder / "result.json").read_text()),
        "history": training.history(folder),
        "confusion": np.load(confusion) if confusion.exists() else None,
        "forecast": forecast,
        "images": images,
    }


def _rows(count: int, wanted: int) -> Tensor:
    return torch.linspace(0, count - 1, min(wanted, count)).long()


def _free(path: Path) -> Path:
    if not path.exists():
        return path
    numbered = (path.with_name(f"{path.stem}-{k}{path.suffix}") for k in range(2, 10_000))
    return next(candidate for candidate in numbered if not candidate.exists())


def _results(runs: list[dict[str, Any]]) -> str:
    scores = [key for key in SCORES if any(key in run["result"] for run in runs)]
    heads = ("run", "task", "method", "group", *(SCORES[key] for key in scores), "epoch", "parameters", "device")
    rows = []
    for run in runs:
        config, result = run["config"], run["result"]
        cells = (
            f'<a href="#{html.escape(run["name"])}">{html.escape(run["name"])}</a>',
            f"{config.experiment}, {config.task}",
            config.method,
            "–" if config.method in ("cnn", "mlp", "clcnn") else config.group,
            *(f"{result[key]:.4f}" if key in result else "–" for key in scores),
            result["best_epoch"] + 1,
            f"{result['parameters']:,}",
            html.escape(str(result["device"])),
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{text}</th>" for text in heads)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _errors_by_step(runs: list[dict[str, Any]]) -> str:
    """How the errors of forecasts grow, all runs in one figure per test; nothing for other tasks."""
    figures = []
    for key in ("future_rmse", "domain_rmse"):
        found = {run["name"]: run["result"].get(f"{key}_by_step") for run in runs}
        if any(found.values()):
            figure = _lines(SCORES[key], "step", {name: values for name, values in found.items() if values})
            figures.append(figure.update_yaxes(rangemode="tozero"))
    return "<h2>Errors step by step</h2>" + _figures("curves", figures) if figures else ""


def _section(run: dict[str, Any]) -> str:
    model: nn.Module = run["model"]
    parts = [f'<h2 id="{html.escape(run["name"])}">{html.escape(run["name"])}</h2>']
    if likelihoods(model):
        parts += ["<h3>What each layer kept</h3>", *_densities(model), f"<pre>{html.escape(summary(model))}</pre>"]
        parts += [
            "<h3>Is it true?</h3>",
            f"<p>The equivariance error of every layer on {len(run['images'])} test images, beside its density. "
            "ρ is their rank correlation: −1 if the error is the larger, the lower the density.</p>",
            _svg(_draw_degrees(model, run["images"])),
        ]
    parts += ["<h3>Training</h3>", _figures("curves", _curves(run["history"]))]
    if run["confusion"] is not None:
        figure = _confusion(run["confusion"], run["config"].class_names)
        parts += ["<h3>Confusion</h3>", _figures("confusion", [figure])]
    if run["forecast"] is not None:
        parts += ["<h3>A forecast at later times</h3>", *_forecast(*run["forecast"])]
    settings = yaml.safe_dump(run["config"].to_dict(), sort_keys=False)
    parts.append(f"<details><summary>Configuration</summary><pre>{html.escape(settings)}</pre></details>")
    return f"<section>{''.join(parts)}</section>"


def _draw_degrees(model: nn.Module, images: Tensor) -> Any:
    """Over the angle for groups of the plane; for others, error against density."""
    of_the_plane = all(lam.group.dimension == 2 for lam in likelihoods(model).values())
    return degree_figure(model, images) if of_the_plane else agreement_figure(model, images)


def _densities(model: nn.Module) -> list[str]:
    """Curves for groups of the plane, spheres of axes for SO(3) and O(3)."""
    parts = []
    panels = density_panels(model)
    if panels:
        parts += [
            "<p>The learnt density over rotations (solid) and reflections (dashed). A flat line at 1 is full "
            "equivariance; where it is low, the layer does not treat that transformation as a symmetry.</p>",
            _figures("densities", panels),
        ]
    in_space = {name: lam for name, lam in likelihoods(model).items() if lam.group in (SO3(), O3())}
    if in_space:
        parts.append(
            "<p>The learnt density over rotations by five angles about every axis: a sphere's points are the axes. 1 "
            "is full equivariance; where it is low, the layer does not treat that transformation as a symmetry. Drag "
            "to turn, hover for numbers.</p>"
        )
    for number, (name, lam) in enumerate(in_space.items(), 1):
        parts.append(f"<h4>layer {number} ({html.escape(name)})</h4>{_figures('spheres', sphere_panels(lam))}")
    return parts


def density_panels(model: nn.Module) -> list[Any]:
    """One interactive figure per density on a group of the plane; hovering shows the element and its density."""
    from plotly.graph_objects import Figure

    found = {name: lam for name, lam in likelihoods(model).items() if planar(lam.group) is not None}
    curves = {name: density_curves(lam) for name, lam in found.items()}
    if not curves:
        return []
    highest = max(values.max() for curve in curves.values() for _, values in curve.values())
    out = []
    for number, (name, curve) in enumerate(curves.items(), 1):
        figure = Figure()
        finite = found[name].group.order is not None
        for (kind, (angles, values)), colour in zip(curve.items(), (ROTATIONS, REFLECTIONS), strict=False):
            figure.add_scatter(
                x=angles.tolist(),
                y=values.tolist(),
                name=kind,
                mode="markers" if finite else "lines",
                marker={"color": colour, "symbol": "circle" if kind == "rotations" else "diamond", "size": 9},
                line={"color": colour, "dash": "solid" if kind == "rotations" else "dash"},
                hovertemplate=f"{kind[:-1]} %{{x:.0f}}°<br>λ = %{{y:.3f}}<extra></extra>",
            )
        figure.add_hline(1, line={"color": "#999", "dash": "dot", "width": 1})
        figure.update_xaxes(tickvals=angles.tolist() if finite else [-180, -90, 0, 90, 180], title_text="angle (°)")
        figure.update_yaxes(range=[0, 1.05 * highest], title_text="density λ")
        figure.update_layout(title=f"layer {number} ({name})", showlegend=False)
        out.append(figure)
    return out


def _curves(history: list[dict[str, Any]]) -> list[Any]:
    names = [name for name in history[0] if "/" in name]
    panels = {
        "accuracy": [name for name in names if "accuracy" in name],
        "mean square error": [name for name in names if name.endswith("/mse")],
        "loss": [name for name in names if name.endswith(("/loss", "/task"))],
        "alignment, KL divergence, priors": [n for n in names if n.endswith(("/alignment", "/kl", "/penalty"))],
    }
    return [
        _lines(title, "epoch", {name: [row[name] for row in history] for name in found})
        for title, found in panels.items()
        if found
    ]


def _lines(title: str, counted: str, lines: dict[str, list[float]]) -> Any:
    """Lines over 1, 2, 3, … with their names below."""
    from plotly.graph_objects import Figure

    figure = Figure()
    for name, values in lines.items():
        figure.add_scatter(x=list(range(1, len(values) + 1)), y=values, name=name, mode="lines")
    figure.update_xaxes(title_text=counted)
    return figure.update_layout(title=title, showlegend=True, legend={"orientation": "h", "y": -0.35}, height=330)


def _confusion(counts: Any, names: Sequence[str] | None) -> Any:
    from plotly.graph_objects import Figure, Heatmap

    size = len(counts)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    hover = "true %{y}, predicted %{x}<br>%{z:.0%}<extra></extra>"
    labels = list(names) if names else None
    figure = Figure(
        Heatmap(
            z=shares.tolist(), x=labels, y=labels, colorscale="Blues", hovertemplate=hover, colorbar={"title": "share"}
        )
    )
    figure.update_xaxes(title_text="predicted class", constrain="domain")
    figure.update_yaxes(title_text="true class", autorange="reversed", scaleanchor="x", constrain="domain")
    figure.update_layout(height=min(640, 260 + 6 * size))
    return figure


def _figures(name: str, figures: list[Any]) -> str:
    """Figures side by side, as many as the window is wide."""
    parts = []
    for figure in figures:
        figure.update_layout(
            template="plotly_white",
            margin={"l": 50, "r": 15, "t": 40, "b": 45},
            font={"family": "system-ui, sans-serif", "size": 12},
        )
        if figure.layout.height is None:
            figure.update_layout(height=260)
        config = {"responsive": True, "displayModeBar": False}
        parts.append(figure.to_html(full_html=False, include_plotlyjs=False, config=config))
    return f'<div class="figures {name}">{"".join(f"<div>{part}</div>" for part in parts)}</div>'


def _forecast(predicted: Tensor, true: Tensor) -> list[str]:
    buffer = io.BytesIO()
    forecast_figure(predicted, true).savefig(buffer, format="png", dpi=110)
    pictures = (("png", buffer.getvalue()), ("gif", forecast_animation(predicted, true)))
    return [
        f'<p><img style="max-width: 100%" alt="a forecast beside the truth" src="data:image/{kind};base64,'
        f'{base64.b64encode(content).decode()}"></p>'
        for kind, content in pictures
    ]


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    text = buffer.getvalue()
    return f'<div class="errors">{text[text.index("<svg") :]}</div>'


def _plotly_script() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>pscnn report</title>
<link rel="icon" href="data:,">
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
 table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
 td, th {{ padding: .3rem .8rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap }}
 .wide {{ overflow-x: auto }} section {{ border-top: 2px solid #ccc; margin-top: 3rem }}
 pre {{ overflow-x: auto; background: #f6f6f6; padding: 1rem; font-size: .8rem }}
 .figures {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: .5rem }}
 .figures > div {{ min-width: 0 }} .spheres {{ grid-template-columns: 1fr }}
 .errors svg {{ max-width: 100%; height: auto }}
</style>
<script>{plotly}</script></head>
<body><h1>How much symmetry was kept</h1>
{body}
<script>
// Each figure was drawn before those beside it existed: fit all to their final places.
addEventListener("load", () => document.querySelectorAll(".js-plotly-plot").forEach((p) => Plotly.Plots.resize(p)))
</script>
</body></html>
"""

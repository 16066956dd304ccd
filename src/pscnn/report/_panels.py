"""Interactive figures of the HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from pscnn.densities import likelihoods
from pscnn.report._density import density_curves
from pscnn.report._style import STYLES


def density_panels(model: nn.Module) -> list[Any]:
    """One interactive figure per density on a group of the plane; hovering shows the element and its density."""
    from plotly.graph_objects import Figure

    found = [(name, lam) for name, lam in likelihoods(model).items() if lam.group.planar is not None]
    curves = [density_curves(lam) for _, lam in found]
    highest = max((values.max() for curve in curves for _, values in curve.values()), default=1)
    out = []
    for number, ((name, lam), curve) in enumerate(zip(found, curves, strict=True), 1):
        figure, finite = Figure(), lam.group.order is not None
        for kind, (angles, values) in curve.items():
            colour, first = STYLES[kind][0], kind == "rotations"
            figure.add_scatter(
                x=angles.tolist(),
                y=values.tolist(),
                name=kind,
                mode="markers" if finite else "lines",
                marker={"color": colour, "symbol": "circle" if first else "diamond", "size": 9},
                line={"color": colour, "dash": "solid" if first else "dash"},
                hovertemplate=f"{kind[:-1]} %{{x:.0f}}°<br>λ = %{{y:.3f}}<extra></extra>",
            )
        figure.add_hline(1, line={"color": "#999", "dash": "dot", "width": 1})
        figure.update_xaxes(tickvals=angles.tolist() if finite else [-180, -90, 0, 90, 180], title_text="angle (°)")
        figure.update_yaxes(range=[0, 1.05 * highest], title_text="density λ")
        out.append(figure.update_layout(title=f"layer {number} ({name})", showlegend=False))
    return out


def curve_panels(history: list[dict[str, Any]]) -> list[Any]:
    """What was logged, epoch by epoch."""
    ends: dict[str, tuple[str, ...]] = {
        "accuracy": ("/accuracy",),
        "mean square error": ("/mse",),
        "loss": ("/loss", "/task"),
        "alignment, KL divergence, priors": ("/alignment", "/kl", "/penalty"),
    }
    names = history[0] if history else {}
    panels = {title: [name for name in names if name.endswith(end)] for title, end in ends.items()}
    lines = {title: {name: [row[name] for row in history] for name in found} for title, found in panels.items()}
    return [line_panel(title, "epoch", found) for title, found in lines.items() if found]


def line_panel(title: str, counted: str, lines: dict[str, list[float]]) -> Any:
    """Lines over 1, 2, 3, … with their names below."""
    from plotly.graph_objects import Figure

    figure = Figure()
    for name, values in lines.items():
        figure.add_scatter(x=list(range(1, len(values) + 1)), y=values, name=name, mode="lines")
    figure.update_xaxes(title_text=counted)
    return figure.update_layout(title=title, showlegend=True, legend={"orientation": "h", "y": -0.35}, height=330)


def confusion_panel(counts: Any, names: Sequence[str] | None) -> Any:
    """The share of each true class (row) that was given each label (column)."""
    from plotly.graph_objects import Figure

    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    hover = "true %{y}, predicted %{x}<br>%{z:.0%}<extra></extra>"
    look = {"colorscale": "Blues", "hovertemplate": hover, "colorbar": {"title": "share"}}
    labels = list(names) if names else None
    figure = Figure().add_heatmap(z=shares.tolist(), x=labels, y=labels, **look)
    figure.update_xaxes(title_text="predicted class", constrain="domain")
    figure.update_yaxes(title_text="true class", autorange="reversed", scaleanchor="x", constrain="domain")
    return figure.update_layout(height=min(640, 260 + 6 * len(counts)))


def html_of(figures: list[Any]) -> list[Any]:
    """Figures as parts of a page; plotly escapes what it writes."""
    from markupsafe import Markup

    parts = []
    for figure in figures:
        figure.update_layout(
            template="plotly_white",
            margin={"l": 50, "r": 15, "t": 40, "b": 45},
            font={"family": "system-ui, sans-serif", "size": 12},
            height=figure.layout.height or 260,
        )
        config = {"responsive": True, "displayModeBar": False}
        parts.append(Markup(figure.to_html(full_html=False, include_plotlyjs=False, config=config)))
    return parts

"""Three small networks on bundled digits: the point of the method in minutes."""

from __future__ import annotations

import base64
import html
import io
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pscnn import training
from pscnn.report._density import density_figure
from pscnn.report._summary import summary
from pscnn.report._terminal import density_chart
from pscnn.training._run import new_folder

METHODS = {"cnn": "plain CNN", "scnn": "equivariant (SCNN)", "p-scnn": "partially equivariant (P-SCNN)"}
SETTINGS: dict[str, Any] = {
    "group": "O(2)",
    "source": "digits",
    "symmetry": "O2",
    "kinds": 4,
    "size": 28,
    "width": 0.2,
    "train_per_class": 60,
    "validation_per_class": 30,
    "test_per_class": 60,
    "epochs": 36,
    "batch_size": 64,
    "lr": 3e-3,
}


def quickstart(runs: Path, seed: int, console: Console) -> Path:
    """Train the three networks, print what they reached and learnt, and write a report. Returns its path."""
    began = time.monotonic()
    results: dict[str, dict[str, Any]] = {}
    folders: dict[str, Path] = {}
    for method, label in METHODS.items():
        config = training.Config(method=method, seed=seed, **SETTINGS)
        folders[method] = training.start(config, runs, f"quickstart-{method}")
        console.print(f"training {label} …", highlight=False)
        results[method] = training.train(
            folders[method], accelerator="cpu", progress=console.is_terminal, draw=density_figure
        )
    table = Table("network", "test accuracy", "parameters", "seconds")
    for method, result in results.items():
        table.add_row(
            METHODS[method], f"{result['test_accuracy']:.3f}", f"{result['parameters']:,}", f"{result['seconds']:.0f}"
        )
    console.print(table)
    model = training.load(folders["p-scnn"]).model
    console.print("what the P-SCNN kept of O(2), layer by layer:", highlight=False)
    console.print(density_chart(model), highlight=False, soft_wrap=True)
    report = write_report(new_folder(runs, "quickstart"), results, model)
    console.print(f"report: {report}   ({time.monotonic() - began:.0f} s in all)", highlight=False, soft_wrap=True)
    return report


def write_report(folder: Path, results: dict[str, dict[str, Any]], model: Any) -> Path:
    """One HTML file with the table and the pictures inside it."""
    rows = "".join(
        f"<tr><td>{METHODS[m]}</td><td>{r['test_accuracy']:.3f}</td><td>{r['parameters']:,}</td>"
        f"<td>{r['seconds']:.0f}</td></tr>"
        for m, r in results.items()
    )
    picture = io.BytesIO()
    density_figure(model).savefig(picture, format="svg")
    image = base64.b64encode(picture.getvalue()).decode()
    path = folder / "report.html"
    path.write_text(
        _PAGE.format(rows=rows, image=image, summary=html.escape(summary(model)), settings=html.escape(_settings()))
    )
    return path


def _settings() -> str:
    return json.dumps(SETTINGS, indent=2)


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>pscnn quickstart</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
 table {{ border-collapse: collapse }} td, th {{ padding: .3rem 1rem; border-bottom: 1px solid #ddd; text-align: left }}
 td:nth-child(n+2) {{ text-align: right; font-variant-numeric: tabular-nums }}
 img {{ max-width: 100% }} pre {{ overflow-x: auto; background: #f6f6f6; padding: 1rem; font-size: .8rem }}
</style>
<h1>How much symmetry do double digits keep?</h1>
<p>Each image is a pair of digits; each digit is rotated and mirrored at random. Rotating or mirroring the <em>pair</em>
changes the answer, so a network that is equivariant throughout cannot tell 12 from 21. The partially equivariant
network starts fully equivariant and learns where to let go.</p>
<table><tr><th>network</th><th>test accuracy</th><th>parameters</th><th>seconds</th></tr>{rows}</table>
<h2>What the partially equivariant network kept</h2>
<p>One panel per layer: the learnt density over rotations (solid) and reflections (dashed) of O(2). A flat line at 1 is
full equivariance; where the line is low, the layer does not treat that transformation as a symmetry.</p>
<img alt="learnt densities of each layer" src="data:image/svg+xml;base64,{image}">
<h2>In numbers</h2>
<pre>{summary}</pre>
<h2>Settings</h2>
<pre>{settings}</pre>
</html>
"""

"""Small networks on bundled digits: the point of the method in minutes."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pscnn import training
from pscnn.experiments import QUICKSTART_LABELS, quickstart_networks
from pscnn.report._density import density_chart
from pscnn.report._html import check_report, html_report


def quickstart(runs: Path, seed: int, console: Console) -> Path:
    """Train the networks, print what they reached and learnt, and write a report. Returns its path."""
    check_report()  # said before minutes of training, not after
    began = time.monotonic()
    folders: dict[str, Path] = {}
    table = Table("network", "test accuracy", "parameters", "seconds")
    for name, settings in quickstart_networks(seed=seed).items():
        label = QUICKSTART_LABELS[name]
        folders[name] = training.start(settings, runs, f"quickstart-{name}")
        console.print(f"training {label} …", highlight=False)
        shown = console.is_terminal
        result = training.train(folders[name], accelerator="cpu", progress=shown)
        table.add_row(label, f"{result['test_accuracy']:.3f}", f"{result['parameters']:,}", f"{result['seconds']:.0f}")
    console.print(table)
    model = training.load(folders["p-scnn"]).model
    console.print("what the P-SCNN kept of O(2), layer by layer:", highlight=False)
    console.print(density_chart(model), highlight=False, soft_wrap=True)
    report = html_report([*folders.values()][::-1], training.new_folder(runs, "quickstart") / "report.html")
    console.print(f"report: {report}   ({time.monotonic() - began:.0f} s in all)", highlight=False, soft_wrap=True)
    return report

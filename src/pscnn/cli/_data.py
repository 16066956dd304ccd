"""Data sets."""

from __future__ import annotations

from typing import Annotated

import typer

from pscnn.cli._app import DataDir, app, command, console, fail, say

data_app = typer.Typer(help="Generate data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@data_app.callback()
def _data() -> None:
    """Keep ``prepare`` a command of its own, although it is the only one."""


@data_app.command("prepare")
@command
def prepare_data(
    what: Annotated[str, typer.Argument(help="Data set: smoke.")],
    data_dir: DataDir = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Generate a data set in the data folder. Existing files are not replaced; run it again if it was interrupted."""
    import torch
    from rich.progress import Progress

    from pscnn.data import smoke

    if what != "smoke":
        fail(f"unknown data set {what!r}: use smoke")
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        fail(f"cannot simulate on {device!r}: use cpu{', or cuda' if torch.cuda.is_available() else ''}")
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("simulating", total=None)
        folder = smoke.prepare(
            data_dir, device=device, on_step=lambda done, total: progress.update(bar, completed=done, total=total)
        )
    say(f"smoke: {len(smoke.TASKS)} simulations in {folder}")

"""Single runs: train, test, look."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pscnn.cli._app import Accelerator, DataDir, Run, app, command, console, errors, last_cells, say, with_settings


@app.command()
@command
def quickstart(
    runs: Annotated[Path, typer.Option(help="Folder for runs.")] = Path("runs"),
    seed: Annotated[int, typer.Option(help="Seeds everything.")] = 0,
) -> None:
    """Train a plain, an equivariant and a partially equivariant network on bundled digits, and compare them."""
    from pscnn.report._quickstart import quickstart as run_quickstart

    run_quickstart(runs, seed, console)


@app.command()
@with_settings
@command
def train(
    experiment: Annotated[str | None, typer.Argument(help="ddmnist, medmnist3d, shapes3d, smoke or jetflow.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings; options override it.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue this run from its last complete epoch.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder for runs.")] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Name of the run's folder.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs with consecutive seeds, from --seed on.")] = 1,
    together: Annotated[bool, typer.Option("--together", help="Train all seeds at once, in processes.")] = False,
    data_dir: DataDir = None,
    accelerator: Accelerator = "auto",
    devices: Annotated[int, typer.Option(help="How many devices train in parallel.")] = 1,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
    *,
    settings: dict[str, Any],
) -> None:
    """Train a network and test its best epoch. The run gets a folder of its own, which is never overwritten."""
    from pscnn import training
    from pscnn.report import density_figure

    if together and (seeds == 1 or devices != 1):
        raise training.ConfigError("--together is for several --seeds, each on one device")
    if resume is not None:
        if settings or config or experiment or name or seeds > 1:
            raise training.ConfigError("--resume takes its settings from the run; give no others")
        folders = [resume]
        training.read_config(resume)
    else:
        values = training.Config.read(config) if config else {}
        if experiment is not None:
            values["experiment"] = experiment
        chosen = training.Config.from_dict({**values, **settings})
        chosen.load(data_dir)  # missing data are noticed before there is a folder
        folders = training.start_seeds(chosen, seeds, runs, name)
        for folder in folders:
            say(f"run: {folder}")
    if together:
        _print_results(_train_together(folders, data_dir, accelerator))
        return
    results = {}
    for folder in folders:
        try:
            results[folder] = training.train(
                folder,
                data_dir,
                accelerator=accelerator,
                devices=devices,
                progress=progress and console.is_terminal,
                draw=density_figure,
            )
        except KeyboardInterrupt:
            saved = "its last complete epoch is saved" if training.last_epoch(folder) else "no epoch was complete"
            say(f"stopped; {saved}. Continue: {_resume(folder, data_dir, accelerator)}")
            raise
    _print_results(results)


def _resume(folder: Path, data_dir: Path | None, accelerator: str) -> str:
    """The command that continues a run."""
    words = ["pscnn", "train", "--resume", str(folder)]
    if data_dir is not None:
        words += ["--data-dir", str(data_dir)]
    if accelerator != "auto":
        words += ["--accelerator", accelerator]
    return shlex.join(words)


def _train_together(folders: list[Path], data_dir: Path | None, accelerator: str) -> dict[Path, Any]:
    """Train runs at once with a table of their progress."""
    from rich.live import Live

    from pscnn import training
    from pscnn.report import density_figure

    def overview() -> Table:
        judged_by = training.read_config(folders[0]).judged_by[0]
        table = Table("run", "epoch", f"validation {judged_by}", box=None)
        for folder in folders:
            table.add_row(folder.name, *last_cells(folder, judged_by))
        return table

    done: list[Path] = []
    live = Live(get_renderable=overview, console=console, refresh_per_second=1, transient=True)
    try:
        with live if console.is_terminal else contextlib.nullcontext():
            return training.train_together(
                folders,
                data_dir,
                accelerator=accelerator,
                draw=density_figure,
                on_done=lambda folder, _: done.append(folder),
            )
    except KeyboardInterrupt:
        say("stopped; the last complete epoch of every run is saved. Continue:")
        for folder in folders:
            if folder not in done:
                say(f"  {_resume(folder, data_dir, accelerator)}")
        raise


@app.command()
@command
def evaluate(run: Run, data_dir: DataDir = None, accelerator: Accelerator = "auto") -> None:
    """Test the best epoch of a run again."""
    from pscnn import training

    _print_result(run, training.evaluate(run, data_dir, accelerator=accelerator))


@app.command("inspect")
@command
def inspect_run(run: Run) -> None:
    """Show what each layer of a run kept."""
    from pscnn import likelihoods, training
    from pscnn.report import density_chart, summary

    loaded = training.load(run)
    model = loaded.model
    say(summary(model))
    if likelihoods(model) and loaded.config.dimension == 2:
        console.print()
        say(density_chart(model))


@app.command()
@command
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    out: Annotated[
        Path | None, typer.Option(help="The file; report.html in the first run's folder by default.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Write one HTML file about runs: results, densities, errors, curves, confusion. It needs no network to open."""
    from pscnn.report._html import html_report

    say(f"report: {html_report(runs, out, data_dir)}")


def _print_results(results: dict[Path, dict[str, Any]]) -> None:
    if len(results) == 1:
        _print_result(*results.popitem())
        return
    from pscnn.experiments._tables import spread

    first = next(iter(results.values()))
    names = [name for name in first if name == "test_accuracy" or name.endswith("_rmse")]
    table = Table("run", *(name.replace("_", " ") for name in names), "seconds", box=None)
    for folder, result in results.items():
        table.add_row(str(folder), *(f"{result[name]:.4f}" for name in names), f"{result['seconds']:.0f}")
    console.print(table)
    for name in names:
        mean, deviation = spread([result[name] for result in results.values()])
        say(f"{name.replace('_', ' ')} {mean:.4f}, standard deviation {deviation:.4f}")
    _say_if_diverged(results.values())


def _print_result(folder: Path, result: dict[str, Any]) -> None:
    from pscnn import training

    table = Table(show_header=False, box=None)
    for name, value in result.items():
        if isinstance(value, list):  # for the report
            continue
        shown = value + 1 if name == "best_epoch" else value  # people count from one
        table.add_row(name.replace("_", " "), f"{shown:.4f}" if isinstance(shown, float) else str(shown))
    console.print(table)
    epochs = training.read_config(folder).epochs
    if result["epochs"] < epochs:
        say(f"not saved: {result['epochs']} of {epochs} epochs are trained")
    else:
        say(f"saved in {folder}")
    _say_if_diverged([result])


def _say_if_diverged(results: Iterable[dict[str, Any]]) -> None:
    if not all(math.isfinite(value) for result in results for value in result.values() if isinstance(value, float)):
        errors.print("some results are not numbers: training diverged. Use a smaller --lr", style="red")

"""Single runs: train, test, look."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pscnn.cli._app import Accelerator, DataDir, Run, app, command, console, errors, fail, say
from pscnn.cli._many import complete_runs
from pscnn.cli._settings import NamedCommands, with_settings


@app.command()
@command
def quickstart(
    runs: Annotated[Path, typer.Option(help="Folder for runs.")] = Path("runs"),
    seed: Annotated[int, typer.Option(help="Seeds everything.")] = 0,
) -> None:
    """Train a plain, an equivariant and a partially equivariant network on bundled digits, and compare them."""
    from pscnn import report

    report.quickstart(runs, seed, console)


class _Tasks(NamedCommands):
    def names(self) -> list[str]:
        from pscnn.training import task_names

        return task_names()

    def make(self, name: str) -> Callable[..., Any]:
        from pscnn.training import task_type

        kind = task_type(name)
        function = with_settings(command(_train), [kind.settings_type])
        function.__doc__ = f"{kind.__doc__}\n\nTrain a network and test its best epoch."
        return function


train_app = typer.Typer(cls=_Tasks, help="Train a network and test its best epoch: pscnn train TASK --help.")
app.add_typer(train_app, name="train", invoke_without_command=True)

_Config = Annotated[Path | None, typer.Option(help="YAML file with settings; options override it.")]
_Runs = Annotated[Path | None, typer.Option(help="Folder for runs; runs by default.")]
_Name = Annotated[str | None, typer.Option(help="Name of the run's folder, instead of what is not default.")]
_Seeds = Annotated[int | None, typer.Option(min=1, help="Runs with consecutive seeds, from --seed on.")]
_Together = Annotated[bool | None, typer.Option("--together", help="Train all seeds at once, in processes.")]
_Device = Annotated[str | None, typer.Option(help="auto (the default), cpu or gpu.")]
_Devices = Annotated[int | None, typer.Option(min=1, help="How many devices train in parallel.")]
_Progress = Annotated[bool | None, typer.Option(help="Show a progress bar.")]


@train_app.callback()
@command
def _train_callback(
    ctx: typer.Context,
    config: _Config = None,
    resume: Annotated[Path | None, typer.Option(help="Continue this run from its last complete epoch.")] = None,
    runs: _Runs = None,
    name: _Name = None,
    seeds: _Seeds = None,
    together: _Together = None,
    data_dir: DataDir = None,
    accelerator: _Device = None,
    devices: _Devices = None,
    progress: _Progress = None,
) -> None:
    """Train a network and test its best epoch. A run has a folder of its own, which is never overwritten."""
    how = {name: value for name, value in ctx.params.items() if name != "resume" and value is not None}
    if ctx.invoked_subcommand is not None:
        if resume is not None:
            fail("--resume takes the task and its settings from the run; give no task", 2)
        ctx.obj = how
    elif resume is not None:
        if {"config", "runs", "name", "seeds", "together"} & how.keys():
            fail("--resume takes its settings from the run; give no others", 2)
        from pscnn.training import read_task

        read_task(resume)
        _print_results({resume: _fit(resume, **how)})
    elif config is not None:
        ctx.obj = {}
        _train(ctx, **how, settings={})
    else:
        from pscnn.training import task_names

        fail(f"name a task: one of {', '.join(task_names())}; or give --config or --resume", 2)


def _train(
    ctx: typer.Context,
    config: _Config = None,
    runs: _Runs = None,
    name: _Name = None,
    seeds: _Seeds = None,
    together: _Together = None,
    data_dir: DataDir = None,
    accelerator: _Device = None,
    devices: _Devices = None,
    progress: _Progress = None,
    *,
    settings: dict[str, Any],
) -> None:
    from pscnn import training

    given = {"config": config, "runs": runs, "name": name, "seeds": seeds, "together": together, "data_dir": data_dir}
    given |= {"accelerator": accelerator, "devices": devices, "progress": progress}
    how = {**(ctx.obj or {}), **{key: value for key, value in given.items() if value is not None}}
    config, store = how.pop("config", None), training.Store(how.pop("runs", "runs"), how.pop("name", None))
    count, at_once = how.pop("seeds", 1), how.pop("together", False)
    if at_once and (count == 1 or how.get("devices", 1) != 1):
        fail("--together is for several --seeds, each on one device", 2)
    values = training.read_yaml(config) if config else {}
    if ctx.parent is not None and ctx.parent.invoked_subcommand:
        values = {**values, "task": ctx.info_name}
        values.pop("experiment", None)
    first = training.make_settings({**values, **settings})
    wanted = [replace(first, seed=first.seed + k) for k in range(count)]
    if training.task_of(first).stacked or at_once:
        training.task_of(first).load(how.get("data_dir"))  # missing data are noticed before there is a folder
        failed = complete_runs(wanted, store, workers=1 if training.task_of(first).stacked else count, **_shared(how))
        if failed:
            fail(f"{len(failed)} of {count} runs failed; the same command tries them again")
        _print_results({store.folder(one): store.result(one) or {} for one in wanted})
        return
    results = {}
    for one in wanted:
        found = store.result(one)
        folder = store.folder(one)
        if found is None:
            data = training.Data(training.task_of(one), how.get("data_dir"))
            folder = store.start(one)
            say(f"run: {folder}")
            found = _fit(folder, data=data, **how)
        else:
            say(f"trained before: {folder} (another --seed, --name or --runs trains anew)")
        results[folder] = found
    _print_results(results)


def _shared(how: dict[str, Any]) -> dict[str, Any]:
    """What processes that train side by side are told."""
    return {name: how[name] for name in ("data_dir", "accelerator") if name in how}


def _fit(folder: Path, *, data: Any = None, **how: Any) -> dict[str, Any]:
    """Train one run, with a word on how to continue it if it is interrupted."""
    from pscnn import training
    from pscnn.report import density_figure

    show = how.pop("progress", True) and console.is_terminal
    try:
        return training.train(folder, how.pop("data_dir", None), data=data, progress=show, draw=density_figure, **how)
    except KeyboardInterrupt:
        saved = "its last complete epoch is saved" if training.last_epoch(folder) else "no epoch was complete"
        say(f"stopped; {saved}. Continue: {_resume(folder, how)}")
        raise


def _resume(folder: Path, how: dict[str, Any]) -> str:
    """The command that continues a run."""
    words = ["pscnn", "train", "--resume", str(folder)]
    for name, value in how.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


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

    model = training.load(run).model
    say(summary(model))
    if any(likelihood.group.dimension == 2 for likelihood in likelihoods(model).values()):
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
    from pscnn.report import html_report

    say(f"report: {html_report(runs, out, data_dir)}")


def _print_results(results: dict[Path, dict[str, Any]]) -> None:
    if len(results) == 1:
        _print_result(*results.popitem())
        return
    from pscnn.experiments import spread
    from pscnn.training import read_task

    labels = read_task(next(iter(results))).scores
    names = [name for name in labels if all(result.get(name) is not None for result in results.values())]
    table = Table("run", *(labels[name] for name in names), "seconds", box=None)
    for folder, result in results.items():
        table.add_row(str(folder), *(f"{result[name]:.4f}" for name in names), f"{result['seconds']:.0f}")
    console.print(table)
    for name in names:
        mean, deviation = spread([result[name] for result in results.values()])
        say(f"{labels[name]} {mean:.4f}, standard deviation {deviation:.4f}")
    _say_if_diverged(results.values())


def _print_result(folder: Path, result: dict[str, Any]) -> None:
    from pscnn import training

    table = Table(show_header=False, box=None)
    for name, value in result.items():
        if isinstance(value, list | dict):  # for the report
            continue
        shown = value + 1 if name == "best_epoch" else value  # people count from one
        table.add_row(name.replace("_", " "), f"{shown:.4f}" if isinstance(shown, float) else str(shown))
    console.print(table)
    epochs = training.read_task(folder).settings.epochs
    if result["epochs"] < epochs:
        say(f"not saved: {result['epochs']} of {epochs} epochs are trained")
    else:
        say(f"saved in {folder}")
    _say_if_diverged([result])


def _say_if_diverged(results: Iterable[dict[str, Any]]) -> None:
    if not all(math.isfinite(value) for result in results for value in result.values() if isinstance(value, float)):
        errors.print("some results are not numbers: training diverged. Use a smaller --lr", style="red")

"""Single runs: train, test, look."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.table import Column, Table

from pscnn.cli._app import (
    Accelerator,
    DataDir,
    Json,
    Network,
    Run,
    app,
    command,
    console,
    fail,
    network_of,
    say,
    say_json,
)
from pscnn.cli._many import complete_runs
from pscnn.cli._settings import NO_TASK, NamedCommands, with_settings


@app.command()
@command
def quickstart(
    runs: Annotated[Path, typer.Option(help="Folder for runs.")] = Path("runs"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Train plain, equivariant and partially equivariant networks on bundled digits, and compare them."""
    from pscnn import report

    report.quickstart(runs, seed, console)


class _Tasks(NamedCommands):
    def list_commands(self, ctx: Any) -> list[str]:
        from pscnn.tasks import TASKS

        return [*TASKS]

    def make(self, name: str) -> Callable[..., Any]:
        from pscnn.training import task_type

        if name == NO_TASK:
            return with_settings(command(_train), [])
        kind = task_type(name)
        function = with_settings(command(_train), [kind.settings_type])
        function.__doc__ = f"{kind.__doc__}\n\nTrain a network and test it. A finished run is not trained again."
        return function

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """If options come first, the task stands behind them, or is that of the file or run that they name."""
        if args and args[0].startswith("--") and args[0] != "--help":
            names = self.list_commands(ctx)
            flags = command(_flags)()
            behind = [k for k, word in enumerate(args) if word in names and not _takes_a_value(args[k - 1], flags)]
            name = args.pop(behind[0]) if behind else command(_task_of_file)(args)
            args = [name, *args]
        return super().parse_args(ctx, args)


def _flags() -> set[str]:
    """The options that take no value: those of the command itself and of all tasks."""
    from pscnn.training import task_names, task_type

    names = [name for name, kind in get_type_hints(_train).items() if kind is bool]
    for task in task_names():
        names += [option.name for option in task_type(task).settings_type.options().values() if option.kind is bool]
    return {f"--{no}{name.replace('_', '-')}" for name in names for no in ("", "no-")}


def _takes_a_value(word: str, flags: set[str]) -> bool:
    return word.startswith("--") and "=" not in word and word not in flags


def _task_of_file(args: list[str]) -> str:
    words = [part for word in args for part in word.split("=", 1)]
    if "--config" not in words[:-1]:
        return NO_TASK
    from pscnn.training import read_yaml

    values = read_yaml(words[words.index("--config") + 1])
    name = values.get("task", values.get("experiment"))
    return name if isinstance(name, str) else NO_TASK


train_app = typer.Typer(cls=_Tasks, no_args_is_help=True, rich_markup_mode=None)
app.add_typer(train_app, name="train")


@train_app.callback()
def _train_callback() -> None:
    """Train a network: pscnn train TASK, --resume RUN or --config FILE. TASK --help shows the settings of a task."""


def _train(
    ctx: typer.Context,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings; options override them.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue this run from its last complete epoch.")] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder for runs; runs by default.")] = None,
    name: Annotated[str | None, typer.Option(help="The run's folder; by default named by its settings.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of runs, with seeds from --seed on.")] = 1,
    together: Annotated[bool, typer.Option("--together", help="Train all seeds at once, in processes.")] = False,
    data_dir: DataDir = None,
    accelerator: Accelerator = "auto",
    devices: Annotated[
        int, typer.Option(min=1, help="Devices that share every step, each with a batch of its own.")
    ] = 1,
    progress: Annotated[bool, typer.Option(help="Show epoch, scores and time left.")] = True,
    *,
    settings: dict[str, Any],
) -> None:
    from pscnn import training

    task = None if ctx.info_name == NO_TASK else ctx.info_name
    how = {"data_dir": data_dir, "accelerator": accelerator, "devices": devices}
    if together and (seeds == 1 or devices != 1):
        fail("--together requires --seeds of 2 or more, and --devices 1", 2)
    if resume is not None:
        if settings or config or task or runs or name or seeds > 1:
            fail("--resume takes all settings from the run; remove the other options", 2)
        training.read_task(resume)
        _print_results({resume: _fit(resume, progress, **how)})
        return
    values = training.read_yaml(config) if config else {}
    if task is not None:
        values = {**{k: v for k, v in values.items() if k != "experiment"}, "task": task}
    first = training.make_settings({**values, **settings})
    wanted = [replace(first, seed=first.seed + k) for k in range(seeds)]
    store = training.Store(runs or Path("runs"), name)
    before = [one for one in wanted if store.result(one) is not None]
    stacked = training.task_of(first).stacked
    if stacked and (devices != 1 or accelerator == "gpu"):
        fail(f"the networks of {first.task} are so small that they train on the CPU, all seeds at once", 2)
    if together or stacked:
        training.task_of(first).load(data_dir)  # missing data are noticed before there is a folder
        if complete_runs(wanted, store, workers=seeds, data_dir=data_dir, accelerator=accelerator):
            fail("some runs failed; run the same command to try them again")
    if devices == 1 and len(before) < seeds and not (together or stacked):
        training.wake(training.choose_device(accelerator))  # it starts while the data are loaded
    for one in wanted:
        folder = store.folder(one)
        if store.result(one) is None:
            data = training.Data(training.task_of(one), data_dir)
            folder = store.start(one)
            say(f"run: {folder}")
            _fit(folder, progress, data=data, **how)
        elif one in before:
            say(f"already trained: {folder}. To train again, use another --seed, --name or --runs")
    _print_results({store.folder(one): store.result(one) or {} for one in wanted})


def _fit(folder: Path, progress: bool, *, data: Any = None, **how: Any) -> dict[str, Any]:
    """Train one run, with a word on how to continue it if it is interrupted."""
    from pscnn import training

    try:
        return training.train(folder, data=data, progress=progress, **how)
    except KeyboardInterrupt:
        saved = "its last complete epoch is saved" if training.last_epoch(folder) else "no epoch was complete"
        usual = {"data_dir": None, "accelerator": "auto", "devices": 1}
        words = ["pscnn", "train", "--resume", str(folder)]
        for name, value in how.items():
            words += [f"--{name.replace('_', '-')}", str(value)] if value != usual[name] else []
        say(f"interrupted; {saved}. To continue: {shlex.join(words)}")
        raise


@app.command()
@command
def evaluate(run: Run, data_dir: DataDir = None, accelerator: Accelerator = "auto", as_json: Json = False) -> None:
    """Test the best epoch of a run again."""
    from pscnn import training

    if as_json:
        result = training.evaluate(run, data_dir, accelerator=accelerator)
        say_json({"run": str(run), **result, "diverged": training.diverged(result)})
        _fail_if_diverged([result])
        return
    _print_result(run, training.evaluate(run, data_dir, accelerator=accelerator))


@app.command("inspect")
@command
def inspect_run(run: Network, as_json: Json = False) -> None:
    """Show which symmetries each layer of a run kept."""
    from pscnn import likelihoods, training
    from pscnn.densities import layer_summaries
    from pscnn.report import density_chart, summary

    run = network_of(run)
    model = training.load(run).model
    if as_json:
        say_json({"run": str(run), "layers": [asdict(layer) for layer in layer_summaries(model)]})
        return
    say(summary(model))
    if any(likelihood.group.dimension == 2 for likelihood in likelihoods(model).values()):
        console.print()
        say(density_chart(model))


@app.command()
@command
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs, or the folder of pscnn discover.")],
    out: Annotated[Path | None, typer.Option(help="Output file; report.html in the first folder by default.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Write a report on runs, one HTML file for offline use: the answer, dials, examples to turn, how sure."""
    from pscnn.report import html_report, write_discovery

    networks = [network_of(run) for run in runs]
    if len(runs) == 1 and networks != runs:
        say(f"report: {write_discovery(runs[0], out)}")
    else:
        say(f"report: {html_report(networks, out, data_dir)}")


def _print_results(results: dict[Path, dict[str, Any]]) -> None:
    if len(results) == 1:
        _print_result(*results.popitem())
        return
    from pscnn.experiments import spread
    from pscnn.training import read_task

    labels = read_task(next(iter(results))).scores
    names = [name for name in labels if all(result.get(name) is not None for result in results.values())]
    table = Table(Column("run", overflow="fold"), *(labels[name] for name in names), "seconds", box=None)
    for folder, result in results.items():
        table.add_row(str(folder), *(f"{result[name]:.4f}" for name in names), f"{result['seconds']:.0f}")
    console.print(table)
    for name in names:
        mean, deviation = spread([result[name] for result in results.values()])
        say(f"{labels[name]} {mean:.4f}, standard deviation {deviation:.4f}")
    _fail_if_diverged(results.values())


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
    _fail_if_diverged([result])


def _fail_if_diverged(results: Iterable[dict[str, Any]]) -> None:
    from pscnn.training import diverged

    if any(map(diverged, results)):
        fail("some results are not finite: training diverged. Use a smaller --lr")

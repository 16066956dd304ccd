"""The ``pscnn`` command."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from pscnn import __version__
from pscnn._extras import MissingExtraError
from pscnn.data import DataError

app = typer.Typer(
    help="Steerable networks that learn how much symmetry to keep.", no_args_is_help=True, rich_markup_mode=None
)
console = Console()
errors = Console(stderr=True)

Run = Annotated[Path, typer.Argument(help="A run's folder.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with data sets; PSCNN_DATA or a per-user cache by default.")]
Accelerator = Annotated[str, typer.Option(help="auto, cpu or gpu.")]


def _command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn expected failures into one message and a non-zero exit."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except KeyboardInterrupt:
            errors.print("interrupted", style="yellow")
            raise typer.Exit(130) from None
        except (MissingExtraError, DataError) as error:
            message = str(error)
        except Exception as error:
            if type(error).__name__ not in ("ConfigError", "RunError"):  # named to keep training's imports lazy
                raise
            message = str(error)
        _fail(message)

    return wrapped


def _fail(message: str) -> NoReturn:
    errors.print(f"error: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1)


def _with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one option per setting of any experiment; settings not given are left out."""
    from pscnn.training._config import settings

    known = settings()

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in known}
        return function(*args, settings={k: v for k, v in given.items() if v is not None}, **kwargs)

    own = [p for name, p in inspect.signature(function, eval_str=True).parameters.items() if name != "settings"]
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind | None, typer.Option(help=text)],
        )
        for name, (kind, text) in known.items()
    ]
    wrapped.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in [*own, *options]}
    return wrapped


@_command
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
            console.print(f"run: {folder}", highlight=False)
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
            console.print(f"stopped; {saved}. Continue: pscnn train --resume {folder}")
            raise
    _print_results(results)


def _train_together(folders: list[Path], data_dir: Path | None, accelerator: str) -> dict[Path, Any]:
    """Train runs at once with a table of their progress."""
    from rich.live import Live

    from pscnn import training
    from pscnn.report import density_figure

    def overview() -> Table:
        judged_by = training.read_config(folders[0]).judged_by[0]
        table = Table("run", "epoch", f"validation {judged_by}", box=None)
        for folder in folders:
            row = training.last_epoch(folder)
            cells = ("–", "–") if row is None else (str(row["epoch"] + 1), f"{row[f'validation/{judged_by}']:.4f}")
            table.add_row(folder.name, *cells)
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
        console.print("stopped; the last complete epoch of every run is saved. Continue:")
        for folder in folders:
            if folder not in done:
                console.print(f"  pscnn train --resume {folder}", highlight=False)
        raise


@app.command()
@_command
def evaluate(run: Run, data_dir: DataDir = None, accelerator: Accelerator = "auto") -> None:
    """Test the best epoch of a run again."""
    from pscnn import training

    _print_result(run, training.evaluate(run, data_dir, accelerator=accelerator))


@app.command("inspect")
@_command
def inspect_run(run: Run) -> None:
    """Show what each layer of a run kept."""
    from pscnn import likelihoods, training
    from pscnn.report import density_chart, summary

    loaded = training.load(run)
    model = loaded.model
    console.print(summary(model), highlight=False, soft_wrap=True)
    if likelihoods(model) and loaded.config.dimension == 2:
        console.print()
        console.print(density_chart(model), highlight=False, soft_wrap=True)


@app.command()
@_command
def quickstart(
    runs: Annotated[Path, typer.Option(help="Folder for runs.")] = Path("runs"),
    seed: Annotated[int, typer.Option(help="Seeds everything.")] = 0,
) -> None:
    """Train a plain, an equivariant and a partially equivariant network on bundled digits, and compare them."""
    from pscnn.report._quickstart import quickstart as run_quickstart

    run_quickstart(runs, seed, console)


@app.command()
@_command
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    out: Annotated[
        Path | None, typer.Option(help="The file; report.html in the first run's folder by default.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Write one HTML file about runs: results, densities, errors, curves, confusion. It needs no network to open."""
    from pscnn.report._html import html_report

    console.print(f"report: {html_report(runs, out, data_dir)}", highlight=False, soft_wrap=True)


@_command
def reproduce(
    what: Annotated[str, typer.Argument(help="A table or figure of the paper; 'list' names them.")],
    runs: Annotated[Path, typer.Option(help="Folder for runs; what is finished in it is not run again.")] = Path(
        "runs"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Runs per cell.")] = 5,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this row or column, or 'O(2)*'; can be given again.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and how long it may take.")] = False,
    known: Annotated[
        list[Path] | None, typer.Option(help="Take finished runs from this file of results --save; can be given again.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one per core by default.")] = None,
    engine: Annotated[str, typer.Option(help="local (processes) or ray (the machines of a Ray cluster).")] = "local",
    gpus: Annotated[float, typer.Option(min=0, help="With Ray: GPUs per run, such as 0.25.")] = 0,
    form: Annotated[str, typer.Option("--format", help="text, markdown, latex or csv.")] = "text",
    data_dir: DataDir = None,
    accelerator: Accelerator = "auto",
    *,
    settings: dict[str, Any],
) -> None:
    """Make tables and figures of the paper again, beside its numbers.

    Settings that are given replace the paper's in every run.
    """
    from pscnn import experiments
    from pscnn.report._pictures import check_drawable, draw_sheet
    from pscnn.report._sheets import FORMATS
    from pscnn.training import ConfigError

    if what in ("vectors", "vectors-3d"):
        if only or dry_run or known or form != "text" or set(settings) - {"epochs"}:
            raise ConfigError(f"{what} takes --runs, --seeds, --epochs and --workers only")
        _reproduce_vectors(what, runs / "vectors", seeds, settings.get("epochs", 100), workers)
        return
    if what == "list":
        table = Table("table", "what it compares", "runs", box=None)
        for name, make in experiments.SHEETS.items():
            table.add_row(name, make().title, str(len(make().runs(seeds))))
        for name, title in (("vectors", "Angles and norms of vectors"), ("vectors-3d", "The same in space")):
            table.add_row(name, title, "")
        console.print(table)
        return
    if what not in experiments.SHEETS:
        _fail(f"unknown table {what!r}: use one of list, vectors, vectors-3d, {', '.join(experiments.SHEETS)}")
    if form not in FORMATS:
        _fail(f"unknown format {form!r}: use one of {', '.join(FORMATS)}")
    sheet = experiments.SHEETS[what]().only(only or []).changed(settings)
    if sheet.picture is not None and form != "text":
        raise ConfigError(f"{what} is drawn, not printed: --format is for tables")
    configs = sheet.runs(seeds)
    store = experiments.Store(runs)
    if dry_run:
        with tempfile.TemporaryDirectory() as place:  # a plan changes nothing
            for file in known or []:
                experiments.take_runs(file, place)
            _show_plan(store, experiments.Store(place), configs, workers)
        return
    for file in known or []:
        errors.print(f"{file}: {experiments.take_runs(file, runs)} runs taken into {runs}", highlight=False)
    if sheet.picture is not None:
        check_drawable(sheet, store)  # before hours of training
    how = {"workers": workers, "data_dir": data_dir, "accelerator": accelerator, "engine": engine, "gpus": gpus}
    failed = _run_missing(store, configs, how)
    if sheet.picture is None:
        _print_table(sheet, sheet.fill(seeds, store.result), form)
    elif len(failed) < len(configs):
        for picture in draw_sheet(sheet, store, what, seeds, data_dir):
            console.print(f"drawn: {picture}", highlight=False, soft_wrap=True, markup=False)
    versions = {store.code(config) for config in configs if store.result(config) is not None}
    if len(versions) > 1:
        errors.print(f"these runs were made with different code: {', '.join(sorted(map(str, versions)))}")
    if settings:
        errors.print("not the paper's settings: " + ", ".join(f"{k} = {v}" for k, v in settings.items()), markup=False)
    for config in failed:
        why = store.failure(config) or "its process was killed"
        errors.print(f"failed: {store.folder(config)}: {why}", style="red", markup=False)
    if failed:
        _fail(f"{len(failed)} of {len(configs)} runs failed; the same command tries them again")


def _print_table(sheet: Any, filled: Any, form: str) -> None:
    from pscnn.report._sheets import sheet_rows, write_rows

    text = write_rows(sheet_rows(sheet, filled), form)
    if form == "text":
        console.print(f"{sheet.title}: mean ± standard deviation (runs) | the paper's", highlight=False)
    console.print(text, highlight=False, soft_wrap=True, markup=False, end="")
    if form == "text" and "*" in text:
        console.print("* more than two of the paper's standard deviations away", highlight=False)


def _show_plan(store: Any, known: Any, configs: list[Any], workers: int | None) -> None:
    """Every run with its state, and an estimate of the time that is left; in ``known`` are finished runs."""
    table = Table("run", "state", "epochs", "seconds, estimated", box=None)
    left, unknown = 0.0, 0
    states: dict[str, int] = {}
    for config in configs:
        state, seconds = known.state(config), store.estimate(config)
        if state != "finished":
            state = store.state(config)
        states[state] = states.get(state, 0) + 1
        if state != "finished":
            left, unknown = left + (seconds or 0), unknown + (seconds is None)
        estimated = "–" if seconds is None else f"{seconds:.0f}"
        table.add_row(store.folder(config).name, state, str(config.epochs), estimated)
    console.print(table)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    console.print(f"{len(configs)} runs: {counts}", highlight=False)
    if unknown:
        console.print(f"no finished run tells how long {unknown} of them take", highlight=False)
    if left:
        workers = workers or os.cpu_count() or 1
        hours = left / 3600 / workers
        console.print(f"about {hours:.1f} hours for the others with {workers} at a time", highlight=False)


def _run_missing(store: Any, configs: list[Any], how: dict[str, Any]) -> list[Any]:
    """Run what is not finished, with those under way on the screen; the runs that failed."""
    from rich.console import Group
    from rich.live import Live

    from pscnn import experiments, training

    _make(store.root)
    failed: list[Any] = []
    progress = _progress()
    bar = progress.add_task("", total=len(configs))

    def overview() -> Any:
        table = Table("under way", "epoch", "validation", box=None)
        for config in configs:
            folder = store.folder(config)
            if (folder / "config.yaml").exists() and not (folder / "result.json").exists():
                row, judged_by = training.last_epoch(folder), config.judged_by[0]
                cells = ("0", "–") if row is None else (str(row["epoch"] + 1), f"{row[f'validation/{judged_by}']:.4f}")
                table.add_row(folder.name, f"{cells[0]} of {config.epochs}", f"{judged_by} {cells[1]}")
        return Group(table, progress) if table.rows else progress

    def done(config: Any, result: Any) -> None:
        if isinstance(result, BaseException):
            failed.append(config)
        text = f"{len(failed)} failed; " if failed else ""
        progress.update(bar, advance=1, description=f"{text}last: {store.folder(config).name}")

    with Live(get_renderable=overview, console=errors, refresh_per_second=1):
        experiments.run_missing(configs, store.root, **how, on_done=done)
    return failed


def _make(folder: Path, option: str = "--runs") -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _fail(f"cannot make the folder {folder}: {error.strerror}. Choose another with {option}")


def _progress() -> Any:
    """A bar, how many of how many, the time, and a word on the last; beside what is printed, not in it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=errors)


def _reproduce_vectors(what: str, folder: Path, seeds: int, epochs: int, workers: int | None) -> None:
    _make(folder)
    from pscnn import experiments
    from pscnn.report._vectors import text_table, vectors_report

    make = experiments.vector_tables if what == "vectors" else experiments.space_tables
    tables = make(seeds=seeds, epochs=epochs)
    found = experiments.configurations(tables)
    with _progress() as progress:
        bar = progress.add_task(f"{seeds} seeds each", total=len(found))

        def done(config: experiments.VectorConfig, result: dict[str, Any]) -> None:
            progress.update(bar, advance=1, description=f"last: {config.key}")

        results = experiments.run_all(found, folder, workers=workers, on_done=done)
    for table in tables.values():
        console.print(text_table(table, results), highlight=False, soft_wrap=True)
    console.print(f"mean (standard deviation) of {seeds}", highlight=False)
    if what == "vectors":
        console.print("* more than two of the paper's standard deviations away", highlight=False)
    files = vectors_report(tables, results, folder, folder / f"report-{what}")
    console.print(f"tables and pictures: {files[0].parent}", highlight=False)


@app.command()
@_command
def results(
    runs: Annotated[Path, typer.Argument(help="Folder with runs, at any depth; or a file of --save.")] = Path("runs"),
    where: Annotated[
        list[str] | None, typer.Option(help="Only runs with this setting, such as group=O(2); can be given again.")
    ] = None,
    compare: Annotated[str | None, typer.Option(help="Mean and spread for each value of this setting.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown, latex or csv.")] = "text",
    save: Annotated[Path | None, typer.Option(help="Write the runs into this JSON file; never replaced.")] = None,
) -> None:
    """List finished runs with their results, choose among them, compare them, export them."""
    from pscnn import experiments
    from pscnn.report._sheets import FORMATS, found_runs, run_rows, write_rows

    if form not in FORMATS:
        _fail(f"unknown format {form!r}: use one of {', '.join(FORMATS)}")
    if not runs.exists():
        _fail(f"there is no {runs}")
    pairs = [condition.partition("=") for condition in where or []]
    for name, sign, _ in pairs:
        if not (name and sign):
            _fail("--where needs a setting and its value, such as --where group=O(2)")
    with tempfile.TemporaryDirectory() as place:
        folder = runs if runs.is_dir() else Path(place)
        if runs.is_file():
            experiments.take_runs(runs, folder)
        found = found_runs(folder, {name: value for name, _, value in pairs})
        if not found:
            _fail(f"no finished run in {runs}" + (" has these settings" if pairs else ""))
        if save is not None:
            experiments.save_runs([own for own, _, _ in found], save)
    if runs.is_file():
        found = [(own.relative_to(folder), config, result) for own, config, result in found]
    console.print(write_rows(run_rows(found, compare), form), highlight=False, soft_wrap=True, markup=False, end="")


@app.command("benchmark-symmetry")
@_command
def benchmark_symmetry(
    only: Annotated[list[str] | None, typer.Option(help="Names of tasks; all by default.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Networks per task.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 100,
    vary: Annotated[str | None, typer.Option(help="Compare: alignment, kl, bandlimit or densities.")] = None,
) -> None:
    """Learn tasks whose symmetries are known, and score how well the learnt densities tell them."""
    from pscnn import experiments

    unknown = sorted(set(only or ()) - set(experiments.SYMMETRY_TASKS))
    if unknown:
        _fail(f"unknown task {unknown[0]!r}: use one of {', '.join(experiments.SYMMETRY_TASKS)}")
    if vary is not None and vary not in experiments.SYMMETRY_VARIATIONS:
        _fail(f"cannot vary {vary!r}: use one of {', '.join(experiments.SYMMETRY_VARIATIONS)}")
    variants = experiments.SYMMETRY_VARIATIONS[vary] if vary else {"default": {}}
    heads = ("task", *([vary] if vary else []), "kept by", "AUC", "variation", "error")
    table = Table(*heads, box=None)
    for name in only or experiments.SYMMETRY_TASKS:
        for label, settings in variants.items():
            with console.status(f"{name}: {seeds} networks"):
                config = experiments.SymmetryConfig(seeds=seeds, epochs=epochs, **settings)
                scores, found, _ = experiments.run_symmetry(name, config)
            auc = [score.auc for score in scores if score.auc is not None]
            table.add_row(
                name,
                *([label] if vary else []),
                experiments.SYMMETRY_TASKS[name].words,
                f"{statistics.mean(auc):.3f} [{min(auc):.3f}]" if auc else "–",
                f"{statistics.mean(score.total_variation for score in scores):.3f}",
                f"{statistics.median(found):.3f}",
            )
    console.print(table)
    text = f"{seeds} seeds: mean [lowest] AUC, mean total variation, median error"
    console.print(text, highlight=False, markup=False)


@app.command()
@_command
def discover(
    data: Annotated[Path, typer.Argument(help="Folder with one sub-folder per class, .npz, or .csv with paths.")],
    group: Annotated[str | None, typer.Option(help="The group H; O(2) for images, O(3) for volumes.")] = None,
    bandlimit: Annotated[int, typer.Option(min=0, help="L, the highest frequency of the densities.")] = 2,
    minutes: Annotated[float, typer.Option(min=0.1, help="Budget for training all networks.")] = 10.0,
    seeds: Annotated[int, typer.Option(min=1, help="Networks of each kind.")] = 3,
    size: Annotated[
        int | None, typer.Option(help="Side length: 28 or 56, volumes 16 or 28; by default by the data.")
    ] = None,
    width: Annotated[
        float | None, typer.Option(min=0.01, help="Of the networks; 0.25 for images, 1 for volumes.")
    ] = None,
    split_seed: Annotated[int, typer.Option(min=0, help="Of the split, where the data do not say it.")] = 0,
    regression: Annotated[bool | None, typer.Option(help="Take the targets of a table as numbers, or not.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for runs and report; discover/NAME by default.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Networks that train at once; one per core.")] = None,
    accelerator: Accelerator = "auto",
) -> None:
    """Learn which symmetries a task has: train three kinds of networks on your data, and compare them."""
    import os
    import time

    import torch

    from pscnn import experiments
    from pscnn._extras import require
    from pscnn.data import own
    from pscnn.report._discover import layer_rows, read_discovery, score_rows, words, write_discovery

    for module in ("matplotlib", "plotly"):  # said before minutes of training, not after
        require(module, "plots", "The report")
    folder = out or Path("discover") / data.stem
    _make(folder, "--out")
    try:
        with _progress() as progress:
            bar = progress.add_task("reading", total=None)
            path = experiments.prepared_file(
                data,
                folder.absolute(),
                size=size,
                seed=split_seed,
                regression=regression,
                on_read=lambda done, of: progress.update(bar, completed=done, total=of),
            )
    except DataError:
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()
        raise
    about = own.read_about(path)
    train_count, validation_count, test_count = about.counts
    kind = "numbers" if about.regression else f"{len(about.names)} classes"
    console.print(
        f"{'×'.join([str(about.size)] * about.dimension)}, {about.channels} channels, {kind}: {train_count} training, "
        f"{validation_count} validation, {test_count} test examples",
        highlight=False,
    )
    for note in about.notes:
        console.print(note, highlight=False)
    on_gpu = accelerator != "cpu" and torch.cuda.is_available()
    count = workers or os.cpu_count() or 1
    chosen = group or ("O(2)" if about.dimension == 2 else "O(3)")
    configs = experiments.discover_plan(
        path, folder, group=chosen, bandlimit=bandlimit, minutes=minutes, seeds=seeds, width=width, workers=count,
        device="cuda" if on_gpu else "cpu",
    )  # fmt: skip
    console.print(f"{len(configs)} networks, {configs[0].epochs} epochs each", highlight=False)
    store = experiments.Store(folder)
    how = {"workers": count, "accelerator": "gpu" if on_gpu else "cpu"}
    failed: list[Any] = []
    began = time.monotonic()
    for seed in range(seeds):  # all kinds of one seed, then the next: whatever is finished can be compared
        spent = (time.monotonic() - began) / 60
        if seed and spent * (seed + 1) / seed > 1.1 * minutes:
            console.print(
                f"no time for more than {seed} of {seeds} seeds: {spent:.1f} minutes are spent", highlight=False
            )
            break
        try:
            failed += _run_missing(store, [config for config in configs if config.seed == seed], how)
        except KeyboardInterrupt:
            console.print("stopped; the same command goes on from the last complete epochs")
            raise
    for config in failed:
        why = store.failure(config) or "its process was killed"
        errors.print(f"{store.folder(config).name}: {why}", style="red", markup=False)
    found = read_discovery(configs, store)
    for rows in (score_rows(found), layer_rows(found, everything=False)):
        table = Table(*rows[0], box=None)
        for row in rows[1:]:
            table.add_row(*row)
        console.print(table)
    for text in words(found):
        console.print(text, highlight=False, markup=False)
    console.print(f"report: {write_discovery(found, folder / 'report.html')}", highlight=False, soft_wrap=True)
    best = found.runs[found.choice.method][0]
    console.print(f"use it: pscnn predict {best} FILES, pscnn export {best}", highlight=False, soft_wrap=True)
    if failed:
        _fail(f"{len(failed)} networks failed; see above")


@app.command()
@_command
def predict(
    run: Run,
    files: Annotated[list[Path], typer.Argument(help="Images, or .npy volumes; a folder stands for those in it.")],
    out: Annotated[Path | None, typer.Option(help="CSV file for the answers; never replaced.")] = None,
) -> None:
    """Ask a trained network about files."""
    import csv

    from pscnn import training

    if out is not None and out.exists():
        _fail(f"{out} exists; choose another file with --out")
    rows: list[dict[str, Any]] = []
    refused = 0
    for file, answer in training.answers(run, files):
        if isinstance(answer, DataError):
            refused += 1
            errors.print(f"error: {answer}", style="red", markup=False, highlight=False, soft_wrap=True)
            continue
        rows.append({"file": str(file), **answer})
        said = ", ".join(v if isinstance(v, str) else f"{v:.4g}" for v in answer.values())
        console.print(f"{file}: {said}", highlight=False, markup=False, soft_wrap=True)
    if out is not None and rows:
        with out.open("w", newline="") as handle:
            writer = csv.DictWriter(handle, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    if refused or not rows:
        _fail(f"{refused} files could not be read" if refused else "there are no files to read")


@app.command()
@_command
def export(
    run: Run,
    kind: Annotated[str, typer.Option("--format", help="torch or onnx.")] = "torch",
    out: Annotated[Path | None, typer.Option(help="The file; model.pt2 or model.onnx in the run's folder.")] = None,
) -> None:
    """Write a trained network as a file that is used without pscnn; its outputs are checked."""
    from pscnn import training

    console.print(f"written: {training.export_run(run, out, kind)}", highlight=False, soft_wrap=True)


@app.command()
@_command
def bench(
    group: Annotated[list[str] | None, typer.Option(help="Groups, of the plane or of space; O(2) by default.")] = None,
    precision: Annotated[list[str] | None, typer.Option(help="fp32, tf32, bf16; fp32 by default.")] = None,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Compiled too, not only eager.")] = False,
    batch: Annotated[int | None, typer.Option(min=2, help="Per step; 256 or 32 volumes, on a CPU 16 or 2.")] = None,
    width: Annotated[float | None, typer.Option(min=0.01, help="Of the networks; 1 for images, 6 for volumes.")] = None,
    size: Annotated[int | None, typer.Option(help="Side length; 56 for images, 28 for volumes.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda if there is one.")] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Timings of each network.")] = 10,
    out: Annotated[Path | None, typer.Option(help="JSON file for all timings; never replaced.")] = None,
) -> None:
    """Compare the speed of steerable networks with that of their plain twin, which has free layers of the same size."""
    import json

    import torch

    from pscnn import experiments, models
    from pscnn.groups import parse

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        _fail(f"cannot measure on {device!r}: use cpu{', or cuda' if torch.cuda.is_available() else ''}")
    if out is not None and out.exists():
        _fail(f"{out} exists; choose another file with --out")
    cases = []
    for name in group or ["O(2)"]:
        try:
            plane = parse(name).dimension == 2
        except ValueError as error:
            _fail(str(error))
        sizes = models.DIGIT_SIZES if plane else models.VOLUME_SIZES
        if size is not None and size not in sizes:
            _fail(f"networks over {name} exist for side lengths {', '.join(map(str, sizes))}, got {size}")
        usual = (256 if plane else 32) if device == "cuda" else (16 if plane else 2)
        for kind in precision or ["fp32"]:
            if kind not in ("fp32", "tf32", "bf16"):
                _fail(f"unknown precision {kind!r}: use fp32, tf32 or bf16")
            for fast in (False, True) if compiled else (False,):
                own = (width or (1.0 if plane else 6.0), size or (56 if plane else 28))
                cases.append(experiments.BenchCase(name, kind, fast, batch or usual, *own))
    heads = ("network", "training step", "ratio", "inference", "ratio", "peak memory", "construction")
    results = []
    for case in cases:
        with console.status(f"{case.group}, {case.precision}{', compiled' if case.compile else ''}"):
            result = experiments.run_bench(case, device, rounds)
        results.append(result)
        title = f"{case.group}, batch {case.batch}, {case.precision}, {'compiled' if case.compile else 'eager'}"
        table = Table(*heads, title=title, title_justify="left", box=None)
        for name, found in result["networks"].items():
            if "error" in found:
                table.add_row(name, found["error"])
                continue
            cells = []
            for kind in ("train_ms", "infer_ms"):
                low, middle, high = min(found[kind]), statistics.median(found[kind]), max(found[kind])
                cells += [f"{middle:.2f} ms [{low:.2f}-{high:.2f}]", f"{experiments.ratio(result, name, kind):.3f}"]
            memory = f"{found['peak_mib']} MiB" if "peak_mib" in found else "–"
            table.add_row(name, *cells, memory, f"{found['construction_s']:.2f} s")
        console.print(table)
    machine = experiments.machine(device)
    console.print(f"median [range] of {rounds} timings on {machine['device']}", highlight=False, markup=False)
    if out is not None:
        from pscnn._files import write_whole

        try:
            write_whole(out, json.dumps({"machine": machine, "results": results}, indent=1) + "\n")
        except OSError as error:
            _fail(f"cannot write {out}: {error.strerror}")


@app.command("table")
@_command
def print_table(
    what: Annotated[str, typer.Argument(help="params: how many parameters networks have.")],
    dataset: Annotated[str, typer.Option(help="smoke or jetflow.")] = "smoke",
) -> None:
    """Print a table that needs no training, beside the paper's numbers."""
    from pscnn import experiments

    if what != "params":
        _fail(f"unknown table {what!r}: use params")
    if dataset not in experiments.FLOW_DATASETS:
        _fail(f"unknown data set {dataset!r}: use one of {', '.join(experiments.FLOW_DATASETS)}")
    table = Table("method", "parameters", "paper", "", box=None)
    for row in experiments.flow_sizes(dataset):
        table.add_row(row.method, f"{row.parameters:,}", row.paper, row.remark)
    console.print(table)


data_app = typer.Typer(help="Data sets that are made, not downloaded.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@data_app.callback()
def _data() -> None:
    """Keep ``prepare`` a command of its own, although it is the only one."""


@data_app.command("prepare")
@_command
def prepare_data(
    what: Annotated[str, typer.Argument(help="smoke.")],
    data_dir: DataDir = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Make a data set in the data folder. What is there already is kept; an interrupted preparation can be repeated."""
    import torch
    from rich.progress import Progress

    from pscnn.data import smoke

    if what != "smoke":
        _fail(f"unknown data set {what!r}: use smoke")
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        _fail(f"cannot simulate on {device!r}: use cpu{', or cuda' if torch.cuda.is_available() else ''}")
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("simulating", total=None)
        folder = smoke.prepare(
            data_dir, device=device, on_step=lambda done, total: progress.update(bar, completed=done, total=total)
        )
    console.print(f"smoke: {len(smoke.TASKS)} simulations in {folder}", highlight=False, soft_wrap=True)


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        console.print(f"pscnn {__version__}", highlight=False)
        raise typer.Exit


def _print_results(results: dict[Path, dict[str, Any]]) -> None:
    if len(results) == 1:
        _print_result(*results.popitem())
        return
    first = next(iter(results.values()))
    names = [name for name in first if name == "test_accuracy" or name.endswith("_rmse")]
    table = Table("run", *(name.replace("_", " ") for name in names), "seconds", box=None)
    for folder, result in results.items():
        table.add_row(str(folder), *(f"{result[name]:.4f}" for name in names), f"{result['seconds']:.0f}")
    console.print(table)
    for name in names:
        scores = [result[name] for result in results.values()]
        text = f"{name.replace('_', ' ')} {statistics.mean(scores):.4f}"
        console.print(f"{text}, standard deviation {statistics.stdev(scores):.4f}", highlight=False)


def _print_result(folder: Path, result: dict[str, Any]) -> None:
    table = Table(show_header=False, box=None)
    for name, value in result.items():
        table.add_row(name.replace("_", " "), f"{value:.4f}" if isinstance(value, float) else str(value))
    console.print(table)
    console.print(f"saved in {folder}", highlight=False)
    if any(isinstance(value, float) and not math.isfinite(value) for value in result.values()):
        errors.print("some results are not numbers: training diverged. Use a smaller --lr", style="red")


app.command("train")(_with_settings(train))
app.command("reproduce")(_with_settings(reproduce))

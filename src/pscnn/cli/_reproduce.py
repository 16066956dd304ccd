"""Many runs: the paper's tables and figures, and what is known of any runs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pscnn.cli._app import (
    Accelerator,
    DataDir,
    app,
    command,
    console,
    errors,
    fail,
    last_cells,
    make_folder,
    progress_bar,
    say,
    with_settings,
)


@app.command()
@with_settings
@command
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
        fail(f"unknown table {what!r}: use one of list, vectors, vectors-3d, {', '.join(experiments.SHEETS)}")
    if form not in FORMATS:
        fail(f"unknown format {form!r}: use one of {', '.join(FORMATS)}")
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
    failed = run_missing(store, configs, how)
    if sheet.picture is None:
        _print_table(sheet, sheet.fill(seeds, store.result), form)
    elif len(failed) < len(configs):
        for picture in draw_sheet(sheet, store, what, seeds, data_dir):
            say(f"drawn: {picture}")
    versions = {store.code(config) for config in configs if store.result(config) is not None}
    if len(versions) > 1:
        errors.print(f"these runs were made with different code: {', '.join(sorted(map(str, versions)))}")
    if settings:
        errors.print("not the paper's settings: " + ", ".join(f"{k} = {v}" for k, v in settings.items()), markup=False)
    for config in failed:
        why = store.failure(config) or "its process was killed"
        errors.print(f"failed: {store.folder(config)}: {why}", style="red", markup=False)
    if failed:
        fail(f"{len(failed)} of {len(configs)} runs failed; the same command tries them again")


def _print_table(sheet: Any, filled: Any, form: str) -> None:
    from pscnn.report._sheets import sheet_rows, write_rows

    text = write_rows(sheet_rows(sheet, filled), form)
    if form == "text":
        say(f"{sheet.title}: mean ± standard deviation (runs) | the paper's")
    say(text, end="")
    if form == "text" and "*" in text:
        say("* more than two of the paper's standard deviations away")


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
    say(f"{len(configs)} runs: {counts}")
    if unknown:
        say(f"no finished run tells how long {unknown} of them take")
    if left:
        workers = workers or os.cpu_count() or 1
        hours = left / 3600 / workers
        say(f"about {hours:.1f} hours for the others with {workers} at a time")


def run_missing(store: Any, configs: list[Any], how: dict[str, Any]) -> list[Any]:
    """Run what is not finished, with those under way on the screen; the runs that failed."""
    from rich.console import Group
    from rich.live import Live

    from pscnn import experiments

    make_folder(store.root)
    failed: list[Any] = []
    progress = progress_bar()
    bar = progress.add_task("", total=len(configs))

    def overview() -> Any:
        table = Table("under way", "epoch", "validation", box=None)
        for config in configs:
            folder = store.folder(config)
            if (folder / "config.yaml").exists() and not (folder / "result.json").exists():
                judged_by = config.judged_by[0]
                epoch, score = last_cells(folder, judged_by)
                table.add_row(folder.name, f"{epoch} of {config.epochs}", f"{judged_by} {score}")
        return Group(table, progress) if table.rows else progress

    def done(config: Any, result: Any) -> None:
        if isinstance(result, BaseException):
            failed.append(config)
        text = f"{len(failed)} failed; " if failed else ""
        progress.update(bar, advance=1, description=f"{text}last: {store.folder(config).name}")

    with Live(get_renderable=overview, console=errors, refresh_per_second=1):
        experiments.run_missing(configs, store.root, **how, on_done=done)
    if not errors.is_terminal:
        errors.print()  # the bar has not ended its line
    return failed


def _reproduce_vectors(what: str, folder: Path, seeds: int, epochs: int, workers: int | None) -> None:
    make_folder(folder)
    from pscnn import experiments
    from pscnn.report._vectors import text_table, vectors_report

    make = experiments.vector_tables if what == "vectors" else experiments.space_tables
    tables = make(seeds=seeds, epochs=epochs)
    found = experiments.configurations(tables)
    with progress_bar() as progress:
        bar = progress.add_task(f"{seeds} seeds each", total=len(found))

        def done(config: experiments.VectorConfig, result: dict[str, Any]) -> None:
            progress.update(bar, advance=1, description=f"last: {config.key}")

        results = experiments.run_all(found, folder, workers=workers, on_done=done)
    for table in tables.values():
        say(text_table(table, results))
    say(f"mean (standard deviation) of {seeds}")
    if what == "vectors":
        say("* more than two of the paper's standard deviations away")
    files = vectors_report(tables, results, folder, folder / f"report-{what}")
    say(f"tables and pictures: {files[0].parent}")


@app.command()
@command
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
        fail(f"unknown format {form!r}: use one of {', '.join(FORMATS)}")
    if not runs.exists():
        fail(f"there is no {runs}")
    pairs = [condition.partition("=") for condition in where or []]
    for name, sign, _ in pairs:
        if not (name and sign):
            fail("--where needs a setting and its value, such as --where group=O(2)")
    with tempfile.TemporaryDirectory() as place:
        folder = runs if runs.is_dir() else Path(place)
        if runs.is_file():
            experiments.take_runs(runs, folder)
        found = found_runs(folder, {name: value for name, _, value in pairs})
        if not found:
            fail(f"no finished run in {runs}" + (" has these settings" if pairs else ""))
        if save is not None:
            experiments.save_runs([own for own, _, _ in found], save)
    if runs.is_file():
        found = [(own.relative_to(folder), config, result) for own, config, result in found]
    say(write_rows(run_rows(found, compare), form), end="")


@app.command("table")
@command
def print_table(
    what: Annotated[str, typer.Argument(help="params: how many parameters networks have.")],
    dataset: Annotated[str, typer.Option(help="smoke or jetflow.")] = "smoke",
) -> None:
    """Print a table that needs no training, beside the paper's numbers."""
    from pscnn import experiments

    if what != "params":
        fail(f"unknown table {what!r}: use params")
    if dataset not in experiments.FLOW_DATASETS:
        fail(f"unknown data set {dataset!r}: use one of {', '.join(experiments.FLOW_DATASETS)}")
    table = Table("method", "parameters", "paper", "", box=None)
    for row in experiments.flow_sizes(dataset):
        table.add_row(row.method, f"{row.parameters:,}", row.paper, row.remark)
    console.print(table)

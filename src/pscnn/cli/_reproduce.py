"""Tables and figures of the paper, and what is known of any runs."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pscnn._words import duration
from pscnn.cli._app import (
    Accelerator,
    DataDir,
    Json,
    Runs,
    app,
    command,
    complain,
    console,
    errors,
    fail,
    say,
    say_json,
)
from pscnn.cli._many import complete_runs
from pscnn.cli._settings import NamedCommands, with_settings

Format = Annotated[str, typer.Option("--format", help="text, markdown, latex or csv.")]


class _Sheets(NamedCommands):
    def list_commands(self, ctx: Any) -> list[str]:
        from pscnn.experiments import SHEETS

        return ["list", *SHEETS]

    def make(self, name: str) -> Callable[..., Any]:
        if name == "list":
            return command(_list)
        known = self.list_commands(None)
        if name not in known:
            fail(f"unknown table {name!r}: use one of {', '.join(known)}", 2)
        sheets = _sheets(name)
        types = {type(one): None for sheet in sheets for one, _ in sheet.cells.values()}
        function = with_settings(command(_reproduce), [*types])
        function.__doc__ = f"{sheets[0].title}. Settings given as options replace the paper's in every run."
        return function


reproduce_app = typer.Typer(
    cls=_Sheets,
    help="Reproduce tables and figures of the paper; pscnn reproduce list names them.",
    no_args_is_help=True,
)
app.add_typer(reproduce_app, name="reproduce")


@reproduce_app.callback()
def _reproduce_callback() -> None:
    """Keep the tables commands of their own."""


def _sheets(name: str) -> list[Any]:
    from pscnn.experiments import SHEETS

    found = SHEETS[name]()
    return found if isinstance(found, list) else [found]


def _list(seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs per cell.")] = 5) -> None:
    """List the tables and figures, and the number of runs each needs."""
    from pscnn.experiments import SHEETS

    table = Table("table", "what it compares", "runs", box=None)
    for name in SHEETS:
        sheets = _sheets(name)
        runs = {one for sheet in sheets for one in sheet.runs(seeds)}
        more = f" (and {len(sheets) - 1} more)" if len(sheets) > 1 else ""
        table.add_row(name, sheets[0].title + more, str(len(runs)))
    console.print(table)


def _reproduce(
    ctx: typer.Context,
    runs: Runs = Path("runs"),
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs per cell.")] = 5,
    only: Annotated[list[str] | None, typer.Option(help="Only this row or column, or 'O(2)*'; repeatable.")] = None,
    run: Annotated[bool, typer.Option(help="Run what is missing, or only show what is there.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and how long it takes.")] = False,
    known: Annotated[list[Path] | None, typer.Option(help="Import runs from a results file; repeatable.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of the engine local; one per core by default, 6 on a GPU.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local (processes) or ray (a Ray cluster).")] = "local",
    gpus: Annotated[float, typer.Option(min=0, help="With Ray: GPUs per run, such as 0.25.")] = 0,
    form: Format = "text",
    data_dir: DataDir = None,
    accelerator: Accelerator = "auto",
    *,
    settings: dict[str, Any],
) -> None:
    from pscnn import experiments, report, training

    name = str(ctx.info_name)
    if form not in report.FORMATS:
        fail(f"unknown format {form!r}: use one of {', '.join(report.FORMATS)}")
    training.check_engine(engine, workers, gpus)
    sheets = _sheets(name)
    experiments.check_words(sheets, only or [])
    experiments.check_settings(sheets, settings)
    sheets = [sheet.changed(settings) for sheet in experiments.select(sheets, only or [])]
    tables, figures = ([s for s in sheets if (s.picture is None) == plain] for plain in (True, False))
    if not tables and form != "text":
        raise training.ConfigError(f"{name} is a figure: --format applies only to tables")
    wanted = list(dict.fromkeys(one for sheet in sheets for one in sheet.runs(seeds)))
    if dry_run or not run:  # a look changes nothing
        with tempfile.TemporaryDirectory() as place:
            for file in known or []:
                experiments.take_runs(file, place)
            store = training.Store(runs, archive=place)
            if dry_run:
                _show_plan(store, wanted, workers or training.usual_workers(accelerator))
            else:
                _show(store, tables, figures, name, seeds, form, data_dir)
                _say_what_differs(store, wanted, settings)
        return
    store = training.Store(runs)
    for file in known or []:
        errors.print(f"{file}: {experiments.take_runs(file, runs)} runs imported into {runs}")
    for sheet in figures:
        report.check_drawable(sheet, store)  # before hours of training
    how = {"workers": workers, "data_dir": data_dir, "accelerator": accelerator, "engine": engine, "gpus": gpus}
    failed = complete_runs(wanted, store, **how)
    _show(store, tables, figures if len(failed) < len(wanted) else [], name, seeds, form, data_dir)
    _say_what_differs(store, wanted, settings)
    if failed:
        fail(f"{len(failed)} of {len(wanted)} runs failed; run the same command to try them again")


def _show(
    store: Any, tables: list[Any], figures: list[Any], name: str, seeds: int, form: str, data_dir: Path | None
) -> None:
    """Print the tables, and draw the figures of which there is something."""
    from pscnn import report

    for number, sheet in enumerate(tables):
        if number and form == "markdown":
            say("")  # or the tables would be one
        _print_table(sheet, sheet.fill(seeds, store.result), form, titled=len(tables) > 1)
    if drawn := [sheet for sheet in figures if _can_be_drawn(sheet, store, seeds)]:
        for picture in report.draw_sheets(drawn, store, name, seeds, data_dir):
            (say if form == "text" else errors.print)(f"figure: {picture}")


def _can_be_drawn(sheet: Any, store: Any, seeds: int) -> bool:
    """Whether there is something to draw; if not, why is said."""
    from pscnn import report, training

    if all(store.result(one) is None for one in sheet.runs(seeds)):
        return False
    try:
        report.check_drawable(sheet, store)
    except training.RunError as error:
        errors.print(f"no figure of {sheet.title!r}: {error}")
        return False
    return True


def _say_what_differs(store: Any, wanted: list[Any], settings: dict[str, Any]) -> None:
    versions = {store.code(one) for one in wanted if store.result(one) is not None}
    if len(versions) > 1:
        errors.print(f"warning: different versions of pscnn made these runs: {', '.join(sorted(map(str, versions)))}")
    if settings:
        text = ", ".join(f"{name} = {value}" for name, value in settings.items())
        errors.print(f"settings that differ from the paper's: {text}")


def _print_table(sheet: Any, filled: Any, form: str, titled: bool) -> None:
    from pscnn.report import sheet_rows, write_rows

    rows = sheet_rows(sheet, filled)
    if titled and form != "text":
        rows[0][0] = sheet.title
    text = write_rows(rows, form)
    if form == "text":
        say(f"{sheet.title}: mean ± standard deviation (runs)" + (" | the paper's" if sheet.paper else ""))
    say(text, end="")
    if form == "text" and "*" in text:
        say("* differs from the paper by more than two of its standard deviations")


def _show_plan(store: Any, wanted: list[Any], workers: int) -> None:
    """Every run with its state, and an estimate of the time that is left."""
    table = Table("run", "state", "epochs", "estimated seconds", box=None)
    left: list[float] = []
    unknown = 0
    states: dict[str, int] = {}
    errors.print(f"looking for {len(wanted)} runs")
    for one in wanted:
        state, seconds = store.state(one), store.estimate(one)
        states[state] = states.get(state, 0) + 1
        if state != "finished" and seconds is None:
            unknown += 1
        elif state != "finished":
            left.append(seconds)
        estimated = "–" if seconds is None else f"{seconds:.0f}"
        table.add_row(store.folder(one).name, state, str(one.epochs), estimated)
    console.print(table)
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    say(f"{len(wanted)} runs: {counts}")
    if unknown:
        say(f"no time estimate for {unknown} of them: no similar run is finished")
    if left:
        say(f"estimated time: {duration(sum(left) / workers)}, {workers} runs at a time")


@app.command()
@command
def results(
    runs: Annotated[Path, typer.Argument(help="Folder with runs, at any depth, or a results file.")] = Path("runs"),
    where: Annotated[list[str] | None, typer.Option(help="Only runs with this, as group=O(2); repeatable.")] = None,
    compare: Annotated[str | None, typer.Option(help="Mean and spread of seeds, per value of this setting.")] = None,
    form: Format = "text",
    save: Annotated[Path | None, typer.Option(help="Write a results file (JSON); never overwrites.")] = None,
    as_json: Json = False,
) -> None:
    """List, filter, compare and export finished runs with their results."""
    from pscnn import experiments, report

    if form not in report.FORMATS:
        fail(f"unknown format {form!r}: use one of {', '.join(report.FORMATS)}")
    if not runs.exists():
        fail(f"{runs} does not exist")
    pairs = [condition.partition("=") for condition in where or []]
    for name, sign, _ in pairs:
        if not (name and sign):
            fail("--where needs a setting and a value, such as --where group=O(2)")
    with tempfile.TemporaryDirectory() as place:
        folder = runs if runs.is_dir() else Path(place)
        if runs.is_file():
            experiments.take_runs(runs, folder)
        found = report.finished_runs(folder, {name: value for name, _, value in pairs}, complain)
        if not found:
            fail(f"no finished run in {runs}" + (" has these settings" if pairs else ""))
        if save is not None:
            experiments.save_runs([path for path, _, _ in found], save)
    if runs.is_file():
        found = [(path.relative_to(folder), values, result) for path, values, result in found]
    if as_json:
        if compare is not None or form != "text":
            fail("--json lists the runs themselves: remove --compare and --format", 2)
        say_json([{"run": str(path), "settings": values, "result": result} for path, values, result in found])
        return
    say(report.write_rows(report.run_rows(found, compare), form), end="")


@app.command("table")
@command
def print_table(
    what: Annotated[str, typer.Argument(help="Table: params, the numbers of parameters of networks.")],
    dataset: Annotated[str, typer.Option(help="smoke, jetflow or smoke-bandlimit, over SO(2).")] = "smoke",
) -> None:
    """Print a table that needs no training, with the paper's numbers."""
    from pscnn import experiments

    if what != "params":
        fail(f"unknown table {what!r}: use params")
    if dataset not in experiments.FLOW_DATASETS:
        fail(f"unknown data set {dataset!r}: use one of {', '.join(experiments.FLOW_DATASETS)}")
    table = Table("method", "parameters", "paper", "", box=None)
    for row in experiments.flow_sizes(dataset):
        table.add_row(row.method, f"{row.parameters:,}", row.paper, row.remark)
    console.print(table)

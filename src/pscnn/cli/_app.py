"""The application, and what its commands share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from pscnn import PscnnError, __version__

if TYPE_CHECKING:
    from pscnn.training import Settings, Store

app = typer.Typer(
    help="Steerable networks that learn how much symmetry to keep.", no_args_is_help=True, rich_markup_mode=None
)
console = Console()
errors = Console(stderr=True)

Run = Annotated[Path, typer.Argument(help="Folder of a run.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with data sets; PSCNN_DATA or a per-user cache by default.")]
Accelerator = Annotated[str, typer.Option(help="auto, cpu or gpu.")]


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn expected failures into one message and a non-zero exit."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except KeyboardInterrupt:
            errors.print("interrupted", style="yellow")
            raise typer.Exit(130) from None
        except PscnnError as error:
            fail(str(error))

    return wrapped


def say(text: str, end: str = "\n") -> None:
    """Print text as it is: a path in it is not coloured, broken into lines or taken for markup."""
    console.print(text, highlight=False, markup=False, soft_wrap=True, end=end)


def complain(message: str) -> None:
    """Say what is wrong, beside what is printed."""
    errors.print(f"error: {message}", style="red", markup=False, highlight=False, soft_wrap=True)


def fail(message: str, code: int = 1) -> NoReturn:
    """Say what is wrong and exit."""
    complain(message)
    raise typer.Exit(code)


def make_folder(folder: Path, option: str = "--runs") -> None:
    """Make a folder, or name the option with which to choose another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"cannot create the folder {folder}: {error.strerror}. Choose another with {option}")


def progress_bar() -> Any:
    """A bar, how many of how many, the time, and a word on the last; beside what is printed, not in it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=errors)


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        say(f"pscnn {__version__}")
        raise typer.Exit


def complete_runs(runs: Sequence[Settings], store: Store, **how: Any) -> list[Settings]:
    """Run what is not finished; those that failed, each with a message why.

    Args:
        runs: What should be there in the end.
        store: Where.
        how: Options of ``training.run_missing``.
    """
    from rich.console import Group
    from rich.live import Live

    from pscnn import training
    from pscnn.report import density_figure

    make_folder(store.root)
    failed: list[Settings] = []
    progress = progress_bar()
    bar = progress.add_task("", total=len(runs))

    def overview() -> Any:
        table = Table("in progress", "epoch", "validation", box=None)
        for settings in runs:
            folder = store.folder(settings)
            if (folder / "config.yaml").exists() and not (folder / "result.json").exists():
                metric = training.task_of(settings).metric.name
                row = training.last_epoch(folder) or {"epoch": -1}
                score = row.get(f"validation/{metric}", math.nan)
                table.add_row(folder.name, f"{row['epoch'] + 1} of {settings.epochs}", f"{metric} {score:.4f}")
        return Group(table, progress) if table.rows else progress

    def done(settings: Settings, result: Any) -> None:
        if isinstance(result, BaseException):
            failed.append(settings)
        text = f"{len(failed)} failed; " if failed else ""
        progress.update(bar, advance=1, description=f"{text}last: {store.folder(settings).name}")

    try:
        with Live(get_renderable=overview, console=errors, refresh_per_second=1):
            training.run_missing(runs, store, **how, draw=density_figure, on_done=done)
    except KeyboardInterrupt:
        say("interrupted; the last complete epoch of every run is saved. Run the same command again to continue")
        raise
    if not errors.is_terminal:
        errors.print()  # the bar has not ended its line
    for settings in failed:
        why = store.failure(settings) or "its process was killed"
        errors.print(f"failed: {store.folder(settings)}: {why}", style="red", markup=False, soft_wrap=True)
    return failed

"""The application, and what its commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

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


def command(function: Callable[..., Any]) -> Callable[..., Any]:
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
        fail(message)

    return wrapped


def say(text: str, end: str = "\n") -> None:
    """Print text as it is: a path in it is not coloured, broken into lines or taken for markup."""
    console.print(text, highlight=False, markup=False, soft_wrap=True, end=end)


def fail(message: str) -> NoReturn:
    """Say what is wrong and exit with 1."""
    errors.print(f"error: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1)


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
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


def make_folder(folder: Path, option: str = "--runs") -> None:
    """Make a folder, or name the option with which to choose another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"cannot make the folder {folder}: {error.strerror}. Choose another with {option}")


def progress_bar() -> Any:
    """A bar, how many of how many, the time, and a word on the last; beside what is printed, not in it."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=errors)


def last_cells(folder: Path, judged_by: str) -> tuple[str, str]:
    """How many epochs of a run are complete, and its score on the validation set after the last."""
    from pscnn import training

    row = training.last_epoch(folder)
    return ("0", "–") if row is None else (str(row["epoch"] + 1), f"{row[f'validation/{judged_by}']:.4f}")


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        say(f"pscnn {__version__}")
        raise typer.Exit

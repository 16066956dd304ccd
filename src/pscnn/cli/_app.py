"""The application, and what its commands share."""

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from pscnn import PscnnError, __version__
from pscnn._files import check_place, reported, to_json
from pscnn._memory import out_of_memory

app = typer.Typer(
    help="Steerable networks that learn how much symmetry to keep.", no_args_is_help=True, rich_markup_mode=None
)
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class _Terminal(Console):
    """What is printed is text: a path in it is not coloured or taken for markup, and codes are written out."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **how: Any) -> Text:
        unicode = text.encode(errors="backslashreplace").decode()  # names of files may have other bytes
        return super().render_str(unicode.translate(CONTROLS), **how)

    def on_broken_pipe(self) -> None:
        """Left to ``command``: what was not said may still have to be written to a file."""
        raise


console = _Terminal()
errors = _Terminal(stderr=True)

Run = Annotated[Path, typer.Argument(help="Folder of a run.")]
Network = Annotated[Path, typer.Argument(help="Folder of a run, or of pscnn discover, whose best network is taken.")]
Runs = Annotated[Path, typer.Option(help="Folder for runs; finished ones in it are not run again.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder with data sets; PSCNN_DATA or a per-user cache by default.")]


def _known_accelerator(value: str) -> str:
    if value not in ("auto", "cpu", "gpu"):
        raise typer.BadParameter(f"use auto, cpu or gpu, not {value!r}")
    return value


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Accelerator = Annotated[str, typer.Option(help="auto, cpu or gpu.", callback=_known_accelerator)]


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn expected failures into one message and a non-zero exit."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            _import_numpy()
            return function(*args, **kwargs)
        except KeyboardInterrupt:
            errors.print("interrupted", style="yellow")
            raise typer.Exit(130) from None
        except PscnnError as error:
            fail(str(error))
        except BrokenPipeError:  # whoever read the output has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None
        except OSError as error:  # whatever else the system refuses: a full disk, a name too long
            fail(f"{error.filename or 'cannot write what was said'}: {error.strerror or error}")
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            fail(
                f"not enough memory ({str(error).splitlines()[0]}): use a smaller --width, --batch-size or --bandlimit"
            )

    return wrapped


def _import_numpy() -> None:
    """Before torch does, which takes an interruption meanwhile for a numpy that is not there, and goes on."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM}) if _HAS_MASKS else None
    try:
        import numpy  # noqa: F401
    finally:
        if held is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)


_HAS_MASKS = hasattr(signal, "pthread_sigmask")


def say(text: str, end: str = "\n") -> None:
    """Print text as it is: a path in it is not broken into lines."""
    console.print(text, soft_wrap=True, end=end)


def say_json(value: Any) -> None:
    """Print a value for programs: one JSON text and nothing else; what is not a number is null."""
    say(to_json(value, indent=1))


def complain(message: str) -> None:
    """Say what is wrong, beside what is printed."""
    errors.print(f"error: {message}", style="red", soft_wrap=True)


def fail(message: str, code: int = 1) -> NoReturn:
    """Say what is wrong and exit."""
    complain(message)
    raise typer.Exit(code)


def check_new(out: Path | None, option: str = "--out") -> None:
    """Refuse a file that is there or cannot be written, before the work whose results it is for."""
    if out is None:
        return
    if out.exists():
        fail(f"{out} exists; choose another file with {option}")
    with reported(f"cannot write {out}", PscnnError):
        check_place(out)


def network_of(folder: Path) -> Path:
    """The run itself, or the one that a discovery recommends, which is said."""
    from pscnn import experiments

    run = experiments.trained_network(folder)
    if run != folder:
        errors.print(f"the network that {folder} recommends: {run}", soft_wrap=True)
    return run


def progress_bar(*, transient: bool = False) -> Any:
    """A bar, how many of how many, the time, and a word on the last; beside what is printed, not in it.

    One that is transient is gone in the end, and where there is no terminal never seen.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    return Progress(*columns, console=errors, transient=transient)


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        say(f"pscnn {__version__}")
        raise typer.Exit

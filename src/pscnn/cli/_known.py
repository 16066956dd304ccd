"""How often ``discover`` is right."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pscnn import PscnnError
from pscnn._files import make_folder
from pscnn.cli._app import app, check_new, command, complain, console, fail, progress_bar, say


@app.command("benchmark-discover")
@command
def benchmark_discover(
    only: Annotated[list[str] | None, typer.Option(help="Only this task; can be repeated.")] = None,
    minutes: Annotated[float, typer.Option(min=0.1, max=10**6, help="Time budget for each task.")] = 5.0,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the examples.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Networks trained at once; one per core.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs and answers; those in it are not asked for again.")] = Path(
        "benchmark-discover"
    ),
    run: Annotated[bool, typer.Option(help="Ask what is missing, or only print what is there.")] = True,
    known: Annotated[Path | None, typer.Option(help="Print the answers of this file, too.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown, latex or csv.")] = "text",
    picture: Annotated[Path | None, typer.Option(help="Only draw examples of every task into this PNG file.")] = None,
) -> None:
    """Let discover answer tasks whose symmetries are known, and count how often it is right."""
    from pscnn import experiments, report
    from pscnn.data.known import TASKS

    unknown = sorted(set(only or ()) - set(TASKS))
    if unknown:
        fail(f"unknown task {unknown[0]!r}: use one of {', '.join(TASKS)}")
    if form not in report.FORMATS:
        fail(f"unknown format {form!r}: use one of {', '.join(report.FORMATS)}")
    names = [name for name in TASKS if not only or name in only]
    if picture is not None:
        check_new(picture, "--picture")
        say(f"written: {report.draw_known(names, picture, seed)}")
        return
    if known is not None and not known.exists():
        fail(f"{known} does not exist")
    file = out / "answers.json"
    answers = ({} if known is None else experiments.read_answers(known)) | experiments.read_answers(file)
    failed = _ask_missing(names, answers, file, minutes=minutes, seed=seed, workers=workers) if run else []
    rows = experiments.answer_rows(answers, names)
    if form == "text":
        table = Table(*rows[0], box=None)
        for row in rows[1:]:
            table.add_row(*row)
        console.print(table)
        for name in names:
            for why in answers.get(name, {}).get("why", ()):
                say(f"{name}: {why}")
        say(experiments.answer_counts(answers, names))
    else:
        say(report.write_rows(rows, form), end="")
    if failed:
        fail(f"no answer to {', '.join(failed)}; run the same command to try again")


def _ask_missing(
    names: list[str], answers: dict[str, Any], file: Path, *, minutes: float, seed: int, **how: Any
) -> Any:
    """Add to the answers, which are written as they come; the names of tasks that failed."""
    import pscnn
    from pscnn import experiments

    other = [
        name
        for name in names
        if name in answers and (answers[name]["minutes"], answers[name]["seed"]) != (minutes, seed)
    ]
    if other:
        one = answers[other[0]]
        fail(
            f"{other[0]} was answered with --minutes {one['minutes']:g} --seed {one['seed']}: "
            "give these, or another --out"
        )
    missing, failed = [name for name in names if name not in answers], []
    make_folder(file.parent, "--out", PscnnError)
    with progress_bar() as progress:
        bar = progress.add_task("", total=len(names), completed=len(names) - len(missing))
        for name in missing:

            def tell(text: str, name: str = name) -> None:
                progress.update(bar, description=f"{name}: {text}")

            tell("drawing examples")
            try:
                answers[name] = experiments.ask(
                    name, file.parent, pscnn.discover, minutes=minutes, seed=seed, say=tell, **how
                )
            except PscnnError as error:
                complain(f"{name}: {error}")
                failed.append(name)
                continue
            experiments.write_answers(file, answers)
            say(f"{name}: {answers[name]['said']} ({answers[name]['outcome']})")
            progress.update(bar, advance=1)
    return failed

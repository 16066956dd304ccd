"""Commands for your own data."""

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pscnn import PscnnError
from pscnn._files import reported, write_whole
from pscnn.cli._app import (
    Accelerator,
    Json,
    Network,
    app,
    check_new,
    command,
    complain,
    console,
    fail,
    network_of,
    progress_bar,
    say,
    say_json,
)


@app.command()
@command
def discover(
    data: Annotated[Path, typer.Argument(help="Folder with a sub-folder per class, .npz, or .csv with paths.")],
    group: Annotated[str | None, typer.Option(help="The group H; O(2) for images, O(3) for volumes.")] = None,
    bandlimit: Annotated[
        int, typer.Option(min=0, max=32, help="Band-limit L of the densities of the partially equivariant network.")
    ] = 2,
    minutes: Annotated[float, typer.Option(min=0.1, max=10**6, help="Time for everything.")] = 10.0,
    size: Annotated[
        int | None, typer.Option(help="Resize to this longest side; by default nothing is resized.")
    ] = None,
    width: Annotated[
        float | None, typer.Option(min=0.01, max=100, help="Width of the networks; 0.25 for images, 1 for volumes.")
    ] = None,
    split_seed: Annotated[int | None, typer.Option(min=0, help="Seed of the split, if the data have none; 0.")] = None,
    target: Annotated[
        str | None, typer.Option(help="What targets are: classes, labels, numbers, vectors or masks; as they look.")
    ] = None,
    dimension: Annotated[
        int | None, typer.Option(min=2, max=3, help="2 if arrays are images, 3 if they are volumes; as they look.")
    ] = None,
    square: Annotated[
        bool | None, typer.Option(help="Pad to equal sides; by default if H contains quarter turns.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for runs and report; discover/NAME by default.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Networks trained at once; one per core.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from what the folder has, or begin anew.")] = True,
    accelerator: Accelerator = "auto",
) -> None:
    """Learn which symmetries can be enforced on your own data, and which network to use."""
    from pscnn import experiments, report
    from pscnn.data import own

    report.check_report()  # said before minutes of training, not after
    path = data
    if experiments.is_prepared(data):
        given = {"--size": size, "--target": target, "--dimension": dimension, "--square": square}
        given["--split-seed"] = split_seed
        without = [name for name, value in given.items() if value is not None]
        if without:
            fail(f"{data} is prepared already: {without[0]} would have no effect", 2)
    else:
        out = experiments.folder_of(data, out)
        with progress_bar(transient=True) as progress:
            bar = progress.add_task("reading", total=None)
            path = experiments.prepared_file(
                data,
                out,
                size=size,
                seed=split_seed or 0,
                target=target,
                dimension=dimension,
                square=square if square is not None else group is None or own.has_quarter_turns(group),
                on_read=lambda done, of: progress.update(bar, completed=done, total=of),
            )
    _describe(path)
    found = experiments.discover(
        path, group=group, bandlimit=bandlimit, minutes=minutes, width=width, out=out, workers=workers,
        accelerator=accelerator, resume=resume, say=say,
    )  # fmt: skip
    tables = [report.discovery_costs(found)] if found.learnt else []
    for rows in (*tables, *([report.discovery_scores(found)] if found.networks else [])):
        table = Table(*rows[0], box=None)
        for row in rows[1:]:
            table.add_row(*row)
        console.print(table)
    for text in report.discovery_words(found):
        say(text)
    if found.recommended is None:
        fail("no network is finished, so there is no report; the same command continues", 130)
    say("writing the report")
    say(f"report: {report.write_discovery(found)}")
    if found.useful:
        say(f"to use the network: pscnn predict {found.folder} FILES, pscnn export {found.folder}")
    if not found.complete:
        fail("interrupted: this is the answer so far; the same command continues", 130)


def _describe(path: Path) -> None:
    """What was read."""
    from pscnn.data import own

    about = own.read_about(path)
    train_count, validation_count, test_count = about.counts
    kind = about.kind if about.regression else f"{len(about.names)} {about.kind}"
    if about.kind == "masks":
        kind = f"masks of {len(about.names)} classes"
    say(
        f"{'×'.join(map(str, about.shape))}, {about.channels} channels, {kind}: {train_count} training, "
        f"{validation_count} validation, {test_count} test examples",
    )
    shown = ", ".join(about.names[:20]) + (", …" if len(about.names) > 20 else "")
    say(f"{'targets' if about.regression or about.kind == 'labels' else 'classes'}: {shown}")
    for note in about.notes:
        say(note)
    if (path.parent / "examples.png").exists():
        say(f"how the examples were read: {path.parent / 'examples.png'}")


@app.command()
@command
def predict(
    run: Network,
    files: Annotated[list[Path], typer.Argument(help="Images or volumes, or folders of them.")],
    out: Annotated[Path | None, typer.Option(help="Write the predictions to this CSV file; never overwrites.")] = None,
    masks: Annotated[Path | None, typer.Option(help="Folder for predicted masks, one file for each.")] = None,
    as_json: Json = False,
) -> None:
    """Apply a trained network to files."""
    from pscnn import training

    check_new(out)
    network = network_of(run)
    rows: list[dict[str, Any]] = []
    refused = 0
    try:
        for file, answer in training.answers(network, files, masks):
            if isinstance(answer, PscnnError):
                refused += 1
                complain(str(answer))
                continue
            rows.append({"file": str(file), **answer})
            if not as_json:
                said = ", ".join(v if isinstance(v, str) else f"{v:.4g}" for v in answer.values())
                say(f"{file}: {said}")
    except OSError:  # nobody reads what is printed, or it has no room
        _write_answers(rows, out, as_json=False)
        raise
    except KeyboardInterrupt:
        _write_answers(rows, out, as_json)
        where = f": what the network says of them is in {out}" if out is not None and rows else ""
        fail(f"interrupted after {len(rows)} files{where}", 130)
    _write_answers(rows, out, as_json)
    if refused or not rows:
        fail(f"no answer to {refused} files" if refused else "no files to read")


def _write_answers(rows: list[dict[str, Any]], out: Path | None, as_json: bool) -> None:
    if out is not None and rows:
        buffer = io.StringIO(newline="")
        writer = csv.DictWriter(buffer, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        with reported(f"cannot write {out}", PscnnError):
            write_whole(out, buffer.getvalue(), new=True)
    if as_json:
        say_json(rows)


@app.command()
@command
def export(
    run: Network,
    kind: Annotated[str, typer.Option("--format", help="torch or onnx.")] = "torch",
    out: Annotated[Path | None, typer.Option(help="Output file; model.pt2 or model.onnx by default.")] = None,
) -> None:
    """Export a trained network to a file that can be used without pscnn, and check its outputs."""
    from pscnn import training

    say(f"written: {training.export_run(network_of(run), out, kind)}")

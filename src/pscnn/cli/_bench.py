"""What networks cost, how well they tell symmetries, and data sets that are computed."""

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pscnn import PscnnError
from pscnn._files import reported, write_whole
from pscnn.cli._app import DataDir, Runs, app, check_new, command, console, fail, say
from pscnn.cli._many import complete_runs


@app.command()
@command
def bench(
    group: Annotated[list[str] | None, typer.Option(help="Groups, in 2D or 3D; O(2) by default.")] = None,
    precision: Annotated[list[str] | None, typer.Option(help="fp32, tf32 or bf16; fp32 by default.")] = None,
    nonlinearity: Annotated[str, typer.Option(help="gated or fourier.")] = "gated",
    method: Annotated[
        list[str] | None,
        typer.Option(help="Methods beside the plain twin; scnn and p-scnn by default. cnn is as large as p-scnn."),
    ] = None,
    record: Annotated[bool, typer.Option(help="On a GPU, record training steps as pscnn train does.")] = True,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Measure compiled networks, too.")] = False,
    batch: Annotated[
        int | None, typer.Option(min=2, max=10**6, help="Batch size; 256 or 32 volumes, on a CPU 16 or 2.")
    ] = None,
    width: Annotated[
        float | None, typer.Option(min=0.01, max=100, help="Of the networks; 1 for images, 6 for volumes.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Side length; 56 for images, 28 for volumes.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda by default if available.")] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Number of timings of each network.")] = 10,
    out: Annotated[Path | None, typer.Option(help="Write all timings to this JSON file; never overwrites.")] = None,
) -> None:
    """Compare the speed of steerable networks with plain networks of the same size."""
    import torch

    from pscnn import experiments, models
    from pscnn.groups import parse

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    _check_device(device, "measure")
    check_new(out)
    if nonlinearity not in models.NONLINEARITIES:
        fail(f"unknown nonlinearity {nonlinearity!r}: use one of {', '.join(models.NONLINEARITIES)}")
    cases = []
    for name in group or ["O(2)"]:
        try:
            plane = parse(name).dimension == 2
        except ValueError as error:
            fail(str(error))
        sizes = models.DIGIT_SIZES if plane else models.VOLUME_SIZES
        if size is not None and size not in sizes:
            fail(f"networks over {name} exist for side lengths {', '.join(map(str, sizes))}, got {size}")
        methods = [kind for kind in (models.METHODS if plane else models.VOLUME_METHODS) if kind != "twin"]
        for kind in method or []:
            if kind not in methods:
                fail(f"unknown method {kind!r}: use one of {', '.join(methods)}")
        usual = (256 if plane else 32) if device == "cuda" else (16 if plane else 2)
        for kind in precision or ["fp32"]:
            if kind not in ("fp32", "tf32", "bf16"):
                fail(f"unknown precision {kind!r}: use fp32, tf32 or bf16")
            for fast in (False, True) if compiled else (False,):
                own = (width or (1.0 if plane else 6.0), size or (56 if plane else 28), nonlinearity)
                recorded = record and device == "cuda" and not fast
                cases.append(experiments.BenchCase(name, kind, fast, batch or usual, *own, recorded))
    heads = ("network", "training step", "ratio", "inference", "ratio", "peak memory", "weights", "construction")
    results = []
    for case in cases:
        with console.status(f"{case.group}, {case.nonlinearity}, {case.precision}, {case.mode}"):
            result = experiments.run_bench(case, device, rounds, method or ("scnn", "p-scnn"))
        results.append(result)
        title = f"{case.group}, {case.nonlinearity}, batch {case.batch}, {case.precision}, {case.mode}"
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
            table.add_row(name, *cells, memory, f"{found['weights']:,}", f"{found['construction_s']:.2f} s")
        console.print(table)
    machine = experiments.machine(device)
    say(f"median [range] of {rounds} timings on {machine['device']}")
    if out is not None:
        with reported(f"cannot write {out}", PscnnError):
            write_whole(out, json.dumps({"machine": machine, "results": results}, indent=1) + "\n", new=True)


@app.command("benchmark-symmetry")
@command
def benchmark_symmetry(
    only: Annotated[list[str] | None, typer.Option(help="Only this target; can be repeated.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Networks per target.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs.")] = 100,
    vary: Annotated[str | None, typer.Option(help="Setting to vary: alignment, kl, bandlimit or densities.")] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Score how well densities recover the symmetries of tasks in which they are known."""
    from pscnn import experiments, training
    from pscnn.tasks.symmetry import TARGETS

    unknown = sorted(set(only or ()) - set(TARGETS))
    if unknown:
        fail(f"unknown target {unknown[0]!r}: use one of {', '.join(TARGETS)}")
    if vary is not None and vary not in experiments.VARIATIONS:
        fail(f"cannot vary {vary!r}: use one of {', '.join(experiments.VARIATIONS)}")
    sheet, store = experiments.symmetry_sheet(only, vary, epochs=epochs), training.Store(runs)
    if complete_runs(sheet.runs(seeds), store):
        fail("some runs failed; run the same command to try them again")
    table = Table("target", "symmetry", "AUC", "variation", "error", box=None)
    for row in sheet.rows:
        one = sheet.cells[row, "AUC"][0]
        results = [store.result(replace(one, seed=k)) or {} for k in range(seeds)]
        auc = [result["auc"] for result in results if result["auc"] is not None]
        table.add_row(
            row,
            TARGETS[training.task_of(one).variant].words,
            f"{statistics.mean(auc):.3f} [{min(auc):.3f}]" if auc else "–",
            f"{statistics.mean(result['total_variation'] for result in results):.3f}",
            f"{statistics.median(result['train_task'] for result in results):.3f}",
        )
    console.print(table)
    say(f"{seeds} seeds: mean [lowest] AUC, mean total variation, median error")


data_app = typer.Typer(help="Generate data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@data_app.callback()
def _data() -> None:
    """Keep ``prepare`` a command of its own, although it is the only one."""


@data_app.command("prepare")
@command
def prepare_data(
    what: Annotated[str, typer.Argument(help="Data set: smoke, or asymmetry, all its variants.")],
    data_dir: DataDir = None,
    asymmetry: Annotated[str, typer.Option(help="Of smoke: published, push, gravity or box.")] = "published",
    strength: Annotated[float, typer.Option(min=0, help="Strength of an asymmetry other than the published.")] = 0.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Generate a data set in the data folder. Existing files are not replaced; run it again if it was interrupted."""
    from pscnn.data import smoke
    from pscnn.tasks.flows import SmokeSettings

    if what not in ("smoke", "asymmetry"):
        fail(f"unknown data set {what!r}: use smoke or asymmetry")
    _check_device(device, "simulate")
    one = SmokeSettings(asymmetry=asymmetry, asymmetry_strength=strength)  # checks them
    if what == "asymmetry" and one != SmokeSettings():
        fail("asymmetry is all variants: use smoke with --asymmetry and --strength for a single one", 2)
    for variant in smoke.VARIANTS if what == "asymmetry" else [(one.asymmetry, one.asymmetry_strength)]:
        _simulate(variant, data_dir, device)


def _simulate(variant: tuple[str, float], data_dir: Path | None, device: str) -> None:
    """One variant of smoke."""
    from rich.progress import Progress

    from pscnn.data import smoke

    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("simulating", total=None)
        folder = smoke.prepare(
            data_dir,
            *variant,
            device=device,
            on_step=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    say(f"smoke: {len(smoke.TASKS)} simulations in {folder}")


def _check_device(device: str, purpose: str) -> None:
    """Refuse a device that is not there; what it is for is a verb."""
    import torch

    known = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    if device not in known:
        fail(f"cannot {purpose} on {device!r}: use {', or '.join(known)}")

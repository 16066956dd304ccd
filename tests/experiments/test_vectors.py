from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import pscnn
from pscnn.cli import app
from pscnn.experiments import Cell, published, space_sheets, vector_sheets
from pscnn.models import DetachedBatchNorm
from pscnn.tasks.vectors import VectorSettings
from pscnn.training import Store, load, refresh_statistics, run_missing

TINY = [VectorSettings(seed=seed, epochs=2, count=64, batch_size=32, bandlimit=2) for seed in range(3)]


def errors(store: Store, seeds: int) -> list[float]:
    results = run_missing(TINY[:seeds], store, workers=1)
    return [result["test_error"] for result in results.values() if isinstance(result, dict)]


def test_seeds_are_run_once_and_do_not_depend_on_how_many_there_are(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    two = errors(store, 2)
    file = store.folder(TINY[0]) / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "test_error": 7.0}))
    assert errors(store, 3)[:2] == [7.0, two[1]]  # those that are there are read
    assert errors(Store(tmp_path / "b"), 3) == pytest.approx([two[0], two[1], errors(store, 3)[2]], rel=1e-4)
    models = [load(store.folder(one)).model for one in TINY]
    assert not torch.equal(models[0][0].weight, models[1][0].weight)
    assert len((store.folder(TINY[0]) / "metrics.jsonl").read_text().splitlines()) == 2


def test_tables_name_every_row_of_the_paper() -> None:
    tables = [sheet for sheet in vector_sheets() if sheet.picture is None]
    for sheet in tables:
        assert sheet.paper is not None
        assert set(published(sheet.paper)) == set(sheet.rows)
    runs = {one for sheet in tables for one in sheet.runs(1)}
    assert len(runs) == 32
    assert {one for sheet in vector_sheets() for one in sheet.runs(1)} == runs  # figures need no others
    assert len(space_sheets()[0].runs(1)) == 15


def test_cells_say_when_they_differ() -> None:
    assert not Cell(1.0, 0.1, 5, (1.2, 0.1)).differs
    assert Cell(1.0, 0.1, 5, (1.21, 0.1)).differs
    assert not Cell(1.0, 0.1, 5, None).differs


def test_reproduce_vectors_prints_tables_and_draws(tmp_path: Path) -> None:
    arguments = ["reproduce", "vectors", "--runs", str(tmp_path), "--seeds", "1", "--epochs", "1"]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert "1.486 ± 0.044" in done.output
    assert "PE-MLP (probabilistic), FourierELU" in done.output
    place = tmp_path / "figures" / "vectors"
    for name in ("shared", "second-layer", "alignment", "kl"):
        assert (place / f"{name}.svg").stat().st_size > 1000
        assert (place / f"{name}.png").stat().st_size > 1000


def test_an_unwritable_folder_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["reproduce", "vectors", "--runs", str(tmp_path / "file")])
    assert done.exit_code == 1
    assert "Choose another with --runs" in " ".join(done.output.split())


def test_detached_statistics_change_the_gradient_and_not_the_values() -> None:
    H = pscnn.groups.O2()
    norm = pscnn.nn.BatchNorm(pscnn.nn.FieldType(H, [H.trivial + H.irrep(1, 1), H.irrep(1, 2)])).double()
    detached = DetachedBatchNorm(norm.in_type).double()
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(7, 5, dtype=torch.float64)
    y = detached(x)
    assert torch.allclose(y, norm(x))
    assert torch.allclose(detached.running_var, norm.running_var)
    gradient, d_weight = torch.autograd.grad((y * direction).sum(), (x, detached.weight))
    other, other_d_weight = torch.autograd.grad((norm(x) * direction).sum(), (x, norm.weight))
    assert torch.allclose(d_weight, other_d_weight)
    assert not torch.allclose(gradient, other)
    # With the statistics of this batch for good, the layer in eval mode is affine with the same slope.
    frozen = pscnn.nn.BatchNorm(norm.in_type).double()
    refresh_statistics(frozen, x.detach())
    frozen.running_var.mul_(6 / 7)  # running variances are unbiased
    (slope,) = torch.autograd.grad((frozen.eval()(x) * direction).sum(), x)
    assert torch.allclose(gradient, slope)


def _processes_of(folder: Path) -> list[str]:
    """Command and children that know the folder: every process started under the command carries it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"PSCNN_TEST={folder}".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", ["terminal", "only the command", "killed"])
def test_an_interruption_ends_at_once_and_keeps_what_is_finished(tmp_path: Path, how: str) -> None:
    arguments = ["reproduce", "vectors", "--runs", str(tmp_path), "--seeds", "1", "--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pscnn", *arguments],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PSCNN_TEST": str(tmp_path)},
    )
    try:
        for _ in range(1200):  # until something trains
            if list(tmp_path.glob("vectors/*")):
                break
            time.sleep(0.1)
        if how == "terminal":
            os.killpg(process.pid, signal.SIGINT)  # what a terminal sends on Ctrl-C
        else:
            process.send_signal(signal.SIGINT if how == "only the command" else signal.SIGKILL)
        assert process.wait(timeout=60) == (130 if how != "killed" else -signal.SIGKILL)
        for _ in range(300):
            if not _processes_of(tmp_path):
                break
            time.sleep(0.1)
        assert not _processes_of(tmp_path)
        assert not list(tmp_path.glob("vectors/*/result.json"))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_example_runs(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "vectors.py"
    command = [sys.executable, str(example), "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "angle: error of the equivariant network" in done.stdout
    assert (tmp_path / "vectors.png").stat().st_size > 1000

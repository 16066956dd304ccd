"""Whatever is typed or received: one sentence and exit code 1, or 2 for usage; nothing waits or is half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from helpers import TINY_DIGITS, as_options
from PIL import Image
from rich.table import Table
from typer.testing import CliRunner

from pscnn import experiments, training
from pscnn.cli import app
from pscnn.cli._app import console

TINY = {k: v for k, v in TINY_DIGITS.items() if k != "task"} | {"epochs": 1, "group": "C4"}


def refused(words: list[str], code: int = 1) -> str:
    """The message of a command that fails as commands should."""
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--width", "inf"], 1, "width must be a finite number"),
        (["--width", "1e5"], 1, "width must lie in (0, 100], got 100000.0"),
        (["--width", "100"], 1, "would take"),
        (["--epochs", "99999999999999999999999"], 1, "epochs must lie between 1 and 1000000"),
        (["--seed", "4294967296"], 1, "seed must lie between 0 and 4294967295"),
        (["--bandlimit", "300"], 1, "bandlimit must lie between 0 and 32"),
        (["--group", "C(100000)"], 1, "C(100000) has 100000 elements, more than 1000: use SO(2) or O(2)"),
        (["--group", f"D({10**30})"], 1, "more than 1000: use SO(2)"),
        (["--devices", "0"], 2, "greater than or equal to 1"),
        (["--devices", "-1"], 2, "greater than or equal to 1"),
        (["--devices", "1000"], 1, "got 1000 devices"),
        (["--accelerator", "tpu"], 2, "use auto, cpu or gpu, not 'tpu'"),
        (["--epochs", str(10**400)], 1, "epochs must lie between 1 and 1000000"),
        (["--name", "a\0b"], 1, "--name must be the name of a single folder"),
        (["--name", "\udcff"], 1, "--name must be the name of a single folder"),
        (["--name", "[/x]"], 1, "--name must be the name of a single folder, got '[/x]'"),
        (["--name", "x" * 300], 1, "File name too long"),
        (["--runs", "x" * 5000], 1, "File name too long"),
        (["--config", "x" * 5000], 1, "File name too long"),
        (["--train-per-class", "1000000000"], 1, "train_per_class must lie between 1 and 100000"),
        (["--seeds", "1000000000000"], 2, "less than or equal to 1000"),
        (["--passes", "1000000000"], 1, "passes must lie between 1 and 10000"),
    ],
)
def test_options(words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused(["train", "ddmnist", *as_options(TINY), *words], code)
    assert not [path for path in tmp_path.rglob("*") if path.name == "config.yaml" and message == "File name too long"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train", "shapes3d", "--bandlimit", "8"], 1, "bandlimit must be 6 or less over O(3)"),
        (["train", "shapes3d", "--train-count", "1"], 1, "train_count must lie between 2 and"),
        (["train", "own", "--data", "x", "--about", "{"], 1, "not a description of prepared data"),
        (["train", "own", "--data", "x", "--about", "[]"], 1, "not a description of prepared data"),
        (["train", "own", "--data", "x", "--about", "{}"], 1, "not a description of prepared data"),
        (["discover", "x", "--minutes", "inf"], 2, "less than or equal to"),
        (["reproduce", "list", "--seeds", "99999999999"], 2, "less than or equal to 1000"),
        (["bench", "--batch", "100000000000"], 2, "less than or equal to"),
        (["inspect", "x" * 5000], 1, "File name too long"),
        (["results", "x" * 5000], 1, "File name too long"),
    ],
)
def test_commands(words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused(words, code)


def laughing(depth: int) -> str:
    """A list of lists of lists, each nine times the one before: small in a file and in memory, endless when written."""
    lines = ["- &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"- &a{k + 1} [{', '.join([f'*a{k}'] * 9)}]" for k in range(depth)]
    return "epochs:\n" + "\n".join(f"  {line}" for line in lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("experiment: [a]", "name a task: one of ddmnist"),
        ("task: {a: b}", "name a task: one of ddmnist"),
        ("[" * 3000, "not valid YAML"),
        ("[" * 100_000, "nested too deeply"),
        (f"task: ddmnist\n{laughing(12)}", "write out what *"),
        ("task: ddmnist\nepochs: 2020-13-45", "month must be in"),
        ("task: ddmnist\nepochs: !!int abc", "not valid YAML"),
        ("task: ddmnist\nepochs: !!bool x", "not valid YAML"),
        ("task: ddmnist\nepochs: !!int ''", "not valid YAML"),
        (f"task: ddmnist\nepochs: {10**400}", "epochs must lie between 1 and 1000000"),
        (f"task: ddmnist\nlr: {10**400}", "lr must be of type float"),
        ("task: ddmnist\nepochs: 010", "epochs is 010: write a decimal number"),
        ("task: ddmnist\nepochs: 1:30", "epochs is 1:30: write a decimal number"),
        ("task: ddmnist\ntask: smoke", "task is given twice"),
        (f"task: ddmnist\nname: {'x' * 2**21}", "c.yaml is too large for settings"),
        ("task: ddmnist\nlr: [1]", "lr must be of type float, got [1]"),
        ("task: ddmnist\nlr: one", "lr must be of type float, got 'one'"),
        ("task: ddmnist\nepochs: 1.5", "epochs must be of type int, got 1.5"),
    ],
)
def test_configurations(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert message in refused(["train", "--config", str(tmp_path / "c.yaml"), "--runs", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists()


def test_numbers_in_a_configuration_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("task: ddmnist\nlr: 1e-3\nepochs: 1e2\nweight_decay: 0\n")
    settings = training.make_settings(training.read_yaml(tmp_path / "c.yaml"))
    assert (settings.lr, settings.epochs, settings.weight_decay) == (1e-3, 100, 0.0)


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = training.start(
        training.make_settings({"task": "ddmnist", **TINY, "epochs": 2}), tmp_path_factory.mktemp("r")
    )
    training.train(folder, accelerator="cpu", progress=False)
    return folder


@pytest.fixture
def run(genuine: Path, tmp_path: Path) -> Path:
    shutil.copytree(genuine, tmp_path / "run")
    return tmp_path / "run"


FILES = {
    "metrics.jsonl": ["evaluate", "report"],
    "result.json": ["report"],
    "confusion.npy": ["report"],
    "densities.npz": ["save"],
    "environment.json": ["save"],
    "best.ckpt": ["inspect", "export", "resume"],
    "last.ckpt": ["resume"],
}
COMMANDS = {
    "evaluate": ["evaluate", "RUN"],
    "inspect": ["inspect", "RUN"],
    "report": ["report", "RUN"],
    "export": ["export", "RUN"],
    "resume": ["train", "--resume", "RUN"],
    "save": ["results", "RUN", "--save", "RUN/all.json"],
}


@pytest.mark.parametrize(("file", "command"), [(file, command) for file, them in FILES.items() for command in them])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_not_waited_for(file: str, command: str, kind: str, run: Path) -> None:
    (run / file).unlink()
    os.mkfifo(run / file) if kind == "pipe" else (run / file).mkdir()
    message = refused([word.replace("RUN", str(run)) for word in COMMANDS[command]])
    assert file in message
    assert not list(run.glob(".*.partial*"))


def test_results_are_not_written_over_a_folder(run: Path) -> None:
    (run / "confusion.npy").unlink()
    (run / "confusion.npy").mkdir()
    before = (run / "result.json").read_bytes()
    assert "cannot write" in refused(["evaluate", str(run)])
    assert (run / "result.json").read_bytes() == before


def test_a_report_without_metrics_has_no_curves(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    assert CliRunner().invoke(app, ["report", str(run)]).exit_code == 0


def test_a_configuration_with_fewer_epochs_is_refused(run: Path) -> None:
    values = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump({**values, "epochs": 1}))
    assert "has 2 epochs, but its config.yaml says 1" in refused(["evaluate", str(run)])


def test_results_files_that_are_nested_deeply_are_refused(tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text("[" * 100_000)
    for words in (["results"], ["reproduce", "ddmnist", "--no-run", "--runs", str(tmp_path / "runs"), "--known"]):
        assert "is not a file of runs" in refused([*words, str(tmp_path / "known.json")])


def test_where_output_goes(run: Path, tmp_path: Path) -> None:
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "i.png")
    missing, long = tmp_path / "missing" / "file", tmp_path / ("x" * 300)
    for words in (["predict", str(run), str(tmp_path / "i.png"), "--out"], ["results", str(run), "--save"]):
        assert "cannot write" in refused([*words, str(missing)])
        assert "File name too long" in refused([*words, str(long)])
    assert "File name too long" in refused(["report", str(run), "--out", str(long)])
    assert "cannot write" in refused(["report", str(run), "--out", str(missing)])
    (tmp_path / "[red]reports").mkdir()
    done = CliRunner().invoke(app, ["report", str(run), "--out", str(tmp_path / "[red]reports")])
    assert f"report: {tmp_path}/[red]reports/report.html" in done.output  # into the folder, whose name is no markup
    assert (tmp_path / "[red]reports" / "report.html").exists()


def test_where_output_goes_is_looked_at_before_the_work(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*arguments: Any, **how: Any) -> Any:
        pytest.fail("work")

    monkeypatch.setattr(training, "answers", work)
    monkeypatch.setattr(training, "load", work)
    monkeypatch.setattr(experiments, "run_bench", work)
    missing = str(tmp_path / "missing" / "file")
    for words in (["predict", str(run), str(run)], ["bench"], ["report", str(run)]):
        assert "cannot write" in refused([*words, "--out", missing])


def test_interrupted_predictions_are_kept(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def some(*_: Any) -> Any:
        yield Path("a.png"), {"class": "x", "probability": 0.5}
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "answers", some)
    out = tmp_path / "answers.csv"
    done = CliRunner().invoke(app, ["predict", str(run), "many", "--out", str(out), "--json"])
    assert done.exit_code == 130
    assert f"interrupted after 1 files: what the network says of them is in {out}" in done.stderr
    assert out.read_text().splitlines() == ["file,class,probability", "a.png,x,0.5"]
    assert [answer["file"] for answer in json.loads(done.stdout)] == ["a.png"]


def test_predictions_that_nobody_reads_are_kept(run: Path, tmp_path: Path) -> None:
    for k in range(3):
        Image.fromarray(np.full((28, 28), k, np.uint8)).save(tmp_path / f"{k}.png")
    words = [sys.executable, "-m", "pscnn", "predict", str(run), str(tmp_path), "--out", str(tmp_path / "answers.csv")]
    unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=unbuffered) as it:
        assert it.stdout is not None
        it.stdout.close()
        assert it.wait(timeout=300) == 141
        assert it.stderr is not None
        assert b"Traceback" not in it.stderr.read()
    assert (tmp_path / "answers.csv").read_text().startswith("file,class,probability\n")


@pytest.mark.parametrize("module", ["typer", "numpy.linalg", "numpy._core", "pscnn.cli._own"])
def test_an_interruption_while_modules_are_imported_gets_a_word(module: str, run: Path) -> None:
    code = (
        "import importlib.abc, os, signal, sys\n"
        "class Interrupt(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}:\n"
        "            sys.meta_path.remove(self)\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from pscnn.__main__ import main\n"
        f"sys.argv = ['pscnn', 'inspect', {str(run)!r}]\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    "content", [b"\x80\x04", b"[]", b"{}", b'{"versions": 3}', b'{"versions": {"pscnn": 1}, "git": 2}']
)
def test_where_a_run_was_made_is_damaged(content: bytes, run: Path, tmp_path: Path) -> None:
    (run / "environment.json").write_bytes(content)
    assert "environment.json is damaged" in refused(["report", str(run)])
    assert "environment.json is damaged" in refused(["results", str(run), "--save", str(tmp_path / "all.json")])


def test_names_that_are_no_unicode_are_written_out(run: Path, tmp_path: Path) -> None:
    strange = tmp_path / "r\udcff"
    shutil.copytree(run, strange)
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(strange / "\udcff.png")
    commands: list[list[str]] = [
        ["report", str(strange)],
        ["export", str(strange)],
        ["predict", str(strange), str(strange / "\udcff.png"), "--out", str(tmp_path / "answers.csv")],
        ["inspect", str(strange)],
    ]
    for words in commands:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0 or "files could not be read" in done.output, (words, done.output, done.exception)
        assert isinstance(done.exception, SystemExit | None)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8:strict"])
def test_terminals_that_know_few_letters(encoding: str, run: Path) -> None:
    words = [sys.executable, "-m", "pscnn", "inspect", str(run)]
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_names_cannot_control_the_terminal(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["predict", str(run)], ["evaluate"]):
        said = refused([*words, str(tmp_path / "a\x1b]0;title\x07[/x]:car:.png")])
        assert r"a\x1b]0;title\x07[/x]:car:.png" in said
        assert "\x1b" not in said
    table = Table("run")
    table.add_row("[/x] :car: \x1b[31m\x9b")
    console.print(table)
    assert r"[/x] :car: \x1b[31m\x9b" in capsys.readouterr().out


def test_json_is_all_that_is_printed(run: Path, tmp_path: Path) -> None:
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "i.png")

    def printed(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    result = json.loads((run / "result.json").read_text())
    assert printed("evaluate", str(run))["test_accuracy"] == result["test_accuracy"]
    layers = printed("inspect", str(run))["layers"]
    assert [layer["number"] for layer in layers] == [1, 2, 3, 4, 5, 6]
    assert layers[0]["degrees"]["C(4)"] > 0
    (answer,) = printed("predict", str(run), str(tmp_path / "i.png"))
    assert answer["file"] == str(tmp_path / "i.png")
    assert 0.25 <= answer["probability"] <= 1
    (listed,) = printed("results", str(run))
    assert listed["settings"]["task"] == "ddmnist"
    assert listed["result"]["epochs"] == 2

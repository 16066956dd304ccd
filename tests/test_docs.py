"""What the README and the manual say can be done by copy and paste."""

from __future__ import annotations

import csv
import json
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pscnn.cli import app
from pscnn.experiments import Discovery, ratio

README = Path(__file__).parents[1] / "README.md"
MANUAL = README.parent / "docs"


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


BLOCKS = python_blocks(README)


@pytest.mark.parametrize("block", BLOCKS)
def test_readme_example_runs(block: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "O(2)" in done.stdout


def run_page(name: str, folder: Path, *shorter: tuple[str, str]) -> str:
    """Run the blocks of a page in one process, with some of their numbers replaced by smaller ones; what they print."""
    program = "\n".join(python_blocks(MANUAL / name))
    for old, new in shorter:
        assert program.count(old) == 1, old
        program = program.replace(old, new)
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_network_can_be_pasted(tmp_path: Path) -> None:
    printed = run_page("first-network.md", tmp_path, ("range(150)", "range(3)"), ("comets(1000)", "comets(50)"))
    assert "λ(↔)" in printed
    assert "last layer, ↕: error" in printed
    assert float(printed.strip().splitlines()[-1].removeprefix("tensor(").removesuffix(")")) < 1e-5  # exported
    assert {path.name for path in tmp_path.iterdir()} == {"densities.png", "comets.pt"}


def test_upright_digits_on_the_page_about_own_data_are_called_upright() -> None:
    (block,) = [one for one in python_blocks(MANUAL / "discover.md") if "presence(" in one]
    done = subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [line.split()[-1] for line in done.stdout.splitlines()]
    assert said[:5] == 5 * ["False"]
    assert "False" not in said[5:]


def test_the_checks_of_the_troubleshooting_page_run(tmp_path: Path) -> None:
    assert "LayerError(" in run_page("troubleshooting.md", tmp_path)


def test_the_pages_on_converted_and_ready_networks_run(tmp_path: Path) -> None:
    printed = run_page("convert.md", tmp_path)
    assert "Responses: " in printed
    difference = next(line for line in printed.splitlines() if line.startswith("tensor("))
    assert float(difference.removeprefix("tensor(").split(",")[0]) < 1e-5  # the same function
    run_page("networks.md", tmp_path, ("224, 224", "64, 64"))


def test_the_networks_of_the_page_on_relaxations_are_built(tmp_path: Path) -> None:
    assert run_page("relaxations.md", tmp_path) == ""


def test_readme_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


@pytest.mark.parametrize(
    ("page", "tables"),
    [
        ("../README.md", 1),
        ("double-digits.md", 4),
        ("reproduce.md", 3),
        ("flows.md", 2),
        ("reading-densities.md", 1),
        ("vectors.md", 1),
        ("relaxations.md", 4),
    ],
)
def test_the_tables_of_the_docs_are_those_which_their_commands_print(page: str, tables: int, tmp_path: Path) -> None:
    text = (README.parent / "docs" / page).read_text()
    found = re.findall(
        r"```\npscnn (reproduce (?:(?!```).)*--format markdown)\n```\n\n((?:\|[^\n]*\n|\n(?=\|))+)", text, re.DOTALL
    )
    assert len(found) == tables
    for command, table in found:
        words = [re.sub("^results/", f"{README.parent}/results/", w) for w in shlex.split(command.replace("\\\n", ""))]
        done = CliRunner().invoke(app, [*words, "--runs", str(tmp_path), "--data-dir", str(tmp_path / "none")])
        assert done.exit_code == 0, done.output
        assert done.stdout.strip() == table.strip()


def test_the_tables_of_vectors_are_those_which_their_command_prints(tmp_path: Path) -> None:
    words = ["reproduce", "vectors", "--known", str(README.parent / "results" / "vectors.json"), "--no-run"]
    done = CliRunner().invoke(app, [*words, "--format", "markdown", "--runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    tables = done.stdout.split("\n\n")
    assert len(tables) == 7
    for table in tables:
        assert f"{table.strip()}\n" in (MANUAL / "vectors.md").read_text()


def test_the_table_of_known_tasks_is_the_one_which_its_command_prints(tmp_path: Path) -> None:
    page = (MANUAL / "discover.md").read_text()
    (found,) = re.findall(r"```\npscnn (benchmark-discover [^`]*--format markdown)\n```\n\n((?:\|[^\n]*\n)+)", page)
    command, table = found
    words = [re.sub("^results/", f"{README.parent}/results/", word) for word in shlex.split(command)]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.stdout == table


def column(tmp_path: Path, name: str, only: str, *files: str) -> dict[str, str]:
    """One column, by row, without numbers of seeds and the paper's."""
    known = [word for file in files for word in ("--known", str(README.parent / "results" / file))]
    words = ["reproduce", name, "--only", only, "--precision", "bf16", *known, "--no-run", "--format", "csv"]
    done = CliRunner().invoke(app, [*words, "--runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    return {row[0]: row[1].split(" (")[0] for row in csv.reader(done.stdout.splitlines()[1:])}


def test_the_numbers_of_the_readme_are_those_of_all_seeds_that_exist(tmp_path: Path) -> None:
    text = README.read_text()
    found = column(tmp_path / "fair", "fair", "O2", "fair.json", "relaxations.json")
    rows = {
        "plain CNN of equal size | 1.08": ("CNN, equal size", "CNN, size of Fourier"),
        "free twin: ": ("gated Free twin", "Fourier Free twin"),
        "restricted: ": ("gated R-SCNN", "Fourier R-SCNN"),
        "residual pathway priors": ("gated RPP", "Fourier RPP"),
        "P-SCNN | 1.08": ("gated P-SCNN", "Fourier P-SCNN"),
    }
    for start, cells in rows.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
        assert [cell.strip(" *") for cell in line.split("|")[3:5]] == [found[cell] for cell in cells]
    interval = column(tmp_path / "relaxations", "relaxations", "O2 accuracy", "relaxations.json")["interval"]
    assert f"(`--method interval`) is as accurate, {interval}" in text
    ours = column(tmp_path / "fewer", "data-efficiency", "O2, 25", "fair.json")["Fourier P-SCNN"].split(" ")[0]
    plain = column(tmp_path / "all", "data-efficiency", "O2, 100", "fair.json")["CNN, equal size"].split(" ")[0]
    said = f"the P-SCNN has {ours}, the plain CNN of equal size {plain} with 100"
    assert said in text.replace("\n", " ")
    found = column(tmp_path / "paper", "ddmnist", "O2", "double-digits.json")
    cnn, scnn, ours = (found[row].split(" ")[0] for row in ("CNN", "O(2) SCNN", "O(2) P-SCNN"))
    plain = text.replace("\n", " ")
    assert f"(31 thousand weights) {cnn}, equivariant {scnn}, partially equivariant (1.08 million) **{ours}**" in plain


def test_the_tables_of_volumes_are_those_of_their_runs() -> None:
    page = (MANUAL / "volumes.md").read_text()
    runs: dict[tuple[str, ...], list[dict[str, float]]] = {}
    for file in ("volumes-adrenal.json", "volumes-shapes.json"):
        for run in json.loads((README.parent / "results" / file).read_text())["runs"]:
            config = run["config"]
            runs.setdefault((config["method"], config["group"], config.get("variant", "")), []).append(run["result"])
    assert len(runs) == 12
    for (method, group, variant), results in runs.items():
        scores = [result["test_accuracy"] for result in results]
        if variant:
            network = f"{method.upper()} over {group} | {results[0]['epochs']}"
            assert f"| `{variant}` | {network} | {', '.join(f'{one:.3f}' for one in scores)} |" in page
            continue
        place = group if method not in ("cnn", "resnet18") else "–"
        ranks = [result["test_auc"] for result in results]
        means = " | ".join(f"{statistics.mean(v):.3f} ± {statistics.stdev(v):.3f}" for v in (scores, ranks))
        assert f"| `{method}` | {place} | {results[0]['parameters']:,} | {means} |" in page


def test_the_table_of_photographs_is_that_of_its_discovery() -> None:
    page = (MANUAL / "discover.md").read_text()
    found = Discovery.read(README.parent / "results" / "discover-cifar10")

    def points(number: float) -> str:
        return f"{100 * number:.1f}".replace("-", "−")

    rows = {
        "the left–right mirror (D(1) at 90°) | **kept** |": ["D(1) at 90°"],
        "the top–bottom mirror (D(1) at 0°) | broken |": ["D(1) at 0°"],
        "half turns (C(2)) | broken |": ["C(2)"],
        "the diagonal mirrors (D(1) at 45°, 135°) | broken |": ["D(1) at 45°", "D(1) at 135°"],
        "quarter turns (C(4)) | broken |": ["C(4)"],
        "all rotations (SO(2)) | broken |": ["SO(2)"],
        "all rotations and mirrors (O(2)) | broken |": ["O(2)"],
    }
    for start, names in rows.items():
        some = [one for name in names for one in found.statements if str(one.subgroup) == name]
        assert {one.verdict for one in some} == {start.split(" | ")[1].strip(" *|")}
        costs = ", ".join(points(one.cost) for one in some)
        intervals = ", ".join(f"[{points(one.low)}, {points(one.high)}]" for one in some)
        assert f"| {start} {costs} | {intervals} |\n" in page
    assert {one.verdict for one in found.statements if str(one.subgroup) != "D(1) at 90°"} == {"broken"}


def test_the_table_of_natural_images_is_that_of_its_runs() -> None:
    page = (MANUAL / "discover.md").read_text()
    runs: dict[tuple[str, str, float], list[dict[str, float]]] = {}
    for run in json.loads((README.parent / "results" / "natural-images.json").read_text())["runs"]:
        runs.setdefault(tuple(run["config"][key] for key in ("method", "group", "width")), []).append(run["result"])
    assert len(runs) == 7
    for results in runs.values():
        assert len(results) == 3
        scores = [result["test_accuracy"] for result in results]
        words = f"{statistics.mean(scores):.3f} ± {statistics.stdev(scores):.3f}"
        error = statistics.mean(result["equivariance_error"] for result in results)
        assert re.search(rf"\| {results[0]['parameters']:,} \| \**{words}\** \| {error:.2f} \|", page), words


def test_the_times_of_the_page_on_speed_are_those_of_the_benchmarks() -> None:
    page, folder = (MANUAL / "speed.md").read_text(), README.parent / "benchmarks" / "results"
    labels = {"twin": "plain twin", "fast twin": "fast twin", "scnn": "SCNN", "p-scnn": "P-SCNN"}
    for result in json.loads((folder / "bench-recorded-h200.json").read_text())["results"]:
        for name, one in result["networks"].items():
            step, memory = statistics.median(one["train_ms"]), f"{one['peak_mib']:,} MiB"
            words = f"{step:.2f} ms" + ("" if name == "twin" else f", {ratio(result, name, 'train_ms'):.2f} ×")
            assert re.search(rf"\| {labels[name]} \| \**{words}\** \|.* \| {memory}", page), words
    real = json.loads((folder / "real-networks-h200.json").read_text())
    for name in real["recorded"]:
        for mode, digits in {"recorded": 2, "graphed": 2, "eager": 1, "compiled": 2}.items():
            assert f"{real[mode][name]['step ms']:.{digits}f} ms" in page
    (relaxations,) = json.loads((folder / "relaxations-h200.json").read_text())["results"]
    for name, one in relaxations["networks"].items():
        words = rf"{statistics.median(one['train_ms']):.2f} ms \| \S+ × \| {one['peak_mib']:,} MiB"
        label = {"twin": "plain twin", "fast twin": "`twin`"}.get(name, f"`{name}`")
        assert re.search(rf"\| {label} \| {words} \|", (MANUAL / "relaxations.md").read_text()), words
    runs = json.loads((folder / "runs-h200.json").read_text())
    for cache in ("empty", "full"):
        assert f"**{runs['one run'][f'{cache} cache']['seconds']} s**" in page
    assert f"{runs['many runs']['runs']} runs of" in page
    assert f"**{runs['many runs']['GPU seconds per run']} s of the GPU each**" in page


def test_importing_the_library_needs_no_extra() -> None:
    program = (
        "import sys\n"
        "for name in ('yaml', 'matplotlib', 'jinja2', 'PIL', 'sklearn', 'pooch', 'typer', 'rich', 'e3nn',"
        " 'ray'):\n    sys.modules[name] = None\n"
        "import pscnn\nassert 'scipy.stats' not in sys.modules, 'it would take most of the time of the import'\n"
        "import pscnn.models, pscnn.data.ddmnist, pscnn.report\n"
        "pscnn.groups.SO3().irrep(2).tensor(pscnn.groups.SO3().irrep(1))\n"
        "try:\n    import pscnn.training\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'pscnn[training]'" in done.stdout


def test_the_command_without_its_extra_is_one_sentence() -> None:
    program = "import sys; sys.modules['typer'] = None; from pscnn.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("pip install 'pscnn[training]'")
    assert "Traceback" not in done.stderr

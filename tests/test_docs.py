"""What the README and the manual say can be done by copy and paste."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pscnn.cli import app

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
        ("double-digits.md", 3),
        ("reproduce.md", 3),
        ("flows.md", 2),
        ("reading-densities.md", 1),
        ("vectors.md", 1),
        ("relaxations.md", 3),
    ],
)
def test_the_tables_of_the_docs_are_those_which_their_commands_print(page: str, tables: int, tmp_path: Path) -> None:
    text = (README.parent / "docs" / page).read_text()
    found = re.findall(
        r"```\npscnn (reproduce (?:(?!```).)*--format markdown)\n```\n\n((?:\|[^\n]*\n)+)", text, re.DOTALL
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
    tables = re.split(r"(?<=\|\n)(?=[^\n]*\n\| ---)", done.stdout)
    assert len(tables) == 7
    for table in tables:
        assert table in (MANUAL / "vectors.md").read_text()


def test_the_table_of_known_tasks_is_the_one_which_its_command_prints(tmp_path: Path) -> None:
    page = (MANUAL / "discover.md").read_text()
    (found,) = re.findall(r"```\npscnn (benchmark-discover [^`]*--format markdown)\n```\n\n((?:\|[^\n]*\n)+)", page)
    command, table = found
    words = [re.sub("^results/", f"{README.parent}/results/", word) for word in shlex.split(command)]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.stdout == table


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

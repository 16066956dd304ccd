"""What a release is made of says the same everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

import pscnn

ROOT = Path(__file__).parents[1]


def test_versions_agree() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == pscnn.__version__
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased" or headings[0].startswith(pscnn.__version__)
    assert all(re.fullmatch(r"Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", heading) for heading in headings)


def test_the_workflow_tries_all_versions_of_python_that_are_allowed() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    matrix = jobs["wheel"]["strategy"]["matrix"]
    oldest = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert oldest is not None
    assert matrix["python"][0] == oldest[1]
    assert {"python": oldest[1], "versions": "oldest"} in matrix["include"]


def test_only_what_was_tried_is_published_and_by_nothing_else() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert {*jobs["build"]["needs"]} == {*jobs} - {"build", "publish"}
    assert jobs["publish"]["needs"] == "build"
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    assert not any("run" in step for step in jobs["publish"]["steps"])  # it runs no code of this or other packages


def test_the_oldest_versions_are_those_of_the_project() -> None:
    def printed(*words: str) -> list[str]:
        command = [sys.executable, str(ROOT / ".ci" / "oldest.py"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    assert printed("layers") == ["numpy==1.26", "scipy==1.15", "torch==2.4"]
    found = set(printed())
    assert {"torch==2.10", "numpy==1.26", "scipy==1.15", "pillow==13; python_version >= '3.11'"} <= found
    assert "torch==2.4" not in found
    assert {line.split("==")[0] for line in found} > {"filelock", "jinja2", "ray", "typer"}


def test_all_that_is_needed_has_a_permissive_licence() -> None:
    done = subprocess.run([sys.executable, ROOT / ".ci" / "licences.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"torch", "numpy", "scipy", "jinja2", "scikit-learn"} <= {
        line.split()[0] for line in done.stdout.splitlines()
    }

"""Imports go down the list of rooms only, and into no other room's private modules (CONTRIBUTING.md)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("pscnn", cache_dir=None)  # with the imports inside functions


def test_rooms_know_nothing_of_later_ones() -> None:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_contract_sees_imports_inside_functions(graph: grimp.ImportGraph) -> None:
    assert graph.direct_import_exists(importer="pscnn.__main__", imported="pscnn.cli")


def test_private_modules_are_imported_in_their_own_room_only(graph: grimp.ImportGraph) -> None:
    found: dict[str, set[str]] = {}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            if is_foreign(importer, imported):
                found.setdefault(importer, set()).add(imported)
    assert not found


def is_foreign(importer: str, imported: str) -> bool:
    """Whether a module is private to a package that the importer is not in; those right below pscnn are for all."""
    parts = imported.split(".")
    private = next((k for k, part in enumerate(parts) if part.startswith("_")), 1)
    return private > 1 and importer.split(".")[:private] != parts[:private]


@pytest.mark.parametrize(
    ("importer", "imported", "expected"),
    [
        ("pscnn.kernels._slots", "pscnn.groups._planar", True),
        ("pscnn.kernels", "pscnn.groups._planar", True),
        ("pscnn.groups", "pscnn.groups._planar", False),
        ("pscnn.groups._axial", "pscnn.groups._planar", False),
        ("pscnn.kernels._slots", "pscnn._types", False),
        ("pscnn.kernels._slots", "pscnn.groups", False),
        ("pscnn.database", "pscnn.data._folder", True),
    ],
)
def test_private_modules_are_told_from_others(importer: str, imported: str, expected: bool) -> None:
    assert is_foreign(importer, imported) == expected

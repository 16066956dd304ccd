"""Imports go down the list of rooms only (CONTRIBUTING.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pscnn

ROOMS = ["groups", "kernels", "likelihood", "nn", "models", "data", "training", "experiments", "report", "cli"]
ROOT = Path(pscnn.__file__).parent


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_know_nothing_of_later_ones(room: str) -> None:
    files = list((ROOT / room).rglob("*.py")) or [ROOT / f"{room}.py"]
    later = ROOMS[ROOMS.index(room) + 1 :]
    for file in files:
        code = re.sub(r'""".*?"""', "", file.read_text(), flags=re.DOTALL)  # examples in docstrings may use anything
        used = re.findall(r"from pscnn\.(\w+)", code)
        used += [n for names in re.findall(r"from pscnn import (.+)", code) for n in names.split(", ")]
        assert not set(used) & set(later), file


@pytest.mark.parametrize("room", ["nn", "models"])
def test_rooms_use_what_others_make_public(room: str) -> None:
    for file in (ROOT / room).rglob("*.py"):
        assert not re.findall(rf"from pscnn\.(?!{room}\b)[a-z]\w*\._\w+ import", file.read_text()), file

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
    files = list((ROOT / room).glob("*.py")) or [ROOT / f"{room}.py"]
    later = ROOMS[ROOMS.index(room) + 1 :]
    for file in files:
        code = re.sub(r'""".*?"""', "", file.read_text(), flags=re.DOTALL)  # examples in docstrings may use anything
        used = re.findall(r"from pscnn\.(\w+)", code)
        used += [n for names in re.findall(r"from pscnn import (.+)", code) for n in names.split(", ")]
        assert not set(used) & set(later), file

"""Measured jets, with made-up files in their place."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pscnn.data import DataError, jetflow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "jetflow"
    place.mkdir()
    for number, (a, b) in enumerate(jetflow.STATIONS):
        torch.save(torch.full((jetflow.LEAST_FRAMES, 2, *jetflow.SIZE), float(number)), place / f"raw_data_{a}_{b}.pt")
    return tmp_path


def test_splits_are_those_of_the_protocol(folder: Path) -> None:
    found = jetflow.load(folder)
    assert {name: len(windows) for name, windows in found.items()} == {
        "train": 2880,
        "validation": 720,
        "future": 900,
        "domain": 600,
    }
    last = torch.tensor([len(found["future"]) - 1])
    past, future = found["future"].frames(last, steps=20)
    assert past.shape == (1, 20, 62, 23)
    assert future.shape == (1, 20, 2, 62, 23)
    numbers = {name: {int(v) for v in w.velocity.flatten(1)[:, 0]} for name, w in found.items()}
    assert not numbers["train"] & numbers["domain"]
    assert len(numbers["train"] | numbers["domain"]) == 24


def test_a_missing_file_says_where_it_comes_from(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"raw_data_1_1.pt is missing. JetFlow is published with the code of Wang"):
        jetflow.load(tmp_path)


def test_wrong_files_are_named(folder: Path) -> None:
    path = folder / "jetflow" / "raw_data_2_3.pt"
    for content, message in (
        (torch.zeros(300, 2, 23, 62), r"must hold 281 or more frames, .* got \(300, 2, 23, 62\)"),
        (torch.zeros(100, 2, 62, 23), r"must hold 281 or more frames"),
        ({"velocity": torch.zeros(3)}, r"got dict"),
    ):
        torch.save(content, path)
        with pytest.raises(DataError, match=message):
            jetflow.load(folder)
    for damaged in (b"not a tensor", b"hello", b""):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="cannot be read as a tensor"):
            jetflow.load(folder)


class Harmful:
    """What a file must not be able to do."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code was run')",)


def test_files_cannot_run_code(folder: Path) -> None:
    torch.save(Harmful(), folder / "jetflow" / "raw_data_1_1.pt")
    with pytest.raises(DataError, match="cannot be read as a tensor"):
        jetflow.load(folder)

"""Rivals of equal size, recipes for all of them, and fewer training images."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import sheet_of, sheets_of, small

from pscnn import training
from pscnn.experiments import equal_width
from pscnn.experiments._sheets import parameter_count
from pscnn.tasks.double_digits import DoubleDigitSettings


def settings_of(sheet: Any) -> list[DoubleDigitSettings]:
    found = [one for one, _ in sheet.cells.values()]
    assert all(isinstance(one, DoubleDigitSettings) for one in found)
    return found


@pytest.mark.parametrize("nonlinearity", ["gated", "fourier"])
@pytest.mark.parametrize("width", [0.1, 1.0])
def test_a_plain_network_is_as_large(nonlinearity: str, width: float) -> None:
    ours = DoubleDigitSettings(nonlinearity=nonlinearity, width=width)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    equal_width.cache_clear()
    found = equal_width(ours)
    assert torch.equal(torch.get_rng_state(), before)
    sizes = [parameter_count(DoubleDigitSettings(method="cnn", width=found + k / 100)) for k in (-1, 0, 1)]
    wanted = parameter_count(ours)
    assert sizes[1] == pytest.approx(wanted, rel=0.05 if width < 1 else 0.005)
    assert abs(sizes[1] - wanted) == min(abs(size - wanted) for size in sizes)


def test_the_smallest_plain_network_is_the_rival_of_smaller_ones() -> None:
    assert equal_width(DoubleDigitSettings(method="cnn", width=0.01)) == 0.01


def test_all_rivals_are_trained_alike() -> None:
    sheet = sheet_of("fair")
    assert sheet.title == "Double digits, rivals of equal size"
    assert sheet.columns == ["C1", "C4", "SO2", "D1", "D4", "O2"]
    methods = ["Free twin", "SCNN", "R-SCNN", "RPP", "P-SCNN"]
    named = [f"{word} {method}" for word in ("gated", "Fourier") for method in methods]
    assert sheet.rows == ["CNN", "CNN, equal size", "CNN, size of Fourier", *named]
    varying = {"method", "nonlinearity", "width", "symmetry"}
    for one in settings_of(sheet):
        assert one.differing().keys() <= varying | {"recipe", "source"}
        assert (one.recipe, one.source, one.group) == ("modern", "mnist", "O(2)")
    for pair in (("CNN, equal size", "gated P-SCNN"), ("CNN, size of Fourier", "Fourier P-SCNN")):
        plain, ours = (sheet.cells[row, "O2"][0] for row in pair)
        assert parameter_count(plain) == pytest.approx(parameter_count(ours), rel=0.005)


def test_nonlinearities_are_compared_at_equal_weights() -> None:
    sheet = sheet_of("nonlinearities")
    gated, fourier = (parameter_count(sheet.cells[row, "P-SCNN"][0]) for row in ("gated", "Fourier"))
    for row in sheet.rows:
        count = parameter_count(sheet.cells[row, "P-SCNN"][0])
        if "as many weights as gated" in row:
            assert count == pytest.approx(gated, rel=0.02)
        elif "as many weights" in row:
            assert count == pytest.approx(fourier, rel=0.02)


def test_every_rival_gets_the_same_search() -> None:
    sheet, rivals = sheet_of("recipe-search"), sheet_of("fair")
    assert sheet.rows == rivals.rows
    assert len(sheet.columns) == 12
    assert len(sheet.cells) == 12 * len(sheet.rows)
    assert "25 epochs" in sheet.title
    assert {key for _, key in sheet.cells.values()} == {"validation_accuracy"}
    grid = set(itertools.product((0.001, 0.002, 0.004), (0.0, 0.05), (0.0, 0.1)))
    for row in sheet.rows:
        found = [one for one, (place, _) in zip(settings_of(sheet), sheet.cells, strict=True) if place == row]
        assert {(one.lr, one.weight_decay, one.label_smoothing) for one in found} == grid
        assert {(one.epochs, one.symmetry, one.recipe, one.schedule) for one in found} == {
            (25, "O2", "modern", "cosine")
        }


def test_fewer_images_have_as_many_steps() -> None:
    first, second = sheets_of("data-efficiency")
    counts = ("5", "10", "25", "50", "100")
    assert [sheet.columns for sheet in (first, second)] == [[f"{way}, {n}" for n in counts] for way in ("O2", "D1")]
    assert {one.symmetry for one in settings_of(first)} == {"O2"}
    assert {one.symmetry for one in settings_of(second)} == {"D1"}
    for (_, column), (one, _) in first.cells.items():
        assert isinstance(one, DoubleDigitSettings)
        assert f"O2, {one.train_per_class}" == column
        assert (one.epochs, one.recipe) == (50, "modern")
        assert one.passes * one.train_per_class * 100 == 10_000
    plain, ours = (first.cells[row, "O2, 5"][0] for row in ("CNN, equal size", "Fourier P-SCNN"))
    assert parameter_count(plain) == pytest.approx(parameter_count(ours), rel=0.005)


def batches(**changes: Any) -> list[tuple[torch.Tensor, int]]:
    data = training.Data(training.task_of(small(**changes)))
    return list(data.rows("train"))


def test_an_epoch_can_go_through_its_images_several_times() -> None:
    once, thrice = batches(batch_size=20), batches(batch_size=20, passes=3)
    assert [len(rows) for rows, _ in once] == [20, 20, 8]
    assert [len(rows) for rows, _ in thrice] == [20] * 7 + [4]  # no small batch in between
    rows = torch.cat([rows for rows, _ in thrice]).reshape(3, 48)
    assert torch.equal(rows.sort().values, torch.arange(48).expand(3, 48))
    assert torch.equal(rows[0], torch.cat([rows for rows, _ in once]))
    assert not torch.equal(rows[0], rows[1])
    assert len({seed for _, seed in thrice}) == 8


def test_validation_is_not_repeated(tmp_path: Path) -> None:
    settings = small(passes=3, epochs=2, recipe="modern")
    data = training.Data(training.task_of(settings))
    assert len([*data.rows("train")]) == data.steps() == 9
    assert len([*data.rows("validation")]) == 1
    whole, parts = (training.start(settings, tmp_path / name) for name in ("whole", "parts"))
    training.train(whole, accelerator="cpu", progress=False)
    training.train(parts, accelerator="cpu", progress=False, epochs=1)
    training.train(parts, accelerator="cpu", progress=False)
    rows = [[{**row, "seconds": 0, "step_ms": 0} for row in training.history(folder)] for folder in (whole, parts)]
    assert len(rows[0]) == 2
    assert rows[0] == rows[1]


def test_the_sizes_in_the_manual_are_true() -> None:
    text = (Path(__file__).parents[2] / "docs" / "double-digits.md").read_text()
    table = text.partition("| | gated | Fourier |\n|---|---|---|\n")[2].partition("\n\n")[0]
    printed = {row: cells for row, *cells in (re.split(r" *\| *", line.strip("| ")) for line in table.splitlines())}
    fair, (fewer, _) = sheet_of("fair"), sheets_of("data-efficiency")
    for column, word in enumerate(("gated", "Fourier")):
        for row, cells in printed.items():
            if row == "CNN" and column:
                continue
            plain = fewer.cells[row, "O2, 5"] if column and row.startswith("CNN") else None
            one, _ = plain or fair.cells[row if row.startswith("CNN") else f"{word} {row}", "O2"]
            assert cells[column].split(" ")[0] == f"{parameter_count(one) / 1000:,.0f}", row
            assert f"--width {one.differing().get('width', 6.38)}" in text

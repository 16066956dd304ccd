"""The table of all ways to relax equivariance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import sheet_of, sheets_of
from typer.testing import CliRunner

from pscnn.cli import app
from pscnn.experiments import select
from pscnn.experiments._relaxations import WEAK
from pscnn.models import METHODS, STRENGTHS
from pscnn.report import draw_sheets, tradeoff_figure
from pscnn.tasks.double_digits import WAYS, DoubleDigitSettings
from pscnn.training import Store

COLUMNS = ["accuracy", "equivariance error", "weights"]


def test_all_methods_are_trained_alike_on_all_digits() -> None:
    sheets = sheets_of("relaxations")
    tables, figures = sheets[:6], sheets[6:]
    assert [sheet.picture for sheet in sheets] == 6 * [None] + 6 * ["trade-off"]
    for way, table, figure in zip(WAYS, tables, figures, strict=True):
        weak = {f"{method}, {strength:g}" for method, strength in WEAK.items()}
        assert set(table.rows) == set(METHODS) | weak
        assert table.columns == [f"{way} {name}" for name in COLUMNS]
        assert table.cells == figure.cells
        for (row, _), (one, _) in table.cells.items():
            assert isinstance(one, DoubleDigitSettings)
            own = {"strength"} if row in weak else set()
            assert one.differing().keys() <= {"method", "width", "symmetry", "recipe", "source", "nonlinearity"} | own
            assert one.nonlinearity == (
                "gated" if one.method in ("cnn", "augment", "augerino") else "fourier"
            )  # the plain ones have none
            assert (one.method, one.symmetry, one.recipe, one.group) == (row.split(",")[0], way, "modern", "O(2)")
    runs = {run for sheet in sheets for run in sheet.runs(3)}
    rows = len(METHODS) + len(WEAK)
    assert len(runs) == 3 * 6 * rows
    some = select(sheets, ["O2*", "D4*", "C1*"])
    assert len({run for sheet in some for run in sheet.runs(3)}) == 3 * 3 * rows


def test_rows_of_some_digits_can_be_chosen() -> None:
    (table, figure) = select(sheets_of("relaxations"), ["O2*", "ace", "p-scnn"])
    assert table.rows == ["p-scnn", "ace"]
    assert table.columns == [f"O2 {name}" for name in COLUMNS]
    assert figure.picture == "trade-off"
    assert len(select(sheets_of("relaxations"), ["ace"])) == 12  # rows alone: of all digits
    assert len(select(sheets_of("relaxations"), [])) == 12


def test_every_method_with_a_number_has_as_many_trials_of_it() -> None:
    sheet = sheet_of("relaxations-search")
    assert len(sheet.rows) == len(STRENGTHS) + 1
    assert len(sheet.columns) == 3
    settings = [one for one, _ in sheet.cells.values() if isinstance(one, DoubleDigitSettings)]
    for method, usual in STRENGTHS.items():
        found = sorted({one.strength for one in settings if one.method == method})
        assert found == pytest.approx([found[1] / 10, found[1], 10 * found[1]])
        assert usual in found  # what is usual was among what was tried
    assert sorted({one.kl_weight for one in settings if one.method == "p-scnn"}) == pytest.approx([0.3, 3, 30])
    assert {key for _, key in sheet.cells.values()} == {"validation_accuracy"}


def test_tables_and_figures_from_results(tmp_path: Path) -> None:
    store = Store(tmp_path)
    sheets = select(sheets_of("relaxations"), ["O2*", "scnn", "free"])
    for k, one in enumerate(sheets[0].runs(2)):
        folder = store.folder(one)
        folder.mkdir(parents=True)
        result = {
            "test_accuracy": 0.5 + 0.1 * k,
            "equivariance_error": 0.2 * k,
            "parameters": 1078034,
        }
        rest = {"epochs": 1, "best_epoch": 0, "seconds": 1.0, "device": "x"}
        (folder / "result.json").write_text(json.dumps({**result, **rest}))
    files = draw_sheets(sheets[1:], store, "relaxations", seeds=2)
    assert [file.name for file in files] == [f"Ways-to-relax-equivariance-O2-digits.{end}" for end in ("png", "svg")]
    words = ["--only", "O2*", "--only", "scnn", "--only", "free", "--seeds", "2", "--no-run", "--format", "markdown"]
    done = CliRunner().invoke(app, ["reproduce", "relaxations", *words, "--runs", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "| scnn | 0.550 ± 0.071 (2) | 0.100 ± 0.141 (2) | 1,078,034 (2) |" in done.stdout
    assert "figure:" in done.stderr
    assert "figure:" not in done.stdout
    words[1] = "O2 accuracy"  # errors are not asked for, but the runs have them
    assert "figure:" in CliRunner().invoke(app, ["reproduce", "relaxations", *words, "--runs", str(tmp_path)]).stderr


def test_runs_from_before_errors_were_measured_have_no_figure(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one = DoubleDigitSettings(method="free", source="mnist", recipe="modern", nonlinearity="fourier")
    result = {"test_accuracy": 0.5, "parameters": 1, "epochs": 1, "best_epoch": 0, "seconds": 1.0, "device": "x"}
    store.folder(one).mkdir(parents=True)
    (store.folder(one) / "result.json").write_text(json.dumps(result))
    words = ["--only", "O2*", "--seeds", "1", "--no-run", "--runs", str(tmp_path)]
    done = CliRunner().invoke(app, ["reproduce", "relaxations", *words])
    assert done.exit_code == 0, done.output
    assert "figure" not in done.output


def test_points_have_a_marker_for_each_method() -> None:
    figure = tradeoff_figure({method: [(0.1 * k, 0.55), (0.1 * k, 0.6)] for k, method in enumerate(METHODS)})
    (axis,) = figure.axes
    marks = {(line.get_color(), line.get_marker()) for line in axis.lines}
    assert len(marks) == len(axis.lines) == len(METHODS)
    assert [len(line.get_xdata()) for line in axis.lines] == [2] * len(METHODS)  # type: ignore[arg-type]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("equivariance error", "test accuracy")
    whole, near = tradeoff_figure({"scnn": [(0.0, 0.5)], "free": [(1.1, 0.9), (1.2, 0.8)]}).axes
    assert [len(line.get_xdata()) for line in whole.lines] == [1, 2]  # type: ignore[arg-type]
    assert [len(line.get_xdata()) for line in near.lines] == [0, 1]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no run has both"):
        tradeoff_figure({})

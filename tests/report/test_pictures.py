"""Figures of the runs of a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import sheet_of, sheets_of

from pscnn import training
from pscnn.experiments import Sheet
from pscnn.report import draw_sheets
from pscnn.tasks.shapes import ShapeSettings
from pscnn.training import Store, run_missing


def test_accuracy_over_the_number_of_images_has_a_figure_per_kind_of_digits(tmp_path: Path) -> None:
    store = Store(tmp_path)
    sheets = [sheet.only(["CNN, equal size", "*, 5", "*, 10"]) for sheet in sheets_of("figure-data-efficiency")]
    for one in [one for sheet in sheets for one in sheet.runs(2)]:
        folder = store.folder(one)
        folder.mkdir(parents=True)
        result = {"test_accuracy": 0.5, "epochs": 1, "best_epoch": 0, "parameters": 1, "seconds": 1.0, "device": "x"}
        (folder / "result.json").write_text(json.dumps(result))
    files = draw_sheets(sheets, store, "counts", seeds=2)
    assert [file.name[:2] for file in files] == ["O2", "O2", "D1", "D1"]


def test_figures_in_space_and_over_fractions(tmp_path: Path) -> None:
    store = Store(tmp_path)
    config = ShapeSettings(epochs=1, train_count=8, validation_count=8, test_count=8, batch_size=4)
    run_missing([config], Store(tmp_path), workers=1, accelerator="cpu")
    file, _ = draw_sheets([Sheet("", None, {("body", ""): (config, "test_accuracy")}, "spheres")], store, "spheres")
    assert file.stat().st_size > 10_000
    fractions = sheet_of("figure-data-ablation").only(["CNN, organ", "0.5", "1"])
    for k, (one, _) in enumerate(fractions.cells.values()):
        folder = store.folder(one)
        folder.mkdir(parents=True)
        result = {"test_accuracy": 0.5 + 0.1 * k, "epochs": 1, "best_epoch": 0, "parameters": 1}
        (folder / "result.json").write_text(json.dumps({**result, "seconds": 1.0, "device": "x"}))
    file, _ = draw_sheets([fractions], store, "fractions")
    assert file == tmp_path / "figures" / "fractions" / "organ.png"
    confusion = Sheet("", None, {("half", ""): next(iter(fractions.cells.values()))}, "confusion")
    with pytest.raises(training.RunError, match="imported from a results file"):
        draw_sheets([confusion], store, "confusion")
    with pytest.raises(training.RunError, match="is finished"):
        draw_sheets([sheet_of("figure-kl")], store, "kl")

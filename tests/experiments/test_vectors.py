from __future__ import annotations

from pscnn.experiments import Cell, published, space_sheets, vector_sheets


def test_tables_name_every_row_of_the_paper() -> None:
    tables = [sheet for sheet in vector_sheets() if sheet.picture is None]
    for sheet in tables:
        assert sheet.paper is not None
        assert set(published(sheet.paper)) == set(sheet.rows)
    runs = {one for sheet in tables for one in sheet.runs(1)}
    assert len(runs) == 32
    assert {one for sheet in vector_sheets() for one in sheet.runs(1)} == runs  # figures need no others
    assert len(space_sheets()[0].runs(1)) == 15


def test_cells_say_when_they_differ() -> None:
    assert not Cell(1.0, 0.1, 5, (1.2, 0.1)).differs
    assert Cell(1.0, 0.1, 5, (1.21, 0.1)).differs
    assert not Cell(1.0, 0.1, 5, None).differs

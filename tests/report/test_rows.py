"""Tables as text."""

from __future__ import annotations

from pscnn.report import write_rows


def test_formats() -> None:
    rows = [["", "a_b"], ["x", "0.1 ± 0.2 | 3"]]
    assert write_rows(rows, "csv") == ",a_b\nx,0.1 ± 0.2 | 3\n"
    assert write_rows(rows, "markdown") == "|  | a_b |\n| --- | --- |\n| x | 0.1 ± 0.2 \\| 3 |\n"
    assert "x & 0.1 $\\pm$ 0.2 $|$ 3 \\\\" in write_rows(rows, "latex")
    assert write_rows(rows, "text") == "   a_b\nx  0.1 ± 0.2 | 3\n"

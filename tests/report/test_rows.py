"""Tables as text."""

from __future__ import annotations

from pathlib import Path

from helpers import TINY_DIGITS

from pscnn.data.own import About
from pscnn.report import run_rows, write_rows
from pscnn.training import make_settings


def test_formats() -> None:
    rows = [["", "a_b"], ["x", "0.1 ± 0.2 | 3"]]
    assert write_rows(rows, "csv") == ",a_b\nx,0.1 ± 0.2 | 3\n"
    assert write_rows(rows, "markdown") == "|  | a_b |\n| --- | --- |\n| x | 0.1 ± 0.2 \\| 3 |\n"
    assert "x & 0.1 $\\pm$ 0.2 $|$ 3 \\\\" in write_rows(rows, "latex")
    assert write_rows(rows, "text") == "   a_b\nx  0.1 ± 0.2 | 3\n"


def test_only_runs_that_differ_in_nothing_else_but_the_seed_are_averaged() -> None:
    kinds: list[tuple[dict[str, object], float]] = [
        ({**TINY_DIGITS, "method": "cnn"}, 0.1),
        ({**TINY_DIGITS, "method": "p-scnn"}, 0.2),
        ({**TINY_DIGITS, "method": "p-scnn", "seed": 1, "compile": True}, 0.4),
        ({**TINY_DIGITS, "method": "p-scnn", "bandlimit": 3}, 0.6),
        ({"task": "shapes3d", "method": "cnn"}, 0.8),
    ]
    runs = [(Path(), make_settings(kind).to_dict(), {"test_accuracy": score}) for kind, score in kinds]
    assert run_rows(runs[:4], "method") == [
        ["method", "bandlimit", "runs", "test accuracy"],
        ["cnn", "–", "1", "0.1000"],
        ["p-scnn", "2", "2", "0.3000 ± 0.1414"],
        ["p-scnn", "3", "1", "0.6000"],
    ]
    twice = {**TINY_DIGITS, "method": "p-scnn", "compile": True}  # seed 0 once more
    again = Path(), make_settings(twice).to_dict(), {"test_accuracy": 0.9}
    assert run_rows([*runs[:4], again], "method") == run_rows(runs[:4], "method")
    head, *rows = run_rows(runs, "seed")
    assert head[:2] == ["seed", "task"]
    assert sorted((row[0], row[1], row[-2]) for row in rows) == [
        ("0", "ddmnist", "1"),
        ("0", "ddmnist", "1"),
        ("0", "ddmnist", "1"),
        ("0", "shapes3d", "1"),
        ("1", "ddmnist", "1"),
    ]


def test_runs_on_data_about_which_something_else_is_known_are_told_apart() -> None:
    abouts = [About((8, 8), 1, ("a", "b"), "classes", 0.0, 1.0, counts=(10, 5, 5), notes=(note,)) for note in "xy"]
    kinds = [{"task": "own", "data": "data.npz", "about": about.to_json(), "method": "cnn"} for about in abouts]
    runs = [(Path(), make_settings(kind).to_dict(), {"test_accuracy": 0.5}) for kind in kinds]
    assert [row[:3] for row in run_rows(runs, "method")] == [
        ["method", "about", "runs"],
        ["cnn", "1", "1"],
        ["cnn", "2", "1"],
    ]

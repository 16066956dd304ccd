"""Tables as lists of runs."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import sheet_of, sheets_of

from pscnn.experiments import SHEETS, Sheet, check_settings, check_words, published
from pscnn.tasks.double_digits import SWITCHES, DoubleDigitSettings, parse_switches
from pscnn.training import ConfigError, task_of


def test_rows_and_columns_are_chosen_by_name_or_pattern() -> None:
    sheet = sheet_of("bandlimit")
    assert sheet.only(["O(2)*", "SO2"]).rows == [row for row in sheet.rows if row.startswith("O(2)")]
    assert sheet.only(["O(2)*", "SO2"]).columns == ["SO2"]
    assert sheet.only(["O(2) L = 1"]).rows == ["O(2) L = 1"]
    assert sheet.only(["*SCNN"]).columns == sheet.columns
    with pytest.raises(ConfigError, match="no row or column is called 'o\\(2"):
        check_words([sheet], ["O(2)*", "o(2)*"])


def test_table_1_has_570_runs() -> None:
    sheet = sheet_of("ddmnist")
    assert (len(sheet.rows), len(sheet.columns)) == (19, 6)
    assert set(sheet.rows) - set(published("ddmnist")) == {"CNN, equal size", "O(2) Free twin"}
    assert sheet.rows[:2] == ["CNN", "CNN, equal size"]
    runs = sheet.runs(5)
    assert len(runs) == len(set(runs)) == 570
    config, key = sheet.cells["SO(2) R-SCNN", "D4"]
    assert isinstance(config, DoubleDigitSettings)
    assert (config.method, config.group, config.symmetry, config.source, key) == (
        "restricted", "SO(2)", "D4", "mnist", "test_accuracy",
    )  # fmt: skip
    assert (config.epochs, config.lr, config.batch_size) == (50, 5e-4, 256)


FIGURES = [name for name in SHEETS if name.startswith("figure-")]


OTHERS = ["ablation", "ablation-methods", "jetflow", "data-ablation", "vectors", "vectors-3d", "symmetry", *FIGURES]
OTHERS += [
    "asymmetry",
    "fair",
    "quickstart",
    "quickstart-search",
    "nonlinearities",
    "recipe-search",
    "data-efficiency",
    "relaxations",
    "relaxations-search",
]


@pytest.mark.parametrize("name", [n for n in SHEETS if n not in OTHERS])
def test_every_cell_stands_beside_a_published_number(name: str) -> None:
    sheet = sheet_of(name)
    assert sheet.paper is not None
    numbers = published(sheet.paper)
    assert all(column in numbers[row] for row, column in sheet.cells if row in numbers)
    missing = {row for row in numbers for column in numbers[row] if (row, column) not in sheet.cells}
    assert missing == set()
    assert set(sheet.rows) - set(numbers) <= {"CNN, equal size", "O(2) Free twin"}


def test_fewer_volumes_of_organs_stand_beside_the_figures_numbers() -> None:
    sheet = sheet_of("data-ablation")
    numbers = published("data_ablation")
    assert all(column in numbers[row] for row, column in sheet.cells if row.endswith("organ"))
    assert numbers["SO(3) P-SCNN, organ"]["0.25"] == (0.755, 0.029)


def test_tables_can_be_narrowed_and_changed() -> None:
    sheet = sheet_of("ddmnist")
    assert set(sheet.only(["O2"]).columns) == {"O2"}
    assert len(sheet.only(["O2"]).cells) == 19
    few = sheet.only(["CNN", "O(2) P-SCNN", "O2", "SO2"])
    assert set(few.cells) == {(row, column) for row in ("CNN", "O(2) P-SCNN") for column in ("O2", "SO2")}
    with pytest.raises(ConfigError, match="no row or column is called 'O3'"):
        check_words([sheet], ["O3"])
    changed = few.changed({"epochs": 3})
    assert {config.epochs for config, _ in changed.cells.values()} == {3}
    with pytest.raises(ConfigError, match="no run of this table has a setting 'dataset'"):
        check_settings([sheet], {"dataset": "organ"})
    with pytest.raises(ConfigError, match="method is what this table compares"):
        sheet.changed({"method": "cnn"})
    mixed = sheet_of("competitive").changed({"epochs": 3, "fraction": 0.5})
    assert {config.epochs for config, _ in mixed.cells.values()} == {3}
    assert {config.method for config, _ in sheet.only(["CNN"]).changed({"group": "C4"}).cells.values()} == {"cnn"}


def test_a_default_that_depends_on_a_replaced_setting_follows_it() -> None:
    sheet = SHEETS["figure-confusion-organ"]()
    assert isinstance(sheet, Sheet)
    assert {one.lr for one, _ in sheet.changed({"dataset": "nodule"}).cells.values()} == {1e-5}
    assert {one.lr for one, _ in sheet.changed({"dataset": "nodule", "lr": 0.1}).cells.values()} == {0.1}


def test_cells_are_means_over_seeds() -> None:
    sheet = sheet_of("ddmnist").only(["CNN", "O2"])
    found = {0: 0.5, 2: 0.7}
    filled = sheet.fill(3, lambda c: {"test_accuracy": found[c.seed]} if c.seed in found else None)
    (value,) = filled.values()
    assert value is not None
    assert value.count == 2
    assert value.mean == pytest.approx(0.6)
    assert value.std == pytest.approx(statistics.stdev([0.5, 0.7]))
    assert value.paper == (0.649, 0.019)
    assert value.differs
    assert sheet.fill(3, lambda c: None) == {("CNN", "O2"): None}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_of_runs_that_tables_have_too(name: str) -> None:
    tables = {config for n in SHEETS if n not in FIGURES for sheet in sheets_of(n) for config in sheet.runs(1)}
    for sheet in sheets_of(name):
        assert sheet.picture is not None
        assert set(sheet.runs(1)) <= tables


def test_the_figure_of_band_limits_shows_those_of_the_paper() -> None:
    sheet = sheet_of("figure-bandlimit")
    assert sheet.rows == ["L = 0", "L = 2", "L = 3"]
    for one, _ in sheet.cells.values():
        assert isinstance(one, DoubleDigitSettings)
        assert (one.group, one.symmetry) == ("O(2)", "SO2")


def test_the_table_goes_from_the_released_code_to_ours() -> None:
    sheet = sheet_of("ablation")
    released = {}
    for (row, _), (one, _) in sheet.cells.items():
        assert isinstance(one, DoubleDigitSettings)
        released[row] = parse_switches(one.released)
    steps = sheet.rows[: len(SWITCHES) + 1]
    assert (steps[0], steps[-1]) == ("released code", "ours")
    assert released["released code"] == SWITCHES
    assert released["ours"] == ()
    for k, (earlier, later) in enumerate(itertools.pairwise(steps)):
        assert set(released[earlier]) - set(released[later]) == {SWITCHES[k]}
        assert set(released[later]) < set(released[earlier])
    single = sheet.rows[len(steps) :]
    assert single == [f"ours, but {name} as released" for name in SWITCHES]
    assert [released[row] for row in single] == [(name,) for name in SWITCHES]
    ours = sheet.cells["ours", "accuracy"][0]
    assert ours == sheet_of("ddmnist").cells["O(2) P-SCNN", "O2"][0]
    assert len(sheet.runs(5)) == 5 * (2 * len(SWITCHES))  # "overlap" alone is in both parts
    with pytest.raises(ConfigError, match="released is what this table compares"):
        sheet.changed({"released": "all"})


def test_methods_are_compared_with_the_switches_that_apply_to_them() -> None:
    sheet = sheet_of("ablation-methods")
    assert sheet.columns == ["released code", "ours"]
    for row in sheet.rows:
        ours, released = (sheet.cells[row, column][0] for column in ("ours", "released code"))
        assert ours == sheet_of("ddmnist").cells[f"O(2) {row}", "O2"][0]
        assert isinstance(ours, DoubleDigitSettings)
        assert isinstance(released, DoubleDigitSettings)
        assert replace(released, released="") == ours
        small: dict[str, Any] = {"width": 0.1, "size": 28}
        networks = [
            _seeded(replace(released, **small, released=text)) for text in (released.released, "all", ours.released)
        ]
        assert networks[0] == networks[1]  # what is left out has no effect
        assert networks[0] != networks[2]
    assert sheet.cells["P-SCNN", "released code"] == sheet_of("ablation").cells["released code", "accuracy"]


def _seeded(settings: DoubleDigitSettings) -> str:
    """A network with the sum of its weights, in words."""
    torch.manual_seed(0)
    model = task_of(settings).build()
    return f"{model} {sum(p.double().sum().item() for p in model.parameters())}"

"""The paper's tables as data: for every cell the configuration of its runs, and which of their results it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any

from pscnn.experiments._paper import published
from pscnn.experiments._tables import Cell, spread
from pscnn.training._config import (
    Config,
    ConfigError,
    DoubleDigitConfig,
    JetFlowConfig,
    SmokeConfig,
    VolumeConfig,
)
from pscnn.training._released import SWITCHES

Place = tuple[str, str]
"""Row and column of a cell."""
METHODS = {"SCNN": "scnn", "R-SCNN": "restricted", "RPP": "rpp", "P-SCNN": "p-scnn"}
SYMMETRIES = ("C1", "C4", "SO2", "D1", "D4", "O2")
FLOWS = {
    "MLP": "mlp",
    "CNN": "cnn",
    "e2cnn": "e2cnn",
    "RPP": "rpp",
    "Combo": "combo",
    "CLCNN": "clcnn",
    "Lift": "lift",
    "RGroup": "rgroup",
    "RSteer": "rsteer",
    "P-SCNN": "p-scnn",
}
FRACTIONS = (1.0, 0.75, 0.5, 0.25, 0.125, 0.0625)


@dataclass(frozen=True)
class Sheet:
    """A table of runs.

    Attributes:
        title: What it compares.
        paper: Name of the published table, or None.
        cells: The configuration of every cell, of the first seed, and the result that it shows.
        picture: For a figure instead of a table, what is drawn: "confusion" or "degrees" of every row, "training" or
            "spheres" of all, or "fractions", accuracy over the columns.
    """

    title: str
    paper: str | None
    cells: Mapping[Place, tuple[Config, str]]
    picture: str | None = None

    @property
    def rows(self) -> list[str]:
        """Labels, in order."""
        return list(dict.fromkeys(row for row, _ in self.cells))

    @property
    def columns(self) -> list[str]:
        """Labels, in order."""
        return list(dict.fromkeys(column for _, column in self.cells))

    def only(self, words: Iterable[str]) -> Sheet:
        """The cells in rows and columns of these names or patterns (*, ?); all rows, or columns, if none is named."""
        chosen = list(words)
        if not chosen:
            return self
        known = [*self.rows, *self.columns]
        for word in chosen:
            if not any(fnmatchcase(label, word) for label in known):
                raise ConfigError(f"no row or column is called {word!r}; there are {', '.join(known)}")
        rows, columns = (
            [label for label in labels if any(fnmatchcase(label, word) for word in chosen)] or labels
            for labels in (self.rows, self.columns)
        )
        kept = {place: cell for place, cell in self.cells.items() if place[0] in rows and place[1] in columns}
        return replace(self, cells=kept)

    def changed(self, settings: Mapping[str, Any]) -> Sheet:
        """With settings replaced in every cell that has them; what the table compares cannot be replaced."""
        if not settings:
            return self
        known = {field.name for config, _ in self.cells.values() for field in fields(config)}
        for name in settings:
            if name not in known:
                raise ConfigError(f"no run of this table has a setting {name!r}")
            values = {(config.experiment, getattr(config, name, None)) for config, _ in self.cells.values()}
            if len(values) > len({experiment for experiment, _ in values}):
                raise ConfigError(f"{name} is what this table compares, or differs between its runs: use --only")
        cells = {}
        for place, (config, result) in self.cells.items():
            own = {name: value for name, value in settings.items() if hasattr(config, name)}
            cells[place] = replace(config, **own), result
        return replace(self, cells=cells)

    def runs(self, seeds: int) -> list[Config]:
        """All distinct configurations, every cell with its seeds; figures of single networks show the first."""
        seeds = seeds if self.picture in (None, "fractions") else 1
        found = (replace(config, seed=config.seed + k) for config, _ in self.cells.values() for k in range(seeds))
        return list(dict.fromkeys(found))

    def fill(
        self, seeds: int, result: Callable[[Config], Mapping[str, Any] | None]
    ) -> dict[Place, tuple[Cell, int] | None]:
        """Every cell with the number of its finished runs; None where there are none."""
        theirs = published(self.paper) if self.paper else {}
        out: dict[Place, tuple[Cell, int] | None] = {}
        for (row, column), (config, key) in self.cells.items():
            found = (result(replace(config, seed=config.seed + k)) for k in range(seeds))
            values = [float(one[key]) for one in found if one is not None]
            paper = theirs.get(row, {}).get(column)
            out[row, column] = (Cell(*spread(values), paper), len(values)) if values else None
        return out


def _name(group: str) -> str:
    """SO2 as SO(2), C4 as it is."""
    return f"{group[:-1]}({group[-1]})" if "O" in group else group


def _digits() -> Sheet:
    cells: dict[Place, tuple[Config, str]] = {}
    for symmetry in SYMMETRIES:
        base = DoubleDigitConfig(source="mnist", symmetry=symmetry)
        cells["CNN", symmetry] = replace(base, method="cnn"), "test_accuracy"
    for group in ("C4", "D4", "SO2", "O2"):
        for label, method in METHODS.items():
            for symmetry in SYMMETRIES:
                config = DoubleDigitConfig(source="mnist", symmetry=symmetry, method=method, group=_name(group))
                cells[f"{_name(group)} {label}", symmetry] = config, "test_accuracy"
    return Sheet("Double digits", "ddmnist", cells)


def _generalisation() -> Sheet:
    """Trained on digits at quarter turns and mirrored, tested on those and on digits at any angle."""
    cells: dict[Place, tuple[Config, str]] = {}
    base = DoubleDigitConfig(source="mnist", symmetry="D4", other_symmetry="O2")
    rows: dict[str, Config] = {"CNN": replace(base, method="cnn")}
    for group in ("SO(2)", "O(2)"):
        for label in ("R-SCNN", "RPP", "P-SCNN"):
            rows[f"{group} {label}"] = replace(base, method=METHODS[label], group=group)
    for row, config in rows.items():
        for column, result in (("test_D4", "test_accuracy"), ("test_O2", "other_accuracy")):
            cells[row, column] = config, result
    return Sheet("Trained on D4 digits", "generalisability", cells)


def _levels(group: str, base: Config, levels: tuple[int, ...]) -> dict[str, Config]:
    """The equivariant network, and P-SCNN for several band-limits."""
    own = replace(base, group=group)
    return {
        f"{group} SCNN": replace(own, method="scnn"),
        **{f"{group} L = {level}": replace(own, method="p-scnn", bandlimit=level) for level in levels},
    }


def _digit_bandlimits() -> Sheet:
    cells: dict[Place, tuple[Config, str]] = {}
    for group, levels in (("SO(2)", (1, 2, 3, 4)), ("O(2)", (0, 1, 2, 3, 4))):
        for symmetry in ("SO2", "O2"):
            base = DoubleDigitConfig(source="mnist", symmetry=symmetry)
            for row, config in _levels(group, base, levels).items():
                cells[row, symmetry] = config, "test_accuracy"
    return Sheet("Band-limits, double digits", "ddmnist_bandlimit", cells)


def _volumes() -> Sheet:
    cells: dict[Place, tuple[Config, str]] = {}
    for dataset in ("nodule", "synapse", "organ"):
        cells["CNN", dataset] = VolumeConfig(dataset=dataset, method="cnn"), "test_accuracy"
        for group in ("SO(3)", "O(3)"):
            for label in ("SCNN", "RPP", "P-SCNN"):
                config = VolumeConfig(dataset=dataset, method=METHODS[label], group=group)
                cells[f"{group} {label}", dataset] = config, "test_accuracy"
    return Sheet("Medical volumes", "medmnist", cells)


def _volume_bandlimits() -> Sheet:
    cells: dict[Place, tuple[Config, str]] = {}
    for group, levels in (("SO(3)", (1, 2, 3, 4)), ("O(3)", (0, 1, 2))):
        for dataset in ("synapse", "nodule", "organ"):
            for row, config in _levels(group, VolumeConfig(dataset=dataset), levels).items():
                cells[row, dataset] = config, "test_accuracy"
    return Sheet("Band-limits, medical volumes", "medmnist_bandlimit", cells)


def _flow(base: Config, paper: str, title: str) -> Sheet:
    cells: dict[Place, tuple[Config, str]] = {}
    own: dict[str, dict[str, Any]] = {
        # With a kernel at every pixel, the others' 92 channels would be a billion weights; its size is not published.
        "clcnn": {"width": min(base.width, 32.0)},
        # It has no normalisation: with the others' learning rate, its second step makes numbers of 10¹².
        "rgroup": {"lr": 1e-4},
    }
    for label, method in FLOWS.items():
        config = replace(base, method=method, **own.get(method, {}))
        for column in ("future", "domain"):
            cells[label, column] = config, f"{column}_rmse"
    return Sheet(title, paper, cells)


def _smoke_bandlimits() -> Sheet:
    cells: dict[Place, tuple[Config, str]] = {}
    for level in (1, 2, 4, 6):
        for column in ("future", "domain"):
            config = SmokeConfig(method="p-scnn", group="SO(2)", bandlimit=level)
            cells[f"P-SCNN, L = {level}", column] = config, f"{column}_rmse"
    return Sheet("Band-limits, smoke, SO(2)", "smoke_bandlimit", cells)


def _with_and_without(title: str, paper: str, without: dict[str, Any]) -> Sheet:
    base = DoubleDigitConfig(source="mnist", symmetry="O2", method="p-scnn", group="O(2)")
    rows = {"with": base, "without": replace(base, **without)}
    return Sheet(title, paper, {(row, "accuracy"): (config, "test_accuracy") for row, config in rows.items()})


def _ablation() -> Sheet:
    """From the released code to ours, one change after another; then ours with a single part of the released code."""
    ours = DoubleDigitConfig(source="mnist", symmetry="O2", method="p-scnn", group="O(2)")
    rows: dict[str, Config] = {"released code": replace(ours, released="all")}
    for k, name in enumerate(SWITCHES[:-1], 1):
        rows[f"then our {name}"] = replace(ours, released=",".join(SWITCHES[k:]))
    rows["ours"] = ours  # the last change
    rows |= {f"ours, but {name} as released": replace(ours, released=name) for name in SWITCHES}
    mean, spread = published("ddmnist")["O(2) P-SCNN"]["O2"]
    title = f"From the released code to ours, O(2) double digits (the paper: {mean:.3f} ± {spread:.3f})"
    return Sheet(title, None, {(row, "accuracy"): (config, "test_accuracy") for row, config in rows.items()})


def _competitive() -> Sheet:
    """Fourier nonlinearities and heads that are not invariant, beside gates and invariant ones."""
    cells: dict[Place, tuple[Config, str]] = {}
    bases: dict[str, tuple[Config, str]] = {
        "organ": (VolumeConfig(dataset="organ"), "(3)"),
        "ddmnist_o2": (DoubleDigitConfig(source="mnist", symmetry="O2"), "(2)"),
    }
    settings: dict[str, dict[str, Any]] = {"fourier": {"nonlinearity": "fourier", "invariant": False}, "gated": {}}
    for name, (base, space) in bases.items():
        for kind, changes in settings.items():
            column = f"{name}_{kind}"
            cells["CNN", column] = replace(base, method="cnn"), "test_accuracy"
            for family in ("SO", "O"):
                own = replace(base, group=family + space, **changes)
                rows: dict[str, Config] = {name: replace(own, method=METHODS[name]) for name in ("SCNN", "RPP")}
                rows |= {f"P-SCNN, L = {n}": replace(own, method="p-scnn", bandlimit=n) for n in (2, 3, 4)}
                for label, config in rows.items():
                    cells[f"{family}(n) {label}", column] = config, "test_accuracy"
    printed = published("competitive")
    return Sheet("Competitive settings", "competitive", {p: c for p, c in cells.items() if p[1] in printed[p[0]]})


def _fractions() -> Sheet:
    cells: dict[Place, tuple[Config, str]] = {}
    for dataset in ("organ", "synapse", "nodule"):
        methods = {"CNN": "cnn", "SO(3) SCNN": "scnn", "SO(3) RPP": "rpp", "SO(3) P-SCNN": "p-scnn"}
        for row, method in methods.items():
            for fraction in FRACTIONS:
                config = VolumeConfig(dataset=dataset, method=method, fraction=fraction)
                cells[f"{row}, {dataset}", f"{fraction:g}"] = config, "test_accuracy"
    return Sheet("Fewer training volumes", "data_ablation", cells)


def _picture(kind: str, title: str, rows: Mapping[str, Config]) -> Callable[[], Sheet]:
    return lambda: Sheet(title, None, {(row, ""): (config, "test_accuracy") for row, config in rows.items()}, kind)


def _pictures() -> dict[str, Callable[[], Sheet]]:
    """The paper's figures of trained networks; those of vectors come with their tables."""
    digits = DoubleDigitConfig(source="mnist")
    organ = VolumeConfig(dataset="organ", group="O(3)")
    named = {"CNN": "cnn", "SCNN": "scnn", "RPP": "rpp", "P-SCNN": "p-scnn"}
    with_and_without = "{} of the O(2) P-SCNN on O2 digits, with and without the {}"

    def levels(symmetry: str, found: tuple[int, ...]) -> dict[str, Config]:
        return {f"L = {level}": replace(digits, symmetry=symmetry, bandlimit=level) for level in found}

    without_kl = {"with": digits, "without": replace(digits, kl_weight=0.0)}
    return {
        "figure-confusion": _picture(
            "confusion",
            "Confusion, O2 digits",
            {row: replace(digits, method=named[row]) for row in ("CNN", "SCNN", "P-SCNN")},
        ),
        "figure-confusion-organ": _picture(
            "confusion",
            "Confusion, organs",
            {row: replace(organ if row != "CNN" else VolumeConfig(), method=method) for row, method in named.items()},
        ),
        "figure-degrees": _picture(
            "degrees",
            "Densities and errors of the O(2) P-SCNN on O2 and C1 digits",
            {symmetry: replace(digits, symmetry=symmetry) for symmetry in ("O2", "C1")},
        ),
        "figure-bandlimit": _picture("degrees", "The same on SO2 digits, by L", levels("SO2", (1, 2, 3, 4))),
        "figure-bandlimit-o2": _picture("degrees", "The same on O2 digits, by L", levels("O2", (0, 1, 2, 3, 4))),
        "figure-align": _picture(
            "degrees",
            with_and_without.format("Densities and errors", "alignment loss"),
            {"with": digits, "without": replace(digits, align_weight=0.0)},
        ),
        "figure-kl": _picture("degrees", with_and_without.format("Densities and errors", "KL divergence"), without_kl),
        "figure-kl-training": _picture("training", with_and_without.format("Training", "KL divergence"), without_kl),
        "figure-spheres": _picture(
            "spheres",
            "The density of the second block of the O(3) P-SCNN on medical volumes",
            {name: replace(organ, dataset=name, lr=0.0) for name in ("organ", "synapse")},
        ),
        "figure-data-ablation": lambda: replace(
            _fractions(), title="Accuracy by training volumes", picture="fractions"
        ),
    }


SHEETS: dict[str, Callable[[], Sheet]] = {
    "ddmnist": _digits,
    "bandlimit": _digit_bandlimits,
    "generalisability": _generalisation,
    "align": lambda: _with_and_without("Alignment loss, double digits", "align_ddmnist", {"align_weight": 0.0}),
    "kl": lambda: _with_and_without("KL divergence, double digits", "kl_ddmnist", {"kl_weight": 0.0}),
    "ablation": _ablation,
    "medmnist": _volumes,
    "medmnist-bandlimit": _volume_bandlimits,
    "smoke": lambda: _flow(SmokeConfig(), "smoke", "Smoke, regenerated"),
    "smoke-bandlimit": _smoke_bandlimits,
    "jetflow": lambda: _flow(JetFlowConfig(), "jetflow", "JetFlow"),
    "competitive": _competitive,
    "data-ablation": _fractions,
    **_pictures(),
}
"""Tables and figures by the name under which ``pscnn reproduce`` knows them."""

"""What was discovered, and the file in which it is kept."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._files import check_record, from_json, plain_file, reported, write_whole
from pscnn._types import Array
from pscnn.data import own
from pscnn.experiments._discover._networks import LABELS, Network, recommended
from pscnn.experiments._discover._poses import presence_from_json, presence_to_json
from pscnn.experiments._discover._subgroups import MOST_ELEMENTS, Subgroup
from pscnn.experiments._discover._verdict import KEPT, TOLERANCE, UNCLEAR, Statement, intervals
from pscnn.experiments._presence import Presence
from pscnn.groups import parse
from pscnn.training import RunError

FILE = "discovery.json"
FEWEST_EPOCHS = 5
"""Of a network of the table that can be judged."""


@dataclass(frozen=True)
class Difference:
    """How much better a network is than another one on validation examples, with a 95 % interval."""

    first: str
    second: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Discovery:
    """The answer and what it rests on.

    Attributes:
        folder: Where the data, the runs and the report are.
        data: The name of the prepared data in it.
        about: What they are.
        group: H.
        kept: The largest subgroup that can be enforced without loss; None if it cannot be told.
        statements: What enforcing each subgroup costs.
        learnt: Whether networks are better than a constant answer for sure.
        examples: Held-out examples on which subgroups were compared.
        free: Mean score on them without any symmetry.
        constant: Mean score of a constant answer.
        trained: Networks that were trained for it, each with an end for every subgroup.
        presence: Which symmetries the examples themselves have.
        networks: The table.
        minutes: That were given.
        seconds: That were used.
        complete: False if it was interrupted.
        table_constant: Mean score of a constant answer on the validation examples, by which the table is judged; None
            before it, and in files of earlier versions.
    """

    folder: Path
    data: str
    about: own.About
    group: str
    kept: Subgroup | None
    statements: list[Statement]
    learnt: bool
    examples: int
    free: float
    constant: float
    trained: int
    presence: list[Presence] = field(default_factory=list)
    networks: list[Network] = field(default_factory=list)
    minutes: float = 0.0
    seconds: float = 0.0
    complete: bool = True
    table_constant: float | None = None

    @property
    def guess(self) -> Subgroup | None:
        """The largest subgroup that is not broken and whose mean cost is small, where nothing is certain."""
        if not self.learnt:
            return None
        likely = [
            one for one in self.statements if one.verdict == KEPT or (one.verdict == UNCLEAR and one.cost < TOLERANCE)
        ]
        best = max(likely, key=lambda one: (*one.subgroup.rank, -one.cost), default=None)
        return None if best is None else best.subgroup

    @property
    def recommended(self) -> Network | None:
        """The network with the best mean on validation examples."""
        return recommended(self.networks) if self.networks else None

    @property
    def differences(self) -> list[Difference]:
        """Of the recommended network to all others; the intervals cover all of them at the same time."""
        best = self.recommended
        return [] if best is None else self._differences([(best, one) for one in self.networks if one is not best])

    @property
    def doubt(self) -> Difference | None:
        """How much better a network without it is than the one that enforces what seems to be kept.

        Only if that is more than the tolerance for sure: the networks that compare symmetries do not see all that
        matters, or have not learnt it.
        """
        judged = {one.kind: one for one in self.networks if one not in self.hasty}
        if "kept" not in judged:
            return None
        gaps = self._differences([(judged[kind], judged["kept"]) for kind in ("p-scnn", "cnn") if kind in judged])
        return max((gap for gap in gaps if gap.low > TOLERANCE), key=lambda gap: gap.mean, default=None)

    @property
    def score_to_beat(self) -> float:
        """Mean score of a constant answer on the examples on which networks of the table are judged."""
        return self.constant if self.table_constant is None else self.table_constant

    @property
    def useful(self) -> bool:
        """Whether the recommended network is better than a constant answer for sure."""
        best = self.recommended
        if best is None or len(best.validation) < 2:
            return False
        gaps: Array = np.subtract([best.validation], self.score_to_beat)
        means, half = intervals(gaps, np.zeros((1, gaps.shape[1])), binary=not self.about.regression)
        return bool(means[0] > half[0])

    def _differences(self, pairs: list[tuple[Network, Network]]) -> list[Difference]:
        """Of the first to the second ones; the intervals cover all of them at the same time."""
        if not pairs or len(pairs[0][0].validation) < 2:
            return []
        gaps: Array = np.array([np.subtract(first.validation, second.validation) for first, second in pairs])
        means, half = intervals(gaps, np.zeros((1, gaps.shape[1])), binary=not self.about.regression)
        rows = zip(pairs, means.tolist(), half.tolist(), strict=True)
        return [Difference(a.kind, b.kind, mean, mean - width, mean + width) for (a, b), mean, width in rows]

    @property
    def hasty(self) -> list[Network]:
        """Networks of the table that had so few epochs that their scores say little about them."""
        return [one for one in self.networks if one.epochs < FEWEST_EPOCHS]

    @property
    def sure(self) -> bool:
        """Whether the recommended network is better than all others for sure; else it is the better guess."""
        return bool(self.differences) and all(gap.low > 0 for gap in self.differences) and not self.hasty

    def save(self, folder: Path | None = None) -> Path:
        """Write it into its folder, or another one, from which ``read`` reads it; the folder can be moved."""
        values: dict[str, Any] = {
            **{name: getattr(self, name) for name in ("data", "group", "learnt", "examples", "free", "constant")},
            **{name: getattr(self, name) for name in ("trained", "minutes", "seconds", "complete", "table_constant")},
            "about": json.loads(self.about.to_json()),
            "kept": None if self.kept is None else self.kept.to_json(),
            "statements": [
                {
                    **{n: getattr(one, n) for n in ("verdict", "cost", "low", "high", "score", "layers")},
                    "subgroup": one.subgroup.to_json(),
                    "because": None if one.because is None else one.because.to_json(),
                }
                for one in self.statements
            ],
            "presence": [presence_to_json(one) for one in self.presence],
            "networks": [asdict(one) for one in self.networks],
        }
        path = (folder or self.folder) / FILE
        with reported(f"cannot write {path}", RunError):
            write_whole(path, json.dumps(values, indent=1) + "\n")
        return path

    @classmethod
    def read(cls, folder: str | Path) -> Discovery:
        """From the folder of a discovery."""
        path = Path(folder) / FILE
        try:
            values = from_json(plain_file(path).read_text(encoding="utf-8"))
            values["about"] = own.About.from_json(json.dumps(values["about"]))
            values["kept"] = None if values["kept"] is None else Subgroup.from_json(values["kept"])
            for one in values["statements"]:
                one["subgroup"] = Subgroup.from_json(one["subgroup"])
                one["because"] = None if one["because"] is None else Subgroup.from_json(one["because"])
            values["statements"] = [Statement(**one) for one in values["statements"]]
            values["presence"] = [presence_from_json(one) for one in values["presence"]]
            values["networks"] = [
                Network(**one | {"validation": tuple(one["validation"])}) for one in values["networks"]
            ]
            found = cls(folder=Path(folder), **values)
            for one in (found, *found.statements, *found.presence, *found.networks):
                check_record(one)
            check_networks(found.networks)
            _check_group(found)
            return found
        except FileNotFoundError:
            raise RunError(f"{folder} is not the folder of a discovery: it has no {FILE}") from None
        except PermissionError:
            raise RunError(f"{path} may not be read") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RunError(f"{path} is damaged ({error}): run pscnn discover again") from None


def _check_group(found: Discovery) -> None:
    group = parse(found.group)
    if group.dimension != found.about.dimension or (group.order or 0) > MOST_ELEMENTS:
        raise ValueError(f"nothing is compared over {group.name}")


def check_networks(networks: list[Network], count: int | None = None) -> None:
    """Raise a ``ValueError`` unless they can be of one table.

    Args:
        networks: As they were read.
        count: Of the validation examples, if that is known.
    """
    for one in networks:
        if one.kind not in LABELS:
            raise ValueError(f"no network is of the kind {one.kind!r}")
        if Path(one.run).is_absolute() or ".." in Path(one.run).parts:
            raise ValueError(f"the run {one.run} is not in this folder")
        if not one.validation or len(one.validation) != (count or len(networks[0].validation)):
            raise ValueError("networks have scores of different examples")


def trained_network(folder: str | Path) -> Path:
    """The folder of the run that a discovery recommends; any other folder as it is.

    Args:
        folder: Of a discovery, or of a run.
    """
    folder = Path(folder)
    if not (folder / FILE).exists():
        return folder
    best = Discovery.read(folder).recommended
    if best is None:
        raise RunError(f"no network is finished in {folder}: run pscnn discover again to continue")
    return folder / best.run

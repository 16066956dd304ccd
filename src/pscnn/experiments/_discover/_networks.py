"""The networks of the table: one that enforces what can be kept, and its rivals, all with equal time."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pscnn._files import check_record, from_json, plain_file, write_whole
from pscnn._types import Array
from pscnn.data import own
from pscnn.experiments._discover._subgroups import Subgroup
from pscnn.experiments._sheets import parameter_count
from pscnn.groups import parse
from pscnn.nn import function_field
from pscnn.tasks.own import OwnSettings
from pscnn.training import Store, load, read_result, target_of, train_for, trial_loss

RATES = (3e-3, 1e-3, 1e-2)
"""The usual one, and others."""
TRIAL = 0.06
"""Share of a network's time in which each learning rate is tried."""
BETTER = 0.97
"""By which factor another learning rate must lower the loss of the trial: where nothing is learnt yet, chance does."""
MOST_EPOCHS = 150
LABELS = {
    "kept": "enforces {kept}",
    "p-scnn": "partially equivariant (P-SCNN)",
    "cnn": "plain CNN",
    "augment": "plain CNN, trained on transformed copies",
}


@dataclass(frozen=True)
class Network:
    """One row of the table.

    Attributes:
        kind: "kept", "p-scnn", "cnn" or "augment".
        run: Its folder, relative to that of the discovery.
        validation: Score of every validation example.
        test: Mean score of the test examples.
        parameters: Numbers that are learnt.
        lr: Its learning rate.
        epochs: As many as its time allowed.
    """

    kind: str
    run: str
    validation: tuple[float, ...]
    test: float
    parameters: int
    lr: float
    epochs: int

    @property
    def mean(self) -> float:
        """Of the validation scores."""
        return float(np.mean(self.validation))


def settings_of(
    path: Path, group: str, kept: Subgroup | None, width: float | None, bandlimit: int
) -> dict[str, OwnSettings]:
    """Of every kind of network; the plain ones have about as many parameters as the partially equivariant one.

    Args:
        path: Prepared data.
        group: H.
        kept: What the first one enforces; None or the identity for no such network.
        width: Of the steerable networks; None for the default.
        bandlimit: L of the densities.
    """
    about = own.read_about(path)
    given: dict[str, Any] = {"width": width} if width is not None else {}
    base = OwnSettings(
        data=path.name, about=about.to_json(), network="own", group=group, schedule="cosine", warmup=0.1, select="last",
        **given,
    )  # fmt: skip
    base = replace(base, batch_size=batch_size(about, base.batch_size))
    partial = replace(base, bandlimit=bandlimit)
    aim = parameter_count(partial)
    wide = [replace(base, method="cnn", width=base.width * k) for k in (0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8)]
    plain = min(wide, key=lambda one: abs(math.log(parameter_count(one) / aim)))
    found: dict[str, OwnSettings] = {}
    if kept is not None and kept.group.order != 1:
        size, whole = (function_field(one, 2).size for one in (kept.group, parse(group)))
        if kept.is_usual:  # as many channels as over H
            own_width = round(base.width * whole / size, 3)
            found["kept"] = replace(base, method="scnn", group=kept.group.name, width=own_width)
        elif not kept.axis:
            enough = max(bandlimit, 2 * (kept.group.max_frequency or 0))
            found["kept"] = replace(base, method="fixed", keep=str(kept), bandlimit=enough)
    return found | {"p-scnn": partial, "cnn": plain, "augment": replace(plain, method="augment")}


def batch_size(about: own.About, most: int = 64) -> int:
    """Smaller for few examples, so that there are steps."""
    return max(2, min(most, 2 ** int(math.log2(max(2, about.counts[0] / 4)))))


def train_network(kind: str, settings: OwnSettings, root: Path, seconds: float, accelerator: str) -> Network:
    """Try a few learning rates for a short time, and train with the best for the rest.

    Args:
        kind: As in ``LABELS``.
        settings: Of the run.
        root: The folder of the discovery.
        seconds: For everything but the building and testing of networks.
        accelerator: "cpu" or "gpu".
    """
    tried = {
        rate: trial_loss(TRIAL * seconds, replace(settings, lr=rate), root, accelerator=accelerator) for rate in RATES
    }
    best = min(tried, key=lambda rate: tried[rate] * (BETTER if rate == RATES[0] else 1))
    left = (1 - len(RATES) * TRIAL) * seconds
    folder = train_for(left, replace(settings, lr=best), Store(root), accelerator=accelerator, most=MOST_EPOCHS)
    return read_network(kind, folder, root)


def read_network(kind: str, folder: Path, root: Path) -> Network:
    """What a finished run says of the validation examples."""
    task, model = load(folder)
    result = read_result(folder) or {}
    scores = {}
    for split in ("validation", "test"):
        scores[split] = _scores(task, model, split)
    settings: Any = task.settings
    run = folder.resolve().relative_to(root.resolve()).as_posix()
    numbers = int(result["parameters"]), float(settings.lr), int(result["epochs"])
    return Network(kind, run, tuple(scores["validation"].tolist()), float(scores["test"].mean()), *numbers)


@torch.no_grad()
def _scores(task: Any, model: torch.nn.Module, name: str) -> Array:
    target, split = target_of(task.settings.holds), task.load(None)[name]
    out = []
    for rows in torch.arange(len(split)).split(64):
        x, y = task.batch(name, split, rows, 0)
        out.append(target.score(model(x).float(), y))
    return torch.cat(out).double().numpy()


def constant_score(path: Path) -> float:
    """Mean score of a constant answer on the validation examples."""
    splits = own.load(path)
    target = target_of(own.read_about(path))
    return target.constant_score(splits["validation"].labels, splits["train"].labels).double().mean().item()


def recommended(networks: Sequence[Network]) -> Network:
    """The one with the best mean on validation examples; of equal ones the first."""
    return max(networks, key=lambda one: one.mean if math.isfinite(one.mean) else -math.inf)


def write_row(one: Network, path: Path) -> None:
    """As a file."""
    write_whole(path, json.dumps(asdict(one)) + "\n")


def read_row(path: Path) -> Network:
    """From a file."""
    values = from_json(plain_file(path).read_text(encoding="utf-8"))
    found = Network(**values | {"validation": tuple(values["validation"])})
    check_record(found)
    return found

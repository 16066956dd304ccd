"""Which symmetries people's own data have: three kinds of networks under one budget, and how sure the answer is."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._files import write_whole
from pscnn._types import Array
from pscnn.data import own
from pscnn.densities import likelihoods
from pscnn.experiments._sheets import parameter_count
from pscnn.nn import SteerableMap
from pscnn.tasks.own import OwnSettings
from pscnn.training import ConfigError, Store, load, target_of, task_of

DISCOVER_METHODS = ("scnn", "p-scnn", "cnn")
"""From the most to the least symmetric; where they are equally good, the first is recommended."""
FEWEST_EPOCHS, MOST_EPOCHS = 4, 150
RESAMPLED = 4000
_RESERVE = 0.8  # of the budget is planned: saving, and whatever else the machine does
_START = 15.0  # seconds until the networks of a seed have begun


@dataclass(frozen=True)
class Difference:
    """How much better one kind of network is than another on validation examples.

    Attributes:
        first: The one.
        second: The other.
        mean: Mean over seeds and examples of the score of the first minus that of the second.
        low: Lower end of the 95 % interval.
        high: Upper end.
    """

    first: str
    second: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Choice:
    """Which kind of network to use.

    Attributes:
        method: The most symmetric that no other surpasses for sure.
        sure: Whether every difference that it rests on is larger than its uncertainty.
    """

    method: str
    sure: bool


def discover_plan(
    data: Path,
    folder: Path,
    *,
    group: str,
    bandlimit: int,
    minutes: float,
    seeds: int,
    width: float | None,
    workers: int,
    device: str,
) -> list[OwnSettings]:
    """Settings of all runs, whose epochs fill the budget; kept in the folder, so that an interrupted one goes on.

    Args:
        data: A prepared file.
        folder: Where runs will be.
        group: H.
        bandlimit: L.
        minutes: The budget for all runs together.
        seeds: Networks of each kind.
        width: Of the steerable networks; None for the default.
        workers: Processes that train at once.
        device: "cpu" or "cuda".
    """
    about = own.read_about(data)
    given: dict[str, Any] = {"width": width} if width is not None else {}
    base = OwnSettings(data=data.name, about=about.to_json(), group=group, **given)
    base = replace(base, batch_size=max(2, min(base.batch_size, 2 ** int(math.log2(max(2, about.counts[0] / 8))))))
    partial = replace(base, bandlimit=bandlimit)
    aim = parameter_count(partial)
    wide = (replace(base, method="cnn", width=base.width * k) for k in (1, 2, 3, 4, 6, 8, 12, 16))
    plain = min(wide, key=lambda one: abs(math.log(parameter_count(one) / aim)))  # about as many parameters
    kinds = {"scnn": replace(base, method="scnn"), "p-scnn": partial, "cnn": plain}
    key = json.dumps([kinds["p-scnn"].to_dict(), minutes, seeds, workers, device], sort_keys=True)
    path = folder / f"plan-{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"
    if path.exists():
        epochs = _planned(path)
    else:
        per_epoch = {method: _seconds_per_epoch(one, device, workers) for method, one in kinds.items()}
        epochs = _epochs(per_epoch, minutes, seeds, workers)
        plan = {"epochs": epochs, "seeds": seeds, "minutes": minutes, "seconds per epoch": per_epoch}
        write_whole(path, json.dumps(plan, indent=2) + "\n")
    return [replace(kinds[method], epochs=epochs, seed=seed) for seed in range(seeds) for method in DISCOVER_METHODS]


def _planned(path: Path) -> int:
    try:
        epochs = json.loads(path.read_text(encoding="utf-8"))["epochs"]
        if not isinstance(epochs, int):
            raise TypeError(f"epochs must be a whole number, got {epochs!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}): delete it to plan again") from None
    return epochs


def _epochs(per_epoch: dict[str, float], minutes: float, seeds: int, workers: int) -> int:
    ends = [0.0] * workers  # one network of each kind, each given to whoever is free first
    for method in DISCOVER_METHODS:
        ends[ends.index(min(ends))] += per_epoch[method]
    epochs = int((_RESERVE * 60 * minutes / seeds - _START) / max(ends))
    if epochs < FEWEST_EPOCHS:
        least = math.ceil(seeds * (FEWEST_EPOCHS * max(ends) + _START) / (_RESERVE * 60))
        raise ConfigError(
            f"{minutes:g} minutes are too few: {FEWEST_EPOCHS} epochs of all networks take about {least}. Give "
            f"--minutes {least} or more, fewer --seeds, or a smaller --width or --size"
        )
    return min(epochs, MOST_EPOCHS)


def _seconds_per_epoch(settings: OwnSettings, device: str, workers: int) -> float:
    """Of training and validation, from three steps."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    try:
        module = task_of(settings).learner().to(device)
        holds = settings.holds
        x = torch.randn(settings.batch_size, holds.channels, *holds.shape, device=device)
        y = torch.zeros(
            len(x), *{"classes": (), "masks": holds.shape}.get(holds.kind, (len(holds.names),)), device=device
        )
        y = y.long() if holds.kind in ("classes", "masks") else y
        times = []
        for _ in range(3):
            began = time.perf_counter()
            loss = module.objective(x, y)["loss"]
            loss.backward()
            loss.item()  # waits for the device
            times.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    train, validation, _ = holds.counts
    return min(times[1:]) * (train + validation / 3) / settings.batch_size


def validation_scores(folder: Path) -> Array:
    """The score of each validation example: 1 if it is classified right, else 0; of numbers minus the square error."""
    task, model = load(folder)
    split = task.load(None)["validation"]
    target = target_of(task.settings.holds)
    out = []
    with torch.no_grad():
        for rows in torch.arange(len(split)).split(min(64, task.evaluation_batch)):
            x, y = task.batch("validation", split, rows, 0)
            out.append(target.score(model(x).float(), y))
    return torch.cat(out).double().numpy()


def difference(first: str, second: str, scores: dict[str, list[Array]]) -> Difference:
    """Seeds and examples are drawn again, with replacement, many times; the interval holds 95 % of the results."""
    gap = np.stack(scores[first]) - np.stack(scores[second])  # (seeds, examples): both saw the same examples
    rng = np.random.default_rng(0)
    seeds, examples = gap.shape
    chosen = (gap[rng.integers(seeds, size=seeds)].mean(0) for _ in range(RESAMPLED))
    drawn = [means[rng.integers(examples, size=examples)].mean() for means in chosen]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Difference(first, second, float(gap.mean()), float(low), float(high))


def choose(scores: dict[str, list[Array]]) -> tuple[Choice, list[Difference]]:
    """Begin with the most symmetric network; leave it only for one that is better for sure."""
    pairs = [(other, one) for k, one in enumerate(DISCOVER_METHODS) for other in DISCOVER_METHODS[k + 1 :]]
    gaps = {pair: difference(*pair, scores) for pair in pairs}
    chosen, decisive = DISCOVER_METHODS[0], []
    for method in DISCOVER_METHODS[1:]:
        decisive.append(gaps[method, chosen])
        if decisive[-1].low > 0:
            chosen = method
    sure = all(gap.low > 0 or gap.high < 0 for gap in decisive)
    return Choice(chosen, sure), [*decisive, *(gap for gap in gaps.values() if gap not in decisive)]


def receptive_fields(model: nn.Module, holds: own.About) -> dict[str, int]:
    """Per density, how many pixels of the input the centre of its first layer's output depends on, along one side."""
    model = model.eval()
    x = torch.randn(1, holds.channels, *holds.shape, requires_grad=True)
    out = {}
    for name, likelihood in likelihoods(model).items():
        layer = next(m for m in model.modules() if isinstance(m, SteerableMap) and m.likelihood is likelihood)
        seen: list[Tensor] = []
        with layer.register_forward_hook(lambda *args, seen=seen: seen.append(args[2])):
            model(x)
        centre = seen[0][0].movedim(0, -1)[tuple(n // 2 for n in seen[0].shape[2:])]
        (gradient,) = torch.autograd.grad((centre * torch.randn_like(centre)).sum(), x)
        touched = torch.nonzero(gradient[0].abs().amax(0) > 0)
        out[name] = int((touched.amax(0) - touched.amin(0) + 1).max()) if len(touched) else 0
    return out


def finished(runs: Sequence[OwnSettings], store: Store) -> dict[str, list[Path]]:
    """Folders of finished runs by method, of those seeds whose every method is finished."""
    lacking = {one.seed for one in runs if store.result(one) is None}
    complete = sorted((one for one in runs if one.seed not in lacking), key=lambda one: one.seed)
    return {method: [store.folder(one) for one in complete if one.method == method] for method in DISCOVER_METHODS}


def prepared_file(source: Any, folder: Path, **how: Any) -> Path:
    """Prepare data in a folder, under a name that tells their content: changed data are other data.

    Args:
        source: What ``pscnn.data.own.prepare`` takes.
        folder: Where to.
        how: Options of ``prepare``.
    """
    temporary = folder / ".data.npz"
    own.prepare(source, temporary, **how)
    digest = hashlib.sha256()
    with np.load(temporary) as arrays:
        for name in ("pixels", "targets", "split", "about"):
            digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    path = folder / f"data-{digest.hexdigest()[:8]}.npz"
    temporary.replace(path)
    own.write_contact_sheet(path, folder / "examples.png")
    return path

"""Which symmetries people's own data have: three kinds of networks under one budget, and how sure the answer is."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._files import write_whole
from pscnn._regularization import likelihoods
from pscnn._types import Array
from pscnn.data import own
from pscnn.experiments._store import Store
from pscnn.nn._steerable import SteerableMap
from pscnn.training._config import EXPERIMENTS, ConfigError, OwnConfig, own_experiment

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
) -> list[OwnConfig]:
    """Configurations of all runs, whose epochs fill the budget; kept in the folder, so that an interrupted one goes on.

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
    make = EXPERIMENTS[own_experiment(about)]
    assert issubclass(make, OwnConfig)
    common: dict[str, Any] = {"data": str(data), "about": about.to_json(), "group": group, "bandlimit": bandlimit}
    if width is not None:
        common["width"] = width
    batch = make(**common).batch_size
    common["batch_size"] = max(2, min(batch, 2 ** int(math.log2(max(2, about.counts[0] / 8)))))
    wide = {**common, "width": _width_of_plain(make, common)}
    kinds = {method: make(method=method, **(wide if method == "cnn" else common)) for method in DISCOVER_METHODS}
    key = json.dumps([{**kinds["p-scnn"].to_dict()}, minutes, seeds, workers, device], sort_keys=True)
    path = folder / f"plan-{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"
    if path.exists():
        epochs = int(json.loads(path.read_text())["epochs"])
    else:
        per_epoch = {method: _seconds_per_epoch(config, device, workers) for method, config in kinds.items()}
        epochs = _epochs(per_epoch, minutes, seeds, workers)
        plan = {"epochs": epochs, "seeds": seeds, "minutes": minutes, "seconds per epoch": per_epoch}
        write_whole(path, json.dumps(plan, indent=2) + "\n")
    values = [{**kinds[m].to_dict(), "epochs": epochs, "seed": s} for s in range(seeds) for m in DISCOVER_METHODS]
    for one in values:
        one.pop("experiment")
    return [make(**one) for one in values]


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


def _width_of_plain(make: type[OwnConfig], common: dict[str, Any]) -> float:
    """The width at which the plain network has about as many parameters as the one with densities."""

    def count(**values: Any) -> int:
        return sum(p.numel() for p in make(**{**common, **values}).build().parameters())

    aim = count(method="p-scnn")
    start = make(**common).width
    widths = [start * k for k in (1, 2, 3, 4, 6, 8, 12, 16)]
    return min(widths, key=lambda width: abs(math.log(count(method="cnn", width=width) / aim)))


def _seconds_per_epoch(config: OwnConfig, device: str, workers: int) -> float:
    """Of training and validation, from three steps."""
    from pscnn.training._module import learner

    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    try:
        module = learner(config).to(device)
        holds = config.holds
        x = torch.randn(config.batch_size, holds.channels, *[holds.size] * holds.dimension, device=device)
        y = torch.zeros(config.batch_size, dtype=torch.long, device=device)
        if holds.regression:
            y = torch.zeros(config.batch_size, len(holds.names), device=device)
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
    return min(times[1:]) * (train + validation / 3) / config.batch_size


def validation_scores(folder: Path) -> Array:
    """Per validation example: 1 if it is classified right, else 0; of a regression, minus the square error."""
    from pscnn.training._run import load

    module = load(folder)
    config = module.config
    split = config.load(None)["validation"]
    out = []
    with torch.no_grad():
        for rows in torch.arange(len(split)).split(64):
            x, y = config.batch("validation", split, rows, 0)
            said = module(x).float()
            if isinstance(config, OwnConfig) and config.holds.regression:
                deviations = torch.tensor(config.holds.deviations)
                out.append(-((said - y) / deviations).square().mean(1))
            else:
                out.append((said.argmax(1) == y).float())
    return torch.cat(out).double().numpy()


def difference(first: str, second: str, scores: dict[str, list[Array]]) -> Difference:
    """Seeds and examples are drawn again, with replacement, many times; the interval holds 95 % of the results."""
    gap = np.stack(scores[first]) - np.stack(scores[second])  # (seeds, examples): both saw the same examples
    rng = np.random.default_rng(0)
    seeds, examples = gap.shape
    drawn = []
    for _ in range(RESAMPLED):
        chosen = gap[rng.integers(seeds, size=seeds)].mean(0)
        drawn.append(chosen[rng.integers(examples, size=examples)].mean())
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Difference(first, second, float(gap.mean()), float(low), float(high))


def choose(scores: dict[str, list[Array]]) -> tuple[Choice, list[Difference]]:
    """Begin with the most symmetric network; leave it only for one that is better for sure."""
    chosen, found = DISCOVER_METHODS[0], []
    for method in DISCOVER_METHODS[1:]:
        gap = difference(method, chosen, scores)
        found.append(gap)
        if gap.low > 0:
            chosen = method
    rest = [
        difference(a, b, scores)
        for k, b in enumerate(DISCOVER_METHODS)
        for a in DISCOVER_METHODS[k + 1 :]
        if (a, b) not in {(gap.first, gap.second) for gap in found}
    ]
    sure = all(gap.low > 0 or gap.high < 0 for gap in found)
    return Choice(chosen, sure), [*found, *rest]


def receptive_fields(model: nn.Module, holds: own.About) -> dict[str, int]:
    """Per density, how many pixels of the input the centre of its first layer's output depends on, along one side."""
    model = model.eval()
    x = torch.randn(1, holds.channels, *[holds.size] * holds.dimension, requires_grad=True)
    out = {}
    for name, likelihood in likelihoods(model).items():
        layer = next(m for m in model.modules() if isinstance(m, SteerableMap) and m.likelihood is likelihood)
        seen: list[Tensor] = []
        handle = layer.register_forward_hook(lambda *args, seen=seen: seen.append(args[2]))
        try:
            model(x)
        finally:
            handle.remove()
        centre = seen[0][0]
        for n in seen[0].shape[2:]:
            centre = centre.select(1, n // 2)
        (gradient,) = torch.autograd.grad((centre * torch.randn_like(centre)).sum(), x)
        touched = torch.nonzero(gradient[0].abs().amax(0) > 0)
        out[name] = int((touched.amax(0) - touched.amin(0) + 1).max()) if len(touched) else 0
    return out


def finished(configs: Sequence[OwnConfig], store: Store) -> dict[str, list[Path]]:
    """Folders of finished runs by method, of those seeds whose every method is finished."""
    seeds = sorted({config.seed for config in configs})
    out: dict[str, list[Path]] = {method: [] for method in DISCOVER_METHODS}
    for seed in seeds:
        of_seed = [config for config in configs if config.seed == seed]
        if all(store.result(config) is not None for config in of_seed):
            for config in of_seed:
                out[config.method].append(store.folder(config))
    return out


def prepared_file(
    source: str | Path,
    folder: Path,
    *,
    size: int | None,
    seed: int,
    regression: bool | None,
    on_read: Callable[[int, int], None],
) -> Path:
    """Prepare data in a folder, under a name that tells their content: changed data are other data."""
    temporary = folder / ".data.npz"
    own.prepare(source, temporary, size=size, seed=seed, regression=regression, on_read=on_read)
    digest = hashlib.sha256()
    with np.load(temporary) as arrays:
        for name in ("pixels", "targets", "split", "about"):
            digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    path = folder / f"data-{digest.hexdigest()[:8]}.npz"
    temporary.replace(path)
    return path

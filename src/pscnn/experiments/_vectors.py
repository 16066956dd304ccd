"""One experiment on vectors: a network, a target, several seeds trained at once."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import pscnn
from pscnn._files import write_whole
from pscnn.data import vectors
from pscnn.densities import likelihoods, regularization
from pscnn.groups import parse
from pscnn.models import build
from pscnn.models._released import DetachedBatchNorm
from pscnn.nn import BatchNorm
from pscnn.training._together import fit_together, refresh_statistics

TEST_COUNT = 2000


@dataclass(frozen=True)
class VectorConfig:
    """Everything that defines an experiment; the defaults are those under which the paper's numbers can be had."""

    method: str = "pe-mlp"
    nonlinearity: str = "gated"
    target: str = "angle"
    group: str = "O(2)"
    bandlimit: int = 4
    shared: bool = False
    noise: float = 0.0
    align_weight: float = 5.0
    kl_weight: float = 25.0
    uniform_first: bool = False  # also average KL(first density ‖ uniform) into the KL term, as the paper's code does
    detached: bool = False  # no gradient through the statistics of batch normalisation, as in the paper's code
    count: int = 10_000
    distribution: str = "cube"
    batch_size: int = 1024
    epochs: int = 100
    lr: float = 5e-4
    seeds: int = 5

    @property
    def key(self) -> str:
        """The name of the folder: readable, and different for different settings or versions of the library."""
        text = json.dumps([pscnn.__version__, asdict(self)], sort_keys=True)
        words = [self.method, self.nonlinearity, self.target, self.group.replace("(", "").replace(")", "")]
        return "-".join([*words, hashlib.sha256(text.encode()).hexdigest()[:8]])


class _Objective(nn.Module):
    """The error, and what keeps densities readable."""

    def __init__(self, config: VectorConfig) -> None:
        super().__init__()
        self.config = config
        extra: dict[str, Any] = {"shared": config.shared, "noise": config.noise, "bandlimit": config.bandlimit}
        self.model = build("vectors", config.method, parse(config.group), nonlinearity=config.nonlinearity, **extra)
        if config.detached:
            for name, layer in list(self.model.named_children()):
                if isinstance(layer, BatchNorm):
                    setattr(self.model, name, DetachedBatchNorm(layer.in_type))
        self.has_densities = bool(likelihoods(self.model))

    def forward(self, x: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The loss and its terms."""
        task = vectors.error(self.model(x), targets, self.config.target)
        if not self.has_densities:
            return {"loss": task, "task": task}
        terms = regularization(self.model, uniform_first=self.config.uniform_first)
        loss = task + self.config.align_weight * terms.alignment + self.config.kl_weight * terms.kl
        return {"loss": loss, "task": task, "alignment": terms.alignment, "kl": terms.kl}


def run_vectors(config: VectorConfig, folder: str | Path) -> dict[str, Any]:
    """Train all seeds of an experiment at once and test them; a finished one is read instead.

    Args:
        config: The experiment.
        folder: Gets a folder of its own for it, with ``config.json``, ``models.pt`` and ``result.json``.

    Returns:
        The result: ``errors`` and ``effective_sizes`` per seed, ``history`` per epoch, ``seconds``.
    """
    place = Path(folder) / config.key
    if (place / "result.json").exists():
        found: dict[str, Any] = json.loads((place / "result.json").read_text())
        return found
    place.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    dimension = parse(config.group).dimension
    objectives, training = [], []
    for seed in range(config.seeds):
        torch.manual_seed(seed)
        objectives.append(_Objective(config))
        training.append(_draw(config, dimension, config.count, 2 * seed))
    x = torch.stack([data.x for data in training])
    targets = torch.stack([data.targets for data in training])

    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in _orders(config, epoch).split(config.batch_size, 1):
            yield _rows(x, rows), _rows(targets, rows)

    history = fit_together(objectives, batches, epochs=config.epochs, lr=config.lr)
    errors = []
    for seed, objective in enumerate(objectives):
        refresh_statistics(objective.model, training[seed].x)
        test = _draw(config, dimension, TEST_COUNT, 2 * seed + 1)
        with torch.no_grad():
            errors.append(vectors.error(objective.eval().model(test.x), test.targets, config.target).item())
    result = {
        "errors": errors,
        "effective_sizes": [
            {name: lam.effective_size().item() for name, lam in likelihoods(o.model).items()} for o in objectives
        ],
        "history": history,
        "parameters": sum(p.numel() for p in objectives[0].parameters()),
        "seconds": round(time.monotonic() - started, 1),
        "versions": {"pscnn": pscnn.__version__, "torch": torch.__version__},
    }
    write_whole(place / "config.json", json.dumps(asdict(config), indent=1) + "\n")
    torch.save([o.model.state_dict() for o in objectives], place / "models.pt")
    write_whole(place / "result.json", json.dumps(result) + "\n")  # last: it says that the rest is complete
    return result


def load_vectors(config: VectorConfig, folder: str | Path) -> list[nn.Module]:
    """The trained networks of a finished experiment, in eval mode."""
    states = torch.load(Path(folder) / config.key / "models.pt", weights_only=True)
    out: list[nn.Module] = []
    for state in states:
        objective = _Objective(config)
        objective.model.load_state_dict(state)
        out.append(objective.model.eval())
    return out


def _draw(config: VectorConfig, dimension: int, count: int, seed: int) -> vectors.Vectors:
    return vectors.load(count, dimension=dimension, distribution=config.distribution, seed=seed)


def _orders(config: VectorConfig, epoch: int) -> Tensor:
    """A new order of the vectors for every seed and epoch."""
    generators = [torch.Generator().manual_seed(1_000_003 * seed + epoch) for seed in range(config.seeds)]
    return torch.stack([torch.randperm(config.count, generator=g) for g in generators])


def _rows(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor.gather(1, rows[:, :, None].expand(-1, -1, tensor.shape[2]))

"""A network with its objective and its measures, and the data that feed it."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pscnn.data import SPLITS
from pscnn.densities import likelihoods, parameter_groups
from pscnn.training._place import Place
from pscnn.training._targets import Labels, Target
from pscnn.training._task import Objective, Task, make_optimizer


class Learner(nn.Module):
    """A network with the objective of its task; subclasses say how wrong it is, and what a test measures.

    Args:
        task: With the run's settings.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task, self.settings = task, task.settings
        self.model = task.build()
        self._objective, self._densities = Objective.of(task), bool(likelihoods(self.model))
        self.tested: dict[str, list[Any]] = {}

    def forward(self, x: Tensor) -> Tensor:
        """What the network says."""
        return self.model(x)

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """How wrong the network is about a batch."""
        raise NotImplementedError

    def measure(self, x: Tensor, y: Tensor, split: str) -> dict[str, Tensor]:
        """How good the network is on a batch that it does not learn from: means over the batch, by name.

        While a test runs, whatever ``results`` needs besides is kept in ``self.tested[split]``.
        """
        raise NotImplementedError

    def results(self, metrics: Mapping[str, float]) -> dict[str, Any]:
        """What a test measured, from the means over each split, such as "test/accuracy"."""
        raise NotImplementedError

    def objective(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The loss and its terms."""
        return self._objective(self.model, self.task_loss(x, y), densities=self._densities)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """The optimiser."""
        groups = parameter_groups(self, self.settings.weight_decay)
        fused = groups[0]["params"][0].is_cuda
        return make_optimizer(groups, self.settings, adamw=self.task.adamw, fused=fused)


class Classification(Learner):
    """Cross-entropy, judged by accuracy; where the task says so, by the area under the curve, too."""

    class_weights: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.classes = len(task.class_names or ())
        self.register_buffer("class_weights", torch.ones(self.classes), persistent=False)

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of the class scores."""
        weights = self.class_weights if self.settings.balanced else None
        smoothing = self.settings.label_smoothing
        return F.cross_entropy(self.model(x).float(), y, weights, label_smoothing=smoothing)

    def measure(self, x: Tensor, y: Tensor, split: str) -> dict[str, Tensor]:
        """Accuracy and loss."""
        scores = self.model(x).float()
        if split in self.tested:
            self.tested[split].append((scores.cpu(), y.cpu()))
        return {"accuracy": (scores.argmax(1) == y).float().mean(), "loss": F.cross_entropy(scores, y)}

    def results(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Accuracy, loss, and the area under the curve, if classes can be told apart."""
        found = {"test_accuracy": metrics["test/accuracy"], "test_loss": metrics["test/loss"]}
        if "other" in self.task.tests:
            found["other_accuracy"] = metrics["other/accuracy"]
        if "test_auc" in self.task.scores:
            area = area_under_curve(*self._answers())
            found |= {} if area is None else {"test_auc": area}
        return found

    def confusion(self) -> Tensor:
        """How often each class (row) was given each label (column) in the test that counts."""
        scores, labels = self._answers()
        pairs = labels * self.classes + scores.argmax(1)
        return pairs.bincount(minlength=self.classes**2).view(self.classes, self.classes)

    def _answers(self) -> tuple[Tensor, Tensor]:
        scores, labels = zip(*self.tested[self.task.tests[0]], strict=True)
        return torch.cat(scores), torch.cat(labels)


def area_under_curve(scores: Tensor, labels: Tensor) -> float | None:
    """The area under the curve of each class against the others, averaged over the classes that can be told apart.

    It is the share of pairs, one example of the class and one other, that the probabilities order rightly; of equal
    ones half count. Of examples of a single class there are no pairs, and it is None; NaN only tells of divergence.

    Example:
        >>> scores = torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
        >>> area_under_curve(scores, torch.tensor([0, 0, 1, 1]))
        0.875
    """
    classes = torch.arange(scores.shape[1], device=labels.device)
    return _mean_area(scores.double().softmax(1), labels[:, None] == classes)


def _mean_area(probabilities: Tensor, own: Tensor) -> float | None:
    """The mean over the columns that have both, of the share of pairs that each orders rightly; None without any."""
    if not probabilities.isfinite().all():
        return math.nan
    areas = []
    for column, mine in zip(probabilities.T, own.T, strict=True):
        _, which, counts = column.unique(return_inverse=True, return_counts=True)
        ranks = (counts.cumsum(0) - (counts - 1) / 2)[which]
        n, others = int(mine.sum()), int((~mine).sum())
        if n and others:
            areas.append((ranks[mine].sum().item() - n * (n + 1) / 2) / (n * others))
    return sum(areas) / len(areas) if areas else None


class Supervised(Learner):
    """Any kind of targets, with its loss and its score.

    Args:
        task: With the run's settings.
        target: What the network is asked for.
    """

    def __init__(self, task: Task, target: Target) -> None:
        super().__init__(task)
        self.target = target

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """That of the targets."""
        return self.target.loss(self.model(x).float(), y)

    def measure(self, x: Tensor, y: Tensor, split: str) -> dict[str, Tensor]:
        """The metric and the loss."""
        said = self.model(x).float()
        if split in self.tested and isinstance(self.target, Labels):
            self.tested[split].append((said.cpu(), y.cpu()))
        score = self.target.score(said, y).mean()
        metric = self.target.metric
        return {metric.name: score if metric.more_is_better else -score, "loss": self.target.loss(said, y)}

    def results(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metric; of numbers the root mean square error, of labels the area under the curve, too."""
        name = self.target.metric.name
        if name == "mse":
            return {"test_rmse": math.sqrt(metrics["test/mse"])}
        found = {f"test_{name}": metrics[f"test/{name}"], "test_loss": metrics["test/loss"]}
        if isinstance(self.target, Labels):
            said, y = (torch.cat(parts) for parts in zip(*self.tested["test"], strict=True))
            area = _mean_area(said.double().sigmoid(), y > 0)
            found |= {} if area is None else {"test_auc": area}
        return found


def _digest(splits: Mapping[str, Any]) -> str:
    """Of names, shapes and values; what several splits share is read once."""
    whole, known = hashlib.sha256(), dict[tuple[int, torch.Size], str]()
    for name, split in splits.items():
        for what, value in getattr(split, "__dict__", {}).items():
            if isinstance(value, Tensor):
                place = value.data_ptr(), value.shape
                if place not in known:
                    known[place] = hashlib.sha256(value.cpu().flatten().numpy().data).hexdigest()
                whole.update(f"{name} {what} {value.dtype} {tuple(value.shape)} {known[place]}\n".encode())
    return whole.hexdigest()[:16]


class Data:
    """The data of a run, loaded once. Whatever is random about training examples is drawn anew each epoch.

    Args:
        task: What to load.
        folder: Data folder.

    Attributes:
        digest: Of all tensors of the splits: simulated data, for one, differ from machine to machine.
    """

    def __init__(self, task: Task, folder: str | Path | None = None) -> None:
        self.task = task
        self.splits: Mapping[str, Any] = task.load(folder)
        self.digest = _digest(self.splits)

    def class_weights(self) -> Tensor:
        """Inverse frequencies of the classes in the training split, 1 on average over its examples."""
        classes = len(self.task.class_names or ())
        counts = self.splits["train"].labels.bincount(minlength=classes)
        return counts.sum() / (classes * counts.clamp(min=1))

    def steps(self, processes: int = 1) -> int:
        """How many batches an epoch has."""
        own = self.task.settings
        return -(-own.passes * len(self.splits["train"]) // (own.batch_size * processes))

    def batches(self, split: str, place: Place, epoch: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets of an epoch, made on the device of a process."""
        for rows, seed in self.rows(split, epoch, place.rank, place.processes):
            yield self.task.batch(split, self.splits[split], rows.to(place.device), seed)

    def rows(self, split: str, epoch: int = 0, rank: int = 0, processes: int = 1) -> Iterator[tuple[Tensor, int]]:
        """Which rows are in the batches of an epoch, each with a seed for whatever is random about them.

        Both depend on the run's seed and the epoch alone, so that resuming changes nothing. Training rows come in as
        many random orders, one after the other, as an epoch has passes, the others in order. In distributed training
        every process takes its share of each batch's rows.
        """
        own, rows = self.task.settings, len(self.splits[split])
        training = split == "train"
        number = SPLITS.index(split) if split in SPLITS else SPLITS.index("test")
        stream = 1_000_003 * (number + len(SPLITS) * own.seed) + (epoch if training else 0)
        order = torch.arange(rows)
        if training:
            generator = torch.Generator().manual_seed(stream)
            order = torch.cat([torch.randperm(rows, generator=generator) for _ in range(own.passes)])
        size = (own.batch_size if training else self.task.evaluation_batch) * processes
        for k, batch in enumerate(order.split(size)):
            least = 2 * processes  # batch statistics need two rows in every process
            if len(batch) < least and training:
                batch = torch.cat([batch, order])[:least]
            elif len(batch) < processes:
                batch = batch.repeat(processes)[:processes]
            yield batch[rank::processes], ((1_000_003 * stream + k) * 1024 + rank) % 2**63

"""What a network is asked for: a class, labels, numbers, a vector or a mask, each with its loss and its score."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn.data.own import UNKNOWN, About
from pscnn.training._task import Metric


class Target(ABC):
    """One kind of targets. ``said`` is always what a network says of a batch, ``y`` the targets of that batch.

    Args:
        names: Of the classes, labels, numbers or components.

    Attributes:
        output: How the network's output transforms: "scalars" stay, a "vector" turns, "dense" outputs move with their
            pixels.
        metric: What networks are judged by; the mean over examples of ``score``, or of minus it if less is better.
    """

    output: ClassVar[str] = "scalars"
    metric = Metric("accuracy", more_is_better=True)

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    @abstractmethod
    def loss(self, said: Tensor, y: Tensor) -> Tensor:
        """What is minimised, one number."""

    @abstractmethod
    def score(self, said: Tensor, y: Tensor) -> Tensor:
        """How good every answer is, (B,); more is better."""

    @abstractmethod
    def constant_score(self, y: Tensor, train: Tensor) -> Tensor:
        """The score of the best answer that looks at no example, (B,).

        Args:
            y: Targets to score it on.
            train: Targets of training, from which it is taken.
        """

    @abstractmethod
    def answer(self, said: Tensor) -> dict[str, Any]:
        """What a network says of one example, in words and numbers."""


class Classes(Target):
    """One class; (B, K) scores, y (B,)."""

    def loss(self, said: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy."""
        return F.cross_entropy(said, y)

    def score(self, said: Tensor, y: Tensor) -> Tensor:
        """1 if the class is right, else 0."""
        return (said.argmax(1) == y).float()

    def constant_score(self, y: Tensor, train: Tensor) -> Tensor:
        """Of the most frequent class."""
        return (y == train.bincount().argmax()).float()

    def answer(self, said: Tensor) -> dict[str, Any]:
        """The class, and its probability."""
        shares = said.softmax(0)
        best = int(shares.argmax())
        return {"class": self.names[best], "probability": shares[best].item()}


class Labels(Target):
    """Several labels at once, each there or not; (B, K) scores, y (B, K) of 0 and 1."""

    def loss(self, said: Tensor, y: Tensor) -> Tensor:
        """Binary cross-entropy of each label."""
        return F.binary_cross_entropy_with_logits(said, y.to(said))

    def score(self, said: Tensor, y: Tensor) -> Tensor:
        """The share of the labels that are right."""
        return ((said > 0) == (y > 0)).float().mean(1)

    def constant_score(self, y: Tensor, train: Tensor) -> Tensor:
        """Of every label as it is more often."""
        return ((train.float().mean(0) > 0.5) == (y > 0)).float().mean(1)

    def answer(self, said: Tensor) -> dict[str, Any]:
        """The probability of every label."""
        return dict(zip(self.names, said.sigmoid().tolist(), strict=True))


class Numbers(Target):
    """Amounts; (B, T), y (B, T). Errors are measured in deviations.

    Args:
        names: Of the numbers.
        deviations: Standard deviations of the training targets.
    """

    metric = Metric("mse", more_is_better=False)

    def __init__(self, names: Sequence[str], deviations: Sequence[float]) -> None:
        super().__init__(names)
        self.deviations = torch.tensor(deviations)

    def loss(self, said: Tensor, y: Tensor) -> Tensor:
        """The mean square error."""
        return self._squares(said, y).mean()

    def score(self, said: Tensor, y: Tensor) -> Tensor:
        """Minus the mean square error over the numbers of an example."""
        return -self._squares(said, y).mean(1)

    def constant_score(self, y: Tensor, train: Tensor) -> Tensor:
        """Of the mean."""
        return self.score(train.mean(0).expand_as(y), y)

    def answer(self, said: Tensor) -> dict[str, Any]:
        """Every number."""
        return dict(zip(self.names, said.tolist(), strict=True))

    def _squares(self, said: Tensor, y: Tensor) -> Tensor:
        self.deviations = self.deviations.to(said.device)  # once
        return ((said - y) / self.deviations).square()


class Vectors(Numbers):
    """A vector that turns with the example; (B, n) components (x, y[, z]), y upwards, y (B, n)."""

    output = "vector"


class Masks(Target):
    """A class per pixel; (B, K, …) scores, y (B, …), with −1 for pixels beside the example, which do not count."""

    output = "dense"
    metric = Metric("iou", more_is_better=True)

    def loss(self, said: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of the pixels."""
        return F.cross_entropy(said, y, ignore_index=UNKNOWN)

    def score(self, said: Tensor, y: Tensor) -> Tensor:
        """Intersection over union, the mean over the classes that the example or the answer has."""
        return self._overlap(said.argmax(1), y, said.shape[1])

    def constant_score(self, y: Tensor, train: Tensor) -> Tensor:
        """Of the most frequent class everywhere."""
        most = torch.stack([(train == k).sum() for k in range(len(self.names))]).argmax()
        return self._overlap(torch.full_like(y, int(most)), y, len(self.names))

    def answer(self, said: Tensor) -> dict[str, Any]:
        """Which share of the pixels is of each class."""
        found = said.argmax(0)
        return {name: (found == k).float().mean().item() for k, name in enumerate(self.names)}

    @staticmethod
    def _overlap(found: Tensor, y: Tensor, classes: int) -> Tensor:
        known = y != UNKNOWN
        total, count = torch.zeros(len(y), device=y.device), torch.zeros(len(y), device=y.device)
        for k in range(classes):  # one after another: all at once would take K times the memory
            here, there = (found == k) & known, y == k
            union = (here | there).flatten(1).sum(1)
            total += (here & there).flatten(1).sum(1) / union.clamp(min=1)
            count += union > 0
        return total / count.clamp(min=1)


def target_of(about: About) -> Target:
    """What a network for prepared data is asked for.

    Example:
        >>> target = target_of(About((28, 28), 1, ("a", "b"), "labels", 0.0, 1.0))
        >>> target.score(torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 1]]))
        tensor([0.5000])
    """
    match about.kind:
        case "classes":
            return Classes(about.names)
        case "labels":
            return Labels(about.names)
        case "masks":
            return Masks(about.names)
    return (Vectors if about.kind == "vectors" else Numbers)(about.names, about.deviations)

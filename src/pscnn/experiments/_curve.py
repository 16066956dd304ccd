"""What a network does when its input is transformed: scores and answers over the elements of a group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor, nn

from pscnn._checks import check_batch
from pscnn._modes import kept_modes
from pscnn._types import Array
from pscnn.data import TARGET_KINDS, transform, transform_targets
from pscnn.groups import Elements, Group, explored

STEPS = 24
"""Angles in the plane, every 15°."""
BATCH = 256


@dataclass(frozen=True)
class Curve:
    """Means over examples, one for each element, (elements,), or with the ends of their 95 % intervals, (elements, 3).

    Scores are the share of right answers for classes, of right labels, of right pixels for masks, and of the variance
    that is explained for numbers and vectors.

    Attributes:
        elements: What was tried.
        turned: The score of answers to transformed examples: mean, low, high.
        back: The same for examples that were transformed and transformed back.
        lost: What is lost by the pose alone, back − turned, paired; its intervals are for all elements together.
        same: How much of the answers stays the same (or turns along): a score with the answers to examples that were
            turned there and back in place of the true ones.
        examples: How many there were.
        kind: Of the targets.
    """

    elements: Elements
    turned: Array
    back: Array
    lost: Array
    same: Array
    examples: int
    kind: str


@torch.no_grad()
def curve(model: nn.Module, x: Tensor, y: Tensor, group: Group, kind: str = "classes", *, steps: int = STEPS) -> Curve:
    """Apply a network to transformed examples, and to examples that were transformed there and back.

    Where these two differ, the network answers differently because of the pose and not because pixels were
    interpolated.

    Args:
        model: From examples to scores of classes or labels, (B, K); numbers or vectors as the targets; scores of the
            classes of pixels, (B, K, …), or fields as the targets.
        x: Examples that it was not trained on, (B, C, H, W) or (B, C, D, H, W).
        y: The right answers. Vectors and masks turn with the examples: see ``pscnn.data.transform_targets``.
        group: H.
        kind: Of the targets, one of ``pscnn.data.TARGET_KINDS``.
        steps: Angles of continuous groups of the plane.

    Example:
        >>> from pscnn.groups import C
        >>> x = torch.zeros(8, 1, 8, 8)
        >>> x[:4, :, :4], x[4:, :, 4:] = 1, 1
        >>> brighter = nn.Sequential(nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten())
        >>> curve(brighter, x, torch.arange(8) // 4, C(2)).turned[:, 0].tolist()
        [1.0, 0.0]
    """
    if kind not in TARGET_KINDS:
        raise ValueError(f"the kind of targets must be one of {', '.join(TARGET_KINDS)}, got {kind!r}")
    check_batch("curve: x", x)
    check_batch("curve: y", y)
    if len(x) != len(y) or len(x) < 2:
        raise ValueError(f"curve: expected two or more examples, each with its answer, got {len(x)} and {len(y)}")
    elements = explored(group, steps)
    with kept_modes(model):
        model.eval()
        rows = [_scores(model, x, y, torch.from_numpy(np.array(h)), kind) for h in elements.matrices]
    turned, back, same = (np.stack(values) for values in zip(*rows, strict=True))
    lost = back - turned
    return Curve(
        elements,
        _means(turned),
        _means(back),
        _means(lost, level=0.05 / len(lost)),
        _means(same),
        len(x),
        kind,
    )


def _scores(model: nn.Module, x: Tensor, y: Tensor, h: Tensor, kind: str) -> tuple[Array, Array, Array]:
    """Per example: of transformed ones, of those turned there and back, and how far the answer stayed."""
    targets = transform_targets(y, h, kind)
    turned = transform(x, h)
    said, before = (
        torch.cat([model(part).float().cpu() for part in pixels.split(BATCH)])
        for pixels in (turned, transform(turned, h.mT))
    )
    answers = _answers(before, y, kind)
    scores = (
        _score(said, targets.cpu(), kind),
        _score(before, y.cpu(), kind),
        _score(said, transform_targets(answers, h, kind), kind),
    )
    return scores[0].numpy(), scores[1].numpy(), scores[2].numpy()


def _answers(said: Tensor, y: Tensor, kind: str) -> Tensor:
    """As if they were targets."""
    if kind == "classes" or (kind == "masks" and not y.is_floating_point()):
        return said.argmax(1)
    return (said > 0).float() if kind == "labels" else said


def _score(said: Tensor, y: Tensor, kind: str) -> Tensor:
    """Per example, at most 1."""
    answers = _answers(said, y, kind)
    if kind in ("classes", "labels") or not y.is_floating_point():
        known = (y >= 0).double().view(len(y), -1)  # of masks, −1 where a class is not known
        return ((answers == y).double().view(len(y), -1) * known).sum(1) / known.sum(1).clamp_min(1)
    spread = (y - y.mean(0)).double().square().mean(0).sum().clamp_min(1e-12)
    return 1 - (answers - y).double().square().flatten(1).sum(1) / spread


def _means(values: Array, level: float = 0.05) -> Array:
    """Of rows (elements, examples), with intervals: Wilson's for what is right or wrong, else of normal means."""
    n, mean = values.shape[1], values.mean(1)
    if np.isin(values, (0, 1)).all():
        low, high = wilson(mean, n, level)
    else:
        half = -ndtri(level / 2) * values.std(1, ddof=1) / np.sqrt(n)
        low, high = mean - half, mean + half
    return np.stack([mean, low, high], 1)


def wilson(share: Array | float, count: int, level: float = 0.05) -> tuple[Array, Array]:
    """The ends of Wilson's interval of a share of so many examples.

    Args:
        share: One or several, of 0 to 1.
        count: How many examples there are.
        level: How often the interval may miss.

    Example:
        >>> [round(float(end), 4) for end in wilson(0.5, 100)]
        [0.4038, 0.5962]
    """
    z = -ndtri(level / 2)
    middle, half = share + z * z / (2 * count), z * np.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)

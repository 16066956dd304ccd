"""Vectors with their norm, which rotations keep, and their angle to an axis, which they do not (paper, F.1.1)."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pscnn.data._folder import check_known

__all__ = ["DISTRIBUTIONS", "TARGETS", "Vectors", "error", "load"]

DISTRIBUTIONS = ("polar", "cube")
TARGETS = ("norm", "angle", "both")


class Vectors(NamedTuple):
    """Vectors and what can be predicted from them.

    Attributes:
        x: The vectors, shape (N, n).
        targets: Norm and angle to the positive last axis (y in the plane, z in space) in radians, shape (N, 2).
    """

    x: Tensor
    targets: Tensor


def load(count: int = 1000, *, dimension: int = 2, distribution: str = "polar", seed: int = 0) -> Vectors:
    """Random vectors.

    Args:
        count: N.
        dimension: n, 2 or 3.
        distribution: "polar": uniform directions and norms uniform in [0, √2], as the paper describes; "cube": uniform
            in [−1, 1]ⁿ, as its published numbers suggest (docs/vectors.md).
        seed: The same seed gives the same vectors.

    Example:
        >>> vectors = load(3, seed=0)
        >>> vectors.x.shape, vectors.targets.shape
        (torch.Size([3, 2]), torch.Size([3, 2]))
    """
    if count < 1:
        raise ValueError(f"needs at least one vector, got {count}")
    if dimension not in (2, 3):
        raise ValueError(f"vectors live in 2 or 3 dimensions, got {dimension}")
    check_known("distribution", distribution, DISTRIBUTIONS)
    draw: dict[str, Any] = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    if distribution == "cube":
        x = 2 * torch.rand(count, dimension, **draw) - 1
    else:
        x = torch.randn(count, dimension, **draw)
        radius = math.sqrt(2) * torch.rand(count, 1, **draw)
        x = radius * x / x.norm(dim=1, keepdim=True)
    norm = x.norm(dim=1)
    angle = torch.atan2(x[:, :-1].norm(dim=1), x[:, -1])
    return Vectors(x.float(), torch.stack([norm, angle], 1).float())


def error(prediction: Tensor, targets: Tensor, target: str) -> Tensor:
    """The mean squared error of norms, or of the cosines of angles, or the sum of both.

    Args:
        prediction: Norm and angle, shape (N, 2).
        targets: The same.
        target: One of ``TARGETS``.
    """
    norm = (prediction[:, 0] - targets[:, 0]).square().mean()
    angle = (prediction[:, 1].cos() - targets[:, 1].cos()).square().mean()
    return {"norm": norm, "angle": angle, "both": norm + angle}[target]

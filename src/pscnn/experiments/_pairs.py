"""Can a classifier tell examples from their transformed copies? Kernel ridge regression, and swaps within pairs.

If the law of the examples does not change under a group K, an example x and its copy k·x are exchangeable, for k drawn
from K without the identity: k⁻¹ is drawn as often as k. So whatever a classifier makes of the pairs, it makes as well
of pairs whose members were swapped at random; comparing the two gives an exact test.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

RIDGE = 0.1
"""Of the mean of the kernel's diagonal."""
SWAPS = 4000
COARSE, EDGES = {2: 10, 3: 6}, {2: 5, 3: 3}
"""Cells along a side in which brightness and edges are averaged, in the plane and in space."""


def told_apart(products: Tensor, seed: int) -> tuple[float, Tensor]:
    """The share of pairs in which the copy is found, each by a classifier of all other pairs; and for swapped pairs.

    Ridge regression from d = φ(copy) − φ(example) to 1 and from −d to −1. With swaps s and C = G + λ, its answer for a
    pair that it did not see is s_i − (C⁻¹s)_i / (C⁻¹)_ii.

    Args:
        products: G, the products of all d: see ``gram``.
        seed: Of the swaps.

    Returns:
        The share, and the shares of ``SWAPS`` swaps.
    """
    n = len(products)
    ridge = (RIDGE * products.diagonal().mean()).clamp_min(1e-12)
    inverse = torch.linalg.inv(products + ridge * torch.eye(n, dtype=products.dtype))
    weights = (-inverse / inverse.diagonal()[:, None]).fill_diagonal_(0).float()
    signs = torch.from_numpy(np.random.default_rng(seed).choice(np.array([-1, 1], np.float32), (n, SWAPS)))
    signs[:, 0] = 1
    shares = (weights @ signs * signs).sign().mean(0).double() / 2 + 0.5  # a tie counts half
    return shares[0].item(), shares[1:]


def gram(first: Tensor, second: Tensor) -> Tensor:
    """The products ⟨d_i, d_j⟩ of d = φ(second) − φ(first), with Gaussian kernels as wide as examples are apart.

    Args:
        first: Images or volumes.
        second: Their copies.
    """
    n = len(first)
    total = torch.zeros(n, n, dtype=torch.float64)
    for a, b in zip(features(first), features(second), strict=True):
        both = torch.cat([a, b]).double()
        squares = torch.cdist(both, both).square()
        kernel = torch.exp(-squares / squares.mean().clamp_min(1e-12))
        total += kernel[:n, :n] + kernel[n:, n:] - kernel[:n, n:] - kernel[n:, :n]
    return total


def features(x: Tensor) -> tuple[Tensor, Tensor]:
    """Brightness and edges by direction, each averaged over the cells of a coarse grid: (B, features) twice."""
    n = x.ndim - 2
    pool = F.adaptive_avg_pool2d if n == 2 else F.adaptive_avg_pool3d
    slopes = torch.stack(torch.gradient(x, dim=tuple(range(2, x.ndim))), -1)
    directions = torch.tensor([d for d in product((-1.0, 0.0, 1.0), repeat=n) if any(d)]).to(x)
    edges = (slopes @ F.normalize(directions, dim=1).T).relu().sum(1).movedim(-1, 1)
    return pool(x, COARSE[n]).flatten(1), pool(edges, EDGES[n]).flatten(1)

"""Adaptive constrained equivariance (arXiv 2505.13631): how much each layer deviates is found by dual ascent."""

from typing import Any

import torch
from torch import Tensor
from torch import nn as tnn

from pscnn.groups import Group
from pscnn.measures import Mixture
from pscnn.models._methods._method import Method, checked_strength

DUAL = 10.0
"""By how much a multiplier grows in a whole training if its constraint is violated by 1 all the time."""


class AdaptiveConstraint(Method):
    """K = K₀ + γ·K₊ with |γ| ≤ u, and a price of ½ρu². The strength is ρ."""

    has_measures = True
    strength = 1.0

    def density(self, group: Group, bandlimit: int, strength: float = strength, **options: Any) -> "Constrained":
        """A share that is learnt under a constraint."""
        return Constrained(group, bandlimit, strength, **options)


class Constrained(Mixture):
    """γ starts at 1 and is held by a multiplier λ that grows as long as |γ| > u.

    The problem is to minimise loss + ½ρu² with |γ| ≤ u, its Lagrangian loss + ½ρu² + λ(|γ| − u). The minimum in u is
    known, u = λ/ρ; γ is trained with the weights, and λ ← max(0, λ + η(|γ| − u)) once per step, with η ten by the
    number of steps (our choice; also that u is not stepped but solved for).

    Args:
        group: H.
        bandlimit: L.
        strength: ρ, the price of deviations.
    """

    multiplier: Tensor

    def __init__(
        self, group: Group, bandlimit: int = 2, strength: float = AdaptiveConstraint.strength, **options: Any
    ) -> None:
        super().__init__(group, bandlimit, **options)
        self.strength = checked_strength("Constrained", strength)
        if not strength:
            raise ValueError("Constrained: strength must be positive, got 0")
        self.gamma = tnn.Parameter(torch.ones_like(self.rest[0]))
        self.register_buffer("multiplier", torch.zeros_like(self.rest[0]))

    @property
    def bound(self) -> Tensor:
        """The largest deviation u that is worth its price."""
        return self.multiplier / self.strength

    @torch.no_grad()
    def advance(self, step: int, steps: int) -> None:
        """Dual ascent, before every step of training but the first."""
        if step:
            self.multiplier.add_(DUAL / steps * (self.gamma.abs() - self.bound)).clamp_(min=0)

    def share(self) -> Tensor:
        """The learnt one."""
        return self.gamma

    def penalty(self) -> Tensor:
        """The part of the Lagrangian that depends on γ."""
        return self.multiplier * self.gamma.abs()

    def words(self) -> str:
        """γ and its bound."""
        return f"γ = {self.gamma.item():.3f}, u = {self.bound.item():.3f}"

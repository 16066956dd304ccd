"""Constraint relaxation (NeurIPS 2024, arXiv 2408.13242): equivariance is given up for a while."""

from typing import Any

import torch
from torch import Tensor

from pscnn.groups import Group
from pscnn.measures import Mixture
from pscnn.models._methods._method import Method, checked_strength
from pscnn.models._methods._projection import norm


class ConstraintRelaxation(Method):
    """K = K₀ + θ·K₊, where θ rises from 0 to 1 and falls to 0 again; what is tested has θ = 0."""

    has_measures = True
    strength = 100.0

    def density(self, group: Group, bandlimit: int, strength: float = strength, **options: Any) -> "Relaxed":
        """A share that follows the steps of training."""
        return Relaxed(group, bandlimit, strength, **options)


class Relaxed(Mixture):
    """θ = 2t in the first half of training, 2 − 2t in the second, with t from 0 to 1; in eval mode θ = 0.

    In its paper the extra term has a penalty on its activations and on their Lie derivative, times θ. Here it is on the
    kernel: θ · strength · ‖K₊‖, in the norm of the weights.

    Args:
        group: H.
        bandlimit: L.
        strength: Of the penalty.
    """

    theta: Tensor
    starts_uniform = True

    def __init__(
        self, group: Group, bandlimit: int = 2, strength: float = ConstraintRelaxation.strength, **options: Any
    ) -> None:
        super().__init__(group, bandlimit, **options)
        self.strength = checked_strength("Relaxed", strength)
        self.register_buffer("theta", torch.zeros_like(self.rest[0]), persistent=False)  # follows from the step

    def advance(self, step: int, steps: int) -> None:
        """Before every step of training."""
        time = step / max(steps - 1, 1)
        self.theta.fill_(2 * min(time, 1 - time))

    def share(self) -> Tensor | float:
        """In training what the schedule says, else none."""
        return self.theta if self.training else 0.0

    def weight_penalty(self, equivariant: Tensor, rest: Tensor) -> Tensor:
        """What a layer adds to the loss, from its ``energies``."""
        return self.strength * self.theta * norm(rest)

    def words(self) -> str:
        """It is equivariant whenever it is not trained."""
        return "θ = 0"

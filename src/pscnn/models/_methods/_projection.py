"""Projection-based regularisation (arXiv 2601.05028): free kernels, penalised for what is not equivariant."""

from typing import Any

from torch import Tensor

from pscnn.groups import Group
from pscnn.measures import Mixture
from pscnn.models._methods._method import Method, checked_strength

RATIO = 0.01
"""Weight of the equivariant part of a kernel by that of the rest."""


class Projection(Method):
    """Λ = 1, and λ_⊥ ‖rest‖ + λ_G ‖equivariant part‖ for every layer. The strength is λ_⊥; λ_G is a hundredth of it."""

    has_measures = True
    strength = 10.0

    def density(self, group: Group, bandlimit: int, strength: float = strength, **options: Any) -> "PenalisedKernels":
        """All mass at the identity, with the penalty."""
        return PenalisedKernels(group, bandlimit, strength, **options)


class PenalisedKernels(Mixture):
    """Free kernels whose two parts are penalised apart.

    The norms are those of the weights (``SteerableMap.energies``), in which both parts are orthogonal: the projection
    is exact and costs nothing. They are not squared, so that a layer can become exactly equivariant.

    Args:
        group: H.
        bandlimit: L.
        strength: λ_⊥.
    """

    def __init__(self, group: Group, bandlimit: int = 2, strength: float = Projection.strength, **options: Any) -> None:
        super().__init__(group, bandlimit, **options)
        self.strength = checked_strength("PenalisedKernels", strength)

    def weight_penalty(self, equivariant: Tensor, rest: Tensor) -> Tensor:
        """What a layer adds to the loss, from its ``energies``."""
        return self.strength * (norm(rest) + RATIO * norm(equivariant))


def norm(energy: Tensor) -> Tensor:
    """The root of a squared norm, with a gradient of zero where that is zero."""
    return energy.clamp_min(1e-12).sqrt()

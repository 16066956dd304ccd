"""What a method can change about an equivariant network."""

import math
from typing import Any, ClassVar

from torch import nn as tnn

from pscnn import nn
from pscnn._words import short
from pscnn.groups import Group
from pscnn.measures import Measure
from pscnn.nn import FieldType

STEEP = 4.0
"""Factor of learnt numbers before a sigmoid or the like: with Adam they cross one or two units in a whole training."""


class Method:
    """Fully equivariant layers. Subclasses override what they change.

    Attributes:
        has_densities: Whether layers learn densities, so that the settings of densities have an effect.
        has_measures: Whether layers average over a measure, so that the band-limit has an effect.
        strength: The usual value of the method's own number, which its ``density`` takes; None if it has none.
        parallel_blocks: Whether networks with residual blocks have a free block beside each, instead of free layers.
    """

    has_densities: ClassVar[bool] = False
    has_measures: ClassVar[bool] = False
    strength: ClassVar[float | None] = None
    parallel_blocks: ClassVar[bool] = False

    def density(self, group: Group, bandlimit: int, **options: Any) -> Measure | None:
        """The density of a layer or block, or another measure over which it averages."""
        return None

    def layer(self, layer: nn.Conv2d | nn.Conv3d) -> tnn.Module:
        """What a steerable convolution becomes."""
        return layer

    def restriction(self, fields: FieldType) -> nn.Restriction | None:
        """A layer after which less symmetry is left, late in the network."""
        return None


def checked_strength(name: str, strength: float) -> float:
    """A method's own number, if it can be one."""
    if not isinstance(strength, int | float) or not 0 <= strength < math.inf:
        raise ValueError(f"{name}: strength must be a finite number of 0 or more, got {short(strength)}")
    return strength

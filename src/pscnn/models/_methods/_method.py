"""What a method can change about an equivariant network."""

from typing import Any

from torch import nn as tnn

from pscnn import nn
from pscnn.groups import Group
from pscnn.likelihood import Likelihood
from pscnn.nn import FieldType


class Method:
    """Fully equivariant layers. Subclasses override what they change.

    Attributes:
        has_densities: Whether layers learn densities, so that the settings of densities have an effect.
        parallel_blocks: Whether networks with residual blocks have a free block beside each, instead of free layers.
    """

    has_densities = False
    parallel_blocks = False

    def density(self, group: Group, bandlimit: int, **options: Any) -> Likelihood | None:
        """The density of a layer or block."""
        return None

    def layer(self, layer: nn.Conv2d | nn.Conv3d) -> tnn.Module:
        """What a steerable convolution becomes."""
        return layer

    def restriction(self, fields: FieldType) -> nn.Restriction | None:
        """A layer after which less symmetry is left, late in the network."""
        return None

"""Equivariant up to a layer that is chosen by hand, free from there on."""

from pscnn import nn
from pscnn.groups import C
from pscnn.models._methods._method import Method
from pscnn.nn import FieldType


class Restricted(Method):
    """After the restriction no symmetry is left."""

    def restriction(self, fields: FieldType) -> nn.Restriction:
        """To the trivial group."""
        return nn.Restriction(fields, C(1))

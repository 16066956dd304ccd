"""Free kernels within the band-limit: the slots of a partially equivariant layer, and nothing that holds them back."""

from typing import Any

from pscnn.groups import Group
from pscnn.measures import Mixture
from pscnn.models._methods._method import Method


class FreeKernels(Method):
    """Λ = 1 and no penalty."""

    has_measures = True

    def density(self, group: Group, bandlimit: int, **options: Any) -> Mixture:
        """All mass at the identity."""
        return Mixture(group, bandlimit, **options)

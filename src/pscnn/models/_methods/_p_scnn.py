"""The paper's method: every layer learns a density over the group."""

from typing import Any

from pscnn.groups import Group
from pscnn.likelihood import Likelihood
from pscnn.models._methods._method import Method


class LearntDensities(Method):
    """Densities that start uniform."""

    has_densities = has_measures = True

    def density(self, group: Group, bandlimit: int, **options: Any) -> Likelihood:
        """A density of its own."""
        return Likelihood(group, bandlimit, **options)

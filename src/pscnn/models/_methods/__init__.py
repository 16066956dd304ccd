"""A method is what the layers of a steerable network are built with: a file and a line here for each."""

from pscnn.models._methods._method import Method
from pscnn.models._methods._p_scnn import LearntDensities
from pscnn.models._methods._restricted import Restricted
from pscnn.models._methods._rpp import ParallelPathway, ResidualPathway, ResidualPathways
from pscnn.models._methods._twin import FreeConvolution, FreeTwin

METHODS: dict[str, Method] = {
    "scnn": Method(),
    "restricted": Restricted(),
    "rpp": ResidualPathways(),
    "p-scnn": LearntDensities(),
    "twin": FreeTwin(),
}

__all__ = ["METHODS", "FreeConvolution", "Method", "ParallelPathway", "ResidualPathway"]

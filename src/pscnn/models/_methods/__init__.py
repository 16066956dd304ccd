"""A method is what the layers of a steerable network are built with: a file and a line here for each."""

from pscnn.models._methods._ace import AdaptiveConstraint, Constrained
from pscnn.models._methods._augment import Augerino, Augmented
from pscnn.models._methods._fixed import Fixed, FixedMeasures, read_kept
from pscnn.models._methods._free import FreeKernels
from pscnn.models._methods._interval import Interval, LearntIntervals
from pscnn.models._methods._method import Method
from pscnn.models._methods._p_scnn import LearntDensities
from pscnn.models._methods._projection import PenalisedKernels, Projection
from pscnn.models._methods._relaxation import ConstraintRelaxation, Relaxed
from pscnn.models._methods._restricted import Restricted
from pscnn.models._methods._rpp import ParallelPathway, ResidualPathway, ResidualPathways
from pscnn.models._methods._twin import FreeConvolution, FreePool, FreeTwin

METHODS: dict[str, Method] = {
    "scnn": Method(),
    "restricted": Restricted(),
    "rpp": ResidualPathways(),
    "p-scnn": LearntDensities(),
    "projection": Projection(),
    "relaxation": ConstraintRelaxation(),
    "ace": AdaptiveConstraint(),
    "interval": LearntIntervals(),
    "free": FreeKernels(),
    "fixed": FixedMeasures(),
    "twin": FreeTwin(),
}
WRAPPERS: dict[str, type[Augmented]] = {"augment": Augmented, "augerino": Augerino}
"""Methods that are wrapped around a whole plain network."""

__all__ = [
    "METHODS",
    "WRAPPERS",
    "Augerino",
    "Augmented",
    "Constrained",
    "Fixed",
    "FreeConvolution",
    "FreePool",
    "Interval",
    "Method",
    "ParallelPathway",
    "PenalisedKernels",
    "Relaxed",
    "ResidualPathway",
    "read_kept",
]

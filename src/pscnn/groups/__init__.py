"""Who H is: compact groups H ≤ O(n), their elements, irreps, representations and Fourier transforms.

Everything here is exact mathematics in NumPy float64, memoised in the process and usable without a network.
"""

from pscnn.groups._axial import Axial, parse
from pscnn.groups._decompose import block_diagonal, intertwiners, pick_basis
from pscnn.groups._explored import Elements, explored
from pscnn.groups._functions import FunctionSpace
from pscnn.groups._group import Group
from pscnn.groups._harmonics import circular_harmonics, spherical_harmonics
from pscnn.groups._planar import MIRROR, O2, SO2, C, D, PlanarGroup, rotation
from pscnn.groups._representation import DirectSum, Irrep, Representation, clebsch_gordan, direct_sum, listed
from pscnn.groups._spatial import O3, SO3, axis_angle, octahedral_sphere_rule, quaternion_rotation, rotation_to

__all__ = [
    "MIRROR",
    "O2",
    "O3",
    "SO2",
    "SO3",
    "Axial",
    "C",
    "D",
    "DirectSum",
    "Elements",
    "FunctionSpace",
    "Group",
    "Irrep",
    "PlanarGroup",
    "Representation",
    "axis_angle",
    "block_diagonal",
    "circular_harmonics",
    "clebsch_gordan",
    "direct_sum",
    "explored",
    "intertwiners",
    "listed",
    "octahedral_sphere_rule",
    "parse",
    "pick_basis",
    "quaternion_rotation",
    "rotation",
    "rotation_to",
    "spherical_harmonics",
]

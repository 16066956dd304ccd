"""Which kernels exist: harmonics on a grid, slots, and the fixed kernel basis. NumPy float64 throughout."""

from pscnn.kernels._harmonics import Gaussian, Ring, SteerableBasis, grid_points, rings
from pscnn.kernels._layout import Layout, layout
from pscnn.kernels._pixels import PixelBasis, exchanges, maps_pixels
from pscnn.kernels._slots import SlotBasis, slot_basis, slots

__all__ = [
    "Gaussian",
    "Layout",
    "PixelBasis",
    "Ring",
    "SlotBasis",
    "SteerableBasis",
    "exchanges",
    "grid_points",
    "layout",
    "maps_pixels",
    "rings",
    "slot_basis",
    "slots",
]

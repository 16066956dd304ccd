"""Data sets: where they come from, how they are built, how they are split."""

from pscnn.data._digits import SPLITS
from pscnn.data._folder import DataError, data_folder, read_arrays
from pscnn.data._transform import TARGET_KINDS, maps_grid, transform, transform_targets
from pscnn.data._windows import Windows

__all__ = [
    "SPLITS",
    "TARGET_KINDS",
    "DataError",
    "Windows",
    "data_folder",
    "maps_grid",
    "read_arrays",
    "transform",
    "transform_targets",
]

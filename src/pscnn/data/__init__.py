"""Data sets: where they come from, how they are built, how they are split."""

from pscnn.data._digits import SPLITS
from pscnn.data._folder import DataError, data_folder, read_arrays
from pscnn.data._windows import Windows

__all__ = ["SPLITS", "DataError", "Windows", "data_folder", "read_arrays"]

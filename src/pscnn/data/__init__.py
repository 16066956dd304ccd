"""Data sets: where they come from, how they are built, how they are split."""

from __future__ import annotations

from pscnn.data._folder import DataError, data_folder

__all__ = ["DataError", "data_folder"]

"""The paper's tables as data, and what runs them."""

from pscnn.experiments._paper import published
from pscnn.experiments._tables import Cell, Table, cells, configurations, run_all, space_tables, vector_tables
from pscnn.experiments._vectors import VectorConfig, load_vectors, run_vectors

__all__ = [
    "Cell",
    "Table",
    "VectorConfig",
    "cells",
    "configurations",
    "load_vectors",
    "published",
    "run_all",
    "run_vectors",
    "space_tables",
    "vector_tables",
]

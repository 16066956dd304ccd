"""The paper's tables as data, and what runs them."""

from pscnn.experiments._archive import save_runs, take_runs
from pscnn.experiments._bench import BenchCase, machine, ratio, run_bench
from pscnn.experiments._discover import DISCOVER_METHODS, discover_plan, prepared_file
from pscnn.experiments._flows import FLOW_DATASETS, FlowSize, flow_sizes
from pscnn.experiments._paper import published
from pscnn.experiments._sheets import SHEETS, Sheet
from pscnn.experiments._store import Store, run_missing
from pscnn.experiments._symmetry import TASKS as SYMMETRY_TASKS
from pscnn.experiments._symmetry import VARIATIONS as SYMMETRY_VARIATIONS
from pscnn.experiments._symmetry import SymmetryConfig, SymmetryScore, SymmetryTask, run_symmetry, symmetry_score
from pscnn.experiments._tables import Cell, Table, cells, configurations, run_all, space_tables, vector_tables
from pscnn.experiments._vectors import VectorConfig, load_vectors, run_vectors

__all__ = [
    "DISCOVER_METHODS",
    "FLOW_DATASETS",
    "SHEETS",
    "SYMMETRY_TASKS",
    "SYMMETRY_VARIATIONS",
    "BenchCase",
    "Cell",
    "FlowSize",
    "Sheet",
    "Store",
    "SymmetryConfig",
    "SymmetryScore",
    "SymmetryTask",
    "Table",
    "VectorConfig",
    "cells",
    "configurations",
    "discover_plan",
    "flow_sizes",
    "load_vectors",
    "machine",
    "prepared_file",
    "published",
    "ratio",
    "run_all",
    "run_bench",
    "run_missing",
    "run_symmetry",
    "run_vectors",
    "save_runs",
    "space_tables",
    "symmetry_score",
    "take_runs",
    "vector_tables",
]

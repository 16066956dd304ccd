"""Which symmetries people's own data have: subgroups are enforced, compared on held-out examples, and stated."""

from pscnn.experiments._discover._discovery import Difference, Discovery, trained_network
from pscnn.experiments._discover._engine import discover
from pscnn.experiments._discover._networks import LABELS, Network
from pscnn.experiments._discover._prepare import folder_of, is_prepared, prepared_file
from pscnn.experiments._discover._subgroups import Subgroup
from pscnn.experiments._discover._verdict import FEWEST, Statement

__all__ = [
    "FEWEST",
    "LABELS",
    "Difference",
    "Discovery",
    "Network",
    "Statement",
    "Subgroup",
    "discover",
    "folder_of",
    "is_prepared",
    "prepared_file",
    "trained_network",
]

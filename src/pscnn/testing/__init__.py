"""Helpers for testing your own layers and networks."""

from pscnn.testing._equivariant import assert_equivariant
from pscnn.testing._leak import Leak, leak
from pscnn.testing._scenes import draw, scenes

__all__ = ["Leak", "assert_equivariant", "draw", "leak", "scenes"]

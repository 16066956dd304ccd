"""From a ``torch.nn`` CNN to its partially equivariant version."""

from pscnn.nn._convert._entry import convert

__all__ = ["convert"]

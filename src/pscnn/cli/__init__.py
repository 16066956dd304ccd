"""The ``pscnn`` command."""

from pscnn.cli import _runs, _reproduce, _own, _bench, _known  # noqa: F401, I001  they add their commands, in this order
from pscnn.cli._app import app

__all__ = ["app"]

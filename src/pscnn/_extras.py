"""The base class of this package's errors; and one clear sentence when an optional dependency is missing."""

import importlib
from types import ModuleType


class PscnnError(Exception):
    """An error that the user can fix: a setting, a file, a data set, a missing extra. The message says how."""


class MissingExtraError(PscnnError, ImportError):
    """A feature needs an optional dependency that is not installed."""


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional module, or say which extra brings it; the purpose begins the sentence: "MNIST's download"."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs {module.split('.')[0]}, which is not installed: pip install 'pscnn[{extra}]'"
        ) from error

"""Memoised mathematics whose results nobody can change by accident."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


def memo(function: F) -> F:
    """``functools.cache`` for functions that return arrays: those are made read-only, since all callers share them."""

    @wraps(function)
    def frozen(*args: Any, **kwargs: Any) -> Any:
        return _freeze(function(*args, **kwargs))

    return cast(F, cache(frozen))


def _freeze(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value if value.flags.owndata else value.copy()
        value.flags.writeable = False
        return value
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_freeze(item) for item in value)
    if isinstance(value, dict):
        return {key: _freeze(item) for key, item in value.items()}
    return value

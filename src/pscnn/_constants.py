"""Fixed float64 arrays as buffers of a module: not in the state dict, exact in every dtype, shared between equals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._types import AnyArray

_shared: WeakValueDictionary[tuple[int, torch.dtype, torch.device], Tensor] = WeakValueDictionary()


class ConstantsModule(nn.Module):
    """A module with fixed arrays.

    The arrays are kept in float64 and every buffer is made from them anew when the module changes its dtype, so
    ``module.double()`` is exact to float64 although the module was built in float32. Modules built from the same
    (memoised) array share one tensor per device and dtype.
    """

    def __init__(self) -> None:
        super().__init__()
        self._arrays: dict[str, AnyArray] = {}
        self._lists: dict[str, list[str]] = {}

    def add_constant(self, name: str, array: AnyArray, like: Tensor) -> None:
        """Register ``array`` as buffer ``name``; floating-point arrays take the dtype and device of ``like``."""
        self._arrays[name] = array
        self.register_buffer(name, _tensor(array, like), persistent=False)

    def add_constants(self, name: str, arrays: Iterable[AnyArray], like: Tensor) -> None:
        """Register a list of arrays, or replace it; a list of modules would show in the names of the user's modules."""
        self._lists[name] = []
        for k, array in enumerate(arrays):
            self._lists[name].append(f"{name}{k}")
            self.add_constant(f"{name}{k}", array, like)

    def constants(self, name: str) -> list[Tensor]:
        """The buffers of a list of arrays; empty if there is none."""
        return [getattr(self, own) for own in self._lists.get(name, ())]

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> ConstantsModule:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, array in self._arrays.items():
            moved = getattr(self, name)
            if not moved.is_meta:
                self._buffers[name] = _tensor(array, moved)
        return self


def _tensor(array: AnyArray, like: Tensor) -> Tensor:
    if not np.issubdtype(array.dtype, np.floating):
        return torch.tensor(array, device=like.device)
    key = (id(array), like.dtype, like.device)
    tensor = _shared.get(key)
    if tensor is None:
        with torch.inference_mode(False):  # the tensor may be shared with models that train
            tensor = torch.tensor(array, dtype=like.dtype, device=like.device)  # a copy: the array is read-only
        if type(tensor) is not Tensor:  # made under a mode, for instance of fake tensors: not for others
            return tensor
        tensor._source = array  # type: ignore[attr-defined]  # keeps the id from being reused while the tensor lives
        _shared[key] = tensor
    return tensor

"""Max pooling that commutes with H."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Proxy

from pscnn.nn._centred import leftover
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Layer, period


class NormMaxPool(Layer):
    """Max pooling by norm: of every field, its value at the point of the window where its norm is largest.

    As many windows as in ``torch.nn.MaxPool2d``, but centred: where pixels would be left over on one side, windows that
    lie between pixels are one pixel larger.

    Args:
        in_type: The fields; the output has the same type.
        kernel_size: Side of the window.
        stride: Distance between windows; ``kernel_size`` by default.
        padding: Points around the map that are never chosen.

    Shape:
        (B, C, H, W) or (B, C, D, H, W), according to the group's dimension.
    """

    field_of: Tensor
    blocks: Tensor

    def __init__(self, in_type: FieldType, kernel_size: int, stride: int | None = None, padding: int = 0) -> None:
        super().__init__(in_type)
        if kernel_size < 1 or not 0 <= padding <= kernel_size // 2:
            raise ValueError(
                f"NormMaxPool: needs kernel_size ≥ 1 and padding of at most half of it, got {kernel_size} and {padding}"
            )
        self.kernel_size, self.padding = kernel_size, padding
        self.stride = kernel_size if stride is None else stride
        sizes = [rho.size for rho in in_type.representations]
        self.add_constant("field_of", np.repeat(np.arange(len(sizes)), sizes), torch.empty(0))
        self._copies, fields = period(in_type)
        which = np.repeat(np.arange(len(fields)), [rho.size for rho in fields])
        self.add_constant("blocks", np.eye(len(fields))[:, which], torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        """Choose."""
        dimension = self.in_type.group.dimension
        self.check(x, dimension)
        left: list[Any] = leftover(x, dimension, self.kernel_size, self.stride, self.padding)
        padding: list[Any] = [self.padding] * dimension
        if self.stride > 2 and (isinstance(x, Proxy) or any(left)):
            crop = [-(r // 2) for r in reversed(left) for _ in range(2)]
            x = F.pad(x, [self.padding + n for n in crop], value=0.0)  # zeros are chosen only where all is zero
            padding = [0] * dimension
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):  # rounded, norms become equal
            squares = x.square().unflatten(1, (self._copies, self.in_type.size // self._copies))
            norms = torch.einsum("fd,bnd...->bnf...", self.blocks.to(x.dtype), squares).flatten(1, 2)
        pool: Any = F.max_pool2d_with_indices if dimension == 2 else F.max_pool3d_with_indices
        _, chosen = pool(norms, [self.kernel_size + r % 2 for r in left], self.stride, padding)
        flat = chosen.flatten(2).index_select(1, self.field_of)
        out: Tensor = x.flatten(2).gather(2, flat).unflatten(2, chosen.shape[2:])
        return out

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

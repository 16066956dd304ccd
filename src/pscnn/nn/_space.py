"""How elements of H move images and volumes."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn._types import Array

# Centred array indices (…, row, column) as a linear function of the coordinates (x, y[, z]): see kernels.grid_points.
_ARRAY_AXES = {
    2: np.array([[0.0, -1.0], [1.0, 0.0]]),
    3: np.array([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]),
}


def transform_space(tensor: Tensor, element: Array) -> Tensor:
    """(h·f)(x) = f(h⁻¹x) on the last two (three) axes of a tensor (B, C, …).

    Elements that map the grid to itself (right angles, mirrors along the axes) are exact permutations of pixels; all
    others interpolate (bi- or trilinear, zeros outside).
    """
    dimension = len(element)
    axes = _ARRAY_AXES[dimension]
    inverse = axes @ element.T @ axes.T  # array indices of the source, from those of the target
    rounded = np.round(inverse)
    if np.abs(inverse - rounded).max() < 1e-9:
        source = np.argmax(np.abs(rounded), axis=1)  # target axis that the i-th source axis follows
        order, flips = [0] * dimension, []
        for i, target in enumerate(source):
            order[target] = i
            if rounded[i, target] < 0:
                flips.append(int(target) - dimension)
        lead = tensor.ndim - dimension
        out = tensor.permute(*range(lead), *(lead + i for i in order))
        return out.flip(flips) if flips else out
    sizes = tensor.shape[-dimension:]
    steps = [torch.arange(n, device=tensor.device, dtype=tensor.dtype) - (n - 1) / 2 for n in sizes]
    target_index = torch.stack(torch.meshgrid(*steps, indexing="ij"), -1)
    source_index = target_index @ torch.as_tensor(inverse.T.copy(), device=tensor.device, dtype=tensor.dtype)
    half = torch.tensor([max(n - 1, 1) / 2 for n in sizes], device=tensor.device, dtype=tensor.dtype)
    grid = (source_index / half).flip(-1).expand(len(tensor), *sizes, dimension)
    return F.grid_sample(tensor, grid, mode="bilinear", padding_mode="zeros", align_corners=True)

"""The type of a feature tensor: which representation each group of channels transforms by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn._types import Array, ArrayLike
from pscnn.groups import Group, Irrep, Representation, block_diagonal, listed
from pscnn.kernels import Layout, layout

# Centred array indices (…, row, column) as a linear function of the coordinates (x, y[, z]): see kernels.grid_points.
_ARRAY_AXES = {
    2: np.array([[0.0, -1.0], [1.0, 0.0]]),
    3: np.array([[0.0, 0.0, 1.0], [0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]),
}


@dataclass(frozen=True, init=False, repr=False)
class FieldType:
    """A list of fields over one group; the channels of a tensor of this type are the fields' channels in order.

    A field of type ρ transforms by (h·f)(x) = ρ(h) f(h⁻¹x).

    Args:
        group: H.
        representations: One representation per field.

    Example:
        >>> from pscnn.groups import O2
        >>> H = O2()
        >>> FieldType(H, 8 * [H.irrep(0, 0), H.irrep(1, 1)]).size
        24
        >>> FieldType(H, 8 * [H.irrep(0, 0), H.irrep(1, 1)])
        FieldType(O2(), 8 * [O2().irrep(0, 0), O2().irrep(1, 1)])
    """

    group: Group
    representations: tuple[Representation, ...]
    size: int = field(compare=False)
    """Number of channels."""

    def __init__(self, group: Group, representations: Iterable[Representation]) -> None:
        fields = tuple(representations)
        if not isinstance(group, Group):
            raise TypeError(f"FieldType: group must be a group such as O2(), got {group!r}")
        if not fields:
            raise ValueError("FieldType: needs at least one field, got an empty list")
        for rho in fields:
            if not isinstance(rho, Representation):
                raise TypeError(f"FieldType: fields must be representations such as H.irrep(…), got {rho!r}")
            if rho.group != group:
                raise ValueError(f"FieldType: the type is over {group.name}, but {rho.name} is over {rho.group.name}")
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "representations", fields)
        object.__setattr__(self, "size", sum(rho.size for rho in fields))

    @property
    def irreps(self) -> tuple[Irrep, ...]:
        """The irreps of all fields in order."""
        return tuple(psi for rho in self.representations for psi in rho.irreps)

    @property
    def layout(self) -> Layout:
        """How the fields repeat."""
        return layout(self.representations)

    def matrix(self, elements: ArrayLike) -> Array:
        """The block-diagonal matrix by which the channels transform, shape (N, size, size) or (size, size)."""
        elements = np.asarray(elements, dtype=np.float64)
        if elements.ndim == 2:
            return self.matrix(elements[None])[0]
        values = {rho: rho(elements) for rho in set(self.representations)}
        return block_diagonal([values[rho] for rho in self.representations])

    def transform(self, tensor: Tensor, element: ArrayLike) -> Tensor:
        """The action of one element on a batch: on channels and, for images and volumes, on space.

        Args:
            tensor: Shape (B, size), (B, size, H, W) for groups of the plane, (B, size, D, H, W) for groups of space.
            element: Shape (n, n).
        """
        element = np.asarray(element, dtype=np.float64)
        n = self.group.dimension
        if tensor.ndim not in (2, 2 + n) or tensor.shape[1] != self.size:
            raise ValueError(
                f"FieldType.transform: expected (batch, {self.size}) or (batch, {self.size}, and {n} spatial axes), "
                f"got {tuple(tensor.shape)}"
            )
        matrix = torch.as_tensor(self.matrix(element), dtype=tensor.dtype, device=tensor.device)
        out = torch.einsum("ij,bj...->bi...", matrix, tensor)
        return out if tensor.ndim == 2 else transform_space(out, element)

    def __repr__(self) -> str:
        return f"FieldType({self.group!r}, {listed(self.representations)})"

    def __str__(self) -> str:
        runs = [f"{len(list(same))}×{name}" for name, same in groupby(rho.name for rho in self.representations)]
        text = ", ".join(runs[:6])
        return f"FieldType({self.group.name}: {text}{', …' if len(runs) > 6 else ''}; {self.size} channels)"


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
        source = np.argmax(np.abs(rounded), axis=1).tolist()  # target axis that the i-th source axis follows
        flips = [target - dimension for i, target in enumerate(source) if rounded[i, target] < 0]
        lead = tensor.ndim - dimension
        out = tensor.permute(*range(lead), *(lead + source.index(target) for target in range(dimension)))
        return out.flip(flips) if flips else out
    sizes = tensor.shape[-dimension:]
    steps = [torch.arange(n, device=tensor.device, dtype=tensor.dtype) - (n - 1) / 2 for n in sizes]
    target_index = torch.stack(torch.meshgrid(*steps, indexing="ij"), -1)
    source_index = target_index @ torch.as_tensor(inverse.T.copy(), device=tensor.device, dtype=tensor.dtype)
    half = torch.tensor([max(n - 1, 1) / 2 for n in sizes], device=tensor.device, dtype=tensor.dtype)
    grid = (source_index / half).flip(-1).expand(len(tensor), *sizes, dimension)
    return F.grid_sample(tensor, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


def is_permuted(rho: Representation) -> bool:
    """Whether every element permutes the channels, so that any pointwise function commutes with it."""
    if rho.group.order is None:
        return False
    values = rho(rho.group.quadrature(0)[0])
    return bool(np.all((np.abs(values) < 1e-9) | (np.abs(values - 1) < 1e-9)))


def are_scalars(fields: FieldType) -> bool:
    """Whether all channels are invariant."""
    return all(map(_is_scalar, set(fields.representations)))


def allow_any_function(fields: FieldType) -> bool:
    """Whether functions of single channels commute with H."""
    return all(_is_scalar(rho) or is_permuted(rho) for rho in set(fields.representations))


def _is_scalar(rho: Representation) -> bool:
    return all(psi.is_trivial for psi in rho.irreps)

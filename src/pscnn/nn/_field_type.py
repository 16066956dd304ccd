"""The type of a feature tensor: which representation each group of channels transforms by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from pscnn._types import Array, ArrayLike
from pscnn.groups import Group, Irrep, Representation, listed
from pscnn.kernels import Layout, layout
from pscnn.nn._space import transform_space


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
        out = np.zeros((len(elements), self.size, self.size))
        values = {rho: rho(elements) for rho in set(self.representations)}
        start = 0
        for rho in self.representations:
            out[:, start : start + rho.size, start : start + rho.size] = values[rho]
            start += rho.size
        return out

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
        runs: list[list[object]] = []
        for rho in self.representations:
            if runs and runs[-1][1] == rho.name:
                runs[-1][0] += 1  # type: ignore[operator]
            else:
                runs.append([1, rho.name])
        text = ", ".join(f"{count}×{name}" for count, name in runs[:6])
        return f"FieldType({self.group.name}: {text}{', …' if len(runs) > 6 else ''}; {self.size} channels)"

"""From a group to a subgroup."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pscnn.groups import Group, direct_sum
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Layer, period


class Restriction(Layer):
    """Forgets part of the group: the same features, seen as fields of a subgroup, with the irreps split.

    Each field ρ = Q (⊕ ψ) Qᵀ of the subgroup becomes Qᵀ x, a plain sum of irreps, so any layer can follow.

    Args:
        in_type: Fields over H.
        subgroup: K ≤ H. Plane groups are subgroups of SO(3) and O(3) about the z axis.

    Shape:
        (B, C, …) → the same.

    Example:
        >>> from pscnn.groups import O2, C
        >>> H = O2()
        >>> Restriction(FieldType(H, [H.irrep(1, 2)]), C(1)).out_type
        FieldType(C(1), [direct_sum(2 * [C(1).irrep(0)])])
    """

    basis: Tensor

    def __init__(self, in_type: FieldType, subgroup: Group, device: Device = None, dtype: DType = None) -> None:
        super().__init__(in_type)
        subgroup = in_type.group.as_subgroup(subgroup)
        restricted = {rho: rho.restrict(subgroup) for rho in set(in_type.representations)}
        split = {rho: direct_sum(list(k.irreps)) for rho, k in restricted.items()}
        self.out_type = FieldType(subgroup, [split[rho] for rho in in_type.representations])
        self._copies, fields = period(in_type)
        basis = direct_sum([restricted[rho] for rho in fields]).change_of_basis
        if basis is not None:
            like = torch.empty(0, device=device, dtype=dtype)
            self.add_constant("basis", np.ascontiguousarray(basis.T), like)

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        if "basis" not in self._arrays:
            return x
        x = x.unflatten(1, (self._copies, self.in_type.size // self._copies))
        return torch.einsum("ij,bnj...->bni...", self.basis.to(x.dtype), x).flatten(1, 2)

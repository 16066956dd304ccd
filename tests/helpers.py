"""What several test files share."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, O3, SO2, SO3, C, D, Group

GROUPS: list[Group] = [C(1), C(4), D(1), D(4), SO2(), O2(), SO3(), O3(), SO2().about((0, 0, 1))]
"""One or more of every family; SO(2) about an axis stands for plane groups in space."""


TINY_DIGITS = {
    "task": "ddmnist",
    "kinds": 2,
    "size": 28,
    "width": 0.15,
    "train_per_class": 4,
    "validation_per_class": 2,
    "test_per_class": 3,
    "batch_size": 8,
}
"""Settings of a run that takes seconds."""


def grid_elements(group: Group) -> np.ndarray:
    """The elements of the group that map a square or cubic grid to itself."""
    n = group.dimension
    matrices = [
        np.eye(n)[list(order)] * np.array(signs)[:, None]
        for order in itertools.permutations(range(n))
        for signs in itertools.product((1.0, -1.0), repeat=n)
    ]
    return np.stack([m for m in matrices if group.contains(m)])


def irrep_type(group: Group, copies: int = 2) -> FieldType:
    """Fields that are sums of all low irreps."""
    irreps = group.irreps(2 if group.dimension == 2 else 1)
    total = irreps[0]
    for psi in irreps[1:]:
        total = total + psi
    return FieldType(group, copies * [total])


def function_type(group: Group, copies: int = 2) -> FieldType:
    return FieldType(group, copies * [group.functions(2 if group.dimension == 2 else 1)])


def quotient_type(group: Group, copies: int = 2) -> FieldType:
    """Functions on the sphere for groups of space, on H/C(2) or H/C(1) for the others."""
    if group in (SO3(), O3()):
        return FieldType(group, copies * [group.functions(1, SO2() if group == SO3() else O2())])
    return FieldType(group, copies * [group.functions(2, C(1) if group.order in (1, 2) else C(2))])


def convolution(in_type: FieldType, out_type: FieldType, kernel_size: int = 3, **options: object) -> nn.SteerableMap:
    layer = nn.Conv2d if in_type.group.dimension == 2 else nn.Conv3d
    return layer(in_type, out_type, kernel_size, **options)  # type: ignore[arg-type]


def random_likelihood(group: Group, bandlimit: int = 2, scale: float = 0.7, **options: object) -> Likelihood:
    likelihood = Likelihood(group, bandlimit, **options)  # type: ignore[arg-type]
    with torch.no_grad():
        likelihood.coefficients.normal_(0, scale)
    return likelihood


def noise(fields: FieldType, size: int | None = 7, batch: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    """A batch of white noise: vectors for size None, otherwise images or volumes."""
    space = () if size is None else (size,) * fields.group.dimension
    return torch.randn(batch, fields.size, *space, dtype=dtype)

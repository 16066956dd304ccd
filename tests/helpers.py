"""What several test files share."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, O3, SO2, SO3, C, D, Group, Representation

if TYPE_CHECKING:  # most tests do without training
    from pscnn.experiments import Sheet
    from pscnn.tasks.double_digits import DoubleDigitSettings
    from pscnn.training import Settings, Store

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

TINY: dict[str, Any] = {
    "source": "digits", "size": 28, "width": 0.1, "epochs": 1, "kinds": 2, "train_per_class": 4,
    "validation_per_class": 2, "test_per_class": 4, "batch_size": 8,
}  # fmt: skip
"""Settings of runs of which a test makes several."""

SMALL: dict[str, Any] = {
    "kinds": 2, "size": 28, "width": 0.1, "train_per_class": 12, "validation_per_class": 5, "test_per_class": 5,
    "epochs": 3, "batch_size": 16, "group": "C4",
}  # fmt: skip
"""Settings of a run with several epochs of several batches."""

FLOW_SIZES = {
    "mlp": (8_324_992, 505_764),
    "cnn": (247_850, 10_274),
    "e2cnn": (622_656, 20_736),
    "rpp": (4_355_658 - 8, 144_650 - 8),
    "combo": (527_160, 18_720),
    "lift": (3_314_852, 479_216),
    "rgroup": (1_874_632, 63_400),
    "rsteer": (5_596_178, 185_282),
}
"""Parameters as published for Smoke (92 fields on 64 × 64) and JetFlow (16 on 62 × 23). The published RPP counts
8 more: those of a normalisation after its last layer, which nothing uses."""

NETWORKS = ("scnn", "p-scnn", "cnn")
"""Those that are compared on people's own data."""


def tiny(**changes: Any) -> DoubleDigitSettings:
    from pscnn.tasks.double_digits import DoubleDigitSettings

    return DoubleDigitSettings(**{**TINY, **changes})


def small(**changes: Any) -> DoubleDigitSettings:
    from pscnn.tasks.double_digits import DoubleDigitSettings

    return DoubleDigitSettings(**{**SMALL, **changes})


def as_options(settings: dict[str, Any]) -> list[str]:
    """Settings as words of a command."""
    return [word for k, v in settings.items() for word in (f"--{k.replace('_', '-')}", str(v))]


def sheet_of(name: str) -> Sheet:
    """A table that is one sheet."""
    from pscnn.experiments import SHEETS, Sheet

    sheet = SHEETS[name]()
    assert isinstance(sheet, Sheet)
    return sheet


def sheets_of(name: str) -> list[Sheet]:
    """A table, or several, under one name."""
    from pscnn.experiments import SHEETS

    found = SHEETS[name]()
    return found if isinstance(found, list) else [found]


def held_elsewhere(store: Store, config: Settings) -> FileLock:
    """A run's lock as another process has it: it cannot be taken again here."""
    return FileLock(store.lock(config).lock_file)


def flow(tasks: int, frames: int, size: int = 64) -> Tensor:
    """Slowly turning vector fields."""
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, size)] * 2, indexing="ij")
    time = 0.1 * torch.arange(frames)[None, :, None, None] + torch.arange(tasks)[:, None, None, None]
    return torch.stack([torch.sin(3 * x + time), torch.cos(2 * y - time)], 2)


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
    total: Representation = irreps[0]
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


def convolution(in_type: FieldType, out_type: FieldType, kernel_size: int = 3, **options: Any) -> nn.SteerableMap:
    layer = nn.Conv2d if in_type.group.dimension == 2 else nn.Conv3d
    return layer(in_type, out_type, kernel_size, **options)


def random_likelihood(group: Group, bandlimit: int = 2, scale: float = 0.7, **options: Any) -> Likelihood:
    likelihood = Likelihood(group, bandlimit, **options)
    with torch.no_grad():
        likelihood.coefficients.normal_(0, scale)
    return likelihood


def noise(fields: FieldType, size: int | None = 7, batch: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    """A batch of white noise: vectors for size None, otherwise images or volumes."""
    space = () if size is None else (size,) * fields.group.dimension
    return torch.randn(batch, fields.size, *space, dtype=dtype)

"""Layers that only converted networks need."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._constants import ConstantsModule
from pscnn.likelihood import Likelihood
from pscnn.nn._conv import Conv2d, Conv3d
from pscnn.nn._convert._values import with_gates
from pscnn.nn._field_type import FieldType
from pscnn.nn._nonlinearity import check_irrep_basis


def pointwise_convolution(in_type: FieldType, out_type: FieldType, likelihood: Likelihood) -> nn.Module:
    """A 1×1 convolution in the plane or in space."""
    layer = Conv2d if in_type.group.dimension == 2 else Conv3d
    return layer(in_type, out_type, 1, likelihood=likelihood)


class OwnGates(ConstantsModule):
    """Gates features that come without gates: a 1×1 convolution makes one gate per irrep of them."""

    which: Tensor

    def __init__(self, in_type: FieldType, likelihood: Likelihood) -> None:
        super().__init__()
        check_irrep_basis("convert", in_type)
        irreps = in_type.irreps
        self.in_type = self.out_type = in_type
        gates = FieldType(in_type.group, len(irreps) * [in_type.group.trivial])
        self.gates = pointwise_convolution(in_type, gates, likelihood)
        self.add_constant("which", np.repeat(np.arange(len(irreps)), [psi.size for psi in irreps]), torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gates(x).sigmoid().index_select(1, self.which)


class ZeroGates(ConstantsModule):
    """Puts gates of zero beside features, to add them to features that have gates."""

    places: Tensor

    def __init__(self, in_type: FieldType) -> None:
        super().__init__()
        self.in_type, self.out_type = in_type, with_gates(in_type)
        places, start = [], 0
        for rho in in_type.representations:
            places += len(rho.irreps) * [in_type.size] + list(range(start, start + rho.size))
            start += rho.size
        self.add_constant("places", np.array(places), torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, torch.zeros_like(x[:, :1])], 1).index_select(1, self.places)

"""The double-digit network built with escnn, to be measured beside ours where that library is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn

from pscnn.groups import Group
from pscnn.models import DIGIT_PADDINGS, highest_frequency


def available() -> bool:
    """Whether escnn can be imported."""
    return find_spec("escnn") is not None


class EscnnDoubleDigits(nn.Module):
    """The same stages, fields, strides and gates as ours, fully equivariant; see ``pscnn.models.build``."""

    def __init__(self, group: Group, size: int, width: float, classes: int) -> None:
        super().__init__()
        from escnn import gspaces
        from escnn import nn as enn

        make = gspaces.flipRot2dOnR2 if group.has_reflections else gspaces.rot2dOnR2
        order = group.rotations.order
        space = make(maximum_frequency=8) if order is None else make(order)
        self._tensor = enn.GeometricTensor
        self.in_type = enn.FieldType(space, [space.trivial_repr])
        fields = self.in_type
        third, fourth = DIGIT_PADDINGS[size]
        layers: list[Any] = [enn.MaskModule(self.in_type, size + 1, margin=1)]

        for copies, frequency, kernel, stride, padding, pool in (
            (6, 2, 7, 1, 2, None),
            (12, 3, 5, 1, 2, 2),
            (24, 4, 3, 2, third, 2),
            (36, 4, 3, 2, fourth, None),
            (36, 2, 3, 1, 1, 1),
        ):
            highest = min(frequency, highest_frequency(group))
            irreps = [r for r in space.fibergroup.irreps() if int(r.attributes["frequency"]) <= highest]
            features = enn.FieldType(space, max(1, round(copies * width)) * irreps)
            gates = enn.FieldType(space, len(features) * [space.trivial_repr])
            both = gates + features
            layers.append(enn.R2Conv(fields, both, kernel, padding=padding, stride=stride, bias=False))
            layers.append(enn.IIDBatchNorm2d(both))
            layers.append(enn.GatedNonLinearity1(both, gates=["gate"] * len(gates) + ["gated"] * len(features)))
            fields = layers[-1].out_type
            if pool:
                layers.append(enn.PointwiseAvgPoolAntialiased2D(fields, sigma=0.66, stride=pool, padding=1))
        last = max(1, round(48 * width))
        final = enn.FieldType(space, last * [space.trivial_repr])
        layers.append(enn.R2Conv(fields, final, 1, bias=False))
        self.resize = nn.Upsample(size=(size + 1, size + 1), mode="bilinear")
        self.body = enn.SequentialModule(*layers)
        self.head = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(last), nn.ELU(), nn.Linear(last, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        out: Tensor = self.head(self.body(self._tensor(self.resize(x), self.in_type)).tensor)
        return out

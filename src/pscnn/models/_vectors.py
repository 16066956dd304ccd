"""The paper's multilayer perceptrons for vectors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import nn as tnn

from pscnn import nn
from pscnn.groups import Group, direct_sum
from pscnn.likelihood import Likelihood
from pscnn.models._kit import highest_frequency
from pscnn.models._preliminary import FreeProjection
from pscnn.nn import FieldType

VECTOR_METHODS = ("mlp", "e-mlp", "pe-mlp", "preliminary")
OUTPUTS = 2
"""The norm and the angle."""


def vectors(
    method: str,
    group: Group,
    *,
    bandlimit: int = 4,
    nonlinearity: str = "gated",
    shared: bool = False,
    noise: float = 0.0,
    density: dict[str, Any] | None = None,
) -> tnn.Sequential:
    """Three linear layers, the first two with normalisation and nonlinearity (paper, Appendix F.2)."""
    if method == "mlp":
        sizes = (group.dimension, 2, 4)
        layers: list[tnn.Module] = []
        for a, b in pairwise(sizes):
            layers += [tnn.Linear(a, b), tnn.BatchNorm1d(b), tnn.ELU()]
        return tnn.Sequential(*layers, tnn.Linear(sizes[-1], OUTPUTS))

    def likelihood() -> Likelihood | None:
        return Likelihood(group, bandlimit, **(density or {})) if method == "pe-mlp" else None

    one = likelihood() if shared else None

    def linear(source: FieldType, target: FieldType) -> tnn.Module:
        if method == "preliminary":
            return FreeProjection(source, target, noise)
        return nn.Linear(source, target, likelihood=one if shared else likelihood())

    fields, layers = FieldType(group, [group.vector]), []
    for copies, frequency in ((2, 4), (4, 3)):
        frequency = min(frequency, highest_frequency(group))
        activation: nn.GatedNonlinearity | nn.FourierPointwise
        if nonlinearity == "gated":
            irreps = direct_sum(list(group.irreps(frequency)))
            activation = nn.GatedNonlinearity(FieldType(group, copies * [irreps]))
        else:
            functions = FieldType(group, copies * [group.functions(frequency)])
            activation = nn.FourierPointwise(functions, degree=63 if group.dimension == 2 else None)
        layers += [linear(fields, activation.in_type), nn.BatchNorm(activation.in_type), activation]
        fields = activation.out_type
    return tnn.Sequential(*layers, linear(fields, FieldType(group, OUTPUTS * [group.trivial])))

"""The paper's multilayer perceptrons for vectors, and its first attempt, kept to see why densities are better."""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn.groups import Group, Irrep, direct_sum
from pscnn.likelihood import Likelihood
from pscnn.models._kit import highest_frequency
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


class FreeProjection(tnn.Module):
    """A linear layer that breaks equivariance pair by pair of irreps, without a density (paper, Appendix F.2).

    Between an input irrep ψ_l and an output irrep ψ_J the map is w · M_{Jl}: one weight w for every pair of copies, one
    matrix M_{Jl} for all copies. M starts as the identity where ψ_J = ψ_l and as zero elsewhere, which is fully
    equivariant. Nothing ties the matrices of different pairs to one another, so there is no group element of which one
    could say how far it is kept.

    Args:
        in_type: Input fields.
        out_type: Output fields.
        noise: Standard deviation of Gaussian noise added to the matrices that start at zero. Without it their
            gradients can vanish.
        bias: Whether to add a bias along trivial irreps.

    Shape:
        (B, in_type.size) → (B, out_type.size).
    """

    row_weight: Tensor
    column_weight: Tensor
    row_matrix: Tensor
    column_matrix: Tensor
    trivial: Tensor

    def __init__(self, in_type: FieldType, out_type: FieldType, noise: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.in_type, self.out_type = in_type, out_type
        inputs, outputs = _irreps(in_type), _irreps(out_type)
        self._columns = len(dict.fromkeys(inputs))
        self.matrices = tnn.ParameterList(
            torch.eye(a.size) if a == b else noise * torch.randn(a.size, b.size)
            for a in dict.fromkeys(outputs)
            for b in dict.fromkeys(inputs)
        )
        self.weight = tnn.Parameter(torch.empty(len(outputs), len(inputs)))
        for row, a in zip(self.weight.data, outputs, strict=True):
            row.normal_(0, max(1, inputs.count(a)) ** -0.5)  # at first an irrep hears only those equal to it
        places = [k for k, psi in enumerate(psi for psi in outputs for _ in range(psi.size)) if psi.is_trivial]
        self.bias = tnn.Parameter(torch.zeros(len(places))) if bias else None
        trivial = torch.zeros(out_type.size, len(places))
        trivial[places, torch.arange(len(places))] = 1
        self.register_buffer("trivial", trivial, persistent=False)
        for side, irreps in (("row", outputs), ("column", inputs)):
            for name, index in zip(("weight", "matrix"), _places(irreps), strict=True):
                self.register_buffer(f"{side}_{name}", index, persistent=False)

    def kernel(self) -> Tensor:
        """The matrix of the layer, shape (out_type.size, in_type.size)."""
        matrices = list(self.matrices)
        rows = [torch.cat(matrices[k : k + self._columns], 1) for k in range(0, len(matrices), self._columns)]
        matrix = torch.cat(rows).index_select(0, self.row_matrix).index_select(1, self.column_matrix)
        return matrix * self.weight.index_select(0, self.row_weight).index_select(1, self.column_weight)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the matrix and the bias."""
        return F.linear(x, self.kernel(), None if self.bias is None else self.trivial @ self.bias)


def _places(irreps: list[Irrep]) -> tuple[Tensor, Tensor]:
    """For every channel, the number of its irrep, and its place among the distinct irreps laid side by side."""
    kinds = list(dict.fromkeys(irreps))
    starts = {psi: sum(earlier.size for earlier in kinds[:k]) for k, psi in enumerate(kinds)}
    numbers = [k for k, psi in enumerate(irreps) for _ in range(psi.size)]
    places = [starts[psi] + m for psi in irreps for m in range(psi.size)]
    return torch.tensor(numbers), torch.tensor(places)


def _irreps(fields: FieldType) -> list[Irrep]:
    out: list[Irrep] = []
    for rho in fields.representations:
        if rho.change_of_basis is not None:
            raise ValueError(f"FreeProjection: fields must be sums of irreps, but {rho.name} has a change of basis")
        out += rho.irreps
    return out

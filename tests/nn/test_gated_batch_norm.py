"""Normalisation and gate as one layer."""

from __future__ import annotations

import copy

import pytest
import torch

from pscnn import FieldType, nn
from pscnn.groups import O2, O3, SO2, SO3, Group, direct_sum

CASES: list[tuple[Group, int, int, tuple[int, ...]]] = [
    (O2(), 3, 12, (9, 11)),
    (O2(), 2, 6, (12, 13)),
    (SO2(), 4, 5, (7, 3)),
    (SO3(), 3, 4, (4, 5, 3)),
    (O3(), 2, 3, (2, 3, 3)),
]


def layer_and_input(
    group: Group, frequency: int, copies: int, shape: tuple[int, ...]
) -> tuple[nn.GatedBatchNorm, torch.Tensor]:
    torch.manual_seed(0)
    layer = nn.GatedBatchNorm(FieldType(group, copies * [direct_sum(list(group.irreps(frequency)))]))
    with torch.no_grad():
        layer.norm.weight.uniform_(0.5, 1.5)
        layer.norm.bias.normal_()
    return layer, torch.randn(3, layer.in_type.size, *shape) + 0.3


@pytest.mark.parametrize(("group", "frequency", "copies", "shape"), CASES)
def test_it_is_both_layers(group: Group, frequency: int, copies: int, shape: tuple[int, ...]) -> None:
    layer, x = layer_and_input(group, frequency, copies, shape)
    apart = torch.nn.Sequential(copy.deepcopy(layer.norm), nn.GatedNonlinearity(layer.out_type))
    assert torch.equal(layer(x), apart(x))
    assert torch.equal(layer.eval()(x), apart.eval()(x))
    torch.testing.assert_close(nn.export(layer)(x), layer(x))
    assert layer.gain == apart[1].gain

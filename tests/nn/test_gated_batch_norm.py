"""Normalisation and gate as one layer, and its kernels for GPUs, run by Triton's interpreter."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
import torch

from pscnn import FieldType, nn
from pscnn.groups import O2, O3, SO2, SO3, Group, direct_sum
from pscnn.nn import _gated_batch_norm as own

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


def test_the_kernels_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    found = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["the", "same"] * len(CASES)


def compare(layer: nn.GatedBatchNorm, x: torch.Tensor) -> None:
    """The slow way against the kernels: values, all gradients, running statistics; training and eval."""
    fast = copy.deepcopy(layer)
    spread = torch.zeros(*x.shape[:1], *x.shape[2:], x.shape[1] + 5).movedim(-1, 1)  # rows at larger distances
    spread[:, : x.shape[1]] = x
    results = []
    for module, source, here in ((layer, x, False), (fast, spread[:, : x.shape[1]], True)):
        vars(own)["compiled"] = lambda _, here=here: here
        source = source.detach().requires_grad_()
        y = module(source)
        gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
        found = torch.autograd.grad(y, [source, *module.parameters()], gradient)
        module.eval()
        with torch.no_grad():
            results.append([y, *found, module.norm.running_mean, module.norm.running_var, module(source)])
    assert results[1][0].stride(1) == 1
    for slow, quick in zip(*results, strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-4, atol=2e-5)
    print("the same")


if __name__ == "__main__":
    from pscnn.nn import _gate_kernels

    _gate_kernels.PROGRAMS = 8  # so that programs walk
    for case in CASES:
        compare(*layer_and_input(*case))

"""One suite for every layer and every group."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import (
    GROUPS,
    convolution,
    function_type,
    grid_elements,
    irrep_type,
    noise,
    quotient_type,
    random_likelihood,
)

import pscnn
from pscnn import FieldType, Likelihood, nn
from pscnn.groups import SO3, C, Group

F64 = torch.float64


def regular_type(group: Group) -> FieldType:
    return FieldType(group, 2 * [group.regular]) if group.order else irrep_type(group)


def small_type(group: Group) -> FieldType:
    return FieldType(group, group.irreps(1))


def restriction(group: Group) -> torch.nn.Module:
    subgroup = {"O(2)": C(4), "SO(2)": C(4), "D(4)": C(4), "C(4)": C(2), "SO(3)": C(4), "O(3)": SO3()}
    return nn.Restriction(irrep_type(group), subgroup.get(group.name, C(1)))


def transposed(in_type: FieldType, out_type: FieldType, *options: Any, **more: Any) -> nn.SteerableMap:
    layer = nn.ConvTranspose2d if in_type.group.dimension == 2 else nn.ConvTranspose3d
    return layer(in_type, out_type, *options, **more)


LAYERS: dict[str, Callable[[Group], torch.nn.Module]] = {
    "conv": lambda g: convolution(small_type(g), regular_type(g), 3, padding=1),
    "conv-uniform": lambda g: convolution(irrep_type(g), small_type(g), 3, likelihood=Likelihood(g, 1)),
    "conv-learnt": lambda g: convolution(
        small_type(g), irrep_type(g), 3, padding="same", padding_mode="circular", likelihood=random_likelihood(g, 1)
    ),
    "conv-strided": lambda g: convolution(
        small_type(g), small_type(g), 3, stride=2, padding=1, likelihood=Likelihood(g, 1)
    ),
    "conv-even": lambda g: convolution(small_type(g), irrep_type(g), 2, stride=2),
    "conv-fields": lambda g: convolution(irrep_type(g), irrep_type(g), 3, padding=2, dilation=2, groups=2),
    "conv-transposed": lambda g: transposed(small_type(g), small_type(g), 3, 2, 1, 1, likelihood=Likelihood(g, 1)),
    "conv-transposed-even": lambda g: transposed(irrep_type(g), small_type(g), 2, 2),
    "linear": lambda g: nn.Linear(irrep_type(g), small_type(g)),
    "linear-learnt": lambda g: nn.Linear(irrep_type(g), small_type(g), likelihood=random_likelihood(g, 2)),
    "gated": lambda g: nn.GatedNonlinearity(irrep_type(g)),
    "gated-irreps": lambda g: nn.GatedNonlinearity(FieldType(g, [g.irreps(1)[-1], g.trivial, g.trivial])),
    "norm": lambda g: nn.NormNonlinearity(irrep_type(g)),
    "fourier": lambda g: nn.FourierPointwise(function_type(g)),
    "fourier-regular": lambda g: nn.FourierPointwise(regular_type(g) if g.order else function_type(g)),
    "quotient": lambda g: nn.QuotientFourierPointwise(quotient_type(g)),
    "batch-norm": lambda g: nn.BatchNorm(irrep_type(g)),
    "batch-norm-regular": lambda g: nn.BatchNorm(regular_type(g)),
    "group-norm": lambda g: nn.GroupNorm(irrep_type(g), 2),
    "instance-norm": lambda g: nn.InstanceNorm(regular_type(g), affine=True),
    "layer-norm": lambda g: nn.LayerNorm(irrep_type(g)),
    "scale": lambda g: nn.FieldScale(irrep_type(g), 0.1),
    "excitation": lambda g: nn.SqueezeExcitation(irrep_type(g), 4, Likelihood(g, 1)),
    "pool": lambda g: nn.AvgPoolAntialiased(irrep_type(g), stride=2),
    "max-pool": lambda g: nn.NormMaxPool(irrep_type(g), 3, 2, 1),
    "mask": lambda g: nn.DiskMask(irrep_type(g), 7),
    "upsample": lambda g: nn.Upsample(irrep_type(g), 9),
    "dropout": lambda g: nn.FieldDropout(irrep_type(g), 0.5),
    "depth": lambda g: nn.StochasticDepth(irrep_type(g), 0.5),
    "restriction": restriction,
}
BROKEN = {"conv-learnt", "linear-learnt"}
VECTORS = {"linear", "linear-learnt"}
RANDOM = {"dropout", "depth"}
ANY_TYPE = {
    "pool",
    "max-pool",
    "mask",
    "upsample",
    "dropout",
    "depth",
}  # they treat all fields alike and print their settings only


@pytest.fixture(params=LAYERS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def layer(name: str, group: Group) -> torch.nn.Module:
    return LAYERS[name](group)


def types(layer: torch.nn.Module) -> tuple[FieldType, FieldType]:
    source, target = layer.in_type, layer.out_type
    assert isinstance(source, FieldType)
    assert isinstance(target, FieldType)
    return source, target


def steerable(layer: torch.nn.Module) -> nn.SteerableMap:
    assert isinstance(layer, nn.SteerableMap)
    return layer


def learnt(layer: torch.nn.Module) -> torch.Tensor:
    """What a layer's density learns."""
    likelihood = steerable(layer).likelihood
    assert isinstance(likelihood, Likelihood)
    return likelihood.coefficients


def batch(name: str, layer: torch.nn.Module, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return noise(types(layer)[0], None if name in VECTORS else 7, dtype=dtype)


def test_declares_its_types(name: str, layer: torch.nn.Module) -> None:
    in_type, out_type = types(layer)
    out = layer(batch(name, layer))
    assert out.shape[1] == out_type.size
    if name in ANY_TYPE:
        assert "=" in layer.extra_repr()
    else:
        assert str(in_type) in repr(layer)
        assert str(out_type) in repr(layer)


def test_equivariant_exactly_when_the_density_is_uniform(name: str, group: Group, layer: torch.nn.Module) -> None:
    layer.double()
    x = batch(name, layer, F64)
    layer(x)  # running statistics
    layer.eval()
    in_type, out_type = types(layer)
    elements = grid_elements(out_type.group)
    if name.startswith("fourier") and group in (GROUPS[6], GROUPS[7]):
        elements = group.identity[None]  # samples on SO(3) alias; measured in test_kernels_and_densities
    if name not in BROKEN:
        if name == "restriction":
            error = pscnn.equivariance_error(layer, x, elements, in_type, out_type)
            assert error.max() < 1e-10
        else:
            pscnn.testing.assert_equivariant(layer, x, elements, 1e-10)
    elif len(learnt(layer)):
        others = [h for h in elements if not np.allclose(h, group.identity)]
        assert pscnn.equivariance_error(layer, x, np.stack(others)).max() > 0.01


@pytest.mark.parametrize("sides", [(8, 8, 8), (6, 7, 8)])
def test_equivariant_at_even_and_unequal_sides(name: str, layer: torch.nn.Module, sides: tuple[int, ...]) -> None:
    """Turned, an image of unequal sides has others: 6 × 7 becomes 7 × 6."""
    if name in BROKEN | VECTORS | {"mask", "restriction"} or name.startswith("fourier"):
        pytest.skip("learnt, or not about sizes")
    layer.double().eval()
    in_type, out_type = types(layer)
    x = torch.randn(2, in_type.size, *sides[-in_type.group.dimension :], dtype=F64)
    elements = grid_elements(out_type.group)
    if name == "upsample" and len(set(sides)) > 1:
        elements = elements[:1]  # to a square
    pscnn.testing.assert_equivariant(layer, x, elements, 1e-10)
    torch.testing.assert_close(nn.export(layer)(x), layer(x), atol=1e-10, rtol=1e-10)


def test_gradcheck(name: str, group: Group, layer: torch.nn.Module) -> None:
    if group.dimension == 3 and name.startswith("conv") and group.order is None and group.name != "SO(3)":
        pytest.skip("slow; the expansion is the same code for all groups")
    layer.double()
    layer.eval() if name in RANDOM else layer.train()
    x = noise(types(layer)[0], None if name in VECTORS else 7 if name in ("mask",) else 3)
    x = x.requires_grad_()
    parameters = {k: p.detach().clone().requires_grad_() for k, p in layer.named_parameters()}

    def run(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        fresh = copy.deepcopy(layer)  # running statistics change in training
        return torch.func.functional_call(fresh, dict(zip(parameters, values, strict=True)), (x,)).sum(0)

    assert torch.autograd.gradcheck(run, (x, *parameters.values()), fast_mode=True, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_compiles_without_graph_breaks(name: str, layer: torch.nn.Module, training: bool) -> None:
    layer.train(training and name not in RANDOM)
    torch.compiler.reset()
    compiled = torch.compile(copy.deepcopy(layer), fullgraph=True, backend="aot_eager")
    x = batch(name, layer)
    torch.testing.assert_close(compiled(x), layer(x), atol=1e-5, rtol=1e-4)


def test_exports(name: str, layer: torch.nn.Module) -> None:
    layer.eval()
    x = batch(name, layer)
    program = torch.export.export(layer, (x,))
    torch.testing.assert_close(program.module()(x), layer(x), atol=1e-5, rtol=1e-4)


def test_plain_version_gives_the_same_without_pscnn(name: str, layer: torch.nn.Module) -> None:
    x = batch(name, layer)
    layer(x)
    layer.eval()
    plain = nn.export(layer)
    torch.testing.assert_close(plain(x), layer(x), atol=1e-5, rtol=1e-4)
    for module in plain.modules():
        assert not type(module).__module__.startswith("pscnn")
    saved = io.BytesIO()
    torch.save(plain, saved)
    assert b"pscnn" not in saved.getvalue()


def test_pickle_and_deepcopy(name: str, layer: torch.nn.Module) -> None:
    layer.eval()
    x = batch(name, layer)
    with torch.no_grad():
        expected = layer(x)  # fills the cache
        for twin in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
            torch.testing.assert_close(twin(x), expected)
            assert twin.in_type == layer.in_type


def test_state_dict_is_parameters_and_statistics_in_train_and_eval(name: str, group: Group) -> None:
    layer = LAYERS[name](group)
    keys = list(layer.state_dict())
    parameters = [k for k, _ in layer.named_parameters()]
    statistics = [k for k in keys if k.split(".")[-1] in ("running_mean", "running_var", "num_batches_tracked")]
    assert sorted(keys) == sorted(parameters + statistics)
    x = batch(name, layer)
    layer(x)
    layer.eval()
    assert list(layer.state_dict()) == keys
    torch.manual_seed(1)
    twin = LAYERS[name](group).eval()
    twin.load_state_dict(layer.state_dict())
    torch.testing.assert_close(twin(x), layer(x))


def test_autocast(name: str, layer: torch.nn.Module) -> None:
    x = batch(name, layer)
    layer(x)
    layer.eval()
    with torch.autocast("cpu", torch.bfloat16):
        low = layer(x)
    high = layer(x)
    assert (low.float() - high).norm() <= 0.03 * high.norm() + 1e-6


def test_to_dtype_is_exact_and_back(name: str, group: Group) -> None:
    torch.manual_seed(0)
    late = LAYERS[name](group).eval().double()
    x = batch(name, late, F64)
    once = late(x)
    assert once.dtype == F64
    late.float().double()
    torch.testing.assert_close(late(x), once, atol=1e-12, rtol=1e-12)


def test_two_models_do_not_disturb_each_other(name: str, group: Group) -> None:
    torch.manual_seed(0)
    first = LAYERS[name](group).eval()
    x = batch(name, first)
    before = first(x)
    second = LAYERS[name](group).double().eval()
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.add_(1)
    second(x.double())
    del second
    assert torch.equal(first(x), before)


@pytest.mark.parametrize("name", ["conv", "conv-learnt", "linear-learnt"])
def test_eval_kernel_follows_its_parameters(name: str, group: Group) -> None:
    layer = steerable(LAYERS[name](group).eval())
    x = batch(name, layer)
    with torch.no_grad():
        first = layer(x)
        assert layer._cache is not None
        assert layer.kernel_and_bias()[0] is layer.kernel_and_bias()[0]
        layer.weight.mul_(2)
        assert not torch.allclose(layer(x), first)
        layer.load_state_dict({k: v / 2 if k == "weight" else v for k, v in layer.state_dict().items()})
        torch.testing.assert_close(layer(x), first)
        if name != "conv" and len(learnt(layer)):
            learnt(layer).zero_()
            assert not torch.allclose(layer(x), first)
        layer.half().float()
        torch.testing.assert_close(layer(x), layer.train()(x))


@pytest.mark.parametrize("switch", [True, False])
def test_eval_kernel_follows_fused_optimisers(switch: bool) -> None:
    """They change parameters without counting up their version."""
    layer = LAYERS["linear-learnt"](C(4)).eval()
    x = batch("linear-learnt", layer)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        with torch.no_grad():
            before = layer(x)
        layer.train(switch)
        layer(x).square().sum().backward()
        optimiser.step()
        layer.eval()
        with torch.no_grad():
            assert not torch.allclose(layer(x), before)


def test_eval_gradients_are_not_cached(group: Group) -> None:
    layer = steerable(LAYERS["linear-learnt"](group).eval())
    x = batch("linear-learnt", layer)
    with torch.no_grad():
        layer(x)
    for _ in range(2):
        layer.zero_grad()
        layer(x).sum().backward()
        assert layer.weight.grad is not None
        assert layer.weight.grad.abs().sum() > 0

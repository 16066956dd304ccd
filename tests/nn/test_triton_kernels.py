"""The kernels for GPUs, run by Triton's interpreter, against plain torch."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from pscnn import FieldType, Likelihood, models, nn
from pscnn.groups import O2, O3, SO2, SO3, D, Group, direct_sum
from pscnn.nn import _batch_norm, _expansion, _fast, _fourier, _gated_batch_norm, _nonlinearity, _norm_act
from pscnn.nn._layer import Layer
from pscnn.nn._operation import Operation
from pscnn.nn._together import Together

CASES: list[tuple[str, Group, int, int, tuple[int, ...]]] = [
    ("gated", O2(), 3, 12, (9, 11)),
    ("gated", O2(), 2, 6, (12, 13)),
    ("gated", SO2(), 4, 5, (7, 3)),
    ("gated", SO3(), 3, 4, (4, 5, 3)),
    ("gated", O3(), 2, 3, (2, 3, 3)),
    ("fourier", O2(), 2, 6, (9, 7)),
    ("fourier", O2(), 4, 3, (5, 6)),
    ("fourier", D(4), 2, 4, (5, 6)),
    ("sphere", SO3(), 2, 3, (3, 4, 3)),
    ("none", O2(), 3, 12, (9, 11)),
    ("none", SO3(), 3, 1, (4, 5, 3)),
    ("mixed", O2(), 3, 2, (5, 4)),  # fields of several kinds, with and without trivial irreps
    ("relu", D(4), 0, 5, (5, 7)),
    ("none", O2(), 3, 3, (1, 1)),  # whose axes may be at any distance
    ("gated", O2(), 2, 6, (1, 1)),
]


def layer_and_input(
    kind: str, group: Group, frequency: int, copies: int, shape: tuple[int, ...]
) -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layer: nn.GatedBatchNorm | nn.FourierBatchNorm | nn.BatchNorm
    if kind == "gated":
        layer = nn.GatedBatchNorm(FieldType(group, copies * [direct_sum(list(group.irreps(frequency)))]))
    elif kind == "mixed":
        fields = [group.irrep(1, 1), direct_sum(list(group.irreps(frequency))), group.trivial, group.irrep(1, 2)]
        layer = nn.BatchNorm(FieldType(group, copies * fields))
    elif kind == "relu":
        layer = nn.BatchNorm(FieldType(group, copies * [group.regular]), relu=True)
    elif kind == "none":
        layer = nn.BatchNorm(FieldType(group, copies * [direct_sum(list(group.irreps(frequency)))]))
    else:
        space = group.functions(frequency, SO2() if kind == "sphere" else None)
        layer = nn.FourierBatchNorm(FieldType(group, copies * [space]), degree=2 * frequency)
    norm = layer if isinstance(layer, nn.BatchNorm) else layer.norm
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.normal_()
    return layer, torch.randn(3, layer.in_type.size, *shape) + 0.3


def test_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    found = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["the", "same"] * (len(CASES) + 16 + 8 + 6 + 3 + 3 + 4 + 1 + 2 + 4 + 1 + 1 + 14 + 1)


def use_kernels(here: bool) -> None:
    """As if all maps were on a GPU, or none."""
    for module in (_batch_norm, _expansion, _fast, _fourier, _gated_batch_norm, _nonlinearity):
        vars(module)["fused"] = lambda x, here=here: here and x.dtype != torch.float64
    vars(_fast)["fast_layout"] = lambda x, here=here: here


def check(found: list[list[torch.Tensor]], rtol: float = 1e-4, atol: float = 2e-5) -> None:
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a, rtol=rtol, atol=atol)
    print("the same")


def compare_layers(layer: torch.nn.Module, x: torch.Tensor) -> None:
    """The slow way against the kernels: values, all gradients, running statistics; training and eval."""
    fast = copy.deepcopy(layer)
    spread = torch.zeros(*x.shape[:1], *x.shape[2:], x.shape[1] + 5).movedim(-1, 1)  # rows at larger distances
    spread[:, : x.shape[1]] = x
    results = []
    plain = copy.deepcopy(layer)
    for module, source, here in ((layer, x, False), (fast, spread[:, : x.shape[1]], True), (plain, x, True)):
        use_kernels(here)
        source = source.detach().requires_grad_()
        versions = {name: buffer._version for name, buffer in module.named_buffers() if "running" in name}
        y = module(source)
        assert all(buffer._version > versions.get(name, -1) for name, buffer in module.named_buffers())
        gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
        found = torch.autograd.grad(y, [source, *module.parameters()], gradient)
        module.eval()
        with torch.no_grad():
            results.append([y, *found, *module.buffers(), module(source)])
    padded = vars(results[1][0])["_padded"]
    assert padded.stride(1) == 1
    assert padded.shape[1] % 32 == 0
    assert padded[:, results[1][0].shape[1] :].eq(0).all()
    for found in zip(results[0], results[2], strict=True):
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=2e-5)
    check(results[:2])


def compare_in_half_precision(layer: Layer) -> None:
    """Several fields at once, also if their number is no multiple, against single precision.

    What lies behind the channels of maps that are not ours is not looked at.
    """
    torch.manual_seed(0)
    channels, results = layer.in_type.size, []
    x = torch.randn(3, channels, 9, 11).half()  # the interpreter does not multiply bfloat16
    around = torch.full((3, 9, 11, channels + 7), torch.nan, dtype=x.dtype).movedim(-1, 1)
    around[:, :channels] = x
    gradient = torch.randn(3, layer.out_type.size, 9, 11)
    for source, here in ((x.float(), False), (around[:, :channels], True)):
        use_kernels(here)
        source = source.detach().requires_grad_()
        y = copy.deepcopy(layer)(source)
        results.append([y.float(), *(g.float() for g in torch.autograd.grad(y, source, gradient.to(y.dtype)))])
    assert y.dtype == x.dtype
    assert vars(y)["_padded"][:, layer.out_type.size :].eq(0).all()
    check(results, rtol=0, atol=3e-2)


def compare_blurs(dimension: int, stride: int, padding: int, size: int) -> None:
    group = O2() if dimension == 2 else SO3()
    fields = FieldType(group, 5 * [group.trivial])
    compare_strided(nn.AvgPoolAntialiased(fields, stride, padding), size)
    convolution = nn.Conv2d if dimension == 2 else nn.Conv3d
    compare_strided(convolution(fields, fields, 3, stride, padding), size)


def compare_strided(layer: nn.AvgPoolAntialiased | nn.Conv2d | nn.Conv3d, size: int) -> None:
    dimension, results = layer.in_type.group.dimension, []
    for here in (False, True):
        use_kernels(here)
        x = torch.randn(2, 5, *[size] * dimension, generator=torch.Generator().manual_seed(2)).requires_grad_()
        y = layer(x)
        (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), x)
        results.append([y, gradient, second])
    check(results)


def compare_folds(channels: int, kernel: int, padding: int, sides: tuple[int, int]) -> None:
    """Strided convolutions of images of a few channels, in any layout, also of those that are centred by averaging."""
    torch.manual_seed(0)
    scalars = FieldType(O2(), channels * [O2().trivial])
    layer = nn.Conv2d(
        scalars, FieldType(O2(), 3 * [O2().functions(2)]), kernel, 2, padding, likelihood=Likelihood(O2(), 1)
    )
    x, results = torch.randn(2, *sides, channels).movedim(-1, 1), []
    for here, image in ((False, x), (True, x), (True, x.contiguous())):
        use_kernels(here)
        y = layer(image)
        once = torch.autograd.grad(y.square().sum(), layer.weight, retain_graph=True)
        first = torch.autograd.grad(y.square().sum(), layer.weight, create_graph=True)
        results.append([y, *once, *first, *torch.autograd.grad(first[0].square().sum(), layer.weight)])
        plain = torch.nn.functional.conv2d(image, layer.kernel(), layer.full_bias(), 2, padding)
        torch.testing.assert_close(nn.convolve(image, *layer.kernel_and_bias(), 2, padding, 1), plain)
    scale = float(results[0][-1].abs().max())
    check(results[:2], rtol=1e-3, atol=1e-4 * scale)
    check(results[1:], rtol=1e-3, atol=1e-4 * scale)


def compare_pools() -> None:
    """Means of windows against torch's, which is right on CPUs, in networks without symmetry."""
    kit = models._kit.PlainKit(2, 5)
    for stride, padding, size in ((2, 1, 15), (2, 2, 12), (1, 1, 7)):
        (pool,), results = kit.pool(stride, padding), []
        for here in (False, True):
            use_kernels(here)
            x = torch.randn(2, 5, size, size, generator=torch.Generator().manual_seed(2)).requires_grad_()
            y = pool(x)
            results.append([y, *torch.autograd.grad(y.square().sum(), x)])
        check(results)
        torch.testing.assert_close(results[0][0], torch.nn.AvgPool2d(5, stride, padding)(x))


def compare_nonlinearities(layer: nn.GatedNonlinearity | nn.FourierPointwise) -> None:
    """Without normalisation before them: values, gradients, and gradients of those."""
    results = []
    for here in (False, True):
        use_kernels(here)
        x = torch.randn(2, layer.in_type.size, 5, 3, generator=torch.Generator().manual_seed(2)).requires_grad_()
        y = layer(x)
        (once,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True)
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        results.append([y, once, first, *torch.autograd.grad(first.square().sum(), x)])
    check(results)


def compare_expansions(group: Group, frequency: int, bandlimit: int) -> None:
    """The way from densities and weights through a convolution: values, gradients, and gradients of those."""
    torch.manual_seed(0)
    fields = FieldType(group, 3 * [direct_sum(list(group.irreps(frequency)))])
    likelihood = Likelihood(group, bandlimit)
    layer = (nn.Conv2d if group.dimension == 2 else nn.Conv3d)(fields, fields, 3, likelihood=likelihood)
    torch.nn.init.normal_(likelihood.coefficients)
    x = torch.randn(2, fields.size, *[4] * group.dimension)
    results = []
    for here in (False, True):
        use_kernels(here)
        inputs = [layer.weight, likelihood.coefficients]
        y = layer(x)
        once = torch.autograd.grad(y.square().sum(), inputs, retain_graph=True)
        first = torch.autograd.grad(y.square().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(torch.cat(first).square().sum(), inputs)
        results.append([layer.kernel(), y, *once, *first, *second])
    check(results, rtol=1e-3, atol=1e-3 * float(results[0][-1].abs().max()))


def compare_together() -> None:
    """The kernels of several layers at once: of several bases and band-limits, with shared densities and without."""
    group = O2()

    def fields(count: int) -> FieldType:
        return FieldType(group, count * [group.functions(2)])

    torch.manual_seed(0)
    shared, scalars = Likelihood(group, 2), FieldType(group, 2 * [group.trivial])
    layers = [
        nn.Conv2d(scalars, fields(3), 5, padding=2, likelihood=Likelihood(group, 2)),
        nn.Conv2d(fields(3), fields(27), 3, padding=1, likelihood=shared),
        nn.Conv2d(fields(27), fields(2), 3, likelihood=shared),
        nn.Conv2d(fields(2), fields(4), 1, likelihood=Likelihood(group, 1)),
        nn.Conv2d(fields(4), fields(2), 3),
    ]
    for layer in layers:
        if isinstance(layer.likelihood, Likelihood):
            torch.nn.init.normal_(layer.likelihood.coefficients)
    model = torch.nn.Sequential(*layers)
    x, results = torch.randn(2, 2, 7, 7), []
    for module, here in ((model, False), (pickle.loads(pickle.dumps(nn.expand_together(model))), True)):
        use_kernels(here)
        y, inputs = module(x), list(module.parameters())
        assert all(layer._ready is None for layer in module)  # for one call only
        once = torch.autograd.grad(y.square().sum(), inputs, retain_graph=True)
        first = torch.autograd.grad(y.square().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(torch.cat([f.flatten() for f in first]).square().sum(), inputs)
        results.append([v / v.detach().abs().max().clamp(min=1e-9) for v in (y, *once, *first, *second)])
    (hook,) = module._forward_pre_hooks.values()
    assert sorted(len(bundle.numbers) for bundle in bundles_of(vars(hook)["together"])) == [1, 1, 1, 2]
    check(results, rtol=1e-3, atol=1e-3)


def bundles_of(together: torch.nn.Module) -> list[Any]:
    """What it made, if it made any."""
    return list((vars(together)["_known"] or ((), ()))[1])


def compare_converted() -> None:
    """A converted network, and copies of it, which make their kernels together; also if a layer is calculated again."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(2, 24, 3, padding=1), torch.nn.BatchNorm2d(24), torch.nn.ReLU()]
    layers += [torch.nn.Conv2d(24, 24, 3), torch.nn.BatchNorm2d(24), torch.nn.ReLU(), torch.nn.Conv2d(24, 4, 3)]
    model = nn.convert(torch.nn.Sequential(*layers), O2(), fields="functions")
    x, results = torch.randn(2, 2, 7, 7), []
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    for module, here, recomputed in ((model, False, False), (again, True, False), (copy.deepcopy(model), True, True)):
        use_kernels(here)
        if recomputed:
            vars(module.get_submodule("3"))["forward"] = partial(
                checkpoint, module.get_submodule("3").forward, use_reentrant=False
            )
        y = module(x)
        y.square().sum().backward()
        results.append([y, *(p.grad for p in module.parameters() if p.grad is not None)])
        (together,) = (one for one in module.modules() if isinstance(one, Together))
        assert bool(bundles_of(together)) == here
        assert together(x) is x
        layers = [one for one in module.modules() if isinstance(one, nn.SteerableMap)]
        assert all((one._ready is not None) == here for one in layers)
        module.eval()
        assert all((one._ready is None) for one in layers)
    check(results[:2], rtol=1e-3, atol=1e-3)
    check([results[0], results[2]], rtol=1e-3, atol=1e-3)


def compare_networks(method: str, nonlinearity: str, compiled: bool = False) -> None:
    """Whole networks, in which zeros behind the channels are handed on from layer to layer; also if compiled."""
    torch.manual_seed(0)
    model = models.build("images", method, "O(2)", size=28, width=0.1, classes=3, nonlinearity=nonlinearity)
    x = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    results = []
    for module, here in ((model, False), (copy.deepcopy(model), True)):
        use_kernels(here)
        y = (torch.compile(module, backend="aot_eager", fullgraph=True) if compiled and here else module)(x)
        y.square().sum().backward()
        results.append([y, *(p.grad for p in module.parameters() if p.grad is not None)])
    check(results, rtol=2e-2, atol=2e-3)


def check_what_is_no_number() -> None:
    """It stays so, or nobody saw that a training has diverged."""
    use_kernels(True)
    fields = FieldType(D(4), 2 * [D(4).regular])
    functions = FieldType(O2(), 3 * [O2().functions(2)])
    for layer in (nn.BatchNorm(fields, relu=True), nn.FourierPointwise(functions), nn.GatedBatchNorm(functions)):
        x = torch.randn(2, layer.in_type.size, 3, 3)
        x[0, 3, 1, 1] = torch.nan
        assert layer(x).isnan().any()
    print("the same")


def check_far_from_zero() -> None:
    """A spread that is small beside the mean, and a corner that is neither: nothing is lost."""
    layer = nn.BatchNorm(FieldType(O2(), 3 * [O2().trivial]))
    x = 100 + 0.1 * torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    x[0, :, 0, 0] = 0
    use_kernels(True)
    ingredients = layer.weight, layer.bias, layer.table, layer.directions, layer.eps
    own = _norm_act.split_statistics(_norm_act.map_statistics(x, *ingredients), 3, 3)
    variance, mean = own.variance, own.centre
    torch.testing.assert_close(mean, x.double().mean((0, 2, 3)).float(), rtol=1e-6, atol=0)
    torch.testing.assert_close(variance, x.double().var((0, 2, 3), correction=0).float(), rtol=1e-4, atol=0)
    assert layer(x).isfinite().all()
    print("the same")


def check_operations() -> None:
    """What the compiler is told about the operations is what they do."""
    x, g = (torch.randn(2, 5, 6, 64).movedim(-1, 1)[:, :c] for c in (60, 36))
    layer = nn.GatedBatchNorm(FieldType(O2(), 6 * [direct_sum(list(O2().irreps(2)))]))
    norm, vectors = layer.norm, torch.rand(4, 60)
    found = torch.rand(len(norm.bias) + 2 * len(norm.weight) + 4 * 60)
    tables, numbers = (layer.gate.gate_of, layer.gate.picked), (1, 12, 30)
    with_arguments: list[tuple[Operation, tuple[object, ...]]] = [
        (_norm_act.map_statistics, (x, norm.weight, norm.bias, norm.table, norm.directions, norm.eps)),
        (_norm_act.norm_act, (x, *tables, vectors, *numbers)),
        (_norm_act.norm_act_gradients, (x, g, *tables, found, norm.table, norm.directions, *numbers)),
        (_norm_act.act_gradient, (x, g, *tables, vectors, *numbers)),
        (_fast.blurred, (torch.randn(2, 5, 6, 32).movedim(-1, 1), torch.rand(5), [3, 3], 2, 2, False)),
        (_fast.image_patches, (torch.randn(2, 1, 6, 6), [4, 4], 3, 1, 0, 32)),
        (_fast.convolved, (x, torch.randn(36, 60, 3, 3), torch.randn(36), 1, 1, 1)),
        (_fast.convolved_back, (g, x, torch.randn(36, 60, 3, 3), 1, 1, 1, True)),
        (_norm_act.follow, (found, norm.running_mean, norm.running_var, norm.num_batches_tracked, 60, 0.1)),
        (_fast.folded_image, (torch.randn(2, 3, 7, 8), [4, 4], 1, [0, 1], torch.float32)),
    ]
    fields = FieldType(O2(), 3 * [O2().functions(2)])
    for likelihood in (None, Likelihood(O2(), 2)):
        conv = nn.Conv2d(fields, fields, 3, bias=False, likelihood=likelihood)
        assert conv._shape is not None
        given, *constants = (None,) if likelihood is None else (t.detach() for t in _expansion.density_of(likelihood))
        table = None if likelihood is None else conv.slot_table0
        made, sizes = (conv.weight.detach(), given, conv.sampled0, table, constants), list(conv._shape.copies)
        largest = max(conv._shape.irreps, default=0)
        with_arguments.append((_expansion.expand, (*made, sizes, [3, 3], largest, torch.bfloat16)))
        kernel, *rest = _expansion.expand(*made, sizes, [3, 3], largest, torch.float32)
        with_arguments.append((_expansion.expand_back, (kernel, *made, *rest, sizes, largest)))
    for operation, arguments in with_arguments:
        torch.library.opcheck(operation.known, arguments, test_utils=("test_schema", "test_faketensor"))
        print("the same")


def check_one_graph() -> None:
    """The compiler finds no call that it does not know, after which it would have to begin anew."""
    use_kernels(True)
    functions, scalars = FieldType(O2(), 3 * [O2().functions(2)]), FieldType(O2(), [O2().trivial])
    layers = torch.nn.Sequential(
        nn.Conv2d(scalars, functions, 3, padding=1),
        nn.BatchNorm(functions),
        nn.FourierPointwise(functions),
        nn.Conv2d(functions, functions, 3, padding=1, likelihood=Likelihood(O2(), 2)),
        nn.FourierBatchNorm(functions, degree=4),
        nn.AvgPoolAntialiased(functions, 2, 1),
    )
    torch.compile(layers, backend="eager", fullgraph=True)(torch.randn(2, 1, 6, 6))
    print("the same")


if __name__ == "__main__":
    from pscnn.nn import _triton_kernels

    _triton_kernels.PROGRAMS = 8  # so that programs walk
    for case in CASES:
        compare_layers(*layer_and_input(*case))
    for copies, plane, frequency in ((6, O2(), 2), (7, O2(), 2), (1, SO2(), 2), (3, O2(), 4)):
        functions = FieldType(plane, copies * [plane.functions(frequency)])
        irreps = FieldType(plane, copies * [direct_sum(list(plane.irreps(frequency)))])
        compare_in_half_precision(nn.FourierBatchNorm(functions, degree=2 * frequency))
        compare_in_half_precision(nn.FourierPointwise(functions, degree=4 * frequency))
        compare_in_half_precision(nn.GatedBatchNorm(irreps))
        compare_in_half_precision(nn.GatedNonlinearity(irreps))
    for blur in ((2, 2, 1, 15), (2, 1, 1, 6), (2, 2, 0, 12), (3, 2, 2, 7)):
        compare_blurs(*blur)
    for image in ((3, 7, 3, (16, 17)), (1, 4, 0, (13, 12)), (4, 3, 1, (9, 9))):
        compare_folds(*image)
    compare_pools()
    irreps = FieldType(O2(), 3 * [direct_sum(list(O2().irreps(2)))])
    compare_nonlinearities(nn.GatedNonlinearity(irreps))
    compare_nonlinearities(nn.GatedNonlinearity(irreps, "field"))
    compare_nonlinearities(nn.FourierPointwise(FieldType(O2(), 3 * [O2().functions(2)])))
    for group, frequency, bandlimit in ((O2(), 2, 2), (SO2(), 3, 1), (D(4), 2, 2), (SO3(), 1, 1)):
        compare_expansions(group, frequency, bandlimit)
    compare_together()
    compare_converted()
    for pair in (("p-scnn", "gated"), ("p-scnn", "fourier"), ("rpp", "gated")):
        compare_networks(*pair)
    compare_networks("p-scnn", "gated", compiled=True)
    check_what_is_no_number()
    check_far_from_zero()
    check_operations()
    check_one_graph()

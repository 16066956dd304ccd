"""The kernel of a layer against independent definitions of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers import convolution, function_type, grid_elements, irrep_type, noise, quotient_type, random_likelihood

import pscnn
from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, O3, SO2, SO3, C, D, Group
from pscnn.kernels import SteerableBasis, grid_points
from pscnn.nn import _slot_kernel

F64 = torch.float64


@pytest.fixture(params=["dense", "rows"])
def expansion(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run with both ways of expanding a kernel."""
    if request.param == "rows":
        monkeypatch.setattr(_slot_kernel, "DENSE_LIMIT", 0)
    return request.param


def mixed_type(group: Group) -> FieldType:
    """Fields in an order without a period, some of them with a change of basis."""
    irreps = group.irreps(2 if group.dimension == 2 else 1)
    rich = group.regular if group.order else group.functions(1)
    return FieldType(group, [irreps[-1], irreps[0], irreps[0], irreps[-1], rich])


def kernel_at(layer: nn.SteerableMap, moments: list[torch.Tensor] | None, points: np.ndarray) -> np.ndarray:
    """The kernel as a function of space: the layer's expansion with its harmonics evaluated elsewhere."""
    basis = SteerableBasis(layer.in_type.group, layer.kernel_size)
    spatial, layer._spatial = layer._spatial, (len(points),)
    out = layer.expand(moments, torch.as_tensor(basis.evaluate(points))).detach().numpy()
    layer._spatial = spatial
    return out


def test_kernel_is_the_average_over_the_density(group: Group, expansion: str) -> None:
    fields = mixed_type(group)
    bandlimit = 1 if group == O3() else 2
    lam = random_likelihood(group, bandlimit, 0.5 if group.dimension == 2 else 0.25, dtype=F64)
    layer = convolution(fields, fields, 3, likelihood=lam, dtype=F64)
    points = np.random.default_rng(0).normal(size=(4, group.dimension))
    nodes, weights = group.quadrature(127 if group.dimension == 2 else 26)  # not the density's own grid
    mass = weights * lam.density(nodes).detach().numpy()
    matrices = fields.matrix(nodes)
    average = np.zeros((fields.size, fields.size, len(points)))
    free = kernel_at(layer, None, np.einsum("nba,pb->npa", nodes, points).reshape(-1, group.dimension))
    free = free.reshape(*free.shape[:2], len(nodes), len(points))
    for chunk in np.array_split(np.arange(len(nodes)), max(1, len(nodes) // 500)):
        average += np.einsum(
            "n,nab,bcnp,ndc->adp", mass[chunk], matrices[chunk], free[:, :, chunk], matrices[chunk], optimize=True
        )
    np.testing.assert_allclose(kernel_at(layer, lam.moment_list(), points), average, atol=1e-8)
    grid = kernel_at(layer, lam.moment_list(), grid_points(3, group.dimension))
    np.testing.assert_allclose(layer.kernel().detach().flatten(2), grid, atol=1e-12)


def test_uniform_density_is_exactly_equivariant_on_the_grid(group: Group, expansion: str) -> None:
    fields = mixed_type(group)
    layer = convolution(fields, fields, 3, padding=1, likelihood=Likelihood(group, 1, dtype=F64), dtype=F64)
    pscnn.testing.assert_equivariant(layer, noise(fields, 5), grid_elements(group)[::3], 1e-10)


@pytest.mark.parametrize("few", [True, False])
def test_bases_can_be_replaced(expansion: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_slot_kernel, "_few_operations", lambda weight: few)
    fields = mixed_type(O2())
    layer = nn.Conv2d(fields, fields, 3, likelihood=random_likelihood(O2(), 1)).eval()
    assert sum(weight.numel() for weight in layer.tile_weights()) == layer.weight.numel()
    with torch.no_grad():
        before, bias = layer.kernel_and_bias()
        layer.set_bases([2 * basis.matrix for basis in layer.bases()])
        torch.testing.assert_close(layer.kernel_and_bias(), (2 * before, bias))


def test_uniform_density_equals_no_density(group: Group) -> None:
    fields = irrep_type(group)
    learnt = convolution(fields, fields, 3, likelihood=Likelihood(group, 2, dtype=F64), dtype=F64)
    plain = convolution(fields, fields, 3, dtype=F64)
    trivial = len(plain.constants("basis")[0])
    copies = fields.layout.copies**2
    with torch.no_grad():
        plain.weight.copy_(learnt.weight.view(copies, -1)[:, :trivial].reshape(-1))
    torch.testing.assert_close(learnt.kernel(), plain.kernel(), atol=1e-10, rtol=0)


def smooth_image(fields: FieldType, size: int) -> torch.Tensor:
    """A few Gaussian bumps inside the disk: smooth enough for interpolation to be accurate."""
    grid = torch.stack(torch.meshgrid(*[torch.arange(size, dtype=F64) - (size - 1) / 2] * 2, indexing="ij"))
    out = torch.zeros(1, fields.size, size, size, dtype=F64)
    for centre in torch.randn(5, 2, dtype=F64) * size / 10:
        bump = torch.exp(-((grid - centre[:, None, None]) ** 2).sum(0) / (2 * (size / 12) ** 2))
        out += torch.randn(1, fields.size, 1, 1, dtype=F64) * bump
    return out


@pytest.mark.parametrize("group", [C(8), D(8), SO2(), O2()], ids=str)
def test_equivariant_at_other_angles_up_to_interpolation(group: Group) -> None:
    fields = FieldType(group, group.irreps(2))
    layer = convolution(fields, fields, 5, padding=2, likelihood=Likelihood(group, 2, dtype=F64), dtype=F64)
    x = smooth_image(fields, 65)
    elements = group.sample(8, seed=3)
    assert pscnn.equivariance_error(layer, x, elements).max() < 0.03
    broken = convolution(
        fields, fields, 5, padding=2, likelihood=random_likelihood(group, 2, 1.0, dtype=F64), dtype=F64
    )
    assert pscnn.equivariance_error(broken, x, elements).max() > 0.3


@pytest.mark.parametrize(
    ("big", "small"),
    [(O2(), D(4)), (O2(), C(4)), (SO2(), C(4)), (D(4), C(4)), (C(4), C(2)), (SO3(), SO2()), (O3(), SO3())],
    ids=str,
)
def test_density_on_a_subgroup_keeps_exactly_that_subgroup(big: Group, small: Group) -> None:
    fields = irrep_type(big, 1)
    lam = Likelihood(big, 4 if big.dimension == 2 else 2, support=small, dtype=F64)
    layer = convolution(fields, fields, 3, padding=1, likelihood=lam, dtype=F64)
    x = noise(fields, 5)
    small = big.as_subgroup(small)
    inside = grid_elements(small)
    pscnn.testing.assert_equivariant(layer, x, inside, 1e-10)
    everything = big.sample(40, seed=0) if big.order else grid_elements(big)
    outside = [h for h in everything if not small.contains(h)]
    if not outside:  # the grid shows only right angles: evaluate the kernel itself
        outside = [h for h in big.sample(4, seed=0) if not small.contains(h)]
        points = np.random.default_rng(0).normal(size=(5, big.dimension))
        kernel = kernel_at(layer, lam.moment_list(), points)
        for h in outside:
            turned = (
                fields.matrix(h)
                @ kernel_at(layer, lam.moment_list(), points @ h).transpose(2, 0, 1)
                @ fields.matrix(h).T
            )
            assert np.abs(turned.transpose(1, 2, 0) - kernel).max() > 0.01
    else:
        assert pscnn.equivariance_error(layer, x, np.stack(outside)).max() > 0.1


def test_keeping_a_subgroup_survives_any_logits() -> None:
    fields = irrep_type(O2(), 1)
    lam = random_likelihood(O2(), 3, 1.0, keep=D(2), dtype=F64)
    layer = convolution(fields, fields, 3, padding=1, likelihood=lam, dtype=F64)
    x = noise(fields, 5)
    pscnn.testing.assert_equivariant(layer, x, grid_elements(D(2)), 1e-8)
    quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    assert pscnn.equivariance_error(layer, x, quarter[None])[0] > 0.05


def test_free_kernels_have_full_rank_and_the_expected_number_of_weights(group: Group) -> None:
    fields = FieldType(group, group.irreps(1))
    highest = 2 * fields.layout.composite.frequency + 2
    lam = random_likelihood(group, highest if group.dimension == 2 else 4, 0.4, dtype=F64)
    layer = convolution(fields, fields, 3, likelihood=lam, bias=False, dtype=F64)
    harmonics = SteerableBasis(group, 3).size
    assert layer.weight.numel() == fields.size**2 * harmonics
    identity = [torch.eye(psi.size, dtype=F64) for psi in lam.irreps]
    columns = []
    with torch.no_grad():  # the kernel is linear in the weights: its Jacobian is its value at unit weights
        for k in range(layer.weight.numel()):
            layer.weight.zero_()
            layer.weight[k] = 1
            columns.append(layer.expand(identity).flatten())
    assert torch.linalg.matrix_rank(torch.stack(columns)) == len(columns)


@pytest.mark.parametrize("nonlinearity", ["gated", "norm", "fourier", "quotient"])
@pytest.mark.parametrize("with_likelihood", [False, True])
def test_variance_is_kept_through_ten_layers(group: Group, nonlinearity: str, with_likelihood: bool) -> None:
    fields = {"fourier": function_type, "quotient": quotient_type}.get(nonlinearity, irrep_type)
    copies = max(16, 512 // fields(group, 1).size)  # wide enough for chance to play no part
    layer = {
        "gated": nn.GatedNonlinearity,
        "norm": nn.NormNonlinearity,
        "fourier": nn.FourierPointwise,
        "quotient": nn.QuotientFourierPointwise,
    }[nonlinearity](fields(group, copies))
    gain = layer.gain
    x = torch.randn(256, layer.out_type.size)
    with torch.no_grad():
        for _ in range(10):
            lam = Likelihood(group, 1) if with_likelihood else None
            x = layer(nn.Linear(layer.out_type, layer.in_type, likelihood=lam, gain=gain)(x))
            assert 0.5 < x.square().mean().item() < 2


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_a_convolution_keeps_the_variance_of_noise(group: Group, kernel_size: int) -> None:
    if group == O3() and kernel_size == 5:
        pytest.skip("covered by SO(3)")
    fields = irrep_type(group, max(8, 96 // irrep_type(group, 1).size))
    x = noise(fields, 15 if group.dimension == 2 else 7, dtype=torch.float32)
    with torch.no_grad():
        y = convolution(fields, fields, kernel_size, likelihood=Likelihood(group, 1))(x)
    assert 0.7 < y.square().mean().item() < 1.4


Nonlinearity = nn.GatedNonlinearity | nn.NormNonlinearity | nn.FourierPointwise | nn.QuotientFourierPointwise


def network(group: Group, nonlinearity: str, likelihood: bool) -> torch.nn.Sequential:
    """An image (volume) to invariant features: every spatial layer of the library in one network."""
    volume = group.dimension == 3
    gray = FieldType(group, [group.trivial])
    layers: list[torch.nn.Module] = [nn.Upsample(gray, 9), nn.DiskMask(gray, 9)]
    fields = gray
    for stride in (1, 2):
        activations: dict[str, Callable[[], Nonlinearity]] = {
            "gated": lambda: nn.GatedNonlinearity(irrep_type(group)),
            "norm": lambda: nn.NormNonlinearity(irrep_type(group)),
            "fourier": lambda: nn.FourierPointwise(function_type(group)),
            "quotient": lambda: nn.QuotientFourierPointwise(quotient_type(group)),
        }
        activation = activations[nonlinearity]()
        lam = Likelihood(group, 1) if likelihood else None
        layers += [
            convolution(fields, activation.in_type, 3, padding=1, likelihood=lam),
            nn.BatchNorm(activation.in_type),
            activation,
            nn.FieldDropout(activation.out_type, 0.1),
            nn.AvgPoolAntialiased(activation.out_type, stride=stride),
        ]
        fields = activation.out_type
    out = FieldType(group, 3 * [group.trivial])
    layers += [convolution(fields, out, 3), torch.nn.AdaptiveAvgPool3d(1) if volume else torch.nn.AdaptiveAvgPool2d(1)]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(3, 4))


@pytest.mark.parametrize("nonlinearity", ["gated", "norm", "fourier", "quotient"])
@pytest.mark.parametrize("likelihood", [False, True])
def test_whole_networks_are_invariant(group: Group, nonlinearity: str, likelihood: bool) -> None:
    if nonlinearity == "fourier" and group in (SO3(), O3()):
        pytest.skip("samples on SO(3) are not closed under the cube's symmetries; see the next test")
    model = network(group, nonlinearity, likelihood).double()
    x = noise(FieldType(group, [group.trivial]), 8)
    model(x)  # running statistics
    model.eval()
    assert model(x).std() > 1e-4
    pscnn.testing.assert_equivariant(model, x, grid_elements(group)[::2], 1e-10)


def test_aliasing_of_fourier_pointwise_falls_with_the_degree() -> None:
    fields = FieldType(SO3(), 2 * [SO3().functions(1)])
    x = noise(fields, None, 16)
    errors = [
        pscnn.equivariance_error(nn.FourierPointwise(fields, degree=d, dtype=F64), x, SO3().sample(8, seed=0)).max()
        for d in (4, 8, 16)
    ]
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[2] < 0.01


def test_written_out_gradients_are_autograds(group: Group, expansion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the kernel as a GPU expands it, once and twice, in its weights and its density."""
    fields = irrep_type(group)
    lam = random_likelihood(group, 1, 0.4, dtype=F64)
    layer = convolution(fields, fields, 3, likelihood=lam, dtype=F64)

    def slow() -> torch.Tensor:
        flat = (lam.moment_matrix * lam.masses()).sum(1)
        sizes = [psi.size for psi in lam.irreps]
        blocks = flat.split([d * d for d in sizes])
        return layer.expand([m.view(d, d) for m, d in zip(blocks, sizes, strict=True)])

    parameters = [p for p in (layer.weight, lam.coefficients) if p.numel()]
    found = []
    for few, expand in ((True, layer.kernel), (True, slow), (False, layer.kernel)):
        monkeypatch.setattr(_slot_kernel, "_few_operations", lambda weight, few=few: few)
        kernel = expand()
        weights = torch.linspace(-1, 1, kernel.numel(), dtype=F64).view_as(kernel)
        once = torch.autograd.grad((kernel.square() * weights).sum(), parameters, create_graph=True)
        twice = torch.autograd.grad(torch.stack([g.square().sum() for g in once]).sum(), parameters)
        found.append([kernel, *once, *twice])
    for fast, sampled, plain in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain, atol=1e-10, rtol=1e-8)
        torch.testing.assert_close(sampled, plain, atol=1e-10, rtol=1e-8)

"""The share of a kernel that is not equivariant, and the exact action on kernels of any kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import GROUPS, convolution, irrep_type, random_likelihood

import pscnn
from pscnn import FieldType, nn
from pscnn.densities import grid_elements, typed_layers
from pscnn.groups import O2, O3, SO2, SO3, C, D, Group, parse
from pscnn.measures import Mixture
from pscnn.models import METHODS, VOLUME_METHODS, advance, build, by_method


def types(group: Group) -> tuple[FieldType, FieldType]:
    """With fields that do not repeat, in another order than their composites."""
    irreps = irrep_type(group, copies=1).representations
    return FieldType(group, [group.trivial, *irreps, *irreps, group.trivial]), FieldType(group, [*irreps, group.vector])


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_the_equivariant_part_of_a_steerable_kernel_is_that_of_its_slots(group: Group) -> None:
    torch.manual_seed(0)
    inn, out = types(group)
    layer = convolution(inn, out, likelihood=Mixture(group, 2)).double()
    moments = Mixture(group, 2).double().moment_list()
    expected = layer.expand([moments[0], *(torch.zeros_like(m) for m in moments[1:])])
    assert torch.allclose(nn.equivariant_part(layer.kernel(), inn, out), expected, atol=1e-12)
    element = group.sample(3, seed=1)[2]
    turned = nn.steered_kernel(layer.kernel(), inn, out, element)
    assert torch.allclose(turned, layer.steered(moments, element), atol=1e-12)


@pytest.mark.parametrize("group", [C(3), SO2(), O2(), SO2().about((0, 0, 1))], ids=str)
def test_the_equivariant_part_is_the_mean_over_the_group(group: Group) -> None:
    """By brute force, for what the harmonics can express of any kernel."""
    torch.manual_seed(0)
    inn, out = (FieldType(group, [group.trivial, group.vector]) for _ in range(2))
    kernel = torch.randn(out.size, inn.size, *[3] * group.dimension, dtype=torch.float64)
    shown = nn.steered_kernel(kernel, inn, out, group.identity)
    assert torch.allclose(shown, kernel, atol=1e-12)
    nodes, weights = group.quadrature(12)
    part = nn.equivariant_part(kernel, inn, out)
    mean = sum(w * nn.steered_kernel(part, inn, out, h) for h, w in zip(nodes, weights, strict=True))
    assert torch.allclose(torch.as_tensor(mean), part, atol=1e-10)  # it is equivariant
    smooth = _expressed(kernel, group)
    mean = sum(w * nn.steered_kernel(smooth, inn, out, h) for h, w in zip(nodes, weights, strict=True))
    assert torch.allclose(torch.as_tensor(mean), part, atol=1e-10)  # and the mean of the kernel
    rest = (smooth - part).flatten()
    assert abs((rest @ nn.equivariant_part(smooth - part, inn, out).flatten()).item()) < 1e-9


@pytest.mark.parametrize("group", [C(4), C(3), O2(), SO3()], ids=str)
def test_grouped_kernels_are_compared_as_whole_ones_with_zeros_between_groups(group: Group) -> None:
    torch.manual_seed(0)
    fields = FieldType(group, 2 * [group.trivial, group.vector])
    layer = convolution(fields, fields, groups=2, likelihood=Mixture(group, 2)).double()
    grouped, half = layer.kernel().detach(), fields.size // 2
    whole = torch.zeros(fields.size, fields.size, *grouped.shape[2:], dtype=torch.float64)
    whole[:half, :half], whole[half:, half:] = grouped[:half], grouped[half:]
    element = group.sample(3, seed=1)[2]
    for small, large in (
        (nn.equivariant_part(grouped, fields, fields), nn.equivariant_part(whole, fields, fields)),
        (nn.steered_kernel(grouped, fields, fields, element), nn.steered_kernel(whole, fields, fields, element)),
    ):
        assert torch.allclose(torch.cat([large[:half, :half], large[half:, half:]]), small, atol=1e-12)


@pytest.mark.parametrize("method", ["scnn", "rpp", "twin", "free", "p-scnn"])
def test_grouped_layers_of_every_method_are_measured(method: str) -> None:
    torch.manual_seed(0)
    plain = torch.nn.Sequential(
        torch.nn.Conv2d(4, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, groups=2), torch.nn.ReLU()
    )
    model = by_method(plain, method, "C4").eval()
    found = [pscnn.degree(model), pscnn.degree(model, C(2))]  # over another group its fields count as scalars
    assert all(set(shares) >= {"0", "2"} for shares in found)
    assert (found[0]["2"] < 1e-9) == (method in ("scnn", "p-scnn"))
    assert pscnn.summary(model)
    errors = pscnn.layer_errors(model, torch.randn(2, 4, 9, 9), C(4).sample(3, seed=0))
    assert all(error.error.isfinite().all() for error in errors.values())
    assert set(pscnn.degree(plain, C(4))) == {"0", "2"}  # also of plain convolutions


def test_groups_must_be_equal_parts_of_the_fields() -> None:
    fields = FieldType(O2(), [O2().trivial, O2().vector, O2().vector, O2().trivial])
    with pytest.raises(ValueError, match="kernel: groups=2 needs that many equal parts of whole fields, got"):
        nn.equivariant_part(torch.randn(6, 3, 3, 3), fields, fields)


def _expressed(kernel: torch.Tensor, group: Group) -> torch.Tensor:
    """What the harmonics can express, by least squares."""
    values = pscnn.kernels.SteerableBasis(group, kernel.shape[-1]).sample()
    flat = kernel.reshape(-1, values.shape[1]).numpy().T
    found = np.linalg.lstsq(values.T, flat, rcond=None)[0]
    return torch.as_tensor((values.T @ found).T.copy()).view(kernel.shape)


@pytest.mark.parametrize("group", [C(4), D(4)], ids=str)
def test_where_pixels_move_to_pixels_all_of_a_kernel_is_averaged(group: Group) -> None:
    torch.manual_seed(0)
    scalars = FieldType(group, [group.trivial])
    kernel = torch.randn(1, 1, 5, 5, dtype=torch.float64)
    turned = [kernel.rot90(k, (2, 3)) for k in range(4)]
    if group == D(4):
        turned += [one.flip(3) for one in turned]
    assert torch.allclose(nn.equivariant_part(kernel, scalars, scalars), torch.stack(turned).mean(0), atol=1e-12)


@pytest.mark.parametrize("group", [C(4), O2(), SO3()], ids=str)
def test_the_degree_lies_between_nothing_and_all(group: Group) -> None:
    torch.manual_seed(0)
    fields = irrep_type(group, copies=2)
    layer = convolution(fields, fields, likelihood=Mixture(group, 2))
    ((_, whole),) = pscnn.degree(layer).items()
    assert 0.3 < whole < 1
    shares = []
    for scale in (1.0, 0.1, 0.0):
        with torch.no_grad():
            for tile, weight in zip(layer.bases(), layer.tile_weights(), strict=True):
                trivial = sum(psi.size * n for psi, n in tile.slots.segments if psi.is_trivial)
                weight[:, trivial:] *= scale
        shares.append(pscnn.degree(layer)[""])
    assert shares[0] == whole
    # Parts of energies 1 − s and s, of which the second becomes a hundredth.
    assert shares[1] == pytest.approx(0.01 * whole / (1 - whole + 0.01 * whole), rel=1e-3)
    assert shares[2] == 0


def test_the_degree_follows_the_density() -> None:
    torch.manual_seed(0)
    fields = irrep_type(O2(), copies=2)
    shares = []
    for scale in (0.0, 0.3, 1.0):
        layer = convolution(fields, fields, likelihood=random_likelihood(O2(), scale=scale))
        shares.append(pscnn.degree(layer)[""])
    assert shares[0] < 1e-12
    assert shares[0] < shares[1] < shares[2] < 1


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_degree_for_every_layer(method: str) -> None:
    torch.manual_seed(0)
    model = build("images", method, "O(2)", size=28, width=0.15)
    advance(model, 1, 3)
    model(torch.randn(2, 1, 28, 28))
    shares = pscnn.degree(model.eval(), O2())
    assert len(shares) == 6
    assert all(0 <= share <= 1 for share in shares.values())
    equivariant = method in ("scnn", "p-scnn", "relaxation", "interval")
    assert (max(shares.values()) < 1e-9) == equivariant
    restricted = [share > 0.1 for share in shares.values()]
    if method == "restricted":
        assert restricted == [False] * 4 + [True, False]  # and 1×1 kernels between scalars are equivariant
    words = pscnn.summary(model)
    if method in ("cnn", "augment", "augerino"):
        assert not typed_layers(model)
        assert "no learnt densities" in words
    elif method != "p-scnn":
        assert len(words.splitlines()) == 9
        assert ("kept in every layer" in words) == equivariant


def test_the_layers_of_volumes_have_degrees() -> None:
    for method in ("free", "rpp", "twin", "augment"):
        assert method in VOLUME_METHODS
        model = build("volumes", method, "O(3)", size=16, width=1)
        shares = pscnn.degree(model.eval(), O3())
        assert max(shares.values()) > 0.1, method
        if method == "rpp":  # plain blocks beside equivariant ones
            assert max(pscnn.degree(model.eval()).values()) == 0
            assert "first lost in layer" in pscnn.summary(model)


def test_summaries_say_what_a_method_has_to_say() -> None:
    torch.manual_seed(0)
    said = {
        method: pscnn.summary(build("images", method, "O(2)", size=28, width=0.15).eval())
        for method in ("ace", "interval", "fixed", "relaxation")
    }
    assert "γ = 1.000, u = 0.000" in said["ace"]
    assert "±180°, reflections 0.50" in said["interval"]
    assert "±45°" in said["fixed"]
    assert "0.0%  θ = 0" in said["relaxation"]
    lines = said["ace"].splitlines()
    assert lines[0].split() == ["layer", "group", "not", "equivariant", "measure"]
    assert lines[-1] == "Equivariance is first lost in layer 1 (2)."


def test_errors_of_layers_without_densities() -> None:
    torch.manual_seed(0)
    elements = O2().sample(3, seed=0)
    for method in ("scnn", "rpp", "twin", "free"):
        model = build("images", method, "O(2)", size=28, width=0.15)
        x = torch.randn(2, 1, 28, 28)
        model(x)
        found = pscnn.layer_errors(model, x, np.concatenate([elements, np.eye(2)[None]]), on_grid=False)
        assert list(found) == list(typed_layers(model))
        for errors in found.values():
            assert errors.error[-1] < 1e-5  # at the identity
            assert (errors.error[:3].max() < 1e-4) == (method == "scnn")


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [("C4", (9, 9), 3), ("O(2)", (9, 9), 7), ("O(2)", (9, 5), 3), ("SO(2)", (9, 9), 3), ("O(3)", (5, 5, 5), 8)],
)
def test_elements_that_map_pixels_to_pixels(name: str, shape: tuple[int, ...], count: int) -> None:
    group = parse(name)
    elements = grid_elements(group, shape)
    assert len(elements) == count
    assert group.contains(elements)
    assert not any(np.array_equal(h, group.identity) for h in elements)
    x = torch.randn(1, 1, *shape)
    scalars = FieldType(group, [group.trivial])
    for h in elements:
        moved = scalars.transform(x, h)
        assert moved.shape == x.shape
        assert torch.equal(moved.flatten().sort().values, x.flatten().sort().values)
    assert len(grid_elements(C(3), (9, 9))) == 8


@pytest.mark.parametrize("channels", [0, 3, 5])
def test_kernels_of_other_types_are_refused(channels: int) -> None:
    four = FieldType(C(4), 4 * [C(4).trivial])
    with pytest.raises(ValueError, match="does not take a whole part of"):
        nn.equivariant_part(torch.zeros(4, channels, 3, 3), four, four)

"""The property that defines every way to relax equivariance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers import GROUPS, convolution, grid_elements, irrep_type
from torch import Tensor

import pscnn
from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, O3, SO2, SO3, C, D, Group, axis_angle, parse
from pscnn.measures import Measure, Mixture
from pscnn.models import (
    STEERABLE,
    Augerino,
    Augmented,
    Constrained,
    Fixed,
    Interval,
    PenalisedKernels,
    Relaxed,
    advance,
    build,
    by_method,
    penalty,
    resnet,
    unet,
)

MEASURES = [name for name, method in STEERABLE.items() if method.has_measures]
OF_THE_PLANE: dict[str, Any] = {"size": 28, "width": 0.15, "classes": 5}


def images(method: str, group: str = "O(2)", **options: Any) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return build("images", method, group, **OF_THE_PLANE, density=options).double()


def error(model: torch.nn.Module, group: Group) -> float:
    torch.manual_seed(1)
    x = torch.randn(2, 1, 28, 28, dtype=torch.float64)
    model(x)
    scalars = FieldType(group, [group.trivial])
    return pscnn.equivariance_error(model.eval(), x, grid_elements(group), scalars).max().item()


def uniform_kernel(layer: nn.SteerableMap) -> Tensor:
    assert layer.likelihood is not None
    moments = layer.likelihood.moment_list()
    return layer.expand([moments[0], *(torch.zeros_like(moment) for moment in moments[1:])])


def layer_of(measure: Measure) -> nn.SteerableMap:
    fields = irrep_type(measure.group, copies=1)
    return convolution(fields, fields, likelihood=measure).double()


# -- moments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_free_kernels_are_those_of_a_density_on_the_identity(group: Group) -> None:
    values = Mixture(group, 2).double().moments()
    for psi, moment in values.items():
        assert np.allclose(moment.numpy(), psi.matrices(group.identity[None])[0], atol=1e-12)


@pytest.mark.parametrize("angle", [0.3, 1.0, 2.0, np.pi])
@pytest.mark.parametrize("name", ["SO(2)", "O(2)", "SO(2)@z", "O(2)@x", "O(2)@z, turn", "SO(3)", "O(3)"])
def test_intervals_have_the_moments_of_their_quadrature(name: str, angle: float) -> None:
    group = parse(name)
    interval = Interval(group, 3).double()
    torch.nn.init.constant_(interval.angle, angle / np.pi)
    share = 0.0
    if interval.reflection is not None:
        torch.nn.init.constant_(interval.reflection, -0.2)
        share = interval.share.item()
    # Gauss' points of the angle; in space with the density 1 − cos ω of angles, and axes in all directions.
    steps, along = np.polynomial.legendre.leggauss(20)
    steps = (steps + 1) / 2
    if group.planar is None:
        axes, weights_of_axes = sphere()
        nodes = np.concatenate([axis_angle(axes, t * angle) for t in steps])
        weights = np.repeat(along * (1 - np.cos(steps * angle)), len(axes)) * np.tile(weights_of_axes, len(steps))
    else:
        turns = (2 * steps - 1) * angle
        nodes = np.stack([[[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]] for t in turns])
        nodes = nodes if group.dimension == 2 else group.lift(nodes)  # type: ignore[attr-defined]
        weights = along
    weights = weights / weights.sum()
    for psi, moment in interval.moments().items():
        expected = np.einsum("n,nab->ab", weights, psi.matrices(nodes))
        if (group.planar or group).has_reflections:
            mirror = np.diag([-1.0, 1.0]) if group.dimension == 2 else -np.eye(3)
            mirror = group.lift(np.diag([-1.0, 1.0])[None])[0] if "@" in name else mirror  # type: ignore[attr-defined]
            mirrored = np.einsum("n,nab->ab", weights, psi.matrices(nodes @ mirror))
            expected = (1 - share) * expected + share * mirrored
        assert np.allclose(moment.detach().numpy(), expected, atol=1e-10), psi


def sphere() -> tuple[np.ndarray, np.ndarray]:
    """Directions and weights that integrate polynomials of degree 11."""
    z, weights = np.polynomial.legendre.leggauss(6)
    phi = 2 * np.pi * np.arange(12) / 12
    flat = np.sqrt(1 - z**2)[:, None]
    axes = np.stack([flat * np.cos(phi), flat * np.sin(phi), np.broadcast_to(z[:, None], (6, 12))], -1)
    return axes.reshape(-1, 3), np.repeat(weights, 12)


@pytest.mark.parametrize("group", [C(4), D(4), SO2(), O2(), SO3(), O3(), parse("O(2)@z, turn")], ids=str)
def test_intervals_start_with_all_of_the_group(group: Group) -> None:
    moments = Interval(group, 2).moment_list()
    assert torch.allclose(moments[0], torch.ones(1, 1))
    assert all(moment.abs().max() < (0.1 if group.order else 1e-6) for moment in moments[1:])


@pytest.mark.parametrize("group", [C(4), D(4), SO2(), O2(), SO3(), O3(), parse("O(2)@z, turn")], ids=str)
def test_an_interval_of_nothing_is_free(group: Group) -> None:
    interval = Interval(group, 2)
    with torch.no_grad():
        for parameter in interval.parameters():
            parameter.fill_(-60.0 if parameter.ndim or group.order else 1e-3)
        if getattr(interval, "reflection", None) is not None:
            interval.reflection.fill_(-60.0)  # type: ignore[union-attr]
    for moment in interval.moment_list():
        assert torch.allclose(moment, torch.eye(len(moment)), atol=2e-3)


@pytest.mark.parametrize("group", [C(4), O2(), SO3()], ids=str)
def test_fixed_measures_are_those_given(group: Group) -> None:
    bandlimit = 2
    given = Likelihood(group, bandlimit, initial=lambda h: 0.5 * h[:, 0, 0], dtype=torch.float64)

    def density(elements: np.ndarray) -> np.ndarray:
        return given.density(elements).detach().numpy()

    fixed = Fixed(group, bandlimit, density).double()
    assert torch.allclose(fixed.flat_moments(), given.flat_moments(), atol=1e-9)
    kept = C(2) if group.dimension == 2 else SO2().about((0, 0, 1))
    for psi, moment in Fixed(group, bandlimit, kept).double().moments().items():
        elements = kept.sample(4000, seed=0)
        mean = psi.matrices(elements).mean(0)
        assert np.allclose(moment.numpy(), mean, atol=0.06), psi
        assert np.allclose((moment @ moment).numpy(), moment.numpy(), atol=1e-12)  # a projection


def test_intervals_from_before_half_turns_had_a_share_are_what_they_were() -> None:
    group = parse("O(2)@z, turn")
    old = {name: value for name, value in Interval(group).state_dict().items() if name != "reflection"}
    interval = Interval(group)
    interval.load_state_dict({**old, "angle": torch.tensor(0.5)})
    expected = torch.sinc(0.5 * interval.frequencies) * interval.rotations
    assert torch.equal(interval.flat_moments(), expected)
    interval.flat_moments().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in interval.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", ["O(2)", "O(2)@z", "O(2)@z, turn", "O(3)"])
def test_an_angle_alone_keeps_no_reflection(name: str) -> None:
    for psi, moment in Fixed(parse(name), 2, 45.0).moments().items():
        assert moment[0, 0] > 0.5
        assert torch.allclose(moment, moment[0, 0] * torch.eye(psi.size), atol=1e-6)


def test_measures_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"C\(3\) is not a subgroup of C\(4\)"):
        Fixed(C(4), 2, C(3))
    with pytest.raises(ValueError, match="an angle to keep needs a continuous group"):
        Fixed(C(4), 2, 45.0)
    with pytest.raises(ValueError, match="keep must be a subgroup such as"):
        images("fixed", keep="half")
    with pytest.raises(ValueError, match="strength must be positive, got 0"):
        Constrained(O2(), 2, 0)
    with pytest.raises(ValueError, match=r"augerino needs a continuous group.*got C\(4\)"):
        build("images", "augerino", "C4", size=28)
    with pytest.raises(TypeError, match="Mixture: group must be a group such as"):
        Mixture("O(2)", 2)  # type: ignore[arg-type]


# -- layers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", MEASURES)
@pytest.mark.parametrize("group", [O2(), SO3(), O3()], ids=str)
def test_signals_keep_their_variance_at_the_start(method: str, group: Group) -> None:
    torch.manual_seed(0)
    fields = irrep_type(group, copies=6)
    layer = convolution(fields, fields, likelihood=STEERABLE[method].density(group, 2))
    x = torch.randn(4, fields.size, *[7] * group.dimension)
    assert layer(x).var().item() == pytest.approx(1, rel=0.3)


@pytest.mark.parametrize("group", [C(4), O2(), SO3()], ids=str)
def test_a_fixed_uniform_measure_gives_the_equivariant_layer(group: Group) -> None:
    torch.manual_seed(0)
    layer = layer_of(Fixed(group, 2, group))
    plain = convolution(layer.in_type, layer.out_type).double()
    with torch.no_grad():
        for mine, theirs in zip(layer.tile_weights(), plain.tile_weights(), strict=True):
            theirs.copy_(mine[:, : theirs.shape[1]])  # trivial slots come first
    assert torch.allclose(layer.kernel(), plain.kernel(), atol=1e-12)
    assert (layer.kernel() - layer.expand(None)).abs().max() > 0.01  # the other weights are there


def test_energies_are_those_of_both_parts() -> None:
    torch.manual_seed(0)
    layer = layer_of(Mixture(SO2(), 2))
    equivariant, rest = layer.energies()
    assert torch.allclose(equivariant + rest, layer.weight.square().sum())
    with torch.no_grad():
        for tile in layer.tile_weights():
            tile.mul_(0)
            tile[:, :1] = 1
    kept, none = layer.energies()
    assert none == 0
    assert kept > 0
    assert torch.allclose(layer.kernel(), uniform_kernel(layer))


def test_a_cached_kernel_follows_what_is_not_a_parameter() -> None:
    layer = layer_of(Constrained(SO2(), 2)).eval()
    x = torch.randn(1, layer.in_type.size, 7, 7, dtype=torch.float64)
    with torch.no_grad():
        before = layer(x)
        assert layer.likelihood is not None
        layer.likelihood.gamma.mul_(0.5)  # type: ignore[operator]
        assert not torch.allclose(layer(x), before)


# -- methods ------------------------------------------------------------------------------------------------------


def fit(model: torch.nn.Module, steps: int, lr: float = 0.02) -> None:
    """Train on noise, with what a method adds to loss and steps."""
    torch.manual_seed(2)
    x, y = torch.randn(8, 1, 28, 28, dtype=torch.float64), torch.randint(5, (8,))
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0, steps)
    for step in range(steps):
        advance(model, step, steps)
        extra = penalty(model.train())
        loss = torch.nn.functional.cross_entropy(model(x), y) + (0 if extra is None else extra)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        falling.step()


@pytest.mark.parametrize("group", ["C4", "D4", "O(2)"])
def test_relaxation_ends_equivariant(group: str) -> None:
    model = images("relaxation", group)
    measures = [module for module in model.modules() if isinstance(module, Relaxed)]
    shares = []
    for step in range(9):
        advance(model, step, 9)
        shares.append(measures[0].theta.item())
    assert shares == [0, 0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25, 0]
    advance(model, 4, 9)
    torch.manual_seed(1)
    x = torch.randn(2, 1, 28, 28, dtype=torch.float64)
    turned = x.rot90(1, (2, 3))
    assert not torch.allclose(model.train()(x), model(turned), atol=1e-3)  # in the middle of training
    fit(model, 5)
    assert max(pscnn.degree(model.eval()).values()) == 0
    assert error(model, parse(group)) < 1e-10
    assert torch.allclose(model.train()(x), model(turned), atol=1e-10)  # at its end also in training


def test_a_strong_projection_gives_the_equivariant_network() -> None:
    free, held = (images("projection", "C4", strength=strength) for strength in (1e-9, 100.0))
    for model in (free, held):
        fit(model, 40)
    shares = [max(pscnn.degree(model.eval()).values()) for model in (free, held)]
    assert shares[0] > 0.5
    assert shares[1] < 0.05
    assert error(held, C(4)) < 0.2 * error(free, C(4))


def test_the_penalty_of_a_projection_is_that_of_its_parts() -> None:
    torch.manual_seed(0)
    layer = layer_of(PenalisedKernels(SO2(), 2, 3.0))
    equivariant, rest = (part.sqrt() for part in layer.energies())
    value = penalty(layer)
    assert value is not None
    assert value.item() == pytest.approx(3 * rest.item() + 0.03 * equivariant.item())
    value.backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        layer.weight.zero_()
    layer.weight.grad = None
    penalty(layer).backward()  # type: ignore[union-attr]
    assert layer.weight.grad.isfinite().all()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("price", "gain"), [(0.5, 1.0), (2.0, 1.0), (2.0, 0.2)])
def test_the_constraint_of_ace_holds_where_it_is_solved(price: float, gain: float) -> None:
    """For a loss of ½·gain·(γ − 1)² the solution is known: γ = u = gain / (gain + ρ)."""
    measure, steps = Constrained(SO2(), 1, price), 1500
    optimiser = torch.optim.SGD(measure.parameters(), lr=0.1)
    for step in range(steps):
        measure.advance(step, 400)
        loss = 0.5 * gain * (measure.gamma - 1).square() + measure.penalty()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert measure.gamma.abs().item() <= measure.bound.item() + 1e-4
    assert measure.gamma.item() == pytest.approx(gain / (gain + price), abs=1e-3)


def test_ace_gives_up_deviations_that_do_not_pay() -> None:
    measure = Constrained(SO2(), 1)
    optimiser = torch.optim.SGD(measure.parameters(), lr=0.05)
    for step in range(2000):
        measure.advance(step, 400)
        optimiser.zero_grad()
        measure.penalty().backward()
        optimiser.step()
    assert abs(measure.gamma.item()) < 0.06  # sub-gradient steps stay within one step of zero
    assert "γ = " in measure.words()


def test_the_multiplier_of_ace_is_a_part_of_the_network_and_the_share_of_relaxation_is_not() -> None:
    assert [name.split(".")[-1] for name in Constrained(O2(), 2).state_dict()] == ["gamma", "multiplier"]
    assert not Relaxed(O2(), 2).state_dict()
    assert not Mixture(O2(), 2).state_dict()


@pytest.mark.parametrize("method", ["interval", "ace"])
def test_what_is_learnt_moves(method: str) -> None:
    model = images(method)
    before = {name: p.clone() for name, p in model.named_parameters() if "likelihood" in name}
    assert before
    fit(model, 3)
    after = dict(model.named_parameters())
    assert all(not torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize(("network", "group"), [("images", "O(2)"), ("volumes", "SO(3)"), ("flow", "SO(2)")])
@pytest.mark.parametrize("method", ["interval", "fixed", "relaxation"])
def test_networks_in_plane_and_space_are_as_equivariant_as_their_measure(network: str, group: str, method: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "images": {"size": 28, "width": 0.15},
        "volumes": {"size": 16, "width": 1},
        "flow": {"hidden": 2, "size": (9, 9), "kernel": 3},
    }
    torch.manual_seed(0)
    model = build(network, method, group, **options[network]).double().eval()
    shares = pscnn.degree(model)
    assert len(shares) >= 5
    assert max(shares.values()) > 0.1 if method == "fixed" else max(shares.values()) < 1e-9


# -- augmentation -------------------------------------------------------------------------------------------------


def moving(kind: type[Augmented], group: Group, fields: FieldType, out: FieldType | None) -> Augmented:
    torch.manual_seed(0)
    return kind(torch.nn.Flatten() if out is None else torch.nn.Identity(), fields, out).double()


@pytest.mark.parametrize("group", [C(4), D(4), O2(), SO3(), SO2().about((0, 1, 0))], ids=str)
def test_augmentation_transforms_as_field_types_do(group: Group) -> None:
    fields = FieldType(group, [group.vector, group.vector])
    model = moving(Augmented, group, fields, None)
    x = torch.randn(3, fields.size, *[9] * group.dimension, dtype=torch.float64)
    elements = model.draw(torch.rand(3, 2))
    assert group.contains(elements.numpy())
    turned = model.turned(x, elements)
    for k, element in enumerate(elements.numpy()):
        expected = fields.transform(x[k : k + 1], element)
        assert torch.allclose(turned[k], expected.flatten(), atol=1e-6)


def test_augmentation_of_fields_turns_back() -> None:
    group = D(4)
    fields = FieldType(group, [group.vector])
    model = moving(Augmented, group, fields, fields)
    x = torch.randn(64, 2, 9, 9, dtype=torch.float64)
    assert torch.allclose(model.train()(x), x, atol=1e-4)
    assert len(model.draw(torch.rand(64, 2)).unique(dim=0)) == 8  # and all elements came


def test_augmentation_draws_anew_in_every_step_and_the_same_in_the_same_step() -> None:
    model = moving(Augmented, O2(), FieldType(O2(), [O2().trivial]), None)
    x = torch.randn(4, 1, 9, 9, dtype=torch.float64)
    found = []
    for step in (0, 1, 0):
        advance(model, step, 2)
        found.append(model(x))
    assert torch.equal(found[0], found[2])
    assert not torch.allclose(found[0], found[1], atol=1e-2)
    assert torch.equal(model.eval()(x), x.flatten(1))  # the plain network is tested


@pytest.mark.parametrize("kind", [Augmented, Augerino])
def test_augmentation_draws_anew_in_every_call_until_it_is_told_the_step(kind: type[Augmented]) -> None:
    model = moving(kind, O2(), FieldType(O2(), [O2().trivial]), None)
    x = torch.randn(4, 1, 9, 9, dtype=torch.float64)
    assert not torch.allclose(model(x), model(x), atol=1e-2)
    advance(model, 1, 2)
    assert torch.equal(model(x), model(x))
    assert model(x).unique(dim=0).shape[0] == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("kind", [Augmented, Augerino])
def test_augmentation_draws_the_same_in_every_precision(kind: type[Augmented], dtype: torch.dtype) -> None:
    fields, found = FieldType(SO2(), [SO2().vector]), []
    x = torch.randn(1024, 2, 7, 7).to(dtype)
    for precision in (dtype, torch.float32):
        model = moving(kind, SO2(), fields, None).to(precision)
        advance(model, 1, 3)
        found.append(model(x.to(precision)))
    assert found[0].dtype == dtype
    torch.testing.assert_close(found[0].float(), found[1], atol=0.1 if dtype.itemsize == 2 else 1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_large_images_are_transformed_in_half_precision(dtype: torch.dtype) -> None:
    """In coordinates of half precision neighbouring pixels are the same."""
    fields = FieldType(SO2(), [SO2().trivial])
    model = moving(Augmented, SO2(), fields, None)
    x = torch.linspace(0, 1, 224).expand(4, 1, 224, 224)
    element = torch.as_tensor(SO2().sample(1, seed=0)).to(dtype)
    half, full = (model.turned(x.to(one), element.to(one)).float() for one in (dtype, torch.float32))
    torch.testing.assert_close(half, full, atol=0.01, rtol=0)


@pytest.mark.parametrize("group", [SO2(), O2(), SO3()], ids=str)
def test_augerino_turns_by_up_to_half_its_width(group: Group) -> None:
    fields = FieldType(group, [group.trivial])
    model = moving(Augerino, group, fields, None)
    assert isinstance(model, Augerino)
    assert model.width.item() == pytest.approx(np.log(2))
    elements = model.draw(torch.rand(2000, 2, dtype=torch.float64)).detach().numpy()
    assert group.contains(elements)
    cosine = (np.trace(elements, axis1=1, axis2=2) - (group.dimension - 2)) / 2
    angles = np.arccos(np.clip(cosine, -1, 1))
    assert angles.max() == pytest.approx(np.log(2) / 2, rel=0.01)
    assert angles.max() <= np.log(2) / 2 + 1e-6
    model.penalty().backward()
    assert model.raw_width.grad is not None
    assert model.raw_width.grad < 0  # descending widens


def test_the_width_of_augerino_is_learnt_through_the_images() -> None:
    model = images("augerino").float()
    x = torch.randn(8, 1, 28, 28)
    model.train()(x).square().sum().backward()
    wrapper = model[0]
    assert isinstance(wrapper, Augerino)
    assert wrapper.raw_width.grad is not None
    assert wrapper.raw_width.grad != 0
    averaged = model.eval()(x)
    assert torch.equal(averaged, model(x))  # the same rotations each time
    assert not torch.allclose(averaged, wrapper.network(x), atol=1e-4)
    assert torch.allclose(nn.export(model)(x), averaged, atol=1e-5)


@pytest.mark.parametrize("method", [*MEASURES, "augment"])
def test_every_method_can_be_exported(method: str) -> None:
    model = images(method).float()
    x = torch.randn(2, 1, 28, 28)
    model(x)
    plain = nn.export(model.eval())
    assert torch.allclose(plain(x), model(x), atol=1e-5)
    assert not any(isinstance(module, Measure) for module in plain.modules())


# -- conversion ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["scnn", "rpp", *MEASURES])
def test_networks_are_converted_with_any_method(method: str) -> None:
    torch.manual_seed(0)
    plain = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3), torch.nn.Flatten()
    )
    model = by_method(plain, method, O2())
    assert model(torch.randn(2, 1, 3, 3)).shape == (2, 8)
    layers = [module for module in model.modules() if isinstance(module, nn.SteerableMap)]
    assert any(layer.likelihood is not None for layer in layers) == (method in MEASURES)
    assert (penalty(model) is not None) == (method in ("rpp", "projection", "relaxation", "ace"))


def test_conversion_names_the_methods() -> None:
    one = torch.nn.Conv2d(1, 1, 3)
    with pytest.raises(ValueError, match="unknown method 'pscnn': use one of cnn, scnn, restricted, rpp, p-scnn, proj"):
        by_method(one, "pscnn", O2())
    with pytest.raises(ValueError, match="unknown method 'magic': use one of cnn"):
        nn.convert(one, O2(), method="magic")
    for convert in (by_method, nn.convert):
        held = convert(one, method="projection", group=O2(), strength=7.0)
        (measure, *_) = [module for module in held.modules() if isinstance(module, PenalisedKernels)]
        assert measure.strength == 7


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("method", ["augment", "augerino"])
def test_ready_networks_with_augmentation(method: str, dimension: int) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"dimension": dimension, "width": 4, "channels": 2}
    x = torch.randn(3, 2, *range(8, 8 + dimension))
    whole, every = resnet(18, method, small=True, outputs=3, **options), unet(method, levels=2, **options)
    for model, shape in ((whole, (3, 3)), (every, (3, 2, *x.shape[2:]))):
        assert isinstance(model, Augmented)
        before = model(x)
        assert before.shape == shape
        before.square().mean().backward()
        assert (penalty(model) is not None) == (method == "augerino")
        advance(model, 1, 10)
        assert not torch.allclose(model(x), before, atol=1e-3)  # turned in another way
        model.eval()
        assert torch.allclose(model(x), model.network(x), atol=1e-6) == (method == "augment")
        assert torch.allclose(nn.export(model)(x), model(x), atol=1e-5)
        assert pscnn.degree(model, model.in_type.group)


def test_conversion_with_augmentation() -> None:
    plain = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.Flatten(), torch.nn.LazyLinear(2)).eval()
    x = torch.randn(2, 2, 7, 9)
    plain(x)
    model = nn.convert(plain, O2(), method="augment")
    assert isinstance(model, Augmented)
    assert model.in_type == FieldType(O2(), 2 * [O2().trivial])
    assert torch.equal(model(x), plain(x))
    assert not {*model.parameters()} & {*plain.parameters()}  # the given model is not changed
    dense = nn.convert(plain[0], O2(), method="augment").train()
    with pytest.raises(ValueError, match=r"gives maps of shape \(2, 4, 7, 9\), .* give their out_type"):
        dense(x)
    for wrong in (x[..., :3, 0], x[:, :1]):
        with pytest.raises(ValueError, match=r"expected \(batch, 2\) or \(batch, 2, and 2 spatial axes\) .* got \(2, "):
            dense(wrong)
    for options, error, message in (
        ({"in_type": 5}, TypeError, "in_type must be a pscnn.FieldType, got 5"),
        (
            {"in_type": FieldType(C(4), 2 * [C(4).trivial])},
            ValueError,
            r"in_type is over C\(4\), the network over O\(2\)",
        ),
        ({"out_type": FieldType(C(4), [C(4).trivial])}, ValueError, r"out_type is over C\(4\), in_type over O\(2\)"),
        ({"in_type": FieldType(O2(), [O2().irrep(1, 2)])}, ValueError, r"must be scalars or vectors, .* got ψ1,2"),
        ({"banana": 1}, TypeError, "method 'augment' has no option 'banana'; it has bandlimit, fields, frequency"),
        ({"weights": "keep"}, TypeError, "method 'augment' has no option 'weights'"),
    ):
        with pytest.raises(error, match=message):
            by_method(plain, "augment", O2(), **options)
    with pytest.raises(ValueError, match=r"SO\(3\) acts on 3 axes, the network begins with a Conv2d\(2, 4"):
        by_method(plain, "augment", SO3())
    with pytest.raises(TypeError, match="must be a torch\\.nn\\.Module, got None"):
        by_method(None, "augment", O2())  # type: ignore[arg-type]


@pytest.mark.parametrize("group", [O2(), SO3()], ids=str)
def test_augmentation_of_scalars_and_vectors_together(group: Group) -> None:
    fields = FieldType(group, [group.trivial, group.vector, group.trivial, group.vector])
    model = moving(Augmented, group, fields, fields)
    x = torch.randn(2, fields.size, *range(4, 4 + group.dimension), dtype=torch.float64)
    elements = model.draw(torch.rand(2, 2))
    turned = model._act(x, elements, fields, model.in_vectors)
    for k, element in enumerate(elements.numpy()):
        torch.testing.assert_close(turned[k], fields.transform(x[k : k + 1], element)[0], atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")
def test_maps_of_one_row_are_augmented_and_exported() -> None:
    fields = FieldType(O2(), [O2().trivial])
    model = moving(Augerino, O2(), fields, fields).eval()
    x = torch.randn(1, 1, 9, 1, dtype=torch.float64)
    assert torch.allclose(nn.export(model)(x), model(x))


@pytest.mark.parametrize("strength", ["x", -1, float("nan"), float("inf")])
@pytest.mark.parametrize("method", ["projection", "relaxation", "ace", "augerino"])
def test_a_strength_must_be_a_number(method: str, strength: Any) -> None:
    with pytest.raises(ValueError, match="strength must be a finite number of 0 or more, got"):
        by_method(torch.nn.Conv2d(1, 1, 3), method, O2(), strength=strength)


def test_a_subgroup_with_a_mirror_line_at_an_angle_has_the_moments_of_its_elements() -> None:
    line = np.radians(30)
    mirror = np.array([[np.cos(2 * line), np.sin(2 * line)], [np.sin(2 * line), -np.cos(2 * line)]])  # keeps that line
    elements = np.stack([np.eye(2), mirror, -np.eye(2), -mirror])
    for kept, count in (("D(1) at 30°", 2), ("D(2) at 30", 4)):
        measure = STEERABLE["fixed"].density(O2(), 4, keep=kept)
        for psi, moment in measure.moments().items():  # type: ignore[union-attr]
            expected = psi.matrices(elements[:count]).mean(0)
            torch.testing.assert_close(moment.double(), torch.as_tensor(expected), atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match=r"D\(1\) at 30° is not a subgroup of SO\(2\)"):
        Fixed(SO2(), 2, (D(1), 30.0))
    with pytest.raises(ValueError, match=r"only D\(N\) has mirror lines at an angle, got C\(4\) at 30°"):
        Fixed(O2(), 2, (C(4), 30.0))

"""What is taken from the paper's released code: every switch in a task."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from helpers import grid_elements
from torch import Tensor

import pscnn
from pscnn import FieldType, models, nn, training
from pscnn.data import ddmnist
from pscnn.groups import O2, direct_sum
from pscnn.models._released import CoarseLikelihood, DetachedBatchNorm, NormThenGate, ThresholdGate
from pscnn.tasks.double_digits import SWITCHES, DoubleDigitSettings
from pscnn.training import ConfigError, make_settings, read_yaml, task_of

TINY: dict[str, Any] = {
    "size": 28, "width": 0.1, "kinds": 2, "train_per_class": 4, "validation_per_class": 2, "test_per_class": 2,
    "batch_size": 8, "epochs": 1,
}  # fmt: skip


def tiny(released: str = "", **changes: Any) -> DoubleDigitSettings:
    return DoubleDigitSettings(**{**TINY, "released": released, **changes})


def network(released: str = "", **changes: Any) -> torch.nn.Module:
    torch.manual_seed(3)
    return task_of(tiny(released, **changes)).build()


def with_random_densities(model: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for lam in pscnn.likelihoods(model).values():
            lam.coefficients.normal_(0, 0.5, generator=generator)
    return model


# -- the setting -------------------------------------------------------------------------------------


def test_without_switches_nothing_changes() -> None:
    config = tiny()
    assert config.released == ""
    model = network()
    state = torch.get_rng_state()
    torch.manual_seed(3)
    plain = models.build("ddmnist", "p-scnn", "O(2)", size=28, width=0.1, classes=4)
    assert torch.equal(state, torch.get_rng_state())
    assert list(model.state_dict()) == list(plain.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), plain.state_dict().values(), strict=True))
    assert [type(m) for m in model.modules()] == [type(m) for m in plain.modules()]
    with_random_densities(model)
    assert task_of(config).regularization(model) == pscnn.regularization(model)
    split = task_of(config).load(None)["train"]
    rows = torch.arange(len(split))
    expected = _rendered(split, rows, lambda there, target: (there, target - there))
    assert torch.equal(split.images(rows, 5), expected)


def _rendered(split: Any, rows: Tensor, rotations: Any) -> Tensor:
    """Images of O2 digits, from the same random numbers; ``rotations`` says by which angles to turn, one by one."""
    side = split.bank.shape[-1]
    digits = split.bank[split.pairs[rows]].reshape(-1, 1, side, side)
    uniform = torch.rand(3, len(digits), generator=torch.Generator().manual_seed(5))
    there, target = 2 * math.pi * uniform[0], 2 * math.pi * uniform[1]
    if split.symmetry == "D4":
        target = math.pi / 2 * torch.floor(4 * uniform[1])
    for angle in rotations(there, target):
        zero = torch.zeros_like(angle)
        rows_of = (angle.cos(), -angle.sin(), zero), (angle.sin(), angle.cos(), zero)
        matrix = torch.stack([torch.stack(row, -1) for row in rows_of], -2)
        digits = F.grid_sample(
            digits, F.affine_grid(matrix, list(digits.shape), align_corners=False), align_corners=False
        )
    digits = torch.where(uniform[2].view(-1, 1, 1, 1) < 0.5, digits.flip(-1), digits)
    pairs = torch.cat([digits[0::2], digits[1::2]], -1)
    return (F.pad(pairs, (0, 0, side // 2, side // 2)) - ddmnist.MEAN) / ddmnist.STD


def test_the_setting_is_checked_kept_and_optional(tmp_path: Path) -> None:
    assert tiny("overlap, basis").released == "basis,overlap"
    assert tiny("overlap,basis") == tiny("basis,overlap")
    assert tiny("all").released == ",".join(SWITCHES)
    with pytest.raises(ConfigError, match=r"released must list some of sampling, .*, or be 'all', got 'mask'"):
        tiny("basis,mask")
    config = tiny("statistics,artefact")
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config.to_dict()))
    assert make_settings(read_yaml(path)) == config
    old = {name: value for name, value in tiny().to_dict().items() if name != "released"}
    assert make_settings(old) == tiny()


@pytest.mark.parametrize("method", ["cnn", "scnn", "restricted", "rpp"])
def test_other_methods_take_what_they_have(method: str) -> None:
    model = task_of(tiny("all", method=method, group="C4")).build()
    model(torch.randn(4, 1, 28, 28)).sum().backward()
    kinds = {type(m) for m in model.modules()}
    assert (NormThenGate in kinds) == (method != "cnn")
    assert CoarseLikelihood not in kinds


# -- every switch keeps the symmetry and trains ------------------------------------------------------


@pytest.mark.parametrize("released", [*SWITCHES, "all"])
def test_networks_stay_invariant_at_right_angles(released: str) -> None:
    model = network(released).double()
    x = torch.randn(2, 1, 28, 28, dtype=torch.float64)
    model(x)
    model.eval()
    pscnn.testing.assert_equivariant(model, x, grid_elements(O2()), 1e-9, FieldType(O2(), [O2().trivial]))
    if released == "all":
        torch.testing.assert_close(nn.export(model)(x), model(x))


@pytest.mark.parametrize("released", [*SWITCHES, "all"])
def test_every_switch_trains(released: str) -> None:
    config = tiny(released)
    torch.manual_seed(0)
    module = task_of(config).learner()
    split = task_of(config).load(None)["train"]
    rows = torch.arange(len(split))
    start = {name: p.detach().clone() for name, p in module.named_parameters()}
    optimizer = module.make_optimizer()
    for step in range(2):
        optimizer.zero_grad()
        loss = module.objective(split.images(rows, step), split.labels[rows])["loss"]
        assert loss.isfinite()
        loss.backward()
        optimizer.step()
    still = [name for name, p in module.named_parameters() if torch.equal(p, start[name])]
    assert not still


def test_a_run_can_be_read_again(tmp_path: Path) -> None:
    folder = training.start(tiny("all", width=0.05), tmp_path)
    training.train(folder, accelerator="cpu", progress=False)
    model = training.load(folder).model
    assert isinstance(next(iter(pscnn.likelihoods(model).values())), CoarseLikelihood)
    assert training.read_task(folder).settings.released == ",".join(SWITCHES)


def same_weights(released: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Ours and ours with a switch, of one seed; all parameters that ours has must be the same."""
    ours, theirs = network(), network(released)
    state = theirs.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in ours.state_dict().items())
    return ours, theirs


# -- densities and losses ----------------------------------------------------------------------------


def test_sampling_changes_nothing_else() -> None:
    ours, theirs = same_weights("sampling")
    x = torch.randn(4, 1, 28, 28)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=1e-5)  # uniform densities
    assert {type(lam) for lam in pscnn.likelihoods(theirs).values()} == {CoarseLikelihood}


@pytest.mark.parametrize("released", ["", "sampling"])
def test_alignment_is_that_of_the_logits_summed(released: str) -> None:
    model = with_random_densities(network(released))
    total = 0.0
    for lam in pscnn.likelihoods(model).values():
        elements = np.concatenate([lam.grid()[0], O2().near_identity(100, seed=0), np.eye(2)[None]])
        logits = O2().functions(2).sample(elements)[:, 1:] @ lam.coefficients.detach().double().numpy()
        total += logits.max() - logits[-1]
    ours = pscnn.regularization(model)
    found = task_of(tiny("alignment")).regularization(model)
    assert found.alignment.item() == pytest.approx(total, rel=1e-5)
    assert found.alignment.item() > 2 * ours.alignment.item()
    assert torch.equal(found.kl, ours.kl)


def test_the_first_kl_enters_and_all_are_divided_by_the_number_of_densities() -> None:
    model = with_random_densities(network())
    densities = [lam.density(lam.grid()[0]).detach().double() for lam in pscnn.likelihoods(model).values()]
    pairs = itertools.pairwise([torch.ones_like(densities[0]), *densities])
    terms = [(later * (later / earlier).log()).mean().item() for earlier, later in pairs]
    assert len(terms) == 6
    found = task_of(tiny("first-kl")).regularization(model)
    assert found.kl.item() == pytest.approx(sum(terms) / 6, rel=1e-4)
    ours = pscnn.regularization(model)
    assert ours.kl.item() == pytest.approx(sum(terms[1:]) / 5, rel=1e-4)
    assert found.alignment.item() == pytest.approx(ours.alignment.item(), rel=1e-5)


@pytest.mark.parametrize(("released", "changed"), [("alignment", "alignment"), ("first-kl", "kl"), ("basis", "")])
def test_the_objective_uses_the_switched_terms(released: str, changed: str) -> None:
    found = []
    for names in ("", released):
        torch.manual_seed(0)
        module = task_of(tiny(names)).learner().eval()
        with_random_densities(module.model)
        with torch.no_grad():
            terms = module.objective(torch.randn(2, 1, 28, 28), torch.tensor([0, 1]))
        found.append({name: terms[name].item() for name in ("task", "alignment", "kl")})
        total = terms["task"] + 5 * terms["alignment"] + 3 * terms["kl"]
        assert terms["loss"].item() == pytest.approx(total.item(), rel=1e-5)
    apart = {name for name in ("alignment", "kl") if found[0][name] != pytest.approx(found[1][name], rel=1e-4)}
    assert apart == ({changed} if changed else set())


# -- normalisation and gates -------------------------------------------------------------------------


def fields() -> FieldType:
    return FieldType(O2(), 5 * [direct_sum(list(O2().irreps(2)))])


def test_thresholds_start_standard_normal_and_change_nothing_else() -> None:
    ours, theirs = same_weights("gate-bias")
    thresholds = [m.threshold for m in theirs.modules() if isinstance(m, ThresholdGate)]
    assert len(thresholds) == 5
    values = torch.cat([ThresholdGate(fields()).threshold.detach() for _ in range(100)])
    assert values.mean().abs() < 0.1
    assert 0.95 < values.std() < 1.05
    with torch.no_grad():
        for threshold in thresholds:
            threshold.zero_()
    x = torch.randn(4, 1, 28, 28)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("nonlinearity", ["gated", "fourier"])
def test_detached_statistics_change_nothing_else(nonlinearity: str) -> None:
    torch.manual_seed(0)
    ours = task_of(tiny(nonlinearity=nonlinearity)).build()
    torch.manual_seed(0)
    theirs = task_of(tiny("statistics", nonlinearity=nonlinearity)).build()
    assert sum(isinstance(m, DetachedBatchNorm) for m in theirs.modules()) == 5
    x = torch.randn(4, 1, 28, 28)
    torch.testing.assert_close(ours(x), theirs(x))
    assert all(torch.equal(a, b) for a, b in zip(ours.eval()(x), theirs.eval()(x), strict=True))


# -- basis -------------------------------------------------------------------------------------------


def test_the_basis_switch_scales_all_convolutions_and_nothing_else() -> None:
    ours, theirs = network(), network("basis")
    state = theirs.state_dict()
    convolutions = {f"{name}.weight" for name, m in ours.named_modules() if isinstance(m, nn.SteerableMap)}
    assert len(convolutions) == 6
    for name, value in ours.state_dict().items():
        assert torch.equal(value, state[name]) == (name not in convolutions)
        if name in convolutions:
            assert torch.equal(value.sign(), state[name].sign())  # the same draws
    for layer in theirs.modules():  # what a GPU uses: the basis times the harmonics
        if isinstance(layer, nn.SteerableMap) and layer.constants("sampled"):
            (basis,), (sampled,) = layer.constants("basis"), layer.constants("sampled")
            blocks = basis.view(len(basis), -1, len(layer.harmonics))
            torch.testing.assert_close((blocks @ layer.harmonics).flatten(1), sampled)


# -- data --------------------------------------------------------------------------------------------


def test_digits_at_any_angle_are_turned_once() -> None:
    ours, theirs = (task_of(tiny(name)).load(None)["train"] for name in ("", "artefact"))
    rows = torch.arange(len(ours))
    assert torch.equal(ours.pairs, theirs.pairs)
    assert torch.equal(theirs.images(rows, 5), _rendered(theirs, rows, lambda there, target: (target,)))
    assert not torch.equal(theirs.images(rows, 5), ours.images(rows, 5))


def test_other_digits_are_turned_by_whole_degrees() -> None:
    split = task_of(tiny("artefact", symmetry="D4")).load(None)["train"]
    rows = torch.arange(len(split))

    def rotations(there: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        first = np.degrees(there.numpy()) - 180
        back = np.degrees(target.numpy()) - first
        one, two = (torch.from_numpy(np.radians(np.fix(a))) for a in (first, back))
        return one, two

    torch.testing.assert_close(split.images(rows, 5), _rendered(split, rows, rotations), atol=1e-4, rtol=0)


def test_validation_and_test_share_their_digits() -> None:
    def pools(released: str) -> list[set[bytes]]:
        splits = task_of(tiny(released)).load(None)
        return [{image.numpy().tobytes() for image in splits[s].bank} for s in ("train", "validation", "test")]

    train, validation, test = pools("")
    shared = pools("overlap")
    assert not validation & test
    assert shared == [train, validation | test, validation | test]
    before, after = task_of(tiny()).load(None), task_of(tiny("overlap")).load(None)
    rows = torch.arange(len(before["train"]))
    assert torch.equal(before["train"].images(rows, 1), after["train"].images(rows, 1))
    for split in ("validation", "test"):
        labels = after[split].labels
        assert torch.equal(before[split].labels, labels)
    assert not torch.equal(after["validation"].pairs[:8], after["test"].pairs[:8])  # drawn independently

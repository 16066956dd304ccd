from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from helpers import random_likelihood

import pscnn
from pscnn import Likelihood
from pscnn.groups import O2, O3, SO2, SO3, C, D, Group, rotation

F64 = torch.float64


def fine_grid(group: Group) -> tuple[np.ndarray, torch.Tensor]:
    """A quadrature other than, and finer than, the density's own."""
    nodes, weights = group.quadrature(601 if group.dimension == 2 else 33)
    return nodes, torch.tensor(weights)


def test_starts_uniform(group: Group) -> None:
    lam = Likelihood(group, 2)
    assert torch.equal(lam.density(group.sample(20, seed=0)), torch.ones(20))
    for psi, moment in lam.moments().items():
        expected = torch.ones(1, 1) if psi.is_trivial else torch.zeros(psi.size, psi.size)
        torch.testing.assert_close(moment, expected, atol=1e-6, rtol=0)
    assert lam.entropy().item() == pytest.approx(0, abs=1e-6)
    assert lam.alignment_error().item() == 0


@pytest.mark.parametrize("scale", [0.1, 0.3, 1.0])
def test_integrates_to_one_on_an_independent_grid(group: Group, scale: float) -> None:
    lam = random_likelihood(group, 2, scale if group.order or group.dimension == 2 else min(scale, 0.3))
    nodes, weights = fine_grid(group)
    assert (lam.density(nodes) @ weights.float()).item() == pytest.approx(1, abs=2e-6)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_masses_sum_to_one_however_sharp(group: Group, scale: float) -> None:
    lam = random_likelihood(group, 2, scale)
    masses = lam.masses()
    assert torch.isfinite(masses).all()
    assert masses.sum().item() == pytest.approx(1, abs=1e-6)
    assert lam.moment_list()[0].item() == pytest.approx(1, abs=1e-6)


def test_moments_are_integrals_of_irreps(group: Group) -> None:
    lam = random_likelihood(group, 2, 0.25, dtype=F64)
    nodes, weights = fine_grid(group)
    mass = lam.density(nodes) * weights
    for psi, moment in lam.moments().items():
        expected = torch.einsum("n,nab->ab", mass, torch.as_tensor(psi(nodes)))
        torch.testing.assert_close(moment, expected, atol=1e-7, rtol=0)


def test_kl_forms_agree(group: Group) -> None:
    a, b = random_likelihood(group, 2, 0.6, dtype=F64), random_likelihood(group, 2, 0.6, dtype=F64)
    nodes, weights = a.grid()
    direct = (torch.tensor(weights) * a.density(nodes) * (a.log_density(nodes) - b.log_density(nodes))).sum()
    assert a.kl(b).item() == pytest.approx(a.kl(b, form="grid").item(), abs=1e-10)
    assert a.kl(b).item() == pytest.approx(direct.item(), abs=1e-10)
    assert a.kl(None).item() == pytest.approx(a.kl(None, form="grid").item(), abs=1e-10)


def test_kl_forms_agree_in_float32(group: Group) -> None:
    a, b = random_likelihood(group, 2, 0.5), random_likelihood(group, 2, 0.5)
    assert a.kl(b).item() == pytest.approx(a.kl(b, form="grid").item(), abs=1e-5)


def test_kl_across_bandlimits_is_exact() -> None:
    a, b = random_likelihood(SO2(), 2, 1.0, dtype=F64), random_likelihood(SO2(), 4, 1.0, dtype=F64)
    for p, q in ((a, b), (b, a)):
        assert p.kl(q).item() == pytest.approx(p.kl(q, form="grid").item(), abs=1e-9)


def test_kl_is_positive_and_zero_for_equals(group: Group) -> None:
    a, b = random_likelihood(group, dtype=F64), random_likelihood(group, dtype=F64)
    if len(a.coefficients):
        assert a.kl(b).item() > 0
        assert a.kl(None).item() > 0
    assert a.kl(copy.deepcopy(a)).item() == pytest.approx(0, abs=1e-12)


def test_no_gradient_reaches_the_reference() -> None:
    a, b = random_likelihood(O2()), random_likelihood(O2())
    a.kl(b).backward()
    assert b.coefficients.grad is None
    assert a.coefficients.grad is not None
    assert a.coefficients.grad.abs().max() > 0


def test_densities_and_moments_have_right_gradients(group: Group) -> None:
    lam = random_likelihood(group, 1 if group.dimension == 3 else 2, 0.5, dtype=F64)
    if not len(lam.coefficients):
        pytest.skip("C(1) has nothing to learn")

    def everything(coefficients: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(lam, {"coefficients": coefficients}, ())

    lam.forward = lambda: torch.cat(
        [m.flatten() for m in lam.moment_list()] + [lam.kl(None)[None], lam.density(group.sample(3, seed=0))]
    )
    start = lam.coefficients.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(everything, (start,), atol=1e-6)


def test_alignment_error_is_the_height_above_the_identity() -> None:
    shifted = Likelihood(SO2(), 2, initial=lambda h: 2 * (h @ rotation(1.0).T)[:, 0, 0], dtype=F64)
    peak = shifted.density(rotation(np.linspace(0, 2 * np.pi, 4001))).max()
    expected = peak - shifted.density(SO2().identity[None])[0]
    assert shifted.alignment_error().item() == pytest.approx(expected.item(), rel=1e-3)
    aligned = Likelihood(SO2(), 2, initial=lambda h: 2 * h[:, 0, 0], dtype=F64)
    assert aligned.alignment_error().item() == pytest.approx(0, abs=1e-12)


def test_descending_the_alignment_error_aligns() -> None:
    lam = Likelihood(O2(), 2, initial=lambda h: 1.5 * (h @ rotation(2.0).T)[:, 0, 0] * (np.linalg.det(h) > 0))
    optimiser = torch.optim.Adam(lam.parameters(), lr=0.02)
    before = lam.alignment_error().item()
    for _ in range(300):
        optimiser.zero_grad()
        lam.alignment_error().backward()
        optimiser.step()
    assert before > 0.5
    assert lam.alignment_error().item() < 0.02


def test_alignment_by_construction_puts_the_maximum_at_the_identity(group: Group) -> None:
    nodes, _ = group.quadrature(40 if group.dimension == 2 else 12)
    for _ in range(3):
        lam = random_likelihood(group, 2, 0.8, alignment="construction", dtype=F64)
        top = lam.log_density(group.identity[None])[0]
        assert (lam.log_density(nodes) <= top + 1e-9).all()
        assert lam.alignment_error().item() == 0


def test_alignment_by_construction_starts_nearly_uniform_and_learns(group: Group) -> None:
    lam = Likelihood(group, 2, alignment="construction")
    torch.testing.assert_close(lam.density(group.sample(50, seed=0)), torch.ones(50), atol=0.01, rtol=0)
    if len(lam.coefficients):
        lam.density(group.identity[None]).sum().backward()
        assert lam.coefficients.grad is not None
        assert lam.coefficients.grad.abs().max() > 0


def test_initial_density_is_taken_over(group: Group) -> None:
    lam = Likelihood(group, 1, initial=lambda h: h[:, 0, 0], dtype=F64)
    elements = group.sample(30, seed=1)
    logits = lam.log_density(elements).detach().numpy()
    np.testing.assert_allclose(logits - logits[0], elements[:, 0, 0] - elements[0, 0, 0], atol=1e-10)


@pytest.mark.parametrize(("big", "small"), [(O2(), C(2)), (SO2(), C(3)), (D(4), D(1)), (SO3(), SO2()), (O3(), SO3())])
def test_keep_makes_the_density_constant_on_cosets(big: Group, small: Group) -> None:
    lam = random_likelihood(big, 3 if big.dimension == 2 else 2, 1.0, keep=small, dtype=F64)
    k, h = big.as_subgroup(small).sample(6, seed=0), big.sample(6, seed=1)
    torch.testing.assert_close(lam.density(k @ h), lam.density(h))
    assert lam.density(h).std() > 1e-3 or small == SO3()


def test_support_confines_the_density() -> None:
    lam = Likelihood(O2(), 2, support=C(2), dtype=F64)
    for psi, moment in lam.moments().items():
        expected = np.mean(psi(C(2).quadrature(0)[0]), axis=0)
        np.testing.assert_allclose(moment.detach(), expected, atol=1e-12)


@pytest.mark.parametrize(("support", "keep"), [(SO2(), C(4)), (D(4), D(1)), (C(4), C(4))], ids=str)
def test_what_is_kept_is_kept_within_the_support(support: Group, keep: Group) -> None:
    lam = random_likelihood(O2(), support=support, keep=keep, dtype=F64)
    for k in keep.quadrature(0)[0]:
        for psi, moment in lam.moments().items():
            torch.testing.assert_close(torch.as_tensor(psi.matrices(k[None])[0]) @ moment, moment)


def test_lowest_frequency_leaves_slow_irreps_out() -> None:
    lam = Likelihood(SO2(), 4, lowest=3)
    assert [psi.index for psi in lam.irreps] == [(0,), (3,), (4,)]
    assert len(lam.coefficients) == 4


def test_frozen_density_has_no_gradient() -> None:
    lam = Likelihood(O2(), 2, trainable=False)
    assert not lam.coefficients.requires_grad
    assert "frozen" in repr(lam)


def test_effective_size_is_the_share_of_the_group() -> None:
    lam = Likelihood(C(4), 2, dtype=F64)
    with torch.no_grad():
        lam.coefficients.copy_(torch.tensor([0.0, 0.0, 50.0]))
    assert lam.effective_size().item() == pytest.approx(0.5, abs=1e-6)


def test_double_is_exact_although_built_in_single() -> None:
    late, early = Likelihood(O2(), 2).double(), Likelihood(O2(), 2, dtype=F64)
    assert torch.equal(late.logit_matrix, early.logit_matrix)


def test_pickle_and_state_dict_round_trip(group: Group) -> None:
    lam = random_likelihood(group)
    other = pickle.loads(pickle.dumps(lam))
    elements = group.sample(5, seed=0)
    torch.testing.assert_close(other.density(elements), lam.density(elements))
    assert list(lam.state_dict()) == ["coefficients"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bandlimit": -1}, "bandlimit must be a whole number of 0 or more, got -1"),
        ({"bandlimit": 1.5}, "got 1.5"),
        ({"lowest": 3}, "between 0 and the bandlimit 2, got 3"),
        ({"alignment": "hard"}, "'soft' or 'construction', got 'hard'"),
        ({"keep": O3()}, "O\\(3\\) is not a subgroup of O\\(2\\)"),
        ({"keep": C(4), "support": C(2)}, r"a subgroup of the support C\(2\), got C\(4\): .* use a larger support"),
        ({"keep": D(1), "support": C(4)}, r"a subgroup of the support C\(4\), got D\(1\)"),
        ({"initial": lambda h: h}, "one finite number per element"),
        ({"initial": lambda h: h[:, 0, 0], "alignment": "construction"}, "cannot be combined"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Likelihood(O2(), **arguments)  # type: ignore[arg-type]


def test_bad_group_and_references() -> None:
    with pytest.raises(TypeError, match="such as O2"):
        Likelihood("O(2)")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"one group, got SO\(2\) and O\(2\)"):
        Likelihood(SO2()).kl(Likelihood(O2()))
    with pytest.raises(ValueError, match="form must be"):
        Likelihood(SO2()).kl(None, form="exact")  # type: ignore[arg-type]


@pytest.mark.parametrize("density", [Likelihood(O2(), keep=C(2)), Likelihood(O2(), alignment="construction")])
def test_logits_are_exact_under_autocast(density: Likelihood) -> None:
    torch.manual_seed(0)
    torch.nn.init.normal_(density.coefficients)
    expected = density.logit_coefficients()
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(density.logit_coefficients(), expected, rtol=0, atol=0)


def test_kl_is_exact_under_autocast() -> None:
    a, b = random_likelihood(O2(), 2, 0.05), random_likelihood(O2(), 2, 0.05)
    exact = a.kl(b).item()
    with torch.autocast("cpu", torch.bfloat16):
        assert a.kl(b).item() == pytest.approx(exact, rel=1e-4)
        assert a.density(O2().sample(3, seed=0)).dtype == torch.float32


def test_density_is_zero_outside_its_support_and_defined_on_the_group_only() -> None:
    lam = Likelihood(O2(), 2, support=C(4))
    assert lam.density(rotation([0.0, 0.3])).tolist() == [1, 0]
    assert lam.density(O2().identity).shape == (1,)
    with pytest.raises(ValueError, match=r"not all given matrices are elements of C\(4\)"):
        Likelihood(C(4)).density(rotation([0.3]))


class TestRegularization:
    def test_means_over_distinct_densities_and_consecutive_pairs(self) -> None:
        a, b, c = (random_likelihood(O2(), dtype=F64) for _ in range(3))
        terms = pscnn.regularization(torch.nn.ModuleList([a, b, a, c]))
        expected = torch.stack([x.alignment_error() for x in (a, b, c)]).mean()
        torch.testing.assert_close(terms.alignment, expected)
        torch.testing.assert_close(terms.kl, (b.kl(a) + c.kl(b)) / 2)

    def test_named_pairs_and_uniform(self) -> None:
        a, b = random_likelihood(O2()), random_likelihood(O2())
        model = torch.nn.ModuleDict({"first": a, "second": b})
        terms = pscnn.regularization(model, pairs=[("second", None), (a, "second")])
        torch.testing.assert_close(terms.kl, (b.kl(None) + a.kl(b)) / 2)
        with pytest.raises(ValueError, match="no density named 'third'; the model has first, second"):
            pscnn.regularization(model, pairs=[("third", None)])

    def test_different_groups_are_not_paired(self) -> None:
        model = torch.nn.ModuleList([random_likelihood(O2()), random_likelihood(SO2())])
        assert pscnn.regularization(model).kl.item() == 0

    def test_a_model_without_densities_has_none_to_regularise(self) -> None:
        terms = pscnn.regularization(torch.nn.Linear(2, 2))
        assert terms.alignment.item() == terms.kl.item() == 0

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import random_likelihood

import pscnn
from pscnn import Likelihood
from pscnn.densities import layer_summaries
from pscnn.densities._summary import _has_direction
from pscnn.groups import MIRROR, O2, O3, SO2, SO3, C, D, Group, rotation


def stack(*densities: Likelihood) -> torch.nn.ModuleDict:
    return torch.nn.ModuleDict({f"conv{k}": lam for k, lam in enumerate(densities)})


@pytest.mark.parametrize("group", [C(8), D(8), C(16)], ids=str)
def test_finite_groups_are_not_taken_for_continuous_ones(group: Group) -> None:
    (row,) = layer_summaries(stack(Likelihood(group)))
    assert row.kept == (group.name,)
    assert not {"SO(2)", "O(2)"} & set(row.degrees)


def test_uniform_densities_keep_everything() -> None:
    [row] = layer_summaries(stack(Likelihood(O2())))
    assert row.kept == ("O(2)",)
    assert row.effective_size == pytest.approx(1, abs=1e-6)


def test_kept_subgroups_are_found() -> None:
    half_turns = Likelihood(SO2(), 2, initial=lambda h: 2 * (2 * h[:, 0, 0] ** 2 - 1))
    rotations = Likelihood(O2(), 2, initial=lambda h: 2 * np.linalg.det(h))
    nothing = Likelihood(SO2(), 2, initial=lambda h: 2 * h[:, 0, 0])
    kept = [row.kept for row in layer_summaries(stack(half_turns, rotations, nothing))]
    assert kept == [("C(2)",), ("SO(2)",), ("e",)]


def test_confined_densities_keep_no_more_than_their_support() -> None:
    [row] = layer_summaries(stack(Likelihood(O2(), support=C(4))))
    assert row.kept == ("C(4)",)
    assert list(row.density) == ["0°", "90°", "180°"]


def test_summary_lists_every_density_once() -> None:
    lam = random_likelihood(D(4))
    text = pscnn.summary(stack(lam, random_likelihood(D(4)), lam))
    assert text.count("D(4)  ") == 2
    assert "λ(90°)" in text
    assert "λ(−1)" in pscnn.summary(stack(random_likelihood(O3())))
    assert "no learnt densities" in pscnn.summary(torch.nn.Linear(1, 1))


def named(**likelihoods: Likelihood) -> torch.nn.ModuleDict:
    return torch.nn.ModuleDict(likelihoods)


def test_the_best_mirror_is_found() -> None:
    line = rotation(np.radians(2 * 30)) @ -MIRROR  # keeps the line at 30°
    np.testing.assert_allclose(line @ [np.cos(np.pi / 6), 0.5], [np.cos(np.pi / 6), 0.5], atol=1e-12)
    lam = Likelihood(O2(), 2, initial=lambda h: 2 * np.einsum("nij,ij->n", h, line) + np.einsum("nii->n", h))
    (row,) = layer_summaries(named(conv=lam))
    assert "mirror line at 30°" in row.degrees
    assert row.kept == ("mirror line at 30°",)
    assert "Kept there: mirror line at 30° 100%." in pscnn.summary(named(conv=lam))


@pytest.mark.parametrize(
    ("group", "line", "contained"),
    [(D(2), 3, True), (D(1), 0, False), (D(1), 90, True), (D(2), 45, False), (C(4), 0, False), (O2(), 33, True)],
)
def test_mirror_lines_lie_in_groups(group: Group, line: int, contained: bool) -> None:
    assert _has_direction(group, f"mirror line at {line}°") == contained
    assert not _has_direction(group, "rotations about (1.00, 0.00, 0.00)") or group == O2()


@pytest.mark.parametrize("group", [SO3(), O3()], ids=lambda g: g.name)
def test_the_best_axis_is_found(group: Group) -> None:
    lam = Likelihood(group, 2, initial=lambda h: 3 * h[:, 0, 0])  # all rotations about x keep x
    (row,) = layer_summaries(named(conv=lam))
    assert row.degrees["rotations about (1.00, 0.00, 0.00)"] == pytest.approx(1, abs=1e-3)


def test_the_verdict_names_what_is_lost_regained_and_misaligned() -> None:
    H = SO2()
    peaked = Likelihood(H, 1, initial=lambda h: 2 * h[:, 0, 0])
    shifted = Likelihood(H, 1, initial=lambda h: 2 * h[:, 1, 0])
    assert pscnn.summary(named(a=Likelihood(H))).endswith("Equivariance is kept in every layer.")
    text = pscnn.summary(named(a=Likelihood(H, 1), b=peaked, c=Likelihood(H, 1)))
    assert "first lost in layer 2 (b). Nothing is kept there to 80%; C(3) is to 5%." in text
    assert "Layer 3 (c) claims to regain what layer 2 (b) gave up" in text
    assert "isaligned" not in text
    assert "Misaligned: layer 1 (c). There the density is up to" in pscnn.summary(named(c=shifted))
    several = named(**{f"c{k}": Likelihood(H, 1, initial=lambda h: 2 * h[:, 1, 0]) for k in range(6)})
    assert "Misaligned: layer 1 (c0), 2 (c1), 3 (c2), 4 (c3) and 2 more. There" in pscnn.summary(several)

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pscnn import Likelihood
from pscnn.groups import O2
from pscnn.report import html_report
from pscnn.tasks.symmetry import TARGETS, SymmetrySettings, symmetry_score
from pscnn.training import Store, load, run_missing, start, train


@pytest.mark.parametrize("name", [n for n in TARGETS if n != "up to 45°"])
def test_targets_are_kept_by_their_symmetries_and_by_nothing_else(name: str) -> None:
    task = TARGETS[name]
    elements = np.concatenate([task.group.sample(200, seed=0), task.group.quadrature(7)[0]])
    u, v = torch.randn(2, 50, task.group.dimension, dtype=torch.float64)
    before = task.function(u, v)
    distances = task.distance(elements)
    for h, distance in zip(torch.as_tensor(elements), distances, strict=True):
        change = (task.function(u @ h.T, v @ h.T) - before).abs().mean()
        assert (change < 1e-9) == (distance < 1e-9), (name, h, distance)


def test_directions_are_kept_by_small_turns_most_often() -> None:
    task = TARGETS["up to 45°"]
    u = torch.randn(4000, 2, dtype=torch.float64)
    before = task.function(u, u)
    for degrees, share in ((0, 1.0), (30, 2 / 3), (60, 1 / 3), (90, 0.0), (180, 0.0)):
        h = torch.as_tensor(task.group.identity)
        c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        h = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        same = ((task.function(u @ h.T, u) - before).abs().amax(-1) < 1e-6).double().mean().item()
        assert same == pytest.approx(share, abs=0.03)


def test_scores_of_perfect_wrong_and_uniform_densities() -> None:
    mirror = TARGETS["mirror"]
    right = Likelihood(O2(), 2, initial=lambda h: 6 * h[:, 1, 1])  # high where y stays
    wrong = Likelihood(O2(), 2, initial=lambda h: -6 * h[:, 1, 1])
    assert symmetry_score(right, mirror.distance).auc == pytest.approx(1)
    assert symmetry_score(wrong, mirror.distance).auc == pytest.approx(0)
    uniform = symmetry_score(Likelihood(O2(), 2), mirror.distance)
    assert uniform.auc == pytest.approx(0.5)
    assert uniform.total_variation == pytest.approx(1 - 30 / 360, abs=0.01)
    everything = symmetry_score(Likelihood(O2(), 2), TARGETS["all"].distance)
    assert everything.auc is None
    assert everything.total_variation == pytest.approx(0, abs=1e-6)


def test_a_seed_gives_the_same_whether_it_is_trained_alone_or_beside_others(tmp_path: Path) -> None:
    runs = [SymmetrySettings(count=64, batch_size=32, epochs=2, seed=seed, bandlimit=1) for seed in range(2)]
    found = run_missing(runs, Store(tmp_path), workers=1)
    alone = train(start(runs[1], tmp_path / "alone"))
    beside = found[runs[1]]
    assert isinstance(beside, dict)
    for name in ("auc", "total_variation", "train_task"):
        assert alone[name] == pytest.approx(beside[name], rel=1e-3)
    assert not load(Store(tmp_path).folder(runs[0])).model.training


def test_the_density_tells_the_truth(tmp_path: Path) -> None:
    result = train(start(SymmetrySettings(target="half-turn", count=1000, epochs=40), tmp_path))
    assert result["train_task"] < 0.1
    assert result["auc"] > 0.99
    (folder,) = (tmp_path / "symmetry").glob("p-scnn*")
    assert "AUC" in html_report([folder]).read_text()

from __future__ import annotations

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pscnn import Likelihood
from pscnn.cli import app
from pscnn.experiments import SYMMETRY_TASKS, SYMMETRY_VARIATIONS, SymmetryConfig, run_symmetry, symmetry_score
from pscnn.groups import O2


@pytest.mark.parametrize("name", [n for n in SYMMETRY_TASKS if n != "up to 45°"])
def test_targets_are_kept_by_their_symmetries_and_by_nothing_else(name: str) -> None:
    task = SYMMETRY_TASKS[name]
    elements = np.concatenate([task.group.sample(200, seed=0), task.group.quadrature(7)[0]])
    u, v = torch.randn(2, 50, task.group.dimension, dtype=torch.float64)
    before = task.target(u, v)
    distances = task.distance(elements)
    for h, distance in zip(torch.as_tensor(elements), distances, strict=True):
        change = (task.target(u @ h.T, v @ h.T) - before).abs().mean()
        assert (change < 1e-9) == (distance < 1e-9), (name, h, distance)


def test_directions_are_kept_by_small_turns_most_often() -> None:
    task = SYMMETRY_TASKS["up to 45°"]
    u = torch.randn(4000, 2, dtype=torch.float64)
    before = task.target(u, u)
    for degrees, share in ((0, 1.0), (30, 2 / 3), (60, 1 / 3), (90, 0.0), (180, 0.0)):
        h = torch.as_tensor(task.group.identity)
        c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        h = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        same = ((task.target(u @ h.T, u) - before).abs().amax(-1) < 1e-6).double().mean().item()
        assert same == pytest.approx(share, abs=0.03)


def test_scores_of_perfect_wrong_and_uniform_densities() -> None:
    mirror = SYMMETRY_TASKS["mirror"]
    right = Likelihood(O2(), 2, initial=lambda h: 6 * h[:, 1, 1])  # high where y stays
    wrong = Likelihood(O2(), 2, initial=lambda h: -6 * h[:, 1, 1])
    assert symmetry_score(right, mirror.distance).auc == pytest.approx(1)
    assert symmetry_score(wrong, mirror.distance).auc == pytest.approx(0)
    uniform = symmetry_score(Likelihood(O2(), 2), mirror.distance)
    assert uniform.auc == pytest.approx(0.5)
    assert uniform.total_variation == pytest.approx(1 - 30 / 360, abs=0.01)
    everything = symmetry_score(Likelihood(O2(), 2), SYMMETRY_TASKS["all"].distance)
    assert everything.auc is None
    assert everything.total_variation == pytest.approx(0, abs=1e-6)


def test_a_benchmark_runs() -> None:
    config = SymmetryConfig(count=64, batch_size=32, epochs=2, seeds=2, bandlimit=1)
    scores, errors, models = run_symmetry("mirror", config)
    assert len(scores) == len(errors) == len(models) == 2
    assert not models[0].training
    again, _, _ = run_symmetry("mirror", config)
    assert again == scores


def test_the_command_prints_scores_and_knows_its_tasks() -> None:
    done = CliRunner().invoke(
        app, ["benchmark-symmetry", "--only", "all", "--only", "mirror", "--seeds", "1", "--epochs", "1"]
    )
    assert done.exit_code == 0, done.output
    assert "mirror" in done.output
    assert "rotations" not in done.output.replace("rotations about", "")
    done = CliRunner().invoke(app, ["benchmark-symmetry", "--only", "banana"])
    assert done.exit_code != 0
    assert "unknown task 'banana'" in " ".join(done.output.split())


def test_the_density_tells_the_truth() -> None:
    scores, errors, _ = run_symmetry("half-turn", SymmetryConfig(count=1000, epochs=40, seeds=1))
    assert errors[0] < 0.1
    assert scores[0].auc is not None
    assert scores[0].auc > 0.99


@pytest.mark.parametrize("what", SYMMETRY_VARIATIONS)
def test_settings_can_be_compared(what: str) -> None:
    arguments = ["benchmark-symmetry", "--only", "none", "--seeds", "1", "--epochs", "1", "--vary", what]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    for label in SYMMETRY_VARIATIONS[what]:
        assert label in done.output


def test_what_cannot_be_varied_is_named() -> None:
    done = CliRunner().invoke(app, ["benchmark-symmetry", "--vary", "colour"])
    assert done.exit_code == 1
    assert "cannot vary 'colour'" in done.output

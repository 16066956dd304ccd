"""Proof of the answers of the known tasks, from the poses alone: what would enforcing any subgroup cost?

A function that K leaves unchanged sees K·g in place of the pose g. So the best one is right as often as the likeliest
class of an orbit is, or it says the mean over the orbit; a shape's own symmetries make poses equal that look the same.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from known_shapes import OWN, Some

from pscnn._types import Array
from pscnn.data import known
from pscnn.data.known import TASKS, Kept, KnownTask
from pscnn.experiments import _known as scorer
from pscnn.groups import MIRROR, O3, rotation


def candidates(dimension: int) -> list[Kept | Some]:
    if dimension == 2:
        mirrored = [Kept(f"D({n})", float(a)) for n in (1, 2, 3, 4, 6) for a in np.arange(0, 180 / n, 5)]
        return [*(Kept(f"C({n})") for n in range(1, 13)), *mirrored, Kept("SO(2)"), Kept("O(2)")]
    axes = ("x", "y", "z", "(1,1,1)", "(1,0,1)", "(0,1,2)")
    names = [f"{name}@{axis}" for name in ("C(2)", "C(3)", "C(4)", "D(1)", "D(2)", "SO(2)", "O(2)") for axis in axes]
    turns = [f"{name}@{axis}, turn" for name in ("D(2)", "O(2)") for axis in axes]
    inversion = Some("inversion", np.stack([np.eye(3), -np.eye(3)]))
    return [*(Kept(name) for name in [*names, *turns, "SO(3)", "O(3)", "C(1)@z"]), inversion]


def some_poses(dimension: int) -> Array:
    if dimension == 3:
        turns = O3().sample(120, seed=1)
        return np.concatenate([turns, -turns])
    turns = rotation(np.radians(np.arange(0, 360, 2.0) + 0.37))
    return np.concatenate([turns, turns @ MIRROR])


def density(task: KnownTask, poses: Array) -> Array:
    """Whether the classes of a shape occur at poses, (classes, N), from the task's description."""
    mirrored = np.linalg.det(poses) < 0
    hands = {"one": [~mirrored], "both": [np.ones_like(mirrored)], "told": [~mirrored, mirrored]}[task.hands]
    if task.dimension == 2:
        turns = np.where(mirrored[:, None, None], poses @ MIRROR, poses)
        angle = np.degrees(np.arctan2(turns[:, 1, 0], turns[:, 0, 0]))
        off = [np.abs((angle - c + task.period / 2) % task.period - task.period / 2) for c in task.centres]
        sides = [value <= task.spread for value in off]
    elif task.axis is None:
        sides = [np.ones_like(mirrored)]
    else:
        height = poses[:, :, 0] @ np.array(task.axis)
        sides = [sign * height >= np.sin(np.radians(known.GAP / 2)) for sign in (1, -1)]
    return np.stack([side & hand for side in sides for hand in hands])


def seen(task: KnownTask, shape: str, poses: Array, left: Array) -> Array:
    """How often classes occur for a function that K leaves unchanged: the mean over K·g·(the shape's symmetries)."""
    own = OWN[shape].elements()
    own = own[:: max(1, len(own) // 8)]
    every = left[:, None, None] @ poses[None, :, None] @ own
    flat = density(task, every.reshape(-1, *poses.shape[1:]))
    return flat.reshape(len(flat), len(left), len(poses), len(own)).mean((1, 3))


def cost(task: KnownTask, elements: Array) -> float:
    """Accuracy, or share of the variance, that is lost by enforcing a subgroup."""
    elements = elements[:: max(1, len(elements) // 36)]
    poses = some_poses(task.dimension)
    if task.target not in known.TARGETS:  # labels and masks add sizes and places, which K leaves where they are;
        # those of different shapes are never confused: no element takes one to the other
        best = []
        for left in (np.eye(task.dimension)[None], elements):
            found = np.concatenate([seen(task, shape, poses, left) for shape in task.shapes], 1)
            best.append(found.max(0).sum() / found.sum())
        return float(best[0] - best[1])

    def target(g: Array) -> Array:
        scale = torch.linspace(0.75, 1, len(g), dtype=torch.float64)
        return known.TARGETS[task.target][1](torch.tensor(g[:, :, 0]), scale).numpy()

    y = target(poses)
    said = np.stack([target(k @ poses) for k in elements])
    if task.kind == "vectors":
        said = np.einsum("kji,knj->kni", elements, said)  # turned back
    return float(((y - said.mean(0)) ** 2).sum() / ((y - y.mean(0)) ** 2).sum())


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.truth])
def test_the_truth_costs_nothing_and_everything_else_does(name: str) -> None:
    task = TASKS[name]
    compared = set()
    for one in candidates(task.dimension):
        loss = cost(task, one.elements())
        if scorer.within(one, task.truth, scorer.CLEARLY_ONE):
            assert loss < 0.005, one
            compared.add("inside")
        elif not scorer.within(one, task.truth, scorer.CLEARLY_ANOTHER):
            assert loss > 0.03, (one, loss)
            compared.add("outside")
    for one in task.truth:
        assert cost(task, one.elements()) < 1e-9
    everything = task.truth[0].name in ("O(2)", "O(3)")
    assert compared == {"inside"} | (set() if everything else {"outside"})


@pytest.mark.parametrize(
    "name", [name for name, task in TASKS.items() if task.kind in ("classes", "masks") and task.shapes]
)
def test_examples_are_drawn_from_the_density(name: str) -> None:
    task = TASKS[name]
    placed = known.place(task, seed=1, count=400)
    found = density(task, placed.pose.numpy())
    assert (found.sum(0) == 1).all()  # no pose belongs to two classes
    if not task.random:
        assert (placed.shape.numpy() * len(found) + found.argmax(0) == placed.target.numpy()).all()
    counts = np.bincount(placed.target.numpy())
    assert counts.max() - counts.min() <= 1

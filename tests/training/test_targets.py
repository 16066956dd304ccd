"""Kinds of targets: losses and scores against their definitions, one example at a time."""

from __future__ import annotations

import math

import pytest
import torch

from pscnn.data import own
from pscnn.training import target_of
from pscnn.training._learner import _mean_area

GENERATOR = torch.Generator().manual_seed(0)


def about(kind: str, count: int = 3) -> own.About:
    names = tuple(f"n{k}" for k in range(count))
    amounts = (2.0,) * count if kind in ("numbers", "vectors") else ()
    shape = (5, 4, 3) if kind == "vectors" and count == 3 else (5, 4)
    return own.About(shape, 1, names, kind, 0.0, 1.0, means=tuple(0.0 for _ in amounts), deviations=amounts)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR)


def test_labels_are_scored_by_the_share_that_is_right() -> None:
    target = target_of(about("labels"))
    said, y = normal(6, 3), (normal(6, 3) > 0).byte()
    for one, true, score in zip(said, y, target.score(said, y), strict=True):
        right = [(p > 0.5) == bool(t) for p, t in zip(one.sigmoid().tolist(), true.tolist(), strict=True)]
        assert score.item() == pytest.approx(sum(right) / 3)
    p = said.double().sigmoid()
    wanted = -torch.where(y > 0, p.log(), (1 - p).log()).mean()
    assert target.loss(said, y).item() == pytest.approx(wanted.item(), rel=1e-5)
    assert target.answer(said[0]) == {f"n{k}": pytest.approx(p[0, k].item()) for k in range(3)}
    train = torch.tensor([[1, 0, 0], [1, 0, 1], [1, 1, 0]])
    assert target.constant_score(y, train).tolist() == pytest.approx(
        [sum(a == b for a, b in zip(row, (1, 0, 0), strict=True)) / 3 for row in y.tolist()]
    )


def test_masks_are_scored_by_overlap_where_something_is_known() -> None:
    target = target_of(about("masks"))
    said = normal(4, 3, 5, 4)
    y = torch.randint(0, 3, (4, 5, 4), generator=GENERATOR)
    y[0] = 1  # one class only
    y[:, 0] = own.UNKNOWN
    for one, true, score in zip(said.argmax(1), y, target.score(said, y), strict=True):
        shares = []
        for k in range(3):
            here = {(r, c) for r in range(1, 5) for c in range(4) if one[r, c] == k}
            there = {(r, c) for r in range(1, 5) for c in range(4) if true[r, c] == k}
            if here | there:
                shares.append(len(here & there) / len(here | there))
        assert score.item() == pytest.approx(sum(shares) / len(shares))
    logs = said.log_softmax(1)
    places = [(b, r, c) for b in range(4) for r in range(1, 5) for c in range(4)]
    wanted = -sum(logs[b, int(y[b, r, c]), r, c].item() for b, r, c in places) / len(places)
    assert target.loss(said, y).item() == pytest.approx(wanted, rel=1e-5)
    perfect = torch.nn.functional.one_hot(y.clamp(min=0), 3).movedim(-1, 1).float()
    assert target.score(perfect, y).tolist() == [1.0] * 4
    assert target.constant_score(y, torch.full((2, 5, 4), 1))[0] == 1
    assert sum(target.answer(said[0]).values()) == pytest.approx(1)


@pytest.mark.parametrize(("kind", "count"), [("numbers", 2), ("vectors", 2), ("vectors", 3)])
def test_numbers_are_scored_in_deviations(kind: str, count: int) -> None:
    target = target_of(about(kind, count))
    said, y = normal(5, count), normal(5, count)
    wanted = [
        -sum(((a - b) / 2) ** 2 for a, b in zip(*pair, strict=True)) / count
        for pair in zip(said.tolist(), y.tolist(), strict=True)
    ]
    assert target.score(said, y).tolist() == pytest.approx(wanted, rel=1e-5)
    assert target.loss(said, y).item() == pytest.approx(-sum(wanted) / 5, rel=1e-5)
    assert target.constant_score(y, y).mean().item() == pytest.approx(
        -(y.var(0, unbiased=False) / 4).mean().item(), rel=1e-5
    )
    assert target.answer(said[0]) == {f"n{k}": pytest.approx(said[0, k].item()) for k in range(count)}


def test_the_error_of_a_vector_turns_with_it() -> None:
    target = target_of(about("vectors", 2))
    said, y = normal(5, 2), normal(5, 2)
    turn = torch.tensor([[math.cos(1), -math.sin(1)], [math.sin(1), math.cos(1)]])
    torch.testing.assert_close(target.score(said @ turn.T, y @ turn.T), target.score(said, y))
    assert target.output == "vector"


def test_classes_are_right_or_wrong() -> None:
    target = target_of(about("classes"))
    said, y = normal(6, 3), torch.tensor([0, 1, 2, 0, 0, 1])
    assert target.score(said, y).tolist() == [
        float(int(one.argmax()) == k) for one, k in zip(said, y.tolist(), strict=True)
    ]
    assert target.constant_score(y, y).tolist() == [1, 0, 0, 1, 1, 0]
    assert target.loss(said, y).item() == pytest.approx(-said.log_softmax(1)[range(6), y].mean().item(), rel=1e-5)


def test_the_area_under_the_curve_of_labels_counts_pairs() -> None:
    p, own_label = normal(9, 2).double().sigmoid(), normal(9, 2) > 0
    shares = []
    for k in range(2):
        pairs = [(a, b) for a in p[own_label[:, k], k] for b in p[~own_label[:, k], k]]
        shares.append(sum(float(a > b) for a, b in pairs) / len(pairs))
    assert _mean_area(p, own_label) == pytest.approx(sum(shares) / 2)

"""Symmetries of people's own data: subgroups, the network that enforces them, statements, the way to an answer."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pscnn
from pscnn import models
from pscnn.data import own, transform
from pscnn.experiments import Discovery, Network, Statement, Subgroup, receptive_fields
from pscnn.experiments._discover import _engine, _jobs, _networks, _parts, _poses, _probe, _subgroups, _verdict
from pscnn.experiments._discover._poses import folds
from pscnn.experiments._discover._prepare import prepared_file
from pscnn.experiments._discover._probe import Probe
from pscnn.experiments._presence import Presence
from pscnn.groups import O2, O3, SO2, SO3, C, D
from pscnn.training import ConfigError, RunError, target_of

IDENTITY, HALF, MIRROR, BOTH, WHOLE = (
    Subgroup(C(1)),
    Subgroup(C(2)),
    Subgroup(D(1), 90.0),
    Subgroup(D(2), 0.0),
    Subgroup(O2()),
)


def sky(count: int = 60, side: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Bright above or below: the left–right mirror is kept, half turns are not."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    images = rng.uniform(0, 0.3, (count, side, side))
    images[labels == 0, : side // 2] += 0.7
    images[labels == 1, side // 2 :] += 0.7
    return images.astype(np.float32), labels


# -- subgroups ---------------------------------------------------------------------------------------------------------


def test_subgroups_are_closed_and_keep_their_mirror_line() -> None:
    for one in _subgroups.candidates(O2(), [Subgroup(D(1), 30.0)], (2, 3, 4)):
        elements = one.elements()
        assert one.contains(np.einsum("aij,bjk->abik", elements[:12], elements[-12:]).reshape(-1, 2, 2))
        if one.angle is not None:
            line = np.array([np.cos(np.radians(one.angle)), np.sin(np.radians(one.angle))])
            kept = [h for h in elements if np.linalg.det(h) < 0 and np.allclose(h @ line, line)]
            assert len(kept) == 1


def test_subgroups_lie_in_one_another() -> None:
    assert BOTH.includes(MIRROR)
    assert BOTH.includes(HALF)
    assert not BOTH.includes(Subgroup(D(1), 45.0))
    assert WHOLE.includes(Subgroup(D(4), 22.5))
    assert not Subgroup(SO2()).includes(MIRROR)
    assert not HALF.includes(Subgroup(SO2()))
    assert Subgroup(D(2), 30.0) == Subgroup(D(2), 120.0)


def test_candidates_are_subgroups_once_each_with_the_identity_first_and_the_whole_last() -> None:
    for group in (O2(), SO2(), D(4), C(4), SO3(), O3()):
        found = _subgroups.candidates(group)
        assert found[0].name == "the identity"
        assert found[-1].group == group
        assert all(group.contains(one.elements()) for one in found)
        assert len({str(one) for one in found}) == len(found)
    with pytest.raises(ValueError, match=r"Subgroup: D\(2\) needs an angle"):
        Subgroup(D(2))


def test_subgroups_are_stored_as_text() -> None:
    for one in (*_subgroups.candidates(O2(), [Subgroup(D(2), 30.0)]), *_subgroups.candidates(O3())):
        assert Subgroup.from_json(one.to_json()) == one


def test_mirror_lines_are_found_between_the_angles_that_were_tried() -> None:
    rng = np.random.default_rng(0)
    for angle in (22.0, 68.0, 110.0):
        losses = [1 - np.exp(-(((a - angle + 90) % 180 - 90) ** 2) / 800) for a in _subgroups.GRID]
        (found,) = _subgroups.likely_mirrors(_subgroups.GRID, losses + rng.normal(0, 0.01, 12), ())
        assert abs((found.angle or 0) - angle) < 4
        several = _subgroups.likely_mirrors(_subgroups.GRID, losses, (2,))
        assert {one.name for one in several} == {"D(1)", "D(2)"}


@pytest.mark.parametrize("angle", [22.5, 10.0, 33.0])
def test_four_mirror_lines_are_found_between_the_angles_that_were_tried(angle: float) -> None:
    losses = [0.35 - 0.3 * np.cos(np.radians(8 * (a - angle))) for a in _subgroups.GRID]
    found = [one.angle or 0.0 for one in _subgroups.likely_mirrors(_subgroups.GRID, losses) if one.name == "D(4)"]
    assert min(abs(a - angle) for a in found) < 1


def test_a_third_of_a_turn_is_tried_only_where_examples_come_so() -> None:
    def found(group: Subgroup, present: bool | None) -> Presence:
        return Presence(group, None, 0.5, 0.4, 0.6, 100, present)

    third = Subgroup(C(3))
    assert folds([found(HALF, True), found(third, None)]) == (2, 4)
    assert folds([found(HALF, False), found(third, True)]) == (2, 3, 4)
    assert folds([found(HALF, True), found(third, True)]) == (2, 3, 4, 6)


# -- the network -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectors", [False, True])
def test_every_end_keeps_its_subgroup_and_nothing_else(vectors: bool) -> None:
    torch.manual_seed(0)
    subgroups = [IDENTITY, HALF, MIRROR, Subgroup(D(1), 30.0), BOTH]
    probe = Probe(O2(), subgroups, 1, (12, 12), 2, vectors=vectors).eval().double()
    features = torch.randn(5, 2, probe.trunk.features.size, dtype=torch.float64)
    rng = np.random.default_rng(0)
    said = probe.ends(features, rng)
    for h in (HALF.elements()[1], MIRROR.elements()[1], Subgroup(D(1), 30.0).elements()[1]):
        turned = features @ torch.as_tensor(probe.trunk.features.matrix(h)).T
        expected = said @ torch.as_tensor(h).T if vectors else said
        moved = (probe.ends(turned, rng) - expected).abs().amax((1, 2))
        for one, error in zip(subgroups, moved, strict=True):
            assert (error < 1e-9) == one.contains(h[None]), (str(one), h)


def test_features_turn_with_the_examples() -> None:
    torch.manual_seed(0)
    probe = Probe(O2(), [IDENTITY], 1, (15, 15), 2).eval().double()
    x = torch.randn(3, 1, 15, 15, dtype=torch.float64)
    quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    turned = probe.trunk(x.rot90(1, (2, 3)))
    expected = probe.trunk(x) @ torch.as_tensor(probe.trunk.features.matrix(quarter)).T
    torch.testing.assert_close(turned, expected)


def test_no_pose_can_be_read_off_where_an_example_lies() -> None:
    """The place of a ring is moved by about as much as it is beside the centre, and as often to every side."""
    probe = Probe(O2(), [IDENTITY], 1, (28, 28), 2)
    shifts = probe.shifts(torch.zeros(4000, 1, 28, 28), np.random.default_rng(0))
    assert shifts.std(0).tolist() == pytest.approx([1.4, 1.4], rel=0.2)
    assert shifts.norm(dim=1).max() == pytest.approx(2.8)  # alike in all directions
    assert shifts.mean(0).abs().max() < 0.1


def stripes(side: int, angle: float, wavelength: float, phase: float = 0.0) -> torch.Tensor:
    """An image full of them, about its centre."""
    y, x = torch.meshgrid(*2 * [torch.arange(side, dtype=torch.float64) - (side - 1) / 2], indexing="ij")
    along = x * np.cos(angle) - y * np.sin(angle)
    return (2 * np.pi * along / wavelength + phase).cos()[None, None]


def test_no_pose_can_be_read_off_the_frame() -> None:
    """What is turned and moved is the same as what was drawn so: there is no edge that turns along."""
    angle, shift = np.radians(45), torch.tensor([[2.0, -1.5]], dtype=torch.float64)  # downwards, to the right
    turn = torch.tensor([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    upright, turned = (stripes(40, start, 9.0) for start in (0.3, 0.3 + angle))
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    down, right = shift[0] @ quarter.mT @ turn.mT @ quarter  # the same move, turned
    moved = torch.stack([down, right])[None]
    whole = torch.eye(2, dtype=torch.float64)
    for seen, agree in ((_probe.without_frame, True), (lambda x: x, False)):
        one = transform(seen(upright), turn, shift)
        other = transform(seen(turned), whole, moved)
        inside = _probe._distance((40, 40)) < 20
        error = ((one - other)[..., inside].square().mean() / other[..., inside].square().mean()).sqrt()
        assert (error < 0.02) == agree, error


def test_padding_tells_no_pose(tmp_path: Path) -> None:
    """Oblong pictures of a texture that has no direction come turned as often as not, wherever their frame lies."""
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 1, (400, 14, 20)).astype(np.float32)
    path, blind = tmp_path / "data.npz", tmp_path / "blind.npz"
    about = own.prepare((images, np.arange(400) % 2), path, square=True)
    assert (about.shape, about.content) == ((20, 20), (14, 20))
    turns = [Subgroup(C(4))]
    assert _poses.find_poses(path, "O(2)", turns, 60.0)[0].present is not False
    splits = own.load(path)
    arrays = [np.concatenate([splits[n].pixels.numpy()[:, 0] for n in splits]), np.arange(400) % 2]
    assert own.prepare((arrays[0], arrays[1]), blind).content == ()  # the same pixels, of which nothing is known
    assert _poses.find_poses(blind, "O(2)", turns, 60.0)[0].present is False
    x = splits["train"].pixels[:2].float()
    seen = _probe.without_frame(x, 14 / 20)
    far = _probe._distance((20, 20)) >= 7
    assert (seen[..., far] - seen[..., 0, :1]).abs().max() < 1e-6
    assert (seen - x)[..., _probe._distance((20, 20)) < 4].abs().max() < 1e-6


@pytest.mark.parametrize("angle", [0.0, 22.5, 45.0])
def test_smaller_examples_look_alike_on_pixels_and_between_them(angle: float) -> None:
    """Windows of two or three pixels would make a pattern that tells how an example was turned."""
    phases = 2 * np.pi * np.arange(8) / 8
    images = torch.cat([stripes(64, np.radians(angle), 9.0, phase) for phase in phases])
    trunk = Probe(O2(), [IDENTITY], 1, (64, 64), 2).trunk
    power = trunk.averaged(images).square().mean((0, 1))[4:-4, 4:-4]
    step = 64 / 41
    expected = np.exp(-((2 * np.pi * step * _probe.BLUR / 9.0) ** 2)) / 2  # of a Gaussian
    assert power.min() == pytest.approx(expected, rel=2e-3)
    assert power.max() == pytest.approx(expected, rel=2e-3)


def test_what_has_learnt_nothing_is_trained_for_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[int, int]]()

    def parts(work: Any, subgroups: Any, seed: int, steps: int) -> Any:
        asked.append((seed, steps))
        rows, enough = np.arange(sum(work.about.counts[:2])), steps >= 4 * 240
        for part in range(_parts.PARTS):
            own_rows = rows[part :: _parts.PARTS]
            scores = np.full((len(subgroups), len(own_rows)), float(enough))
            scores[1:] *= own_rows // 4 % 2  # all but the identity cost half
            constant = np.asarray(own_rows // 4 % 2, dtype=float)
            yield _parts.PartResult(own_rows, scores, constant, np.zeros(len(subgroups)), steps, 0.01)

    monkeypatch.setattr(_engine, "_parts", parts)
    monkeypatch.setattr(_engine, "_look", lambda work: ([], []))
    monkeypatch.setattr(_engine, "_networks", lambda *_: iter(()))
    said = list[str]()
    found = pscnn.discover(sky(160), minutes=1, out=tmp_path, workers=1, accelerator="cpu", say=said.append)
    assert [steps for _, steps in asked[:3]] == [240, 480, 960]
    assert len({seed for seed, _ in asked}) == len(asked)
    assert "networks learnt too little in 480 steps; once more, with up to 960" in said
    assert found.learnt
    assert found.kept == IDENTITY
    assert found.trained == _parts.PARTS  # the others are forgotten


def test_what_a_network_of_the_table_contradicts_is_not_called_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parts(work: Any, subgroups: Any, seed: int, steps: int) -> Any:  # what distinguishes classes is not seen
        rows = np.arange(sum(work.about.counts[:2]))
        for part in range(_parts.PARTS):
            own_rows = rows[part :: _parts.PARTS]
            scores = np.tile(own_rows // 4 % 4 > 0, (len(subgroups), 1)).astype(float)
            constant = np.asarray(own_rows // 4 % 2, dtype=float)
            yield _parts.PartResult(own_rows, scores, constant, np.zeros(len(subgroups)), steps, 0.01)

    def networks(right: float, work: Any, *_: Any) -> Any:
        scores = {"kept": 0.75, "cnn": right}
        for kind, share in scores.items():
            count = work.about.counts[1]
            validation = tuple(float(k < share * count) for k in range(count))
            yield Network(kind, f"own/{kind}", validation, share, 1000, 0.003, 50)

    monkeypatch.setattr(_engine, "_parts", parts)
    monkeypatch.setattr(_engine, "_look", lambda work: ([], []))
    for right, kept in ((0.75, Subgroup(O2())), (1.0, None)):
        monkeypatch.setattr(_engine, "_networks", functools.partial(networks, right))
        out = tmp_path / str(right)
        found = pscnn.discover(sky(300), minutes=1, out=out, workers=1, accelerator="cpu", say=lambda _: None)
        assert found.complete
        assert found.kept == kept
        assert {one.verdict for one in found.statements} == {"kept" if kept else "cannot tell"}
        assert (Discovery.read(out).doubt is None) == (kept is not None)


@pytest.mark.parametrize("kind", ["classes", "masks"])
def test_large_examples_are_made_small_before_they_are_turned(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turning takes as long as they are large: at 64×64×64 a discovery of 12 minutes took more than 16."""
    images, labels = sky(24, side=90)
    path = tmp_path / "data.npz"
    own.prepare({"images": images, "masks": (images > 0.5).astype(int)} if kind == "masks" else (images, labels), path)
    shapes: set[torch.Size] = set()

    def spy(x: torch.Tensor, *how: Any) -> torch.Tensor:
        shapes.add(x.shape[2:])
        return transform(x, *how)

    monkeypatch.setattr(_probe, "transform", spy)
    found = _parts.train_part(path, "O(2)", [IDENTITY, HALF], 0, 0, 2, 60.0, 8)
    assert shapes == {(41, 41)}
    assert found.scores.shape[0] == 2
    assert np.isfinite(found.scores).all()


def test_an_example_is_moved_once_for_all_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Averaged over many places, an answer could depend on where it lies."""
    seen: list[torch.Tensor] = []

    def features(self: Probe, x: torch.Tensor, shifts: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        seen.append(shifts)
        return torch.zeros(len(x), 2, self.trunk.features.size)

    monkeypatch.setattr(Probe, "features", features)
    probe, y = Probe(O2(), [IDENTITY], 1, (9, 9), 2).eval(), torch.zeros(300, dtype=torch.long)
    target = target_of(own.About((9, 9), 1, ("a", "b"), "classes", 0.0, 1.0))
    _parts._scores(probe, torch.zeros(300, 1, 9, 9), y, y, target, _parts._Units(), np.random.default_rng(0))
    assert len(seen) == 2 * _parts.VIEWS
    for first in (0, _parts.VIEWS):
        assert all(torch.equal(seen[first], other) for other in seen[first : first + _parts.VIEWS])


def test_what_is_kept_is_enforced_by_a_network_over_it_if_there_is_one(tmp_path: Path) -> None:
    """A density that is fixed within a larger network is for mirror lines at an angle; it is harder to train."""
    path = tmp_path / "data.npz"
    own.prepare(sky(side=28), path)

    def kept(subgroup: Subgroup) -> tuple[str, str, float]:
        one = _networks.settings_of(path, "O(2)", subgroup, 0.25, 2)["kept"]
        return one.method, one.group, one.width

    assert kept(Subgroup(O2())) == ("scnn", "O(2)", 0.25)
    assert kept(Subgroup(SO2())) == ("scnn", "SO(2)", 0.5)
    assert kept(MIRROR) == ("scnn", "D(1)", 1.25)
    assert kept(Subgroup(D(2), 0.0)) == ("scnn", "D(2)", 0.625)
    assert kept(Subgroup(D(1), 30.0)) == ("fixed", "O(2)", 0.25)
    assert "kept" not in _networks.settings_of(path, "O(2)", IDENTITY, 0.25, 2)


def test_volumes_and_oblong_images_have_features() -> None:
    for group, shape in ((O2(), (20, 13)), (O3(), (9, 9, 9))):
        probe = Probe(group, [_subgroups.identity(group)], 2, shape, 3)
        x, rng = torch.randn(2, 2, *shape), np.random.default_rng(0)
        assert probe(x, probe.shifts(x, rng), rng).shape == (1, 2, 3)


# -- statements --------------------------------------------------------------------------------------------------------


def right(rate: float, count: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).random(count) < rate).astype(float)


def compared(rates: dict[Subgroup, float], count: int) -> _verdict.Comparison:
    scores = np.stack([right(rate, count, seed) for seed, rate in enumerate(rates.values())])
    return _verdict.compare(list(rates), scores, right(0.5, count, 99), np.arange(count)[None] % 4, binary=True)


def test_what_costs_nothing_is_kept_and_what_costs_much_is_broken() -> None:
    found = compared({IDENTITY: 1.0, HALF: 0.5, MIRROR: 1.0, BOTH: 0.5, WHOLE: 0.5}, 400)
    assert [one.verdict for one in found.statements] == ["broken", "kept", "broken", "broken"]
    assert found.kept == MIRROR
    half = found.statements[0]
    assert half.low < half.cost < half.high
    assert half.cost == pytest.approx(0.5, abs=0.1)


def test_what_undoes_the_help_of_a_smaller_one_is_broken() -> None:
    found = compared({IDENTITY: 0.61, HALF: 0.58, MIRROR: 0.64, BOTH: 0.60, WHOLE: 0.54}, 40_000)
    both = found.statements[2]
    assert found.free - both.score < 0.02  # against no symmetry at all it costs little
    assert both.low > 0.03  # but not against the mirror
    assert [one.verdict for one in found.statements] == ["broken", "kept", "broken", "broken"]
    assert found.kept == MIRROR


def test_few_examples_and_networks_that_learnt_nothing_say_nothing() -> None:
    for rates, count in (({IDENTITY: 1.0, HALF: 0.5}, 40), ({IDENTITY: 0.5, HALF: 0.5}, 400)):
        found = compared(rates, count)
        assert not found.learnt
        assert found.kept is None
        assert {one.verdict for one in found.statements} == {"cannot tell"}
    unsure = compared({IDENTITY: 1.0, HALF: 1.0}, 80)
    assert unsure.learnt
    assert [one.verdict for one in unsure.statements] == ["cannot tell"]
    assert unsure.kept is None


def test_statements_never_contradict_each_other() -> None:
    subgroups = _subgroups.candidates(O2(), [Subgroup(D(1), 30.0)], (2, 3, 4))
    rng = np.random.default_rng(0)
    for _ in range(50):
        own_verdicts = ["kept", *rng.choice(["kept", "broken", "cannot tell"], len(subgroups) - 1)]
        verdicts, because = _verdict.consistent(subgroups, own_verdicts)
        for large, one in zip(verdicts, subgroups, strict=True):
            for small, other in zip(verdicts, subgroups, strict=True):
                assert not (one.includes(other) and large == "kept" and small == "broken")
        for before, after, reason in zip(own_verdicts, verdicts, because, strict=True):
            assert after in (before, "cannot tell") or reason is not None


def test_what_is_known_of_one_subgroup_is_known_of_others() -> None:
    verdicts, because = _verdict.consistent([IDENTITY, HALF, BOTH, WHOLE], ["kept", "cannot tell", "kept", "broken"])
    assert verdicts == ["kept", "kept", "kept", "broken"]
    assert because == [None, 2, None, None]
    assert _verdict.consistent([IDENTITY, HALF, WHOLE], ["kept", "broken", "kept"])[0] == [
        "kept",
        "cannot tell",
        "cannot tell",
    ]


def test_intervals_cover_all_means_at_once() -> None:
    rng = np.random.default_rng(0)
    missed = 0
    for _ in range(150):
        gaps = rng.normal(0.3, 1, (1, 120)) + rng.normal(0, 1, (8, 120))
        means, half = _verdict.intervals(gaps, np.arange(120)[None] % 4, binary=False)
        missed += bool((np.abs(means - 0.3) > half).any())
    assert missed <= 15  # 5 % of 150, and what chance may add


def test_that_networks_are_few_widens_intervals_where_they_differ_much() -> None:
    rng = np.random.default_rng(0)
    parts, missed = np.arange(400)[None] % 4, 0
    for _ in range(150):
        networks = rng.normal(0, 0.6, (1, 4)) + rng.normal(0, 0.2, (8, 4))
        gaps = rng.normal(0.3, 1, (1, 400)) + rng.normal(0, 0.5, (8, 400)) + networks[:, parts[0]]
        means, half = _verdict.intervals(gaps, parts, binary=False)
        missed += bool((np.abs(means - 0.3) > half).any())
    assert missed <= 12  # 17 if their number is ignored


def test_equal_scores_leave_room_for_doubt_and_networks_that_differ_widen_intervals() -> None:
    _, half = _verdict.intervals(np.zeros((3, 100)), np.arange(100)[None] % 4, binary=True)
    assert (half > 0.01).all()
    gaps, parts = np.random.default_rng(0).normal(0, 1, (1, 400)), np.arange(400)[None] % 4
    _, usual = _verdict.intervals(gaps, parts, binary=False)
    _, wide = _verdict.intervals(gaps + np.where(parts == 0, 4.0, 0.0), parts, binary=False)
    assert wide[0] > 3 * usual[0]
    other = np.random.default_rng(1).permutation(400)[None] % 4  # of another round, whose networks do not differ
    _, both = _verdict.intervals(gaps + np.where(parts == 0, 4.0, 0.0), np.concatenate([parts, other]), binary=False)
    assert both[0] > 0.95 * wide[0]
    _, half = _verdict.intervals(np.concatenate([gaps, gaps * np.nan]), parts, binary=False)  # one diverged
    assert np.isclose(half[0], usual[0])
    assert np.isinf(half[1])


def test_signs_of_many_examples_are_not_all_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps, parts = np.random.default_rng(0).normal(0, 1, (3, 400)), np.arange(400)[None] % 4
    _, whole = _verdict.intervals(gaps, parts, binary=False)
    monkeypatch.setattr(_verdict, "AT_ONCE", 1000)
    _, some = _verdict.intervals(gaps, parts, binary=False)
    np.testing.assert_allclose(some, whole, rtol=0.05)


# -- from data to an answer --------------------------------------------------------------------------------------------


def test_parts_hold_every_example_once_and_all_classes() -> None:
    y = torch.tensor([0] * 20 + [1] * 12)
    parts = _parts.parts_of(y, "classes", 0)
    assert sorted(np.concatenate(parts).tolist()) == list(range(32))
    assert all(y[rows].bincount().tolist() == [5, 3] for rows in parts)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pscnn.experiments._discover._plan.STEPS", 60)
    monkeypatch.setattr("pscnn.experiments._discover._plan.SCOUT_STEPS", 4)
    monkeypatch.setattr("pscnn.experiments._discover._networks.RATES", (0.01,))


@pytest.mark.usefixtures("quick")
def test_the_way_from_arrays_to_an_answer_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, said = tmp_path / "out", list[str]()
    how: dict[str, Any] = {"minutes": 0.5, "out": out, "workers": 1, "accelerator": "cpu", "say": said.append}
    found = pscnn.discover(sky(160), **how)
    verdicts = {str(one.subgroup): one.verdict for one in found.statements}
    assert said[0].startswith("plan for 30 s with 1 process: ")
    assert found.learnt
    assert verdicts["C(2)"] == verdicts["SO(2)"] == verdicts["O(2)"] == "broken"
    assert verdicts["D(1) at 90°"] != "broken"
    assert found.guess == MIRROR
    assert [one.kind for one in found.networks] == ["kept", "p-scnn", "cnn", "augment"]
    assert found.complete
    assert found.kept is None or found.kept in [one.group for one in found.presence]

    moved = tmp_path / "elsewhere"
    out.rename(moved)
    again = Discovery.read(moved)
    assert (again.kept, again.statements, again.networks) == (found.kept, found.statements, found.networks)
    assert pscnn.training.load(moved / again.networks[0].run).task.files == found.about

    def never(*_: Any) -> None:
        raise AssertionError("this is finished")

    for name in ("train_part", "train_network", "find_poses"):
        monkeypatch.setattr(_engine, name, never)
    same = pscnn.discover(sky(160), **how | {"out": moved})
    assert same.statements == found.statements
    with pytest.raises(AssertionError, match="this is finished"):  # with other minutes it is begun anew
        pscnn.discover(sky(160), **how | {"out": moved, "minutes": 0.6})


def test_prepared_data_are_taken_by_name_and_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(work: _engine._Work, found: Discovery, *_: Any) -> Iterator[Discovery]:
        assert (work.folder / work.path.name).samefile(work.path)
        yield found

    monkeypatch.setattr(_engine, "_steps", asked)
    path = prepared_file(sky(), tmp_path / "first")
    how: dict[str, Any] = {"workers": 1, "say": lambda _: None}
    assert pscnn.discover(str(path), minutes=10, **how).folder == tmp_path / "first"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pscnn.discover(f"~/first/{path.name}", minutes=10.0, **how).folder == tmp_path / "first"
    assert len([*(tmp_path / "first" / "steps").iterdir()]) == 1  # the same question
    assert pscnn.discover(path, out=tmp_path / "second", **how).data == path.name
    with pytest.raises(ConfigError, match="is prepared already: size would have no effect"):
        pscnn.discover(path, size=20, **how)


def test_the_constant_answer_beside_masks_is_that_to_whole_images(tmp_path: Path) -> None:
    masks = np.zeros((20, 16, 16), np.uint8)
    masks[:, 6:10, 6:10] = 1
    path = prepared_file({"images": masks / 2 + 0.1, "masks": masks}, tmp_path)
    assert _networks.constant_score(path) == pytest.approx((1 - 16 / 256) / 2)


@pytest.mark.usefixtures("quick")
def test_an_interruption_gives_the_answer_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def interrupted(*arguments: Any) -> _parts.PartResult:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return _parts.train_part(*arguments)

    monkeypatch.setattr(_engine, "train_part", interrupted)
    found = pscnn.discover(sky(), minutes=0.2, out=tmp_path, workers=1, accelerator="cpu", say=lambda text: None)
    assert not found.complete
    assert found.trained == 1
    assert found.statements
    assert not Discovery.read(tmp_path).complete


def _end_at_once() -> None:
    os._exit(1)


def test_processes_that_are_killed_are_named(tmp_path: Path) -> None:
    job = _jobs.Job("nothing.json", _end_at_once, (), Path.read_text, lambda result, path: None)
    why = "a process ended before its work was done, perhaps for want of memory"
    with pytest.raises(RunError, match=why), _jobs.pool_of(2) as pool:
        list(_jobs.results([job], tmp_path, pool))


def test_questions_that_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"SO\(3\) acts on 3 axes, but the examples have 2"):
        pscnn.discover(sky(), group="SO(3)", out=tmp_path / "a")
    for name in ("foo", "C(0)"):
        with pytest.raises(ConfigError, match=r"foo|C\(N\)"):
            pscnn.discover(sky(), group=name, out=tmp_path / "c")
    with pytest.raises(ConfigError, match=r"minutes must be positive, and at most 1000000, got 0"):
        pscnn.discover(sky(), minutes=0, out=tmp_path / "b")
    with pytest.raises(RunError, match=r"is not the folder of a discovery: it has no discovery\.json"):
        Discovery.read(tmp_path)
    with pytest.raises(ConfigError, match=r"up to 128 elements are compared, but C\(100000\) has 100000: use"):
        pscnn.discover(sky(), group="C(100000)", out=tmp_path / "d")
    small = tmp_path / "small.npz"
    np.savez(small, images=np.random.default_rng(0).random((60, 6, 9)), labels=np.arange(60) % 2)
    with pytest.raises(ConfigError, match="no network is for a side of 6 pixels: give 8 or more"):
        pscnn.discover(small, group="D(2)", out=tmp_path / "e")
    (tmp_path / "discovery.json").write_text("{}")
    with pytest.raises(RunError, match=r"is damaged .*: run pscnn discover again"):
        Discovery.read(tmp_path)


def test_receptive_fields_are_those_of_kernels_and_strides() -> None:
    holds = own.About((56, 56), 1, ("a", "b"), "classes", 0.0, 1.0)
    model = models.build("ddmnist", "p-scnn", "SO(2)", size=56, width=0.1)
    model.train()
    model[0].eval()
    modes = [module.training for module in model.modules()]
    found = list(receptive_fields(model, holds).values())
    assert [module.training for module in model.modules()] == modes
    # 7, then 5, 5 (pooling, to stride 2), 3 (to 4), 5 (to 8), 3 (to 16), ...; resizing adds a pixel or two
    expected, seen, stride = [], 1, 1
    for kernel, step, has_density in ((7, 1, 1), (5, 1, 1), (5, 2, 0), (3, 2, 1), (5, 2, 0), (3, 2, 1)):
        seen += (kernel - 1) * stride
        stride *= step
        if has_density:
            expected.append(min(seen, 56))
    assert len(found) == 6
    for got, wanted in zip(found, expected, strict=False):
        assert 0 <= got - wanted <= 2 or got == 56


def test_statements_have_the_fields_that_are_promised() -> None:
    one = Statement(HALF, "kept", 0.0, -0.01, 0.01, 0.99)
    assert (one.layers, one.because) == ("last", None)


def test_masks_are_compared_pixel_by_pixel_and_move_with_their_examples() -> None:
    torch.manual_seed(0)
    subgroups = [IDENTITY, HALF]
    probe = Probe(O2(), subgroups, 1, (15, 15), 3, dense=True).eval()
    x = torch.randn(4, 1, 15, 15)
    masks = (x[:, 0] > 0.5).long()
    masks[:, :2] = -1
    places = torch.arange(0, 225, 4)
    rng = np.random.default_rng(0)
    said, wanted = probe.at_pixels(x, masks, places, probe.shifts(x, rng), rng)
    assert said.shape == (2, 4, 3, len(places))
    assert wanted.shape == (4, len(places))
    assert {*wanted.unique().tolist()} <= {-1, 0, 1}
    # A mirrored example has mirrored features: those of a pixel are those of the pixel that it came from.
    mirror = np.array([[-1.0, 0.0], [0.0, 1.0]])
    matrix = torch.as_tensor(probe.trunk.features.matrix(mirror)).float()
    everywhere = torch.arange(225)
    there = probe.trunk(x.flip(3), everywhere).unflatten(1, (15, 15)).flip(2).flatten(1, 2)
    torch.testing.assert_close(there, probe.trunk(x, everywhere) @ matrix.T, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["labels", "numbers", "vectors", "masks"])
def test_every_kind_of_target_is_scored_with_or_without_held_out_examples(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    images, _ = sky(24)
    shape = {"masks": images.shape, "vectors": (24, 2)}.get(kind, (24, 3))
    targets = rng.random(shape) if kind in ("numbers", "vectors") else rng.integers(0, 2, shape)
    own.prepare((images, targets), tmp_path / "data.npz", target=kind)
    for held in (True, False):
        found = _parts.train_part(tmp_path / "data.npz", "O(2)", [IDENTITY, HALF], 0, 0, 2, 60.0, 8, held)
        assert found.scores.shape == (2, len(found.rows))
        assert len(found.constant) == len(found.rows) == (5 if held else 0)
        assert np.isfinite(found.scores).all()


def test_rounds_that_are_trained_for_less_time_cost_no_symmetry_anything() -> None:
    """A mirror line that only the second round has, whose networks are all worse, is compared with their identity."""
    about = own.About((8, 8), 1, ("a", "b"), "classes", 0.0, 1.0, counts=(300, 100, 100))
    rng = np.random.default_rng(0)
    collected = []
    for subgroups, rate in (([IDENTITY, HALF], 0.98), ([IDENTITY, MIRROR], 0.9)):
        rows = rng.permutation(400)
        for part in range(_parts.PARTS):
            own_rows = rows[part :: _parts.PARTS]
            free = (rng.random(100) < rate).astype(float)
            other = free if subgroups[1] == MIRROR else (rng.random(100) < 0.5).astype(float)
            constant = np.tile([0.0, 1.0], 50)
            collected.append(
                (subgroups, _parts.PartResult(own_rows, np.stack([free, other]), constant, np.zeros(2), 9, 1.0))
            )
    found = _engine._compared(collected, about)
    assert found.kept == MIRROR
    assert {str(one.subgroup): one.verdict for one in found.statements} == {str(HALF): "broken", str(MIRROR): "kept"}


def test_a_larger_symmetry_that_is_unclear_leaves_the_answer_open() -> None:
    quarter = Subgroup(C(4))
    scores = np.zeros((3, 4))
    assert _verdict._largest([IDENTITY, MIRROR, quarter], ["kept", "kept", "broken"], scores) == MIRROR
    assert _verdict._largest([IDENTITY, MIRROR, quarter], ["kept", "kept", "cannot tell"], scores) is None


def test_dihedral_groups_are_candidates_themselves() -> None:
    for n in (3, 5, 8):
        found = _subgroups.candidates(D(n))
        assert Subgroup(D(n), 90.0) in found
        assert Subgroup(C(n)) in found


def test_runs_of_a_received_discovery_lie_in_its_folder(tmp_path: Path) -> None:
    about = own.About((8, 8), 1, ("a", "b"), "classes", 0.0, 1.0, counts=(3, 1, 1))
    for run in ("../outside", "/etc"):
        network = _networks.Network("cnn", run, (1.0,), 1.0, 1, 0.1, 1)
        Discovery(tmp_path, "data.npz", about, "O(2)", None, [], False, 0, 0.0, 0.0, 0, networks=[network]).save()
        with pytest.raises(RunError, match="is not in this folder"):
            Discovery.read(tmp_path)


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (None, "examples", "many"),
        (None, "free", [0.5]),
        (None, "complete", 1),
        (None, "group", None),
        ("statements", "cost", "cheap"),
        ("statements", "verdict", 3),
        ("networks", "validation", ["a"]),
        ("networks", "validation", []),
        ("networks", "run", 7),
        ("networks", "kind", "rnn"),
        (None, "group", "C(1000000)"),
        (None, "group", "SO(3)"),
        (None, "group", "five"),
        ("presence", "low", None),
        ("presence", "present", "yes"),
    ],
)
def test_a_received_discovery_that_lies_is_damaged(where: str | None, name: str, value: object, tmp_path: Path) -> None:
    about = own.About((8, 8), 1, ("a", "b"), "classes", 0.0, 1.0, counts=(3, 1, 1))
    Discovery(
        tmp_path, "data.npz", about, "O(2)", HALF, [Statement(HALF, "kept", 0.0, -0.1, 0.1, 1.0)], True, 9, 0.9, 0.5, 4,
        presence=[Presence(HALF, None, 0.5, 0.4, 0.6, 100, True)],
        networks=[_networks.Network("cnn", "own/cnn", (1.0,), 1.0, 1, 0.1, 1)],
    ).save()  # fmt: skip
    assert Discovery.read(tmp_path).examples == 9
    values = json.loads((tmp_path / "discovery.json").read_text())
    (values if where is None else values[where][0])[name] = value
    (tmp_path / "discovery.json").write_text(json.dumps(values))
    with pytest.raises(RunError, match=r"is damaged .*: run pscnn discover again"):
        Discovery.read(tmp_path)


def _again() -> str:
    return "done again"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("poses.json", '[{"statistic": "<script>"}]'),
        ("poses.json", "[" * 100_000),
        ("poses.json", "pipe"),
        ("network.json", json.dumps(vars(_networks.Network("cnn", "own/cnn", (1.0,), 1.0, 1, 0.1, 1)) | {"test": "x"})),
        ("network.json", "[]"),
        ("part.npz", {"scores": np.zeros((3, 4))}),
        ("part.npz", {"rows": np.full(4, 10**9)}),
        ("part.npz", {"rows": np.zeros(4)}),
        ("part.npz", {"steps": np.inf}),
        ("part.npz", {"losses": np.zeros(7)}),
        ("part.npz", {"losses": np.zeros(2).astype("U5")}),
        ("part.npz", {"constant": np.zeros(4).astype("U5")}),
        ("part.npz", {"rows": np.zeros(4, np.int64)}),
    ],
)
def test_steps_of_a_received_discovery_that_lie_are_done_again(name: str, content: Any, tmp_path: Path) -> None:
    path = tmp_path / name
    if content == "pipe":
        os.mkfifo(path)
    elif isinstance(content, str):
        path.write_text(content)
    else:
        right = _parts.PartResult(np.arange(4), np.zeros((2, 4)), np.zeros(4), np.zeros(2), 9, 0.1)
        np.savez(path, **vars(right) | content)

    def read_part(file: Path) -> _parts.PartResult:
        found = _parts.PartResult.read(file)
        found.check(2, 10)
        return found

    read = {"poses.json": _poses.read_poses, "network.json": _networks.read_row, "part.npz": read_part}[name]
    written: list[Any] = []
    job = _jobs.Job(name, _again, (), read, lambda result, file: written.append(result))
    assert [*_jobs.results([job], tmp_path, None)] == [(0, "done again")]
    assert written == ["done again"]


@pytest.mark.usefixtures("quick")
def test_networks_of_a_received_discovery_that_lie_are_trained_again(tmp_path: Path) -> None:
    how: dict[str, Any] = {"minutes": 0.1, "out": tmp_path, "workers": 1, "accelerator": "cpu", "say": print}
    found = pscnn.discover(sky(60), **how)
    (done,) = (tmp_path / "steps").iterdir()
    lies: list[dict[str, Any]] = [{"kind": "foo"}, {"validation": [1, 0]}, {"validation": []}, {"run": "../elsewhere"}]
    for changes in lies:
        (done / "discovery.json").unlink()
        (row,) = done.glob("network-cnn-*.json")
        row.write_text(json.dumps(json.loads(row.read_text()) | changes))
        again = pscnn.discover(sky(60), **how)
        assert [one.kind for one in again.networks] == [one.kind for one in found.networks]
        assert {one.run.split("/")[0] for one in again.networks} == {"own"}


@pytest.mark.usefixtures("quick")
def test_an_answer_is_there_until_another_one_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {"minutes": 0.1, "out": tmp_path, "workers": 1, "accelerator": "cpu", "say": print}
    pscnn.discover(sky(60), **how)
    before = (tmp_path / "discovery.json").read_text()
    with pytest.raises(RunError, match="no GPU is available"):
        pscnn.discover(sky(60), **how | {"minutes": 0.2, "accelerator": "gpu"})

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(_engine, "train_part", interrupted)
    assert not pscnn.discover(sky(60), **how | {"minutes": 0.2}).networks
    assert (tmp_path / "discovery.json").read_text() == before
    none = tmp_path / "none"
    pscnn.discover(sky(60), **how | {"out": none})
    assert not Discovery.read(none).networks  # better than nothing


def test_prepared_data_are_told_apart_by_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def asked(work: _engine._Work, found: Discovery, *_: Any) -> Iterator[Discovery]:
        seen.append(work.path)
        yield found

    monkeypatch.setattr(_engine, "_steps", asked)
    images, labels = sky(60)
    out, mine = tmp_path / "out", tmp_path / "data-mine.npz"
    for wanted in (labels, 1 - labels):
        own.prepare((images, wanted), mine)
        pscnn.discover(mine, out=out, workers=1, say=print)
    assert seen[0] != seen[1]
    assert [path.parent for path in seen] == [out, out]
    whole = seen[1].read_bytes()
    seen[1].write_bytes(whole[:-100])  # a copy that was damaged since
    pscnn.discover(mine, out=out, workers=1, minutes=3, say=print)
    assert seen[2] == seen[1]
    assert own.read_about(seen[1]).counts == own.read_about(mine).counts
    mine.write_bytes(whole[:-100])
    with pytest.raises(pscnn.PscnnError, match=r"data-mine\.npz"):
        pscnn.discover(mine, out=tmp_path / "new", workers=1, say=print)
    assert not (tmp_path / "new").exists()


def test_a_part_is_not_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".part.npz").symlink_to(victim)
    right = _parts.PartResult(np.arange(4), np.zeros((2, 4)), np.zeros(4), np.zeros(2), 9, 0.1)
    right.save(tmp_path / "part.npz")
    assert victim.read_text() == "mine"
    found = _parts.PartResult.read(tmp_path / "part.npz")
    found.check(2, 4)
    assert found.steps == 9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"minutes": "x"}, "minutes must be positive"),
        ({"minutes": float("inf")}, "minutes must be positive, and at most"),
        ({"workers": "x"}, "workers must be a whole number"),
        ({"workers": -1}, "workers must be a whole number"),
        ({"out": 5}, "out must be the path"),
        ({"group": 5}, "group must be a group or its name, got 5"),
        ({"sise": 28}, "discover knows no option 'sise'"),
        ({"size": "x"}, "size must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_discover_says_what_is_wrong_with_its_arguments(wrong: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(pscnn.PscnnError, match=message):
        pscnn.discover(sky(), **{"out": tmp_path / "out", **wrong})

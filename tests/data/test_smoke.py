"""The flow solver, its symmetry and conservation, and the data set made with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates
from typer.testing import CliRunner

from pscnn import FieldType
from pscnn.cli import app
from pscnn.data import DataError, _windows, smoke
from pscnn.groups import C

F64 = torch.float64


def test_no_divergence_and_walls_at_rest() -> None:
    states: list[smoke.Flow] = []
    smoke.simulate([(16, 5)], [(0.02, 0.1)], 20, size=32, dtype=F64, on_step=states.append)
    for flow in states:
        assert flow.divergence().abs().max() < 1e-12
        assert not flow.u[:, :, [0, -1]].any()
        assert not flow.v[:, [0, -1]].any()
    assert states[-1].v.abs().max() > 1


def test_smoke_flows_in_at_the_right_rate_and_stays_positive() -> None:
    flow = smoke.simulate([(16, 16)], [(0, 0)], 5, size=32, dtype=F64)
    inflow = sum((x - 15.5) ** 2 + (y - 15.5) ** 2 <= 25 for x in range(32) for y in range(32))
    assert flow.smoke.sum() == pytest.approx(5 * inflow)  # nothing moves without a force
    assert not flow.u.any()
    moving = smoke.simulate([(16, 5)], [(0, 0.1)], 30, size=32, dtype=F64)
    assert moving.smoke.min() >= 0


def test_turned_settings_give_turned_flows() -> None:
    forces = [(0, 0.1), (-0.1, 0), (0, -0.1), (0.1, 0)]
    flow = smoke.simulate(smoke.INFLOWS, forces, 25, dtype=F64)
    for j in range(4):  # from side to side by 90° from x to y; rows run along y, hence the minus
        torch.testing.assert_close(torch.rot90(flow.smoke[0], -j), flow.smoke[j], atol=1e-8, rtol=0)
    # A quarter turn takes the y-component to minus the x-component.
    torch.testing.assert_close(torch.rot90(-flow.v[0], -1), flow.u[1], atol=1e-8, rtol=0)
    torch.testing.assert_close(torch.rot90(flow.u[0], -1), flow.v[1], atol=1e-8, rtol=0)


def turned(frames: torch.Tensor) -> torch.Tensor:
    """Vector fields (…, 2, H, W), rows counted downwards, turned by 90°: pixels move, and components with them."""
    x, y = frames.rot90(1, (-2, -1)).unbind(-3)
    return torch.stack([-y, x], -3)


def states(side: int, asymmetry: str, strength: float, *, faces: bool = False) -> torch.Tensor:
    """What a side does with the push of a task, (steps, 2, H, W), rows counted downwards."""
    frames: list[torch.Tensor] = []

    def keep(flow: smoke.Flow) -> None:
        frames.append((flow.faces() if faces else flow.centres())[0].flip(1))

    inflow, force = smoke.source(9, asymmetry, strength, side)
    smoke.simulate([inflow], [force], 14, size=smoke.grid(asymmetry, strength), dtype=F64, on_step=keep)
    return torch.stack(frames)


@pytest.mark.parametrize("side", range(4))
def test_without_asymmetry_a_turned_flow_is_that_of_the_next_side(side: int) -> None:
    here, there = (states(which, "push", 0.0) for which in (side, (side + 1) % 4))
    torch.testing.assert_close(turned(here), there, atol=1e-9, rtol=0)


def test_turned_velocities_on_faces_are_not_those_of_the_next_side() -> None:
    here, there = (states(which, "push", 0.0, faces=True) for which in (0, 1))
    assert (turned(here) - there).abs().max() > 0.01 * there.abs().max()


@pytest.mark.parametrize("asymmetry", ["push", "gravity"])
def test_the_stronger_an_asymmetry_the_more_it_tells_sides_apart(asymmetry: str) -> None:
    found = []
    for strength in (0.0, *smoke.STRENGTHS):
        below, above = (states(which, asymmetry, strength) for which in (0, 2))
        found.append((turned(turned(above)) - below).norm().item())
    assert found[0] < 1e-8
    assert found[1] > 1
    assert found == sorted(found)


def test_in_a_box_that_is_not_square_opposite_sides_are_alike_and_others_are_not() -> None:
    below, right, above = (states(which, "box", 0.5) for which in range(3))
    assert below.shape[-2:] == (42, 64)
    torch.testing.assert_close(turned(turned(above)), below, atol=1e-9, rtol=0)
    around = turned(below[..., 11 : 11 + 42])  # its middle, as wide as the box is high
    torch.testing.assert_close(around[:1], right[:1, ..., -42:], atol=1e-2, rtol=0)  # at first no wall is felt
    assert (around - right[..., -42:])[-1].abs().max() > 0.05 * right[-1].abs().max()


def test_a_turned_box_gives_turned_flows() -> None:
    kept: list[torch.Tensor] = []
    for size, inflow, force in (((20, 32), (16.0, 5.0), (0.0, 0.1)), ((32, 20), (15.0, 16.0), (-0.1, 0.0))):
        flow = smoke.simulate([inflow], [force], 15, size=size, dtype=F64)
        assert flow.divergence().abs().max() < 1e-9
        kept.append(flow.centres()[0].flip(1))
    torch.testing.assert_close(turned(kept[0]), kept[1], atol=1e-9, rtol=0)


def test_mirrored_settings_give_mirrored_flows() -> None:
    flow = smoke.simulate([(10, 8), (22, 8)], [(0.03, 0.1), (-0.03, 0.1)], 15, size=32, dtype=F64)
    torch.testing.assert_close(flow.smoke[0].flip(1), flow.smoke[1], atol=1e-9, rtol=0)
    torch.testing.assert_close(-flow.u[0].flip(1), flow.u[1], atol=1e-9, rtol=0)


def test_the_pressure_takes_nothing_from_a_flow_without_divergence() -> None:
    random = torch.Generator().manual_seed(0)
    u, v = (torch.randn(1, *s, dtype=F64, generator=random) for s in ((16, 17), (17, 16)))
    u[:, :, [0, -1]], v[:, [0, -1]] = 0, 0
    once = smoke._project(smoke.Flow(torch.zeros(1, 16, 16, dtype=F64), u, v))
    twice = smoke._project(once)
    torch.testing.assert_close(twice.u, once.u)
    # It is the nearest such flow: what is taken off is orthogonal to it.
    taken = ((u - once.u) * once.u).sum() + ((v - once.v) * once.v).sum()
    assert abs(taken) < 1e-10


@pytest.mark.parametrize(("zero_outside", "mode"), [(True, "constant"), (False, "nearest")])
def test_sampling_is_scipys(zero_outside: bool, mode: str) -> None:
    random = np.random.default_rng(0)
    field = random.normal(size=(7, 9))
    x, y = random.uniform(-1 if zero_outside else -3, 10, 50), random.uniform(0.0, 6.0, 50)
    if zero_outside:  # scipy's constant mode drops to zero at once; inside they agree
        x = x.clip(0, 8)
    expected = map_coordinates(field, [y, x], order=1, mode=mode)
    args = (torch.as_tensor(t)[None, None] for t in (x, y))
    found = smoke._sample(torch.as_tensor(field)[None], *args, zero_outside=zero_outside)
    np.testing.assert_allclose(found[0, 0], expected, atol=1e-12)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four short simulations instead of 36 long ones."""
    monkeypatch.setattr(smoke, "STEPS", 31)
    monkeypatch.setattr(smoke, "TASKS", (1, 2, 3, 4))
    monkeypatch.setattr(smoke, "TRAIN_TASKS", (1, 2, 4))
    monkeypatch.setattr(smoke, "DOMAIN_TASKS", (3,))
    starts = {"train": range(8), "future": range(8, 12), "domain": range(5)}
    monkeypatch.setattr(_windows, "STARTS", starts)
    monkeypatch.setattr(smoke, "_AT_ONCE", 2)


@pytest.mark.usefixtures("small")
def test_preparing_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        smoke.prepare(tmp_path, on_step=stop)
    first = sorted((tmp_path / "smoke").iterdir())
    assert [path.name for path in first] == ["velocity-01.npy", "velocity-02.npy"]
    times = [path.stat().st_mtime_ns for path in first]
    with pytest.raises(DataError, match=r"velocity-03.npy is missing: .* pscnn data prepare smoke"):
        smoke.load(tmp_path)
    done = CliRunner().invoke(app, ["data", "prepare", "smoke", "--data-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert [path.stat().st_mtime_ns for path in first] == times
    splits = smoke.load(tmp_path)
    assert {name: len(windows) for name, windows in splits.items()} == {"train": 24, "future": 12, "domain": 5}


@pytest.mark.usefixtures("small")
def test_windows_are_the_frames_of_the_files(tmp_path: Path) -> None:
    folder = smoke.prepare(tmp_path)
    velocity = np.load(folder / "velocity-02.npy")
    assert velocity.shape == (30, 2, 64, 64)
    past, future = smoke.load(tmp_path)["future"].frames(torch.tensor([0, 4 + 1]), steps=6)  # second: task 2, t = 9
    assert past.shape == (2, 20, 64, 64)
    assert future.shape == (2, 6, 2, 64, 64)
    np.testing.assert_array_equal(past[1], velocity[11:21, :, ::-1].reshape(20, 64, 64))
    np.testing.assert_array_equal(future[1], velocity[21:27, :, ::-1])


def test_flows_turn_as_the_librarys_vector_fields_do() -> None:
    """Sides that are turned copies of each other give frames that the group's own action takes to each other."""
    frames: list[torch.Tensor] = []

    def keep(flow: smoke.Flow) -> None:
        frames.append(flow.centres().flip(2))

    smoke.simulate(smoke.INFLOWS, [(0, 0.1), (-0.1, 0), (0, -0.1), (0.1, 0)], 12, dtype=F64, on_step=keep)
    group = C(4)
    fields = FieldType(group, [group.vector])
    quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    for side in range(4):
        turned = fields.transform(frames[-1][side : side + 1], quarter)
        torch.testing.assert_close(turned[0], frames[-1][(side + 1) % 4], atol=1e-9, rtol=0)


@pytest.mark.usefixtures("small")
def test_damaged_files_are_named(tmp_path: Path) -> None:
    folder = smoke.prepare(tmp_path)
    np.save(folder / "velocity-01.npy", np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"velocity-01.npy must hold float32 of shape .* got float64 \(3, 2\)"):
        smoke.load(tmp_path)
    (folder / "velocity-01.npy").write_bytes(b"\x93NUMPY half")
    with pytest.raises(DataError, match=r"velocity-01.npy cannot be read"):
        smoke.load(tmp_path)


def test_the_splits_are_those_of_the_protocol() -> None:
    frames = (torch.zeros(len(tasks), 1, 2, 1, 1) for tasks in (smoke.TRAIN_TASKS, smoke.DOMAIN_TASKS))
    counts = {name: len(windows) for name, windows in _windows.splits(*frames).items()}
    assert counts == {"train": 4000, "validation": 1000, "future": 1250, "domain": 1000}
    assert not set(smoke.TRAIN_TASKS) & set(smoke.DOMAIN_TASKS)

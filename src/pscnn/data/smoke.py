"""Smoke that rises in a closed box, from four sides: flows whose rotation symmetry is real but not exact.

The simulations of the relaxed-equivariance literature, made here instead of downloaded: 36 runs on a 64×64 grid, in
which smoke flows in at one of four places and is pushed towards the opposite side, with a strength that differs from
run to run and, on one side, by a tenth. They are chaotic: another solver's runs agree for the first steps only, so this
is a data set of its own, made by the same rules.

Each step of length 1: the smoke is carried along (MacCormack, limited) and 1 is added at the inflow; the velocity is
carried along by itself (semi-Lagrangian) and pushed by the smoke; its divergence is removed, exactly, by a cosine
transform.

Variants have a known asymmetry, of any strength: at none, the laws of the flow are the same for all four sides.
"""

import io
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pscnn._files import make_folder
from pscnn.data._folder import DataError, check_known, data_folder, save
from pscnn.data._windows import Windows, splits

__all__ = [
    "ASYMMETRIES",
    "DOMAIN_TASKS",
    "SIZE",
    "STEPS",
    "TASKS",
    "TRAIN_TASKS",
    "VARIANTS",
    "Flow",
    "grid",
    "load",
    "prepare",
    "simulate",
    "source",
]

SIZE = 64
STEPS = 310
"""Simulated; the first is not kept."""
TASKS = tuple(range(1, 37))
DOMAIN_TASKS: tuple[int, ...] = (5, 6, 10, 13, 14, 15, 18, 20, 21, 24)
TRAIN_TASKS = tuple(task for task in TASKS if task not in (*DOMAIN_TASKS, 32))  # 32 is in no split
INFLOWS = ((32.0, 5.0), (59.0, 32.0), (32.0, 59.0), (5.0, 32.0))
BUOYANCIES = ((0.0, 0.01), (-0.01, 0.0), (0.0, -0.011), (0.01, 0.0))
"""Of the sides, per unit of smoke and number of the task."""
ASYMMETRIES = ("published", "push", "gravity", "box")
"""What tells the sides apart. As published, one pushes a tenth harder, and velocities are those on the left and the
lower face of a cell, which no turn takes to each other. In all others velocities are at the centres of cells, and the
strength says how much harder one side pushes; how large a force that acts on all smoke downwards is, as a share of the
mean push; or how much wider than high the box is."""
STRENGTHS = (0.1, 0.5, 2.0)
VARIANTS = (("push", 0.0), *((kind, strength) for kind in ASYMMETRIES[1:] for strength in STRENGTHS))
"""What ``pscnn reproduce asymmetry`` compares. Without strength all are the same."""
MEAN_PUSH = 0.01 * sum(TASKS) / len(TASKS)
RADIUS = 5.0
_AT_ONCE = 12


class Flow(NamedTuple):
    """The state of B simulations.

    Attributes:
        smoke: At the centres of cells, (B, N, N), rows along y.
        u: The x-component of the velocity on the faces between cells in x, (B, N, N + 1); zero at the walls.
        v: The y-component on the faces in y, (B, N + 1, N).
    """

    smoke: Tensor
    u: Tensor
    v: Tensor

    def divergence(self) -> Tensor:
        """What flows out of every cell, (B, N, N)."""
        return self.u.diff(dim=2) + self.v.diff(dim=1)

    def faces(self) -> Tensor:
        """Velocities on the left and the lower face of every cell, (B, 2, N, N)."""
        return torch.stack([self.u[:, :, :-1], self.v[:, :-1]], 1)

    def centres(self) -> Tensor:
        """Velocities at the centres of cells, (B, 2, N, N), which a turn takes to each other."""
        return torch.stack([(self.u[:, :, 1:] + self.u[:, :, :-1]) / 2, (self.v[:, 1:] + self.v[:, :-1]) / 2], 1)


def simulate(
    inflows: Sequence[tuple[float, float]],
    buoyancies: Sequence[tuple[float, float]],
    steps: int = STEPS,
    *,
    size: int | tuple[int, int] = SIZE,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    on_step: Callable[[Flow], None] | None = None,
) -> Flow:
    """Let smoke rise from rest, all simulations as one batch.

    Args:
        inflows: The centre (x, y) of each simulation's inflow, in cells.
        buoyancies: The force (x, y) per unit of smoke.
        steps: How many, each of length 1.
        size: Cells along each side, or along y and along x.
        device: Where.
        dtype: In which precision.
        on_step: Called after every step.

    Returns:
        The last state.

    Example:
        >>> flow = simulate([(32, 5)], [(0, 0.05)], steps=3)
        >>> bool(flow.divergence().abs().max() < 1e-5)
        True
    """
    options: dict[str, Any] = {"device": device, "dtype": dtype}
    rows, columns = (size, size) if isinstance(size, int) else size
    x, y = (torch.arange(count, **options) + 0.5 for count in (columns, rows))
    force = torch.tensor(buoyancies, **options)
    middle = torch.tensor(inflows, **options)
    distance = (x - middle[:, :1])[:, None] ** 2 + (y - middle[:, 1:])[:, :, None] ** 2
    inflow = (distance <= RADIUS**2).to(dtype)
    count = len(inflow)
    flow = Flow(*(torch.zeros(count, rows + a, columns + b, **options) for a, b in ((0, 0), (0, 1), (1, 0))))
    for _ in range(steps):
        smoke = _carry_smoke(flow, x, y) + inflow
        u, v = _carry_velocity(flow, x, y)
        u[:, :, 1:-1] += force[:, 0, None, None] * (smoke[:, :, 1:] + smoke[:, :, :-1]) / 2
        v[:, 1:-1] += force[:, 1, None, None] * (smoke[:, 1:] + smoke[:, :-1]) / 2
        flow = _project(Flow(smoke, u, v))
        if on_step is not None:
            on_step(flow)
    return flow


def _corners(field: Tensor, x: Tensor, y: Tensor, zero_outside: bool) -> tuple[Tensor, Tensor]:
    """Values at the four grid points around positions in index units, (4, B, …), and their bilinear weights."""
    rows, columns = field.shape[1:]
    left, low = x.floor(), y.floor()
    right_share, high_share = x - left, y - low
    flat = field.flatten(1)
    values, weights = [], []
    for dy in (0, 1):
        for dx in (0, 1):
            i, j = (left + dx).long(), (low + dy).long()
            inside = (i >= 0) & (i < columns) & (j >= 0) & (j < rows)
            place = j.clamp(0, rows - 1) * columns + i.clamp(0, columns - 1)
            value = flat.gather(1, place.flatten(1)).view_as(x)
            values.append(torch.where(inside, value, 0) if zero_outside else value)
            weights.append((right_share if dx else 1 - right_share) * (high_share if dy else 1 - high_share))
    return torch.stack(values), torch.stack(weights)


def _sample(field: Tensor, x: Tensor, y: Tensor, *, zero_outside: bool = True) -> Tensor:
    values, weights = _corners(field, x, y, zero_outside)
    return (values * weights).sum(0)


def _carry_smoke(flow: Flow, x: Tensor, y: Tensor) -> Tensor:
    """MacCormack: one step back and one forth tells the error of a step, half of which is taken off."""
    speed_x = (flow.u[:, :, 1:] + flow.u[:, :, :-1]) / 2
    speed_y = (flow.v[:, 1:] + flow.v[:, :-1]) / 2
    here_x, here_y = (x - 0.5)[None, None], (y - 0.5)[None, :, None]
    values, weights = _corners(flow.smoke, here_x - speed_x, here_y - speed_y, False)
    back = (values * weights).sum(0)
    forth = _sample(back, here_x + speed_x, here_y + speed_y, zero_outside=False)
    # No value that was not among those it came from.
    return (back + (flow.smoke - forth) / 2).clamp(values.amin(0), values.amax(0))


def _carry_velocity(flow: Flow, centres_x: Tensor, centres_y: Tensor) -> tuple[Tensor, Tensor]:
    """Semi-Lagrangian: every face takes the velocity from where the flow through it comes; the walls stay at rest."""
    faces_x, faces_y = (torch.arange(len(centres) + 1).to(centres) for centres in (centres_x, centres_y))
    x, y = faces_x.expand(flow.u.shape), centres_y[:, None].expand(flow.u.shape)
    u = _sample(flow.u, x - flow.u, y - _sample(flow.v, x - 0.5, y) - 0.5)
    x, y = centres_x.expand(flow.v.shape), faces_y[:, None].expand(flow.v.shape)
    v = _sample(flow.v, x - _sample(flow.u, x, y - 0.5) - 0.5, y - flow.v)
    u[..., [0, -1]] = 0
    v[:, [0, -1]] = 0
    return u, v


@cache
def _cosines(size: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The orthonormal cosine transform, rows by frequency: what diagonalises the Laplacian between walls. With it."""
    k, n = torch.arange(size, dtype=torch.float64)[:, None], torch.arange(size, dtype=torch.float64)
    matrix = torch.cos(torch.pi * k * (n + 0.5) / size) * (2 / size) ** 0.5
    matrix[0] /= 2**0.5
    wave = 2 * torch.cos(torch.pi * n / size) - 2
    return matrix.to(device=device, dtype=dtype), wave


def _project(flow: Flow) -> Flow:
    """Take off the gradient of the pressure whose Laplacian is the divergence."""
    divergence = flow.divergence()
    (along_y, wave_y), (along_x, wave_x) = (
        _cosines(n, divergence.device, divergence.dtype) for n in flow.smoke.shape[1:]
    )
    laplacian = (wave_y[:, None] + wave_x).to(divergence)
    laplacian[0, 0] = 1  # the constant, which no gradient sees
    pressure = along_y.T @ ((along_y @ divergence @ along_x.T) / laplacian) @ along_x
    u, v = flow.u.clone(), flow.v.clone()
    u[:, :, 1:-1] -= pressure.diff(dim=2)
    v[:, 1:-1] -= pressure.diff(dim=1)
    return Flow(flow.smoke, u, v)


# -- the data set -----------------------------------------------------------------------------------------------------


def grid(asymmetry: str = "published", strength: float = 0.0) -> tuple[int, int]:
    """Height and width of the box in cells, even numbers, so that inflows look alike at all sides.

    Example:
        >>> grid("box", 0.5)
        (42, 64)
    """
    return (2 * round(SIZE / 2 / (1 + strength)), SIZE) if asymmetry == "box" else (SIZE, SIZE)


def source(
    task: int, asymmetry: str = "published", strength: float = 0.0, side: int | None = None
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where the smoke of a task flows in, and the force per unit of it, (x, y) each.

    The push grows with the number of the task, and tasks take turns at the sides. So it is not the same at any two
    sides, but its law is: without asymmetry, a side that is turned by 90° becomes the next one with the same push.
    (With equal pushes, flows to be tested on would be turned copies of those trained on.)

    Args:
        task: A number from 1.
        asymmetry: One of ``ASYMMETRIES``.
        strength: Of the asymmetry.
        side: Below, right, above or left; by default the task's.

    Example:
        >>> source(7), source(7, "push", 2.0)
        (((32.0, 59.0), (0.0, -0.077)), ((32.0, 59.0), (0.0, -0.21)))
    """
    height, width = grid(asymmetry, strength)
    away = INFLOWS[0][1]  # from the wall
    inflows = ((width / 2, away), (width - away, height / 2), (width / 2, height - away), (away, height / 2))
    pushes = list(BUOYANCIES)
    if asymmetry != "published":
        pushes[2] = 0.0, -0.01 * (1 + strength * (asymmetry == "push"))
    down = MEAN_PUSH * strength if asymmetry == "gravity" else 0.0
    which = (task - 1) % 4 if side is None else side
    return inflows[which], (task * pushes[which][0], task * pushes[which][1] - down)


def _place(folder: str | Path | None, asymmetry: str, strength: float) -> Path:
    check_known("asymmetry", asymmetry, ASYMMETRIES)
    if asymmetry == "published":
        return data_folder(folder) / "smoke"
    return data_folder(folder) / (f"smoke-{asymmetry}-{strength:g}" if strength else "smoke-symmetric")


def _file(folder: Path, task: int) -> Path:
    return folder / f"velocity-{task:02d}.npy"


def prepare(
    folder: str | Path | None = None,
    asymmetry: str = "published",
    strength: float = 0.0,
    *,
    device: torch.device | str = "cpu",
    on_step: Callable[[int, int], None] | None = None,
) -> Path:
    """Simulate what is not yet in the data folder: 36 files of 309 velocity fields, 10 MB each.

    Args:
        folder: Data folder; see ``pscnn.data.data_folder``.
        asymmetry: One of ``ASYMMETRIES``.
        strength: Of the asymmetry.
        device: Where to simulate.
        on_step: Called with the number of steps done and of all steps to do.

    Returns:
        The folder with the files.
    """
    place = _place(folder, asymmetry, strength)
    make_folder(place, "--data-dir", DataError)
    missing = [task for task in TASKS if not _file(place, task).exists()]
    done, total = 0, STEPS * -(-len(missing) // _AT_ONCE)
    for start in range(0, len(missing), _AT_ONCE):
        tasks = missing[start : start + _AT_ONCE]
        frames: list[Tensor] = []

        def keep(flow: Flow, frames: list[Tensor] = frames) -> None:
            nonlocal done
            frames.append((flow.faces() if asymmetry == "published" else flow.centres()).cpu())
            done += 1
            if on_step is not None:
                on_step(done, total)

        inflows, forces = zip(*(source(task, asymmetry, strength) for task in tasks), strict=True)
        simulate(inflows, forces, STEPS, size=grid(asymmetry, strength), device=device, on_step=keep)
        velocity = torch.stack(frames[1:], 1).numpy()  # (tasks, time, 2, y, x)
        for task, own in zip(tasks, velocity, strict=True):
            content = io.BytesIO()
            np.save(content, own)
            save(_file(place, task), content, "What was simulated before it is kept")
    return place


def load(folder: str | Path | None = None, asymmetry: str = "published", strength: float = 0.0) -> dict[str, Windows]:
    """The splits "train", "validation", "future" (later times) and "domain" (other strengths and sides).

    Args:
        folder: Data folder; see ``pscnn.data.data_folder``.
        asymmetry: One of ``ASYMMETRIES``.
        strength: Of the asymmetry.
    """
    place, shape = _place(folder, asymmetry, strength), (STEPS - 1, 2, *grid(asymmetry, strength))
    options = "" if asymmetry == "published" else f"--asymmetry {asymmetry} --strength {strength:g} "
    command = f"pscnn data prepare smoke {options}--data-dir {place.parent}"
    frames = {}
    for task in sorted(TRAIN_TASKS + DOMAIN_TASKS):
        path = _file(place, task)
        if not path.exists():
            raise DataError(f"{path} is missing: make the data set with: {command}")
        try:
            found = np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError, MemoryError) as error:
            raise DataError(f"{path} cannot be read ({error}): delete it and run: {command}") from None
        if found.shape != shape or found.dtype != np.float32:
            raise DataError(
                f"{path} must hold float32 of shape {shape}, got {found.dtype} {found.shape}: "
                f"delete it and run: {command}"
            )
        frames[task] = torch.from_numpy(found).flip(2)  # y points up, but rows of images are counted downwards
    seen, unseen = (torch.stack([frames[task] for task in tasks]) for tasks in (TRAIN_TASKS, DOMAIN_TASKS))
    return splits(seen, unseen)

"""Our smoke beside PhiFlow's (3.4, to be installed for this): how far the two are apart after each step.

    python benchmarks/smoke_phiflow.py --task 9 --steps 40

Both in double precision, PhiFlow's pressure to a relative tolerance of 1e-5 and of 1e-12.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from phi import flow as phi

from pscnn.data import smoke


def theirs(task: int, steps: int, tolerance: float) -> np.ndarray:
    """Velocities of PhiFlow, (steps, 2, 64, 64)."""
    phi.math.set_global_precision(64)
    side = (task - 1) % 4
    box: Any = {"x": smoke.SIZE, "y": smoke.SIZE, "bounds": phi.Box(x=smoke.SIZE, y=smoke.SIZE)}
    density = phi.CenteredGrid(0.0, phi.extrapolation.BOUNDARY, **box)
    velocity = phi.StaggeredGrid(0.0, phi.extrapolation.ZERO, **box)
    x, y = smoke.INFLOWS[side]
    ball = phi.Sphere(x=x, y=y, radius=smoke.RADIUS)
    inflow = phi.CenteredGrid(ball, phi.extrapolation.BOUNDARY, **box)
    force = tuple(task * b for b in smoke.BUOYANCIES[side])
    solve = phi.Solve("CG", rel_tol=tolerance, abs_tol=0, rank_deficiency=0)
    frames = []
    for _ in range(steps):
        density = phi.advect.mac_cormack(density, velocity, 1) + inflow
        push = phi.resample(density * force, to=velocity)
        velocity = phi.advect.semi_lagrangian(velocity, velocity, 1) + push
        velocity, _ = phi.fluid.make_incompressible(velocity, (), solve)
        tensor = velocity.staggered_tensor().numpy("vector,y,x")
        frames.append(tensor[:, : smoke.SIZE, : smoke.SIZE])
    return np.stack(frames)


def ours(task: int, steps: int) -> np.ndarray:
    """Velocities of this library, (steps, 2, 64, 64)."""
    side = (task - 1) % 4
    x, y = smoke.BUOYANCIES[side]
    frames: list[torch.Tensor] = []
    smoke.simulate(
        [smoke.INFLOWS[side]],
        [(task * x, task * y)],
        steps,
        dtype=torch.float64,
        on_step=lambda f: frames.append(torch.stack([f.u[0, :, :-1], f.v[0, :-1]])),
    )
    return torch.stack(frames).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", type=int, default=9)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    started = time.perf_counter()
    own = ours(arguments.task, arguments.steps)
    print(f"ours: {time.perf_counter() - started:.1f} s")
    found = {}
    for tolerance in (1e-5, 1e-12):
        started = time.perf_counter()
        found[tolerance] = theirs(arguments.task, arguments.steps, tolerance)
        print(f"PhiFlow, tolerance {tolerance}: {time.perf_counter() - started:.1f} s")
    print("step   largest speed   largest difference: to 1e-5   to 1e-12   between the two")
    for step in sorted({1, 5, 10, 20, 40, 60, 80, arguments.steps}):
        if step > arguments.steps:
            continue
        a, b, c = own[step - 1], found[1e-5][step - 1], found[1e-12][step - 1]
        gaps = "   ".join(f"{np.abs(d).max():10.2e}" for d in (a - b, a - c, b - c))
        print(f"{step:4d}   {np.abs(a).max():13.3f}   {gaps}")


if __name__ == "__main__":
    main()

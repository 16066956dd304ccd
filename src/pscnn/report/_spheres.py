"""Pictures of densities on SO(3) and O(3): maps of the rotation axes, one per rotation angle (paper, Fig. 10)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from pscnn._types import Array
from pscnn.groups import O3, SO3, axis_angle
from pscnn.likelihood import Likelihood
from pscnn.report._style import Figure, panels

ANGLES = (0, 45, 90, 135, 180)


@torch.no_grad()
def sphere_maps(likelihood: Likelihood, points: int = 60) -> tuple[Array, Array, dict[str, list[Array]]]:
    """λ over the axes' longitudes and latitudes, for each angle of ``ANGLES``, for each parity that the group has.

    Returns:
        Longitudes (2·points,) and latitudes (points,) in radians; maps (points, 2·points) by "rotations" and, for O(3),
        "with inversion".
    """
    group = likelihood.group
    if group not in (SO3(), O3()):
        raise ValueError(f"maps of axes exist for SO(3) and O(3), not for {group.name}")
    longitude = np.linspace(-np.pi, np.pi, 2 * points)
    latitude = np.linspace(-np.pi / 2, np.pi / 2, points)
    axes = _axes(longitude, latitude)
    signs = {"rotations": 1.0} | ({"with inversion": -1.0} if group == O3() else {})
    maps: dict[str, list[Array]] = {name: [] for name in signs}
    for name, sign in signs.items():
        for angle in np.radians(ANGLES):
            values = likelihood.density(sign * axis_angle(axes.reshape(-1, 3), angle))
            maps[name].append(values.cpu().double().numpy().reshape(axes.shape[:2]))
    return longitude, latitude, maps


def _axes(longitude: Array, latitude: Array) -> Array:
    """Points of the sphere, (latitudes, longitudes, 3)."""
    across, up = np.meshgrid(longitude, latitude)
    return np.stack([np.cos(up) * np.cos(across), np.cos(up) * np.sin(across), np.sin(up)], -1)


def sphere_figure(densities: Likelihood | Mapping[str, Likelihood]) -> Figure:
    """Equal-area maps of the rotation axes at five rotation angles; both parities for O(3).

    The centre of a map is the x axis, the right quarter y, the top z. A triangle marks the highest density of all maps
    in a row, a cross the lowest.

    Args:
        densities: One, or several by name, one below the other.
    """
    several = {"": densities} if isinstance(densities, Likelihood) else densities
    maps: dict[str, Array] = {}
    for name, likelihood in several.items():
        longitude, latitude, own = sphere_maps(likelihood)
        maps |= {f"{name}\n{kind}".strip(): np.stack(values) for kind, values in own.items()}
    lowest, highest = min(m.min() for m in maps.values()), max(m.max() for m in maps.values())
    if highest - lowest < 1e-3:  # uniform: do not colour rounding errors
        lowest, highest = 0.5, 1.5
    shape, kind = (len(maps), len(ANGLES)), {"projection": "mollweide"}
    figure, grid = panels("Drawing densities", 7, 0.85 * len(maps) + 0.35, *shape, subplot_kw=kind)
    style: dict[str, Any] = {"cmap": "viridis", "vmin": lowest, "vmax": highest, "shading": "auto", "rasterized": True}
    for row, (name, found) in zip(grid, maps.items(), strict=True):
        for axis, values in zip(row, found, strict=True):
            mesh = axis.pcolormesh(longitude, latitude, values, **style)
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(name, fontsize=8)
        if np.ptp(found) > 1e-3:
            for place, marker, colour in ((found.argmax(), "^", "black"), (found.argmin(), "x", "white")):
                which, up, across = np.unravel_index(place, found.shape)
                has_axis = np.ptp(found[which]) > 1e-6  # not at 0°
                where = (longitude[across], latitude[up]) if has_axis else (0.0, 0.0)
                row[which].plot(*where, marker, color=colour, ms=5)
    for axis, angle in zip(grid[0], ANGLES, strict=True):
        axis.set_title(f"{angle}°", fontsize=8)
    bar = figure.colorbar(mesh, ax=grid, shrink=0.8, pad=0.01)
    bar.set_label("density λ", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


@torch.no_grad()
def globe(likelihood: Likelihood, highest: float, points: int = 18, angles: int = 13) -> dict[str, Any]:
    """λ over the axes for angles from 0° to 180°, as bytes: 255 is the highest density.

    Returns:
        The shape (parities, angles, latitudes, longitudes), longitudes at the middle of equal parts from −180° on,
        latitudes likewise from −90° on, and the bytes in base64.
    """
    longitude = np.pi * ((np.arange(2 * points) + 0.5) / points - 1)
    latitude = np.pi * ((np.arange(points) + 0.5) / points - 0.5)
    axes = _axes(longitude, latitude).reshape(-1, 3)
    signs = (1.0, -1.0) if likelihood.group == O3() else (1.0,)
    turns = np.linspace(0, np.pi, angles)
    found = [likelihood.density(sign * axis_angle(axes, turn)).cpu().double() for sign in signs for turn in turns]
    shares = np.nan_to_num(torch.stack(found).numpy() / highest).clip(0, 1)
    data = base64.b64encode(np.rint(255 * shares).astype(np.uint8).tobytes()).decode()
    return {"shape": [len(signs), angles, points, 2 * points], "bytes": data}

"""Pictures of densities on SO(3) and O(3): maps of the rotation axes, one per rotation angle (paper, Fig. 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pscnn._extras import require
from pscnn._types import Array
from pscnn.groups import O3, SO3, axis_angle
from pscnn.likelihood import Likelihood

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    across, up = np.meshgrid(longitude, latitude)
    axes = np.stack([np.cos(up) * np.cos(across), np.cos(up) * np.sin(across), np.sin(up)], -1).reshape(-1, 3)
    maps: dict[str, list[Array]] = {}
    for name, sign in (("rotations", 1.0), ("with inversion", -1.0)):
        if sign > 0 or group == O3():
            maps[name] = [
                likelihood.density(sign * axis_angle(axes, np.radians(a))).cpu().double().numpy().reshape(across.shape)
                for a in ANGLES
            ]
    return longitude, latitude, maps


def sphere_figure(densities: Likelihood | Mapping[str, Likelihood]) -> Figure:
    """Equal-area maps of the rotation axes at five rotation angles; both parities for O(3).

    The centre of a map is the x axis, the right quarter y, the top z. A triangle marks the highest density of all maps
    in a row, a cross the lowest.

    Args:
        densities: One, or several by name, one below the other.
    """
    require("matplotlib", "plots", "Drawing densities")
    from matplotlib.figure import Figure

    several = {"": densities} if isinstance(densities, Likelihood) else densities
    maps: dict[str, list[Array]] = {}
    for name, likelihood in several.items():
        longitude, latitude, own = sphere_maps(likelihood)
        maps.update({f"{name}\n{kind}".strip(): values for kind, values in own.items()})
    highest = max(m.max() for row in maps.values() for m in row)
    lowest = min(m.min() for row in maps.values() for m in row)
    if highest - lowest < 1e-3:  # uniform: do not colour rounding errors
        lowest, highest = 0.5, 1.5
    figure = Figure(figsize=(7, 0.85 * len(maps) + 0.35), layout="constrained")
    grid = figure.subplots(len(maps), len(ANGLES), squeeze=False, subplot_kw={"projection": "mollweide"})
    for number, (row, (name, found)) in enumerate(zip(grid, maps.items(), strict=True)):
        for axis, values, angle in zip(row, found, ANGLES, strict=True):
            mesh = axis.pcolormesh(
                longitude, latitude, values, cmap="viridis", vmin=lowest, vmax=highest, shading="auto", rasterized=True
            )
            axis.set_xticks([])
            axis.set_yticks([])
            if number == 0:
                axis.set_title(f"{angle}°", fontsize=8)
        row[0].set_ylabel(name, fontsize=8)
        stacked = np.stack(found)
        if np.ptp(stacked) > 1e-3:
            for place, marker, colour in ((stacked.argmax(), "^", "black"), (stacked.argmin(), "x", "white")):
                which, up, across = np.unravel_index(place, stacked.shape)
                has_axis = np.ptp(stacked[which]) > 1e-6  # not at 0°
                where = (longitude[across], latitude[up]) if has_axis else (0.0, 0.0)
                row[which].plot(*where, marker, color=colour, ms=5)
    bar = figure.colorbar(mesh, ax=grid, shrink=0.8, pad=0.01)
    bar.set_label("density λ", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def sphere_panels(likelihood: Likelihood) -> list[Any]:
    """The same maps as an interactive figure: spheres to turn, a slider for the rotation angle.

    Both parities of O(3) share one scene, because browsers draw no more than about sixteen of them on a page. Hovering
    shows the axis and the density.
    """
    require("plotly", "plots", "Interactive spheres")
    from plotly.graph_objects import Figure

    longitude, latitude, maps = sphere_maps(likelihood, points=30)
    across, up = np.meshgrid(longitude, latitude)
    x, y, z = np.cos(up) * np.cos(across), np.cos(up) * np.sin(across), np.sin(up)
    axes = np.stack([x, y, z], -1)
    highest = max(m.max() for row in maps.values() for m in row)
    places = {"rotations": 0.0} if len(maps) == 1 else {"rotations": -1.3, "with inversion": 1.3}
    shown = ANGLES.index(90)
    figure = Figure()
    for which, angle in enumerate(ANGLES):
        for name, found in maps.items():
            kind = "rotation" if name == "rotations" else "inversion and rotation"
            figure.add_surface(
                x=x,
                y=y + places[name],
                z=z,
                surfacecolor=found[which],
                customdata=axes,
                cmin=0,
                cmax=highest,
                colorscale="Viridis",
                lighting={"ambient": 1.0, "diffuse": 0.0, "specular": 0.0},  # shadows would read as low densities
                showscale=name == "rotations",
                colorbar={"title": "λ", "len": 0.7},
                visible=which == shown,
                hovertemplate=f"{kind} by {angle}° about<br>(%{{customdata[0]:.2f}}, %{{customdata[1]:.2f}}, "
                "%{customdata[2]:.2f})<br>λ = %{surfacecolor:.3f}<extra></extra>",
            )
    steps = [
        {
            "label": f"{angle}°",
            "method": "restyle",
            "args": ["visible", [k // len(maps) == which for k in range(len(ANGLES) * len(maps))]],
        }
        for which, angle in enumerate(ANGLES)
    ]
    hidden = {"visible": False}
    eye = {"x": 1.4, "y": 0.2, "z": 0.45}
    figure.update_scenes(xaxis=hidden, yaxis=hidden, zaxis=hidden, aspectmode="data", camera={"eye": eye})
    title = "rotations" if len(maps) == 1 else "rotations (left), with inversion (right)"
    slider = {"active": shown, "steps": steps, "currentvalue": {"prefix": "rotation angle "}}
    figure.update_layout(title=title, height=380, sliders=[slider])
    return [figure]

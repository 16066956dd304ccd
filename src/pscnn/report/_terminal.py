"""Densities as small charts of block characters."""

from __future__ import annotations

import numpy as np
from torch import nn

from pscnn.densities import likelihoods
from pscnn.report._density import density_curves

_BLOCKS = " ▁▂▃▄▅▆▇█"


def density_chart(model: nn.Module, width: int = 37) -> str:
    """One line per layer: λ over the angle, for rotations and reflections, on one scale for all layers."""
    curves = {
        name: density_curves(lam, points=width)
        for name, lam in likelihoods(model).items()
        if lam.group.planar is not None
    }
    if not curves:
        return "no learnt densities on groups of the plane"
    top = max(float(values.max()) for found in curves.values() for _, values in found.values())
    kinds = list(next(iter(curves.values())))
    span = {kind: f"{angles[0]:.0f}° … {angles[-1]:.0f}°" for kind, (angles, _) in next(iter(curves.values())).items()}
    lines = ["layer " + "   ".join(f"{kind + ', ' + span[kind]:<{width}}" for kind in kinds)]
    for number, found in enumerate(curves.values(), 1):
        bars = []
        for _, values in found.values():
            heights = np.rint(values / top * (len(_BLOCKS) - 1)).astype(int)
            bars.append("".join(_BLOCKS[max(1, h)] for h in heights).ljust(width))
        lines.append(f"{number:>5} " + "   ".join(bars))
    lines.append(f"full height is λ = {top:.2f}; uniform is 1")
    return "\n".join(lines)

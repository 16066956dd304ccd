"""What each layer kept, in words and numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from pscnn._regularization import likelihoods
from pscnn._types import Array
from pscnn.groups import MIRROR, O2, SO2, C, D, Group, PlanarGroup, rotation
from pscnn.likelihood import Likelihood

KEPT = 0.8
"""A subgroup counts as kept if the density is nowhere on it below this share of its maximum on H."""


def notable_elements(group: Group) -> dict[str, Array]:
    """A few elements with names, those that the group has."""
    if group.dimension == 2:
        candidates = {f"{angle}°": rotation(np.radians(angle)) for angle in (0, 45, 90, 180)}
        candidates |= {"↔": MIRROR, "↕": -MIRROR}
    else:
        candidates = {"e": np.eye(3)}
        for name, axis in (("x", (1, -1, -1)), ("y", (-1, 1, -1)), ("z", (-1, -1, 1))):
            candidates[f"180°{name}"] = np.diag(np.array(axis, dtype=float))
        candidates["−1"] = -np.eye(3)
    return {name: h for name, h in candidates.items() if group.contains(h)}


def subgroups(group: Group) -> list[Group]:
    """Candidates for what a density may have kept, the largest first."""
    candidates: list[Group] = [group]
    if isinstance(group, PlanarGroup):
        candidates += [O2(), SO2(), *(f(n) for n in (8, 6, 4, 3, 2) for f in (D, C)), D(1)]
    found: list[Group] = []
    for candidate in candidates:
        if candidate not in found and group.contains(candidate.quadrature(7)[0]):
            found.append(candidate)
    return found


@dataclass(frozen=True)
class LayerSummary:
    """What one density says.

    Attributes:
        name: The first layer that has it.
        group: H.
        kept: Names of the largest kept subgroups.
        entropy: −∫ λ log λ, 0 for uniform.
        effective_size: exp(entropy), the share of H over which the density spreads.
        alignment: max λ − λ(e).
        density: λ at notable elements.
    """

    name: str
    group: str
    kept: tuple[str, ...]
    entropy: float
    effective_size: float
    alignment: float
    density: dict[str, float]


@torch.no_grad()
def layer_summaries(model: nn.Module) -> list[LayerSummary]:
    """One summary per distinct density, in module order."""
    return [_summarise(name, lam) for name, lam in likelihoods(model).items()]


def _summarise(name: str, lam: Likelihood) -> LayerSummary:
    group = lam.group if lam.support is None else lam.support
    elements = notable_elements(group)
    values = lam.density(np.stack(list(elements.values()))).tolist()
    highest = lam.density(lam.grid()[0]).max().item()
    kept: list[Group] = []
    for candidate in subgroups(group):
        nodes, _ = candidate.quadrature(64 if candidate.dimension == 2 else 12)
        inside_another = any(bigger.contains(nodes) for bigger in kept)
        if not inside_another and lam.density(nodes).min().item() >= KEPT * highest:
            kept.append(candidate)
    entropy = lam.entropy().item()
    return LayerSummary(
        name,
        lam.group.name,
        tuple(k.name for k in kept) or ("e",),
        entropy,
        float(np.exp(entropy)),
        lam.alignment_error().item(),
        dict(zip(elements, values, strict=True)),
    )


def summary(model: nn.Module) -> str:
    """A table, one line per density: what was kept, entropy, effective size, λ at notable elements.

    Example:
        >>> from pscnn.groups import C
        >>> print(summary(nn.ModuleDict({"conv": Likelihood(C(4))})))
        layer  group  kept  entropy  size  align  λ(0°)  λ(90°)  λ(180°)
        conv   C(4)   C(4)     0.00  1.00   0.00   1.00    1.00     1.00
    """
    rows = layer_summaries(model)
    if not rows:
        return "no learnt densities: this model has no likelihoods"
    names = list(dict.fromkeys(name for row in rows for name in row.density))
    table = [["layer", "group", "kept", "entropy", "size", "align", *(f"λ({name})" for name in names)]]
    for row in rows:
        values = [f"{row.density[name]:.2f}" if name in row.density else "" for name in names]
        numbers = [f"{x:.2f}".replace("-0.00", "0.00") for x in (row.entropy, row.effective_size, row.alignment)]
        table.append([row.name, row.group, " ".join(row.kept), *numbers, *values])
    widths = [max(len(line[k]) for line in table) for k in range(len(table[0]))]
    lines = []
    for line in table:
        cells = [
            cell.ljust(w) if k < 3 else cell.rjust(w) for k, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)

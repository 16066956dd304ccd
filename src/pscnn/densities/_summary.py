"""What each layer kept, in words and numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from pscnn._types import Array
from pscnn._words import aligned
from pscnn.densities._degree import degree, typed_layers
from pscnn.densities._regularization import likelihoods
from pscnn.groups import MIRROR, O2, O3, SO2, SO3, C, D, Group, PlanarGroup, axis_angle, rotation
from pscnn.likelihood import Likelihood

EXACT = 1e-9
"""Up to this share of a kernel that is not equivariant, rounding explains it."""
MOST_NAMED = 4
"""Layers in a sentence."""
KEPT = 0.8
"""A subgroup counts as kept if the density is nowhere on it below this share of its maximum on H."""
REGAINED = 0.1
"""KL divergence to the density before it from which a layer claims to regain what was lost."""
MISALIGNED = 0.1
"""Alignment error, as a share of the maximum, from which the density cannot be read."""
NEAR = 6
"""Degrees within which two mirror lines are one: the maximum of a density is flat, and is searched for in steps."""


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
    if group == O3():
        candidates.append(SO3())
    if isinstance(group, PlanarGroup):
        candidates += [O2(), SO2(), *(f(n) for n in (8, 6, 4, 3, 2) for f in (D, C)), D(1)]
    return [candidate for candidate in dict.fromkeys(candidates) if candidate.is_subgroup_of(group)]


@dataclass(frozen=True)
class LayerSummary:
    """What one density says.

    Attributes:
        number: Its position among the densities, from 1.
        name: The first layer that has it.
        group: H.
        support: The subgroup on which the density is defined; H by default.
        kept: Names of the largest kept subgroups, also of the best mirror line in 2D or the best rotation axis in 3D.
        degrees: For every candidate subgroup, the lowest density on it as a fraction of the maximum on H; also for the
            best mirror line in 2D and the best rotation axis in 3D.
        entropy: −∫ λ log λ, 0 for uniform.
        effective_size: exp(entropy), the fraction of H over which the density spreads.
        alignment: max λ − λ(e).
        highest: max λ.
        density: λ at notable elements.
        kl: KL divergence to the density before it, None for the first or over another group.
    """

    number: int
    name: str
    group: str
    support: str
    kept: tuple[str, ...]
    degrees: dict[str, float]
    entropy: float
    effective_size: float
    alignment: float
    highest: float
    density: dict[str, float]
    kl: float | None

    @property
    def label(self) -> str:
        """Number and name, as pictures show them."""
        return f"{self.number} ({self.name})"


@torch.no_grad()
def layer_summaries(model: nn.Module) -> list[LayerSummary]:
    """One summary per distinct density, in module order."""
    out: list[LayerSummary] = []
    before: Likelihood | None = None
    for number, (name, lam) in enumerate(likelihoods(model).items(), 1):
        comparable = before is not None and before.group == lam.group and before.support == lam.support
        out.append(_summarise(number, name, lam, before if comparable else None))
        before = lam
    return out


def _summarise(number: int, name: str, lam: Likelihood, before: Likelihood | None) -> LayerSummary:
    group = lam.group if lam.support is None else lam.support
    elements = notable_elements(group)
    values = lam.density(np.stack(list(elements.values()))).tolist()
    highest = lam.density(lam.grid()[0]).max().item()
    kept: list[Group] = []
    degrees: dict[str, float] = {}
    for candidate in subgroups(group):
        nodes, _ = candidate.quadrature(64 if candidate.dimension == 2 else 12)
        degrees[candidate.name] = lam.density(nodes).min().item() / highest
        inside_another = any(candidate.is_subgroup_of(bigger) for bigger in kept)
        if not inside_another and degrees[candidate.name] >= KEPT:
            kept.append(candidate)
    names = [one.name for one in kept if one.order != 1]
    for found, value in _best_direction(lam, group):
        degrees[found] = value / highest
        if degrees[found] >= KEPT and not any(_has_direction(one, found) for one in kept):
            names.append(found)
    entropy = lam.entropy().item()
    numbers = entropy, float(np.exp(entropy)), lam.alignment_error().item(), highest
    density = dict(zip(elements, values, strict=True))
    kl = None if before is None else lam.kl(before).item()
    return LayerSummary(
        number, name, lam.group.name, group.name, tuple(names) or ("e",), degrees, *numbers, density, kl
    )


def _best_direction(lam: Likelihood, group: Group) -> list[tuple[str, float]]:
    """In O(2) the mirror line with the highest density; in space the axis with the highest lowest one around it."""
    if group == O2():
        angles = np.arange(0, 180, 3)
        values = lam.density(rotation(np.radians(2 * angles)) @ -MIRROR)  # keep the line at this angle to the x axis
        best = int(values.argmax())
        return [(f"mirror line at {angles[best]}°", values[best].item())]
    if group not in (SO3(), O3()):
        return []
    count = 200  # spread over the half sphere by the golden angle: about 10° apart
    z = (np.arange(count) + 0.5) / count
    longitude = np.pi * (3 - np.sqrt(5)) * np.arange(count)
    axes = np.stack([np.sqrt(1 - z**2) * np.cos(longitude), np.sqrt(1 - z**2) * np.sin(longitude), z], 1)
    axes = np.concatenate([np.eye(3), axes])
    turned = np.stack([axis_angle(axes, turn) for turn in 2 * np.pi * np.arange(1, 12) / 12])
    values = lam.density(turned.reshape(-1, 3, 3)).view(len(turned), -1).amin(0)
    best = int(values.argmax())
    x, y, z_best = axes[best]
    return [(f"rotations about ({x:.2f}, {y:.2f}, {z_best:.2f})", values[best].item())]


def _has_direction(group: Group, direction: str) -> bool:
    """Whether a group contains the best mirror line, or the rotations about the best axis."""
    if group.order is None:
        return direction.startswith("rotations") or group.has_reflections
    # D(n) contains the left–right mirror, and with it the lines at multiples of 180°/n from the upright one.
    angle = re.fullmatch(r"mirror line at (\d+)°", direction)
    step = 180 / (group.rotations.order or 1)
    return angle is not None and group.has_reflections and apart(int(angle[1]), 90, step) <= NEAR


def apart(one: float, other: float, period: float = 180) -> float:
    """Degrees between two lines."""
    return abs((one - other + period / 2) % period - period / 2)


def verdict(rows: list[LayerSummary]) -> list[str]:
    """Sentences: where equivariance is lost first and what is left there, what is regained, what is misaligned."""
    out = []
    if wrong := [row.label for row in rows if not np.isfinite(row.entropy)]:
        return [f"Some densities are not finite (layer {wrong[0]}): training diverged. Use a smaller learning rate."]
    lost = next((row for row in rows if row.degrees[row.support] < KEPT), None)
    if lost is None:
        out.append("Equivariance is kept in every layer.")
    else:
        ranked = sorted(lost.degrees.items(), key=lambda item: -item[1])  # stable: the larger group first
        kept = ", ".join(f"{name} {value:.0%}" for name, value in ranked if name in lost.kept)
        name, most = ranked[0]
        left = f"Kept there: {kept}" if kept else f"Nothing is kept there to {KEPT:.0%}; {name} is to {most:.0%}"
        out.append(f"Equivariance is first lost in layer {lost.label}. {left}.")
    for before, row in pairwise(rows):
        if row.kl is not None and row.kl > REGAINED:
            out.append(
                f"Layer {row.label} claims to regain what layer {before.label} gave up (KL {row.kl:.2f}); "
                "a larger weight of the KL term prevents this."
            )
    if misaligned := [row for row in rows if row.alignment > MISALIGNED * row.highest]:
        names = ", ".join(row.label for row in misaligned[:MOST_NAMED])
        names += f" and {len(misaligned) - MOST_NAMED} more" if len(misaligned) > MOST_NAMED else ""
        most = max(row.alignment for row in misaligned)
        out.append(
            f"Misaligned: layer {names}. There the density is up to {most:.2f} higher elsewhere than at the identity "
            "and cannot be interpreted; call pscnn.align, or use a larger alignment weight."
        )
    return out


def summary(model: nn.Module) -> str:
    """A table, one line per density: what was kept, entropy, effective size, λ at notable elements; then a verdict.

    For networks without learnt densities, one line per layer: the share of its kernel that is not equivariant, and what
    its method has to say.

    Example:
        >>> from pscnn.groups import C
        >>> print(summary(nn.ModuleDict({"conv": Likelihood(C(4))})))
        layer     group  kept  entropy  size  align  λ(0°)  λ(90°)  λ(180°)
        1 (conv)  C(4)   C(4)     0.00  1.00   0.00   1.00    1.00     1.00
        <BLANKLINE>
        Equivariance is kept in every layer.
    """
    rows = layer_summaries(model)
    if not rows:
        return _other_methods(model)
    names = list(dict.fromkeys(name for row in rows for name in row.density))
    table = [["layer", "group", "kept", "entropy", "size", "align", *(f"λ({name})" for name in names)]]
    for row in rows:
        values = [f"{row.density[name]:.2f}" if name in row.density else "" for name in names]
        numbers = [f"{x:.2f}".replace("-0.00", "0.00") for x in (row.entropy, row.effective_size, row.alignment)]
        table.append([row.label, row.group, ", ".join(row.kept), *numbers, *values])
    return "\n".join([*aligned(table, "<<<"), "", *verdict(rows)])


def _other_methods(model: nn.Module) -> str:
    first = next(iter(typed_layers(model).values()), None)
    if first is None:
        return "no learnt densities: this model has no Likelihood"
    group = first.in_type.group
    layers, shares = typed_layers(model, group), degree(model, group)
    table, lost = [["layer", "group", "not equivariant", "measure"]], ""
    for number, (name, layer) in enumerate(layers.items(), 1):
        measure, label = getattr(layer.module, "likelihood", None), f"{number} ({name})"
        table.append([label, group.name, f"{shares[name]:.1%}", measure.words() if measure else ""])
        lost = lost or (label if shares[name] > EXACT else "")
    said = f"Equivariance is first lost in layer {lost}." if lost else "Equivariance is kept in every layer."
    return "\n".join([*aligned(table, "<<><"), "", said])

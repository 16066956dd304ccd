"""Partial G-CNNs (arXiv 2110.10211) in the space of slots: every layer learns an interval of rotations to keep."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch import nn as tnn

from pscnn._memo import memo
from pscnn._types import Array
from pscnn.groups import MIRROR, Axial, Group, Irrep
from pscnn.measures import Measure, flatten
from pscnn.models._methods._method import STEEP, Method


class LearntIntervals(Method):
    """A uniform density on the rotations by up to ±θ, and a share of reflections; both are learnt."""

    has_measures = True

    def density(self, group: Group, bandlimit: int, **options: Any) -> "Interval":
        """An interval of its own."""
        return Interval(group, bandlimit, **options)


class Interval(Measure):
    """The uniform density on rotations by up to ±θ; a share p of the mass is on these rotations after a reflection.

    Λ_i = a(θ) · ((1 − p)·1 + p·ψ_i(m)). In the plane, or about an axis, a = sin(kθ)/(kθ) for frequency k; in space,
    where the angle is that of a rotation about any axis, a is that of ``ball``. The reflection m is the left–right
    mirror in the plane, about an axis the same or the half-turn in its place, and −1 in space. At the start θ = 180°
    and p = ½: uniform. Values of θ beyond 180° wrap around.

    A finite group has no intervals. There every element but the identity has a probability of its own to be kept, as in
    the paper, and Λ is the mean over what is kept: Σ p_h ψ_i(h) / Σ p_h with p_e = 1. They start at 0.95.

    Args:
        group: H.
        bandlimit: L.
    """

    values: Tensor
    rotations: Tensor
    reflections: Tensor
    frequencies: Tensor

    def __init__(
        self,
        group: Group,
        bandlimit: int = 2,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(group, bandlimit)
        like = torch.empty(0, device=device, dtype=dtype)
        constants = _constants(group, self.irreps)
        for name, array in constants.items():
            self.add_constant(name, array, like)
        if group.order is not None:
            self.logits = tnn.Parameter(like.new_full((group.order - 1,), 3.0 / STEEP))
            return
        self.angle = tnn.Parameter(like.new_ones(()))  # in half-turns
        self.reflection = tnn.Parameter(like.new_zeros(())) if "reflections" in constants else None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Those of earlier versions had no share of half-turns about an axis in the place of mirrors: it was zero."""
        group = self.group
        if (
            isinstance(group, Axial)
            and group.reflections == "turn"
            and group.order is None
            and self.reflection is not None
        ):
            state_dict.setdefault(f"{prefix}reflection", self.reflection.new_tensor(-math.inf))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def flat_moments(self) -> Tensor:
        """Known in closed form."""
        if self.group.order is not None:
            kept = torch.cat([self.logits.new_ones(1), self.probabilities])
            return (self.values * (kept / kept.sum())).sum(1)
        in_space = self.group.planar is None
        factors = ball(self.frequencies, self.angle) if in_space else torch.sinc(self.frequencies * self.angle)
        if self.reflection is None:
            return factors * self.rotations
        return factors * torch.lerp(self.rotations, self.reflections, self.share)

    @property
    def share(self) -> Tensor:
        """Of the mass that is on reflections, for continuous groups with reflections."""
        assert self.reflection is not None
        return (STEEP * self.reflection).sigmoid()

    @property
    def probabilities(self) -> Tensor:
        """That elements of a finite group are kept, without the identity."""
        return (STEEP * self.logits).sigmoid()

    def words(self) -> str:
        """The interval and the share."""
        if self.group.order is not None:
            return "kept: " + ", ".join(f"{p:.2f}" for p in self.probabilities.tolist())
        share = "" if self.reflection is None else f", reflections {self.share.item():.2f}"
        return f"±{180 * abs(self.angle.item()):.0f}°{share}"


def ball(frequencies: Tensor, half_turns: Tensor) -> Tensor:
    """∫ ψ_l over the rotations of space by angles up to θ, by what it is on the identity, for frequencies l.

    With the density (1 − cos ω) of angles and the character χ_l, (1 − cos ω) χ_l = cos lω − cos (l+1)ω, so that the
    mean of χ_l / (2l + 1) is (S_l − S_{l+1}) / ((2l + 1)(S_0 − S_1)) with S_l = sin(lθ)/l and S_0 = θ.
    """
    wide, degree = (
        half_turns.double().abs().clamp_min(0.01),
        frequencies.double(),
    )  # differences of almost equal numbers

    def integral(k: Tensor) -> Tensor:
        return math.pi * wide * torch.sinc(k * wide)

    zero = torch.zeros_like(degree)
    whole = (2 * degree + 1) * (integral(zero) - integral(zero + 1))
    return ((integral(degree) - integral(degree + 1)) / whole).to(half_turns)


@memo
def _constants(group: Group, irreps: tuple[Irrep, ...]) -> dict[str, Array]:
    if group.order is not None:
        elements, _ = group.quadrature(0)
        order = np.argsort(np.abs(elements - group.identity).max((1, 2)) > 1e-6, kind="stable")  # the identity first
        values = [psi.matrices(elements[order]).reshape(len(elements), -1).T for psi in irreps]
        return {"values": np.concatenate(values)}
    found = {
        "rotations": flatten({psi: np.eye(psi.size) for psi in irreps}),
        "frequencies": flatten({psi: np.full((psi.size, psi.size), float(psi.frequency)) for psi in irreps}),
    }
    if (group.planar or group).has_reflections:  # about an axis they may be half-turns
        mirror = -np.eye(3) if group.planar is None else MIRROR
        mirror = group.lift(mirror[None])[0] if isinstance(group, Axial) else mirror
        found["reflections"] = flatten({psi: psi.matrices(mirror[None])[0] for psi in irreps})
    return found

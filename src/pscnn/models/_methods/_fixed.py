"""A measure that is chosen by hand and stays as it is: a subgroup, an interval, any density."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pscnn._types import Array, ArrayLike
from pscnn.groups import D, Group, Irrep, parse, rotation
from pscnn.measures import Measure, flatten
from pscnn.models._methods._interval import Interval
from pscnn.models._methods._method import Method

Kept = Group | float | tuple[Group, float] | Callable[[Array], ArrayLike]
_MIRROR = re.compile(r"(.+?) at ([-+.\d]+)°?")


class FixedMeasures(Method):
    """The same measure in every layer."""

    has_measures = True

    def density(self, group: Group, bandlimit: int, keep: str | Kept = 45.0, **options: Any) -> "Fixed":
        """What is kept, also as text: a subgroup such as "C(4)", or an angle in degrees such as "45"."""
        return Fixed(group, bandlimit, read_kept(keep) if isinstance(keep, str) else keep, **options)


def read_kept(text: str) -> Group | float | tuple[Group, float]:
    """A subgroup, perhaps with the angle of a mirror line, or an angle in degrees.

    Example:
        >>> read_kept("45"), read_kept("C4"), read_kept("D(1) at 30°")
        (45.0, C(4), (D(1), 30.0))
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        if found := _MIRROR.fullmatch(text):
            return parse(found[1]), float(found[2])
        return parse(text)
    except ValueError:
        raise ValueError(f"keep must be a subgroup such as C(4) or an angle in degrees, got {text!r}") from None


class Fixed(Measure):
    """Moments of a given measure, which is not learnt.

    Args:
        group: H.
        bandlimit: L.
        keep: A subgroup, for the uniform measure on it (H itself: fully equivariant); a subgroup of the plane with the
            angle of one of its mirror lines to the x axis, in degrees; an angle alone, for the uniform density on
            rotations by up to that angle (a continuous H; reflections are given up); or a density, a function of
            elements (N, n, n) giving (N,).

    Example:
        >>> from pscnn.groups import O2
        >>> [m.abs().max().item() for m in Fixed(O2(), 2, O2()).moment_list()[1:]]
        [0.0, 0.0, 0.0]
    """

    flat: Tensor
    starts_uniform = False

    def __init__(
        self,
        group: Group,
        bandlimit: int = 2,
        keep: Kept = 45.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(group, bandlimit)
        self.keep = group.as_subgroup(keep) if isinstance(keep, Group) else keep
        if isinstance(keep, tuple):
            nodes = _turned(*keep)
            if not group.contains(nodes):
                raise ValueError(f"Fixed: {self.words()} is not a subgroup of {group.name}")
        found = _moments(group, self.irreps, bandlimit, self.keep)
        self.add_constant("flat", found, torch.empty(0, device=device, dtype=dtype))

    def flat_moments(self) -> Tensor:
        """Constant."""
        return self.flat

    def words(self) -> str:
        """What is kept."""
        if isinstance(self.keep, Group):
            return self.keep.name
        if isinstance(self.keep, tuple):
            return f"{self.keep[0].name} at {self.keep[1]:g}°"
        return f"±{self.keep:g}°" if isinstance(self.keep, float | int) else "a given density"


def _moments(group: Group, irreps: tuple[Irrep, ...], bandlimit: int, keep: Kept) -> Array:
    if isinstance(keep, float | int):
        if group.order is not None or not 0 <= keep <= 180:
            raise ValueError(
                "Fixed: an angle to keep needs a continuous group, and must lie between 0 and 180, "
                f"got {keep:g} and {group.name}"
            )
        interval = Interval(group, bandlimit, dtype=torch.float64)
        with torch.no_grad():
            interval.angle.fill_(keep / 180)
            if interval.reflection is not None:
                interval.reflection.fill_(-torch.inf)
            return interval.flat_moments().numpy().copy()
    if isinstance(keep, tuple):
        nodes = _turned(*keep)
        weights = np.full(len(nodes), 1 / len(nodes))
    elif isinstance(keep, Group):
        nodes, weights = keep.quadrature(bandlimit)
    else:
        nodes, weights = group.quadrature(128 if group.planar is not None else 24)
        weights = weights * np.asarray(keep(nodes), dtype=np.float64)
        weights = weights / weights.sum()
    means = {psi: np.einsum("n,nab->ab", weights, psi.matrices(nodes)) for psi in irreps}
    return np.where(np.abs(flat := flatten(means)) < 1e-15, 0.0, flat)


def _turned(group: Group, angle: float) -> Array:
    """The elements of D(N), whose mirror line along y is turned to an angle to the x axis."""
    if not isinstance(group, D):
        raise ValueError(f"Fixed: only D(N) has mirror lines at an angle, got {group.name} at {angle:g}°")
    frame = rotation(np.radians(angle - 90))
    return np.asarray(frame @ group.quadrature(0)[0] @ frame.T)

"""By what a layer averages its kernel: a measure on the group, known to the layer by its moments Λ_i = ∫ ψ_i(h) dμ(h).

A learnt density (``pscnn.Likelihood``) is one. The uniform measure has Λ_i = 0 for all but the trivial irrep, and makes
a layer equivariant; all mass at the identity has Λ_i = 1 and leaves the kernel free.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pscnn._constants import ConstantsModule
from pscnn._memo import memo
from pscnn._types import Array
from pscnn.groups import Group, Irrep


class Measure(ConstantsModule):
    """A measure on a compact group H. Subclasses say what its moments are.

    Pass one object to several layers to let them share it.

    Args:
        group: H.
        bandlimit: L, the highest frequency of the moments Λ_i that a layer uses. Finite groups have a highest frequency
            of their own.
        lowest: The lowest frequency of non-trivial irreps that may be broken; lower ones stay fully equivariant.

    Attributes:
        irreps: The irreps whose moments a layer uses, the trivial one first.
        starts_uniform: Whether the weights of a layer start as for the uniform measure; if not, for this one.
        decays: Whether weight decay is for its parameters, too.
    """

    starts_uniform = True
    decays = False

    def __init__(self, group: Group, bandlimit: int, lowest: int = 0) -> None:
        super().__init__()
        name = type(self).__name__
        if not isinstance(group, Group):
            raise TypeError(f"{name}: group must be a group such as O2(), got {group!r}")
        if isinstance(bandlimit, bool) or not isinstance(bandlimit, int) or bandlimit < 0:
            raise ValueError(f"{name}: bandlimit must be a whole number of 0 or more, got {bandlimit!r}")
        if not 0 <= lowest <= bandlimit:
            raise ValueError(f"{name}: lowest must lie between 0 and the bandlimit {bandlimit}, got {lowest}")
        self.group, self.bandlimit = group, bandlimit
        self.irreps: tuple[Irrep, ...] = tuple(
            psi for psi in group.irreps(bandlimit) if psi.is_trivial or psi.frequency >= lowest
        )

    @property
    def dtype(self) -> torch.dtype:
        """Of the moments."""
        return next(value.dtype for value in (*self.parameters(), *self.buffers()) if value.is_floating_point())

    def flat_moments(self) -> Tensor:
        """The entries of all Λ_i = ∫ ψ_i(h) dμ(h), flattened in row-major order and concatenated."""
        raise NotImplementedError

    def moment_list(self) -> list[Tensor]:
        """Λ_i = ∫ ψ_i(h) dμ(h) for each of ``self.irreps``, the trivial one first, each (d, d)."""
        flat = self.flat_moments()
        sizes = [psi.size for psi in self.irreps]
        return [m.view(d, d) for m, d in zip(flat.split([d * d for d in sizes]), sizes, strict=True)]

    def moments(self) -> dict[Irrep, Tensor]:
        """{ψ_i: Λ_i} for all irreps within the band-limit."""
        return dict(zip(self.irreps, self.moment_list(), strict=True))

    def words(self) -> str:
        """What it is at present, in a few words, for summaries; empty if there is nothing to say."""
        return ""

    def extra_repr(self) -> str:
        """What is shown between the brackets of the module's repr."""
        words = self.words()
        return f"{self.group.name}, bandlimit={self.bandlimit}" + (f", {words}" if words else "")


class Mixture(Measure):
    """(1 − θ)·uniform + θ·(all mass at the identity): Λ_i = θ for all but the trivial irrep, K = K₀ + θ·K₊.

    Subclasses say what the share θ is; here it is 1, and the kernel is free within the band-limit.

    Example:
        >>> from pscnn.groups import SO2
        >>> Mixture(SO2(), 1).flat_moments()
        tensor([1., 1., 0., 0., 1.])
    """

    equivariant: Tensor
    rest: Tensor
    starts_uniform = False

    def __init__(
        self,
        group: Group,
        bandlimit: int = 2,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(group, bandlimit)
        for name, array in _flat_identities(self.irreps).items():
            self.add_constant(name, array, torch.empty(0, device=device, dtype=dtype))

    def share(self) -> Tensor | float:
        """The share θ."""
        return 1.0

    def flat_moments(self) -> Tensor:
        """1 for the trivial irrep, θ·1 for the others."""
        return self.equivariant + self.share() * self.rest


def flatten(matrices: dict[Irrep, Array]) -> Array:
    """One matrix for each irrep, as ``Measure.flat_moments`` has them."""
    return np.concatenate([matrix.ravel() for matrix in matrices.values()])


@memo
def _flat_identities(irreps: tuple[Irrep, ...]) -> dict[str, Array]:
    """Identity matrices: of the trivial irrep, and of the others."""
    units = {psi: np.eye(psi.size) for psi in irreps}
    return {
        "equivariant": flatten({psi: unit * psi.is_trivial for psi, unit in units.items()}),
        "rest": flatten({psi: unit * (not psi.is_trivial) for psi, unit in units.items()}),
    }

"""Functions on a group or on a quotient of it, as Fourier coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pscnn._memo import memo
from pscnn._types import Array, ArrayLike
from pscnn.groups import _decompose
from pscnn.groups._representation import Irrep, Representation

if TYPE_CHECKING:
    from pscnn.groups._group import Group


@dataclass(frozen=True, repr=False)
class FunctionSpace(Representation):
    """Band-limited functions on H, or on the quotient H/K, on which H acts by (h·f)(g) = f(h⁻¹g).

    A function is given by coefficients c, one vector of size d_i per irrep and column,

        f(g) = Σ_i Σ_v sqrt(d_i) c_{i,v}ᵀ ψ_i(g) v,

    where the columns v of ψ_i are an orthonormal basis of the vectors fixed by K, modulo the endomorphisms of ψ_i (the
    redundant columns of complex-type irreps). The basis functions are orthonormal for the Haar measure, and the
    coefficients transform by the direct sum of the irreps: this is a ``Representation`` (Peter–Weyl; paper, Eq. 9).

    Example:
        >>> from pscnn.groups import SO2, SO3
        >>> SO2().functions(3).size
        7
        >>> sphere = SO3().functions(2, SO2())    # functions on the sphere SO(3)/SO(2)
        >>> [psi.index for psi in sphere.irreps]
        [(0,), (1,), (2,)]
    """

    group: Group
    bandlimit: int
    subgroup: Group | None = None

    def __post_init__(self) -> None:
        if isinstance(self.bandlimit, bool) or not isinstance(self.bandlimit, int) or self.bandlimit < 0:
            raise ValueError(f"bandlimit must be 0 or more, got {self.bandlimit!r}")

    @property
    @memo
    def columns(self) -> tuple[tuple[Irrep, Array], ...]:
        """Each irrep with its columns, shape (d, multiplicity)."""
        out = []
        for psi in self.group.irreps(self.bandlimit):
            fixed = np.eye(psi.size)
            if self.subgroup is not None:
                elements, weights = self.subgroup.quadrature(psi.frequency)
                fixed = np.einsum("nab,n->ab", psi.matrices(elements), weights)
            # Row vectors vᵀ with the endomorphisms acting from the right.
            multiplicity = round(float(np.trace(fixed))) // len(psi.endomorphisms)
            picked = _decompose.pick_basis(fixed, multiplicity, psi.endomorphisms.transpose(0, 2, 1), 1)
            if multiplicity:
                out.append((psi, picked[:, 0, :].T))
        return tuple(out)

    @property
    def irreps(self) -> tuple[Irrep, ...]:  # type: ignore[override]
        return tuple(psi for psi, v in self.columns for _ in range(v.shape[1]))

    @property
    def name(self) -> str:
        over = self.group.name if self.subgroup is None else f"{self.group.name}/{self.subgroup.name}"
        return f"functions on {over} up to {self.bandlimit}"

    def __repr__(self) -> str:
        quotient = "" if self.subgroup is None else f", {self.subgroup!r}"
        return f"{self.group!r}.functions({self.bandlimit}{quotient})"

    def sample(self, elements: ArrayLike) -> Array:
        """The matrix A with f(g_n) = (A c)_n: the inverse Fourier transform at these elements, shape (N, size)."""
        g = np.asarray(elements, dtype=np.float64)
        parts = [np.sqrt(psi.size) * np.einsum("nab,bv->nva", psi.matrices(g), v) for psi, v in self.columns]
        return np.concatenate([part.reshape(len(g), -1) for part in parts], axis=1)

    def transform(self, values: ArrayLike, elements: ArrayLike, weights: ArrayLike) -> Array:
        """Fourier coefficients ∫ f(g) A(g) dg of a function given by its values at a quadrature's nodes.

        Args:
            values: Shape (N,) or (N, k) for several functions.
            elements: The nodes, shape (N, n, n).
            weights: Shape (N,).

        Returns:
            Shape (size,) or (size, k).
        """
        weighted = self.sample(elements) * np.asarray(weights, dtype=np.float64)[:, None]
        return weighted.T @ np.asarray(values, dtype=np.float64)

    def quadrature(self, degree: int) -> tuple[Array, Array]:
        """Nodes and weights on H/K, as representatives in H, exact for functions of frequency ≤ degree."""
        nodes = None if self.subgroup is None else self.group.quotient_quadrature(degree, self.subgroup)
        return self.group.quadrature(degree) if nodes is None else nodes

"""What every group offers. Elements are orthogonal matrices: compose with ``@``, invert by transposing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pscnn._memo import memo
from pscnn._memory import TooLargeError, afford
from pscnn._types import Array, ArrayLike
from pscnn.groups._functions import FunctionSpace
from pscnn.groups._representation import DirectSum, Irrep

if TYPE_CHECKING:
    from pscnn.groups._planar import PlanarGroup

HIGHEST = 10**5
"""Frequency up to which irreps can be listed."""


class Group(ABC):
    """A compact group H ≤ O(n), n = 2 or 3.

    Groups are values: two equal groups are interchangeable, can be hashed, pickled and used as keys. A batch of
    elements is an array (N, n, n).
    """

    dimension: int
    planar: PlanarGroup | None
    """The group of the plane that this one is, perhaps about an axis of space; None for SO(3) and O(3)."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The usual name: ``"O(2)"``, ``"C(4)"``, ``"SO(2)@z"`` about an axis."""

    @property
    def order(self) -> int | None:
        """Number of elements, None if infinite."""
        return None

    @property
    def max_frequency(self) -> int | None:
        """The highest frequency of any irrep, None if there is no highest."""
        return None

    @property
    @abstractmethod
    def has_reflections(self) -> bool:
        """Whether there are elements of determinant −1."""

    @property
    @abstractmethod
    def rotations(self) -> Group:
        """The subgroup of the elements of determinant 1."""

    @property
    def identity(self) -> Array:
        """The identity element, shape (n, n)."""
        return np.eye(self.dimension)

    @property
    def trivial(self) -> Irrep:
        """The irrep by which scalars transform."""
        return self.irreps(0)[0]

    @property
    @memo
    def vector(self) -> DirectSum:
        """The representation by which vectors of Rⁿ transform: the element itself."""
        from pscnn.groups._planar import O2
        from pscnn.groups._spatial import O3

        full: Group = O2() if self.dimension == 2 else O3()
        return replace(full.irrep(1, 1).restrict(self), origin=f"{self!r}.vector")

    @property
    def regular(self) -> DirectSum:
        """Functions on a finite group, one channel per element, permuted by the group."""
        return self.quotient(None)

    def quotient(self, subgroup: Group | None) -> DirectSum:
        """Functions on the cosets hK of a finite group, one channel per coset, permuted by the group."""
        if self.order is None:
            raise ValueError(
                f"{self.name} is infinite: its regular representation has no end. "
                f"Use {self.name}.functions(bandlimit) for the band-limited one"
            )
        afford(
            self.order**2, f"the regular representation of {self.name}", "use a smaller group or functions(bandlimit)"
        )
        return _quotient(self, None if subgroup is None else self.as_subgroup(subgroup))

    def functions(self, bandlimit: int, subgroup: Group | None = None) -> FunctionSpace:
        """Band-limited functions on H, or on H/K, as Fourier coefficients. See ``FunctionSpace``."""
        return FunctionSpace(self, bandlimit, None if subgroup is None else self.as_subgroup(subgroup))

    def irrep(self, *index: int) -> Irrep:
        """The irrep with this index."""
        if not all(isinstance(i, (int, np.integer)) for i in index) or not self.has_irrep(tuple(index)):
            known = ", ".join(f"({', '.join(map(str, psi.index))})" for psi in self.irreps(3))
            raise ValueError(
                f"{self.name} has no irrep {index}; up to frequency 3 it has {known}"
                + ("" if self.max_frequency is not None else ", and so on")
            )
        return Irrep(self, tuple(int(i) for i in index))

    def irreps(self, bandlimit: int | None) -> tuple[Irrep, ...]:
        """All irreps of frequency ≤ bandlimit, the trivial one first; None means all (finite groups)."""
        highest = self.max_frequency
        if bandlimit is None:
            if highest is None:
                raise ValueError(f"{self.name} has infinitely many irreps: give a bandlimit")
            bandlimit = highest
        if bandlimit < 0:
            raise ValueError(f"bandlimit must be 0 or more, got {bandlimit}")
        bandlimit = bandlimit if highest is None else min(bandlimit, highest)
        if bandlimit > HIGHEST:
            raise TooLargeError(f"irreps are listed up to frequency {HIGHEST}, got {bandlimit}: use a lower bandlimit")
        return tuple(Irrep(self, index) for index in self.irrep_indices(bandlimit))

    def irrep_indices(self, bandlimit: int) -> list[tuple[int, ...]]:
        """Indices of the irreps up to a frequency, by frequency, the trivial one first."""
        parities: list[tuple[int, ...]] = [(0,), (1,)] if self.has_reflections else [()]
        candidates = ((*parity, k) for k in range(bandlimit + 1) for parity in parities)
        return [index for index in candidates if self.has_irrep(index)]

    def has_irrep(self, index: tuple[int, ...]) -> bool:
        """Whether an irrep with this index exists."""
        parities = (0, 1) if self.has_reflections else index[:1]
        return len(index) == 1 + self.has_reflections and index[-1] >= 0 and index[0] in parities

    @abstractmethod
    def irrep_size(self, index: tuple[int, ...]) -> int:
        """Dimension of an irrep."""

    @abstractmethod
    def irrep_matrices(self, index: tuple[int, ...], elements: Array) -> Array:
        """Matrices of an irrep, shape (N, d, d)."""

    def may_contain(self, left: Irrep, right: Irrep, target: Irrep) -> bool:
        """A cheap necessary condition for ``target`` to occur in ``left ⊗ right``."""
        return True

    @abstractmethod
    def quadrature(self, degree: int) -> tuple[Array, Array]:
        """Nodes (N, n, n) and weights (N,), summing to 1, exact for matrix coefficients of frequency ≤ degree."""

    def quotient_quadrature(self, degree: int, subgroup: Group) -> tuple[Array, Array] | None:
        """A smaller quadrature for functions on H/K, where one is known."""
        return None

    @abstractmethod
    def sample(self, count: int, seed: int) -> Array:
        """Elements drawn uniformly (Haar measure), shape (count, n, n)."""

    def near_identity(self, count: int, seed: int) -> Array:
        """Elements close to the identity, where a density's maximum is searched more finely; none if H is finite."""
        return np.empty((0, self.dimension, self.dimension))

    def contains(self, elements: ArrayLike) -> bool:
        """Whether all given matrices are elements (to 1e-6)."""
        elements, n = np.asarray(elements, dtype=np.float64), self.dimension
        if elements.shape[-2:] != (n, n) or not np.allclose(elements @ elements.swapaxes(-1, -2), np.eye(n), atol=1e-6):
            return False
        return self.has_reflections or bool(np.all(np.linalg.det(elements) > 0))

    def is_subgroup_of(self, other: Group) -> bool:
        """Whether all elements are elements of ``other`` (to 1e-6); plane groups act on space as in ``as_subgroup``.

        Example:
            >>> from pscnn.groups import O2, O3, C, D
            >>> C(2).is_subgroup_of(D(4)), D(2).is_subgroup_of(C(4)), O2().is_subgroup_of(O3())
            (True, False, True)
        """
        placed = other.place(self)
        if placed.dimension != other.dimension:
            return False
        if other.order is not None and (placed.order is None or other.order % placed.order):  # Lagrange
            return False
        # Nodes for finite groups, which sampling may miss; samples for continuous ones, whose nodes are special angles.
        return other.contains(placed.quadrature(0)[0]) and other.contains(placed.sample(8, seed=0))

    def as_subgroup(self, subgroup: Group) -> Group:
        """Check that ``subgroup`` is one, and return it with elements of the same dimension."""
        if not isinstance(subgroup, Group):
            raise TypeError(f"expected a subgroup of {self.name}, such as {self!r} itself, got {subgroup!r}")
        if not subgroup.is_subgroup_of(self):
            raise ValueError(f"{subgroup.name} is not a subgroup of {self.name}")
        return self.place(subgroup)

    def place(self, group: Group) -> Group:
        """Where a group of the plane acts in this one's space; other groups, and all in the plane, as they are."""
        return group

    def __str__(self) -> str:
        return self.name


@memo
def _quotient(group: Group, subgroup: Group | None) -> DirectSum:
    elements, _ = group.quadrature(0)
    label, origin = "regular", f"{group!r}.regular"
    if subgroup is not None:
        label, origin = f"{group.name}/{subgroup.name}", f"{group!r}.quotient({subgroup!r})"
        members, _ = subgroup.quadrature(0)
        keep: list[Array] = []
        for h in elements:
            if not any(np.abs(g.T @ h - k).max() < 1e-6 for g in keep for k in members):
                keep.append(h)
        elements = np.stack(keep)
    space = group.functions(group.max_frequency or 0, subgroup)
    return DirectSum(group, space.irreps, space.sample(elements) / np.sqrt(len(elements)), label, origin)

"""Representations: how H acts on a vector of features. Frozen, hashable, picklable values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import numpy as np

from pscnn._memo import memo
from pscnn._types import Array, ArrayLike
from pscnn.groups import _decompose

if TYPE_CHECKING:
    from pscnn.groups._group import Group


class Representation(ABC):
    """An orthogonal representation ρ(h) = Q (⊕ ψ_i(h)) Qᵀ of a group, given by its irreps and a change of basis Q."""

    group: Group
    irreps: tuple[Irrep, ...]

    @property
    def change_of_basis(self) -> Array | None:
        """The matrix Q, or None for the identity."""
        return None

    @property
    def size(self) -> int:
        """Number of channels."""
        return sum(psi.size for psi in self.irreps)

    @property
    def frequency(self) -> int:
        """The highest frequency among the irreps."""
        return max(psi.frequency for psi in self.irreps)

    @property
    @abstractmethod
    def name(self) -> str:
        """A short name for tables."""

    def __call__(self, elements: ArrayLike) -> Array:
        """Matrices ρ(h).

        Args:
            elements: One element (n, n) or a batch (N, n, n).

        Returns:
            Shape (size, size) or (N, size, size).
        """
        elements = np.asarray(elements, dtype=np.float64)
        if elements.ndim == 2:
            return self(elements[None])[0]
        n = self.group.dimension
        if elements.ndim != 3 or elements.shape[1:] != (n, n):
            raise ValueError(
                f"elements of {self.group.name} have shape (N, {n}, {n}) or ({n}, {n}), got {elements.shape}"
            )
        values = {psi: psi.matrices(elements) for psi in dict.fromkeys(self.irreps)}
        out = _decompose.block_diagonal([values[psi] for psi in self.irreps])
        q = self.change_of_basis
        return out if q is None else np.einsum("ab,nbc,dc->nad", q, out, q, optimize=True)

    def __add__(self, other: Representation) -> DirectSum:
        if not isinstance(other, Representation):
            return NotImplemented
        if other.group != self.group:
            raise ValueError(f"cannot add representations of {self.group.name} and {other.group.name}")
        return direct_sum([self, other])

    def restrict(self, subgroup: Group) -> DirectSum:
        """The same matrices seen as a representation of a subgroup, with the irreps split.

        Plane groups are subgroups of SO(3) and O(3) as rotations about the z axis (see ``Axial`` for others).

        Example:
            >>> from pscnn.groups import O2, C
            >>> [psi.name for psi in O2().irrep(1, 1).restrict(C(4)).irreps]
            ['ψ1']
        """
        return _restrict(self, self.group.as_subgroup(subgroup))

    def tensor(self, other: Representation) -> DirectSum:
        """The tensor product, decomposed: (ρ ⊗ σ)(h) = Q (⊕ ψ_i(h)) Qᵀ (Clebsch–Gordan).

        Example:
            >>> from pscnn.groups import SO3
            >>> one = SO3().irrep(1)
            >>> [psi.index for psi in one.tensor(one).irreps]
            [(0,), (1,), (2,)]
        """
        if other.group != self.group:
            raise ValueError(f"cannot multiply representations of {self.group.name} and {other.group.name}")
        return _tensor(self, other)

    def trivial_vectors(self) -> Array:
        """Orthonormal invariant vectors, one column per trivial irrep, shape (size, count)."""
        trivial = np.repeat([psi.is_trivial for psi in self.irreps], [psi.size for psi in self.irreps])
        q = self.change_of_basis
        return (np.eye(self.size) if q is None else q)[:, np.flatnonzero(trivial)]


@dataclass(frozen=True)
class Irrep(Representation):
    """An irreducible representation over the reals, named by its index.

    Get one from the group: ``O2().irrep(1, 3)``.
    """

    group: Group
    index: tuple[int, ...]

    @property
    def irreps(self) -> tuple[Irrep, ...]:  # type: ignore[override]
        return (self,)

    @property
    def name(self) -> str:
        return "ψ" + ",".join(map(str, self.index))

    @property
    def size(self) -> int:
        return self.group.irrep_size(self.index)

    @property
    def frequency(self) -> int:
        return self.index[-1]

    @property
    def is_trivial(self) -> bool:
        """Whether every element acts as 1."""
        return not any(self.index)

    @property
    @memo
    def endomorphisms(self) -> Array:
        """A basis of the matrices that commute with the irrep, the identity first, shape (c, d, d)."""
        elements, weights = self.group.quadrature(2 * self.frequency)
        return _decompose.commutant(self.matrices(elements), weights)

    @property
    def type(self) -> Literal["real", "complex", "quaternionic"]:
        """Which field the endomorphisms form: real (c = 1), complex (c = 2) or quaternionic (c = 4)."""
        return {1: "real", 2: "complex", 4: "quaternionic"}[len(self.endomorphisms)]  # type: ignore[return-value]

    def matrices(self, elements: Array) -> Array:
        """Matrices for a batch of elements (N, n, n), without checks."""
        return self.group.irrep_matrices(self.index, elements)

    def __repr__(self) -> str:
        return f"{self.group!r}.irrep({', '.join(map(str, self.index))})"


@dataclass(frozen=True, eq=False, repr=False)
class DirectSum(Representation):
    """A direct sum of irreps, seen through a change of basis.

    Args:
        group: H.
        irreps: The irreps.
        basis: The change of basis, or None for the identity.
        label: The representation's name, by default that of its irreps.
        origin: The expression that makes it, for its repr.
    """

    group: Group
    irreps: tuple[Irrep, ...]
    basis: Array | None = None
    label: str | None = None
    origin: str | None = None

    def __post_init__(self) -> None:
        if self.basis is not None:
            basis = np.asarray(self.basis, dtype=np.float64)
            basis.flags.writeable = False
            object.__setattr__(self, "basis", basis)

    @property
    def change_of_basis(self) -> Array | None:
        return self.basis

    @property
    def name(self) -> str:
        return self.label or "⊕".join(psi.name for psi in self.irreps)

    def _key(self) -> tuple[object, ...]:
        return (self.group, self.irreps, None if self.basis is None else self.basis.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DirectSum) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        if self.origin:
            return self.origin
        if self.basis is None:
            return f"direct_sum({listed(self.irreps)})"
        return f"DirectSum({self.group!r}, {self.irreps!r}, {self.basis.tolist()!r})"


def listed(items: Sequence[object]) -> str:
    """The repr of a list, short where items repeat: ``8 * [a, b]``, ``3 * [a] + [b, c]``.

    Example:
        >>> listed([1, 2, 1, 2]), listed([1, 1, 1, 2, 3])
        ('2 * [1, 2]', '3 * [1] + [2, 3]')
    """
    count = len(items)
    for period in range(1, count // 2 + 1):
        if count % period == 0 and list(items) == list(items[:period]) * (count // period):
            return f"{count // period} * {list(items[:period])!r}"
    runs = [(item, len(list(same))) for item, same in groupby(items)]
    parts = []
    for repeats, found in groupby(runs, key=lambda run: run[1] > 1):
        chosen = list(found)
        parts += [f"{n} * [{item!r}]" for item, n in chosen] if repeats else [repr([item for item, _ in chosen])]
    return " + ".join(parts)


def direct_sum(parts: list[Representation]) -> DirectSum:
    """The direct sum of representations of one group."""
    if not parts or any(part.group != parts[0].group for part in parts):
        names = ", ".join(dict.fromkeys(part.group.name for part in parts)) or "none"
        raise ValueError(f"direct_sum: needs representations of one group, got {names}")
    irreps = tuple(psi for part in parts for psi in part.irreps)
    bases = [part.change_of_basis for part in parts]
    if all(q is None for q in bases):
        return DirectSum(parts[0].group, irreps)
    basis = _decompose.block_diagonal(
        [np.eye(part.size) if q is None else q for part, q in zip(parts, bases, strict=True)]
    )
    label, origin = "⊕".join(part.name for part in parts), f"direct_sum({listed(parts)})"
    return DirectSum(parts[0].group, irreps, basis, label, origin)


def _split(group: Group, values: Array, weights: Array, elements: Array, frequency: int, origin: str) -> DirectSum:
    """Decompose a representation of ``group`` given by its values at a quadrature's nodes."""
    irreps: list[Irrep] = []
    columns: list[Array] = []
    for psi in group.irreps(frequency):
        embeddings = _decompose.intertwiners(values, psi.matrices(elements), weights, psi.endomorphisms)
        irreps += [psi] * len(embeddings)
        columns += list(embeddings)
    basis = np.concatenate(columns, axis=1)
    if np.allclose(basis, np.eye(len(basis)), atol=1e-12):
        return DirectSum(group, tuple(irreps))
    return DirectSum(group, tuple(irreps), basis, origin=origin)


@memo
def _restrict(rho: Representation, subgroup: Group) -> DirectSum:
    elements, weights = subgroup.quadrature(2 * rho.frequency)
    return _split(subgroup, rho(elements), weights, elements, rho.frequency, f"{rho!r}.restrict({subgroup!r})")


@memo
def _tensor(left: Representation, right: Representation) -> DirectSum:
    frequency = left.frequency + right.frequency
    elements, weights = left.group.quadrature(2 * frequency)
    values = _kronecker(left(elements), right(elements))
    return _split(left.group, values, weights, elements, frequency, f"{left!r}.tensor({right!r})")


def _kronecker(a: Array, b: Array) -> Array:
    size = a.shape[1] * b.shape[1]
    return np.einsum("nab,ncd->nacbd", a, b).reshape(-1, size, size)


@memo
def clebsch_gordan(left: Irrep, right: Irrep, target: Irrep) -> Array:
    """Embeddings of ``target`` into ``left ⊗ right``, shape (copies, d_left, d_right, d_target).

    Each copy is an isometry X with (ψ_left ⊗ ψ_right)(h) X = X ψ_target(h).
    """
    group = left.group
    if right.group != group or target.group != group:
        names = ", ".join(dict.fromkeys(psi.group.name for psi in (left, right, target)))
        raise ValueError(f"clebsch_gordan: all irreps must be of one group, got {names}")
    if not group.may_contain(left, right, target):
        return np.empty((0, left.size, right.size, target.size))
    elements, weights = group.quadrature(left.frequency + right.frequency + target.frequency)
    product = _kronecker(left.matrices(elements), right.matrices(elements))
    found = _decompose.intertwiners(product, target.matrices(elements), weights, target.endomorphisms)
    return found.reshape(-1, left.size, right.size, target.size)

"""The one numerical routine behind tensor products, restrictions and quotients, and block-diagonal matrices.

An intertwiner between an irrep ψ and a representation ρ is a matrix X with ρ(h) X = X ψ(h) for all h. The average

    P(X) = ∫ ρ(h) X ψ(h)ᵀ dh

is the orthogonal projection onto the space of intertwiners. The groups here have quadratures that make this average
exact, so P is a matrix we can write down; its columns span all intertwiners. They are picked by a pivot rule that is a
stable function of P, so the same basis is found on every machine (weights saved on one can be used on another), and
that prefers sparse, readable bases.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pscnn._types import Array


def intertwiners(rho: Array, psi: Array, weights: Array, endomorphisms: Array) -> Array:
    """Isometric embeddings of ψ into ρ with mutually orthogonal ranges, one per copy of ψ in ρ: shape (copies, D, d).

    Both are given by their values at the nodes of a quadrature. Copies of an irrep of complex or quaternionic type are
    counted modulo its endomorphisms, (c, d, d) with c = 1, 2 or 4.
    """
    size, dim = rho.shape[1], psi.shape[1]
    projector, rank = _projector(rho, psi, weights)
    return np.sqrt(dim) * pick_basis(projector, rank // len(endomorphisms), endomorphisms, size)


def _projector(rho: Array, psi: Array, weights: Array) -> tuple[Array, int]:
    """P as a matrix on flattened X, and its rank."""
    size, dim = rho.shape[1], psi.shape[1]
    flat = (rho.reshape(len(rho), -1) * weights[:, None]).T @ psi.reshape(len(psi), -1)
    projector = flat.reshape(size, size, dim, dim).transpose(0, 2, 1, 3).reshape(size * dim, size * dim)
    return projector, round(float(np.trace(projector)))


def pick_basis(projector: Array, copies: int, endomorphisms: Array, size: int) -> Array:
    """Orthonormal vectors from the range of a projector, modulo the right action of the endomorphisms.

    Args:
        projector: Orthogonal projector on matrices (size × d), flattened row by row.
        copies: How many to pick.
        endomorphisms: Shape (c, d, d).
        size: Number of rows of the matrices.

    Returns:
        Shape (copies, size, d), each of Frobenius norm 1.
    """
    dim = endomorphisms.shape[-1]
    chosen = np.empty((copies, size, dim))
    spanned = np.empty((size * dim, 0))
    residual = np.diag(projector).copy()
    for copy in range(copies):
        # The first of the (almost) largest columns: rounding errors cannot change the choice between equal ones.
        pivot = int(np.argmax(residual > 0.97 * residual.max()))
        column = projector[:, pivot] - spanned @ spanned[pivot]
        matrix = (column / np.linalg.norm(column)).reshape(size, dim)
        matrix[np.abs(matrix) < 1e-14] = 0.0
        chosen[copy] = matrix
        span, _ = np.linalg.qr(np.stack([(matrix @ e).ravel() for e in endomorphisms], axis=1))
        spanned = np.concatenate([spanned, span], axis=1)
        residual = residual - (span**2).sum(axis=1)
    return chosen


def commutant(psi: Array, weights: Array) -> Array:
    """A basis of the matrices that commute with ψ, the identity first, shape (c, d, d), each of norm sqrt(d)."""
    dim = psi.shape[1]
    projector, rank = _projector(psi, psi, weights)
    basis = [np.eye(dim).ravel() / np.sqrt(dim)]
    for column in projector.T:
        rest = column - sum(b * (b @ column) for b in basis)
        if len(basis) < rank and np.linalg.norm(rest) > 1e-6:
            basis.append(rest / np.linalg.norm(rest))
    return np.sqrt(dim) * np.stack(basis).reshape(-1, dim, dim)


def block_diagonal(blocks: Sequence[Array]) -> Array:
    """Matrices along the diagonal of a larger one, or batches of them: shapes (…, a, b) to (…, Σa, Σb)."""
    rows, columns = (np.cumsum([0, *(block.shape[axis] for block in blocks)]) for axis in (-2, -1))
    out = np.zeros((*(blocks[0].shape[:-2] if blocks else ()), rows[-1], columns[-1]))
    for block, row, column in zip(blocks, rows[:-1], columns[:-1], strict=True):
        out[..., row : row + block.shape[-2], column : column + block.shape[-1]] = block
    return out

"""How much of H is kept: a learnable probability density on the group.

The density is λ(h) = exp(f(h)) / ∫ exp(f), where the logits f are a band-limited function given by Fourier coefficients
(paper, Eqs. 9 and 11). Zero coefficients are the uniform density: full equivariance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._differentiable import differentiable
from pscnn._memo import memo
from pscnn._memory import afford
from pscnn._types import Array, ArrayLike
from pscnn.groups import FunctionSpace, Group, Irrep, block_diagonal, pick_basis
from pscnn.measures import Measure

ALIGNMENT_SAMPLES = 100
"""Extra points near the identity for the alignment error of continuous groups (paper, Appendix E.3)."""


class Likelihood(Measure):
    """A learnable density λ on a compact group H with respect to its normalised Haar measure.

    Pass one object to several layers to let them share a density.

    Args:
        group: H.
        bandlimit: L, the highest frequency of the logits and of the moments Λ_i that a layer uses. Finite groups have a
            highest frequency of their own.
        lowest: The lowest frequency of non-trivial irreps that may be broken; lower ones stay fully equivariant.
        keep: A subgroup K that is always kept: λ(kh) = λ(h), so layers are exactly K-equivariant whatever is learnt.
        support: A subgroup outside of which the density is zero; λ is then a density on that subgroup. It must contain
            what is kept.
        initial: Logits to start from instead of zero (a prior): a function of elements (N, n, n) giving (N,), projected
            onto the band-limit.
        alignment: "soft" leaves the maximum free; the alignment error can pull it to the identity (paper, Eq. 13);
            "construction" makes every coefficient matrix positive semi-definite, A·Aᵀ, which puts the maximum at the
            identity whatever is learnt. It starts at A = 0.02·1, within one per cent of uniform, because A = 0 is a
            saddle.
        trainable: False freezes the density.

    Example:
        >>> from pscnn.groups import O2
        >>> lam = Likelihood(O2(), bandlimit=2)
        >>> lam.density(O2().sample(3, seed=0))
        tensor([1., 1., 1.], grad_fn=<ExpBackward0>)
        >>> round(lam.effective_size().item(), 6)
        1.0
    """

    log_weights: Tensor
    logit_matrix: Tensor
    moment_matrix: Tensor
    embedding: Tensor
    psd_matrix: Tensor

    def __init__(
        self,
        group: Group,
        bandlimit: int = 2,
        *,
        lowest: int = 0,
        keep: Group | None = None,
        support: Group | None = None,
        initial: Callable[[Array], ArrayLike] | None = None,
        alignment: Literal["soft", "construction"] = "soft",
        trainable: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(group, bandlimit, lowest)
        if alignment not in ("soft", "construction"):
            raise ValueError(f"Likelihood: alignment must be 'soft' or 'construction', got {alignment!r}")
        if alignment == "construction" and (initial is not None or keep is not None):
            raise ValueError("Likelihood: alignment='construction' cannot be combined with initial or keep")
        self.alignment = alignment
        self.support = None if support is None else group.as_subgroup(support)
        self.keep = None if keep is None else group.as_subgroup(keep)
        if self.keep is not None and self.support is not None and not self.keep.is_subgroup_of(self.support):
            raise ValueError(
                f"Likelihood: keep must be a subgroup of the support {self.support.name}, got {self.keep.name}: "
                "outside of the support nothing is kept; use a larger support, or keep less"
            )
        constants = _constants(group, self.irreps, self.keep, self.support, bandlimit)
        like = torch.empty(0, device=device, dtype=dtype)
        for name in ("log_weights", "logit_matrix", "moment_matrix"):
            self.add_constant(name, constants[name], like)
        self._sizes = [psi.size for psi in self.irreps if not psi.is_trivial]
        if alignment == "construction":
            self.add_constant("psd_matrix", _psd_projection(group, self.irreps), like)
            start = np.concatenate([0.02 * np.eye(d).ravel() for d in self._sizes] + [np.empty(0)])
        else:
            embedding = constants["embedding"]
            if self.keep is not None:
                self.add_constant("embedding", embedding, like)
            start = np.zeros(embedding.shape[1]) if initial is None else embedding.T @ self._project(initial)
        self.coefficients = nn.Parameter(torch.as_tensor(start).to(like), requires_grad=trainable)

    def _project(self, initial: Callable[[Array], ArrayLike]) -> Array:
        """Fourier coefficients of given logits."""
        nodes, weights = _grid(self.group, self.bandlimit)
        logits = np.asarray(initial(nodes), dtype=np.float64)
        if logits.shape != (len(nodes),) or not np.isfinite(logits).all():
            raise ValueError(
                f"Likelihood: initial must give one finite number per element, shape ({len(nodes)},), "
                f"got shape {logits.shape}"
            )
        return _space(self.group, self.irreps)(nodes).T @ (weights * logits)

    # -- the logits -----------------------------------------------------------------------------------------------

    def logit_coefficients(self) -> Tensor:
        """Fourier coefficients of the logits in the orthonormal basis of functions on H, without the constant."""
        if self.alignment == "soft" and self.keep is None:
            return self.coefficients
        with torch.autocast(self.coefficients.device.type, enabled=False):
            if self.keep is not None:
                return self.embedding @ self.coefficients
            parts = self.coefficients.split([d * d for d in self._sizes])
            blocks = [(a @ a.T).reshape(-1) for a in (p.view(d, d) for p, d in zip(parts, self._sizes, strict=True))]
            return self.psd_matrix @ torch.cat(blocks) if blocks else self.coefficients

    def logits(self) -> Tensor:
        """Logits at the nodes of the grid, then near the identity, the identity last."""
        with torch.autocast(self.coefficients.device.type, enabled=False):
            return (self.logit_matrix * self.logit_coefficients()).sum(1)  # not a matmul: never in TF32

    def _log_partition(self, logits: Tensor) -> Tensor:
        return torch.logsumexp(logits[: self.grid_size] + self.log_weights, 0)

    # -- the density ----------------------------------------------------------------------------------------------

    def log_density(self, elements: ArrayLike) -> Tensor:
        """Logarithm of λ at elements (N, n, n) or (n, n), shape (N,). Differentiable in the coefficients."""
        n = self.group.dimension
        elements = np.asarray(elements, dtype=np.float64).reshape(-1, n, n)
        if not self.group.contains(elements):
            raise ValueError(f"log_density: not all given matrices are elements of {self.group.name}")
        with torch.autocast(self.coefficients.device.type, enabled=False):
            matrix = torch.as_tensor(_space(self.group, self.irreps)(elements)).to(self.coefficients)
            out = matrix @ self.logit_coefficients() - self._log_partition(self.logits())
        if self.support is None:
            return out
        outside = torch.tensor([not self.support.contains(h) for h in elements], device=out.device)
        return out.masked_fill(outside, -torch.inf)

    def density(self, elements: ArrayLike) -> Tensor:
        """λ at elements of the group, shape (N,). With a ``support`` it is a density on that subgroup, zero outside."""
        return self.log_density(elements).exp()

    def masses(self) -> Tensor:
        """The probabilities w_n λ(g_n) of the grid's nodes, which sum to one."""
        with torch.autocast(self.coefficients.device.type, enabled=False):
            return _masses(self.logit_coefficients(), self.logit_matrix, self.log_weights)

    def grid(self) -> tuple[Array, Array]:
        """Nodes and weights of the quadrature on which the density is normalised."""
        return _grid(self.group if self.support is None else self.support, self.bandlimit)

    @property
    def grid_size(self) -> int:
        """The number of nodes of the grid."""
        return len(self.log_weights)

    def flat_moments(self) -> Tensor:
        """The entries of all Λ_i = ∫ λ(h) ψ_i(h) dh, flattened in row-major order and concatenated."""
        with torch.autocast(self.coefficients.device.type, enabled=False):
            if torch.compiler.is_compiling():
                # Along the last axis torch sums in pairs; a matmul over thousands of nodes would lose three digits.
                return (self.moment_matrix * self.masses()).sum(1)
            constants = self.logit_matrix, self.log_weights, self.moment_matrix
            return density_moments(self.logit_coefficients(), *constants)

    # -- what the losses and reports need -------------------------------------------------------------------------

    @torch.no_grad()
    def peak(self) -> Array:
        """The element with the highest density, (n, n): the identity unless another one is higher by one in a million.

        Computed by a search over the grid and near the identity, then a local search (to about 10⁻⁶ radians).
        """
        base = self.group if self.support is None else self.support
        sample = _space(self.group, self.irreps)
        logits = self.logit_coefficients().double().cpu().numpy()
        values = self.logits()[: self.grid_size]
        here, best = self.group.identity, float((sample(self.group.identity[None]) @ logits)[0])
        if values.max().item() > best + 1e-6:
            here = self.grid()[0][int(values.argmax())]
            best = float((sample(here[None]) @ logits)[0])
        # Steps along one-parameter subgroups through random elements near the identity; finite groups have none.
        near = np.asarray(base.near_identity(8, seed=1)).reshape(-1, *here.shape)
        turns = near - near.transpose(0, 2, 1)  # a rotation's logarithm, up to a factor
        turns = turns / np.linalg.norm(turns, axis=(1, 2), keepdims=True)
        turns = np.concatenate([turns, -turns])
        rates, axes = np.linalg.eigh(1j * turns)
        length = 0.1
        while len(turns) and length > 1e-6:
            steps = (axes * np.exp(-1j * length * rates)[:, None]) @ axes.conj().transpose(0, 2, 1)
            around = here @ steps.real
            values = sample(around) @ logits
            if values.max() > best + 1e-12:
                here, best = around[values.argmax()], float(values.max())
            else:
                length /= 2
        return np.asarray(here)

    @torch.no_grad()
    def translate(self, element: ArrayLike) -> None:
        """Replace λ by g ↦ λ(g·h) for an element h, in place; this changes the network unless its weights change, too.

        ``pscnn.align`` changes both.
        """
        h = np.asarray(element, dtype=np.float64)
        if self.alignment == "construction":
            raise ValueError("translate: the peak of a density aligned by construction is always at the identity")
        base = self.group if self.support is None else self.support
        if h.shape != self.group.identity.shape or not base.contains(h):
            raise ValueError(f"translate: needs one element of {base.name}, got {element!r}")
        logits = self.logit_coefficients().double().cpu().numpy()
        nodes, weights = self.group.quadrature(2 * self.bandlimit)  # exact for products of two functions in the band
        sample = _space(self.group, self.irreps)
        moved = sample(nodes).T @ (weights * (sample(nodes @ h) @ logits))
        if self.keep is not None:
            moved = self.embedding.double().cpu().numpy().T @ moved
        self.coefficients.copy_(torch.as_tensor(moved).to(self.coefficients))

    def alignment_error(self) -> Tensor:
        """Max λ − λ(e) over the grid and points near the identity: zero if the maximum is at the identity (Eq. 13)."""
        logits = self.logits()
        density = torch.exp(logits - self._log_partition(logits))
        return density.max() - density[-1]

    def kl(self, reference: Likelihood | None = None, form: Literal["fourier", "grid"] = "fourier") -> Tensor:
        """KL(λ ‖ reference), with no gradient to the reference; None stands for the uniform density.

        Args:
            reference: Another density on the same group.
            form: "fourier" is the paper's Eq. (16), λ̂ᵀ(f̂ − f̂_ref) − log Z + log Z_ref; "grid" sums λ log(λ/λ_ref) over
                the nodes. Both give the same value.
        """
        if reference is not None and (reference.group != self.group or reference.support != self.support):
            raise ValueError(f"kl: both densities must be on one group, got {_where(self)} and {_where(reference)}")
        if form not in ("fourier", "grid"):
            raise ValueError(f"kl: form must be 'fourier' or 'grid', got {form!r}")
        with torch.autocast(self.coefficients.device.type, enabled=False):
            logits, matrix = self.logits(), self.logit_matrix[: self.grid_size]
            log_z, masses = self._log_partition(logits), self.masses()
            if reference is None:
                other_matrix, other, other_log_z = matrix[:, :0], logits.new_zeros(0), torch.zeros_like(log_z)
            else:
                other = reference.logit_coefficients().detach()
                other_log_z = reference._log_partition(reference.logits()).detach()
                other_matrix = matrix
                if reference.irreps != self.irreps:
                    other_matrix = torch.as_tensor(_space(self.group, reference.irreps)(self.grid()[0])).to(logits)
            if form == "grid":
                return (masses * ((logits[: self.grid_size] - log_z) - (other_matrix @ other - other_log_z))).sum()
            own = (masses[:, None] * matrix).sum(0) @ self.logit_coefficients()
            return own - log_z - (masses[:, None] * other_matrix).sum(0) @ other + other_log_z

    def entropy(self) -> Tensor:
        """−∫ λ log λ: zero for the uniform density, negative otherwise."""
        return -self.kl(None)

    def effective_size(self) -> Tensor:
        """exp(entropy): the fraction of H over which the density spreads, 1 for all of H."""
        return self.entropy().exp()

    def extra_repr(self) -> str:
        """What is shown between the brackets of the module's repr."""
        parts = [self.group.name, f"bandlimit={self.bandlimit}"]
        parts += [f"{k}={v.name}" for k, v in (("keep", self.keep), ("support", self.support)) if v is not None]
        parts += ["alignment by construction"] * (self.alignment == "construction")
        parts += ["frozen"] * (not self.coefficients.requires_grad)
        return ", ".join(parts)


def density_moments(coefficients: Tensor, logit_matrix: Tensor, log_weights: Tensor, moment_matrix: Tensor) -> Tensor:
    """∫ λ ψ_i for all i, one after the other, from the coefficients of the logits and a density's constants."""
    constants = logit_matrix, log_weights, moment_matrix
    found: Tensor = _moments_and_masses(coefficients, *constants)[0]
    return found


def _masses(coefficients: Tensor, logit_matrix: Tensor, log_weights: Tensor) -> Tensor:
    logits = (logit_matrix[: len(log_weights)] * coefficients).sum(1)  # not a matmul: never in TF32
    masses = torch.softmax(logits + log_weights, 0)
    return masses / masses.sum()  # the sum inside softmax is less accurate


class _Moments(torch.autograd.Function):
    """∫ λ ψ_i from the coefficients of the logits, with its gradient written out: fewer operations than autograd's."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        coefficients: Tensor, logit_matrix: Tensor, log_weights: Tensor, moment_matrix: Tensor
    ) -> tuple[Tensor, Tensor]:
        masses = _masses(coefficients, logit_matrix, log_weights)
        return (moment_matrix * masses).sum(1), masses

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        _, logit_matrix, _, moment_matrix = inputs
        ctx.save_for_backward(logit_matrix, moment_matrix, output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        logit_matrix, moment_matrix, masses = ctx.saved_tensors
        d_moments, slope = gradients  # the masses have one if this gradient is differentiated
        if d_moments is not None:
            own = d_moments @ moment_matrix
            slope = own if slope is None else own + slope
        if slope is None:
            return None, None, None, None
        d_logits = masses * (slope - masses @ slope)
        return d_logits @ logit_matrix[: len(masses)], None, None, None


_moments_and_masses = differentiable(_Moments)


def _where(likelihood: Likelihood) -> str:
    return likelihood.group.name + ("" if likelihood.support is None else f" (on {likelihood.support.name})")


@memo
def _grid(group: Group, bandlimit: int) -> tuple[Array, Array]:
    """The quadrature of the density. It resolves peaks far sharper than the band-limit of the logits."""
    return group.quadrature(max(64 * bandlimit, 128) - 1 if group.dimension == 2 else max(12 * bandlimit, 24))


def _space(group: Group, irreps: tuple[Irrep, ...]) -> Callable[[ArrayLike], Array]:
    """Values of the orthonormal basis functions belonging to the non-trivial ones of ``irreps``."""
    space = FunctionSpace(group, max(psi.frequency for psi in irreps))
    keep = np.concatenate([np.full(psi.size, psi in irreps and not psi.is_trivial) for psi in space.irreps])
    return lambda elements: space.sample(elements)[:, keep]


@memo
def _constants(
    group: Group, irreps: tuple[Irrep, ...], keep: Group | None, support: Group | None, bandlimit: int
) -> dict[str, Array]:
    base = group if support is None else support
    nodes, weights = _grid(base, bandlimit)
    size = len(nodes) * sum(psi.size**2 for psi in irreps)
    afford(size, f"a density on {group.name} with band-limit {bandlimit}", "use a lower bandlimit")
    near = base.near_identity(ALIGNMENT_SAMPLES, seed=0)
    elements = np.concatenate([nodes, near, group.identity[None]])
    moments = np.concatenate([psi.matrices(nodes).reshape(len(nodes), -1).T for psi in irreps])
    blocks = []
    for psi in FunctionSpace(group, max(psi.frequency for psi in irreps)).irreps:
        if psi.is_trivial or psi not in irreps:
            continue
        if keep is None:
            blocks.append(np.eye(psi.size))
        else:  # λ(kh) = λ(h) asks for coefficient vectors that K fixes
            members, member_weights = keep.quadrature(psi.frequency)
            projector = np.einsum("nab,n->ab", psi.matrices(members), member_weights)
            rank = round(float(np.trace(projector)))
            blocks.append(pick_basis(projector, rank, np.ones((1, 1, 1)), psi.size)[:, :, 0].T)
    return {
        "log_weights": np.log(weights),
        "logit_matrix": np.ascontiguousarray(_space(group, irreps)(elements)),  # kernels read them row by row
        "moment_matrix": np.ascontiguousarray(moments),
        "embedding": block_diagonal(blocks),
    }


@memo
def _psd_projection(group: Group, irreps: tuple[Irrep, ...]) -> Array:
    """The linear map from stacked matrices S_i to the coefficients of Σ_i Tr(S_i ψ_i(h))."""
    nodes, weights = group.quadrature(2 * max(psi.frequency for psi in irreps))
    values = [psi.matrices(nodes).transpose(0, 2, 1).reshape(len(nodes), -1) for psi in irreps if not psi.is_trivial]
    functions = np.concatenate(values, axis=1) if values else np.empty((len(nodes), 0))
    return (_space(group, irreps)(nodes) * weights[:, None]).T @ functions

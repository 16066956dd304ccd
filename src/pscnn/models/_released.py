"""Parts of the paper's released code in place of ours, to measure what each difference is worth.

Every switch changes one thing of a freshly built network and nothing else: the draws of the weights stay as they are,
so that runs of one seed can be compared. What a network does not have, such as densities, is not given to it.
"""

from collections.abc import Collection
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch import nn as tnn

from pscnn._memo import memo
from pscnn._types import Array, IntArray
from pscnn.groups import MIRROR, FunctionSpace, Group, Irrep, PlanarGroup, rotation
from pscnn.kernels import SlotBasis, rings
from pscnn.likelihood import ALIGNMENT_SAMPLES, Likelihood
from pscnn.nn import BatchNorm, FieldType, FourierBatchNorm, GatedBatchNorm, GatedNonlinearity, SteerableMap, affine

RIDGE = 1e-8
"""Added to the squares of the least-squares fit."""


def as_released(model: tnn.Module, switches: Collection[str]) -> tnn.Module:
    """Change a freshly built network in place.

    Args:
        model: From ``build("images", …)``.
        switches: Any of the following; other names are not about the network and have no effect.

            - "sampling": densities on few points, see ``CoarseLikelihood``.
            - "gate-bias": gates with a threshold of their own, see ``ThresholdGate``.
            - "statistics": no gradient through batch statistics, see ``DetachedBatchNorm``.
            - "basis": basis and size of the weights at the start, see ``rescale``.

    Returns:
        The same network.
    """
    for name, child in list(model.named_children()):
        threshold, detached = "gate-bias" in switches, "statistics" in switches
        if isinstance(child, GatedBatchNorm) and (threshold or detached):
            setattr(model, name, NormThenGate(child.out_type, threshold=threshold, detached=detached))
        elif isinstance(child, FourierBatchNorm) and detached:
            child.norm = DetachedBatchNorm(child.in_type)
        elif isinstance(child, BatchNorm) and detached:
            setattr(model, name, DetachedBatchNorm(child.in_type))
    for layer in [module for module in model.modules() if isinstance(module, SteerableMap)]:
        old = layer.likelihood
        if "sampling" in switches and isinstance(old, Likelihood):
            layer.likelihood = CoarseLikelihood(old.group, old.bandlimit, alignment=old.alignment)
        if "basis" in switches:
            rescale(layer)
    return model


# -- densities ----------------------------------------------------------------------------------------------------


class CoarseLikelihood(Likelihood):
    """A density known at 2L + 1 rotations only (with reflections, at as many of both kinds), the identity among them.

    With the logits f at the N nodes, λ_n = exp(f_n) / mean exp(f); the coefficients of λ are (AᵀA + 10⁻⁸)⁻¹ Aᵀ λ, where
    the columns of A are the functions up to frequency L at the nodes. There are as many as nodes, so λ is interpolated:
    what lies between the nodes, and all frequencies above L, is not seen, neither by the normaliser nor by the moments.
    Finite groups are sampled at all their elements, which is what ``Likelihood`` does.

    The points near the identity, for the alignment error, are those of ``Likelihood``, the same for all layers; the
    released code draws them for each.
    """

    def __init__(self, group: Group, bandlimit: int, alignment: Literal["soft", "construction"] = "soft") -> None:
        super().__init__(group, bandlimit, alignment=alignment)
        for name, array in _coarse_constants(group, bandlimit).items():
            self.add_constant(name, array, self.coefficients)

    def grid(self) -> tuple[Array, Array]:
        """The nodes, with equal weights."""
        return _coarse_grid(self.group, self.bandlimit)


@memo
def _coarse_grid(group: Group, bandlimit: int) -> tuple[Array, Array]:
    if group.order is not None:
        return group.quadrature(0)
    assert isinstance(group, PlanarGroup)
    nodes = rotation(2 * np.pi * np.arange(2 * bandlimit + 1) / (2 * bandlimit + 1))
    if group.reflections:
        nodes = np.concatenate([nodes, nodes @ MIRROR])
    return nodes, np.full(len(nodes), 1 / len(nodes))


@memo
def _coarse_constants(group: Group, bandlimit: int) -> dict[str, Array]:
    nodes, weights = _coarse_grid(group, bandlimit)
    near = group.near_identity(ALIGNMENT_SAMPLES, seed=0)
    functions = FunctionSpace(group, bandlimit)
    at_nodes = functions.sample(nodes)
    transform = np.linalg.solve(at_nodes.T @ at_nodes + RIDGE * np.eye(functions.size), at_nodes.T)
    # ∫ ψ_i φ for every function φ: exact on this grid, since both have no frequency above L.
    fine, fine_weights = group.quadrature(2 * bandlimit)
    entries = [psi.matrices(fine).reshape(len(fine), -1) for psi in group.irreps(bandlimit)]
    products = np.concatenate(entries, axis=1).T @ (functions.sample(fine) * fine_weights[:, None])
    return {
        "log_weights": np.log(weights),
        "logit_matrix": functions.sample(np.concatenate([nodes, near, group.identity[None]]))[:, 1:],  # no constant
        "moment_matrix": len(nodes) * products @ transform,  # it is multiplied by λ / N
    }


# -- normalisation and gates --------------------------------------------------------------------------------------


class DetachedBatchNorm(BatchNorm):
    """``BatchNorm`` whose mean m and variance σ² of a batch are constants for the gradient, y = γ (x − m) / σ + β.

    The gradient of x is γ/σ times that of y, without what the batch takes back through its own mean and variance.
    """

    def one_pass(self, x: Tensor) -> bool:
        """There are no kernels for it in training."""
        return not self.training and super().one_pass(x)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise."""
        if not self.training:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            full = x if x.dtype in (torch.float32, torch.float64) else x.float()
            weight, bias, _, average, trivial, _ = self.ingredients(full)
            with torch.no_grad():
                found = self.statistics(full)
            scale = ((average > 0) * (weight * found.inverse)[:, None]).sum(0)  # of each channel, from its field
            y = affine(full, scale, torch.addcmul(trivial @ bias, found.removed, scale, value=-1))
            self.update(found.centre, found.variance, x.numel() // x.shape[1])
            return y.to(x.dtype)


class ThresholdGate(GatedNonlinearity):
    """Gates with a learnt threshold b each, y = σ(s − b) x, standard normal at the start.

    The normalisation before it shifts each gate already, so b is not needed for what the network can express. It makes
    half of the gates start more open and half more closed, and an optimiser that moves every parameter by the same
    amount moves the sum of both twice as far.
    """

    places: Tensor

    def __init__(self, out_type: FieldType) -> None:
        super().__init__(out_type)
        channels = self.gate_channels
        self.threshold = tnn.Parameter(torch.randn(len(channels)))
        self.add_constant("places", np.eye(self.in_type.size)[:, channels], self.threshold)

    def forward(self, x: Tensor) -> Tensor:
        """Shift the gates and apply them."""
        shift = (self.places * self.threshold).sum(1).to(x.dtype)
        return super().forward((x.movedim(1, -1) - shift).movedim(-1, 1))


class NormThenGate(GatedBatchNorm):
    """``GatedBatchNorm`` with other parts, one after the other: its single pass knows its own parts only."""

    def __init__(self, out_type: FieldType, *, threshold: bool, detached: bool) -> None:
        super().__init__(out_type)
        if threshold:
            self.gate = ThresholdGate(out_type)
        if detached:
            self.norm = DetachedBatchNorm(self.in_type)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, then gate."""
        return self.gate(self.norm(x))


# -- basis --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def rescale(layer: SteerableMap) -> None:
    """Scale the basis and the weights at the start of a layer as the released code does.

    With a density, a basis kernel from irrep l to irrep J is d_J √d_i · (orthonormal coefficients) · Y with harmonics Y
    of 1, cos fφ and sin fφ on the rings, not normalised by its samples: d_J is multiplied on, and √d_i comes from the
    coefficients of λ, which are √d_i Λ_i. Without a density, basis kernels have unit power: a weight of 1 turns white
    noise of variance 1 into an output of variance 1. The weights follow the generalised He scheme,

        w ~ N(0, 1 / (n_J m_lJ)),

    where n_J counts the kinds of input irreps from which an output irrep receives anything, and m_lJ the weights from
    all inputs of kind l to it, those that the uniform density silences among them. Here the layer's own draws are
    scaled to these variances.

    For O(2) it is the same as there, up to the order of the weights and the choice of an orthonormal basis among equal
    irreps, which do not change how kernels are distributed. For C(N), D(N) and SO(2) it is so only approximately: the
    released code has duplicates of weights there, which do not enlarge the space of kernels but do enlarge m_lJ.
    """
    (harmonics, points), fields = layer.harmonics.shape, layer.in_type
    harmonic = np.ones(harmonics)
    if layer.likelihood is not None and layer.kernel_size is not None:  # ours have a factor √2 in front of cos and sin
        harmonic = np.concatenate([[1.0] + 2 * r.frequency * [np.sqrt(0.5)] for r in rings(layer.kernel_size, 2)])
    matrices = []
    for (irreps, _, matrix, slots), weight in zip(layer.bases(), layer.tile_weights(), strict=True):
        if not len(matrix):
            matrices.append(matrix)
            continue
        if layer.likelihood is None:
            wanted = np.linalg.norm(slots.flat, axis=1)
        else:
            d_i = np.concatenate([np.full(psi.size * count, psi.size) for psi, count in slots.segments])
            wanted = np.array([psi.size for psi in irreps])[slots.out_index] * np.sqrt(d_i)
        # A row is an orthonormal one times its scale, also after an (orthogonal) change of basis.
        factors = wanted / np.linalg.norm(matrix, axis=1)
        blocks = matrix.reshape(len(matrix), -1, harmonics) * (factors[:, None, None] * harmonic)
        matrices.append(blocks.reshape(matrix.shape))
        deviations = _he(slots.out_index, _sources(slots, fields.layout.composite.irreps), fields.layout.copies)
        ratio = deviations * np.sqrt(fields.size * points) / layer.gain  # ours are gain / √fan_in
        weight.mul_(torch.as_tensor(ratio).to(weight))
    layer.set_bases(matrices)


def _sources(basis: SlotBasis, in_irreps: tuple[Irrep, ...]) -> IntArray:
    """For each weight, the kind of input irrep it acts on, as a number."""
    numbers = {psi: k for k, psi in enumerate(dict.fromkeys(in_irreps))}
    kind_of_channel = np.repeat([numbers[psi] for psi in in_irreps], [psi.size for psi in in_irreps])
    return np.asarray(kind_of_channel[np.abs(basis.matrix).sum((1, 3)).argmax(1)])


def _he(out_index: IntArray, sources: IntArray, in_copies: int) -> Array:
    """1/√(n_J m_lJ) for each weight, from the output irrep that it feeds and the kind of input irrep it acts on."""
    pairs, which, counts = np.unique(np.stack([out_index, sources]), axis=1, return_inverse=True, return_counts=True)
    received = np.bincount(pairs[0])  # kinds per output irrep
    return np.asarray(1 / np.sqrt(received[out_index] * counts[which.reshape(-1)] * in_copies))

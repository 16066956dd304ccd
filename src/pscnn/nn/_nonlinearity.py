"""Nonlinearities that commute with H on irrep fields: gates and norms."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._differentiable import differentiable
from pscnn._memo import memo
from pscnn._types import AnyArray, IntArray
from pscnn.groups import Representation, block_diagonal, direct_sum
from pscnn.nn._fast import CHANNELS, fused
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Nonlinearity, period
from pscnn.nn._norm_act import GATE, Act, Following

LARGEST = 128
"""Channels of a field, with its gates, that a kernel scales by matrices; larger ones have operations of their own."""


def check_irrep_basis(layer: str, fields: FieldType) -> None:
    for rho in fields.representations:
        if rho.change_of_basis is not None:
            raise ValueError(
                f"{layer}: fields must be sums of irreps, but {rho.name} has a change of basis; "
                "use FourierPointwise for regular fields"
            )


Gates = Literal["irrep", "field"]
"""What has a gate of its own."""


def gate_sizes(field: Representation, gates: Gates) -> list[int]:
    """How many channels of a field each of its gates scales."""
    return [field.size] if gates == "field" else [psi.size for psi in field.irreps]


class GatedNonlinearity(Nonlinearity):
    """Scales each irrep ψ by a gate, y = σ(s) x, where s is a scalar field of its own (paper, Appendix E.1).

    Every input field is [its gates] ⊕ [irreps]; the gates are used up. Gates are trivial irreps, so the convolution and
    normalisation before this layer give each its own bias.

    Args:
        out_type: The fields after the gate, sums of irreps. ``in_type`` follows from it.
        gates: "irrep" for one gate per irrep, as in the paper, or "field" for one per field, with fewer channels.

    Shape:
        (B, in_type.size, …) → (B, out_type.size, …).

    Example:
        >>> from pscnn.groups import O2
        >>> H = O2()
        >>> gate = GatedNonlinearity(FieldType(H, 4 * [H.irrep(0, 0) + H.irrep(1, 1)]))
        >>> gate.in_type.size, gate.out_type.size
        (20, 12)
    """

    gates: Tensor
    features: Tensor
    which: Tensor
    gate_of: Tensor
    picked: Tensor
    unit: Tensor

    def __init__(self, out_type: FieldType, gates: Gates = "irrep") -> None:
        super().__init__(out_type)
        check_irrep_basis("GatedNonlinearity", out_type)
        if gates not in ("irrep", "field"):
            raise ValueError(f"GatedNonlinearity: gates must be 'irrep' or 'field', got {gates!r}")
        trivial = out_type.group.trivial
        scaled = {rho: gate_sizes(rho, gates) for rho in set(out_type.representations)}
        gated = {rho: direct_sum([trivial] * len(sizes) + [rho]) for rho, sizes in scaled.items()}
        self.in_type = FieldType(out_type.group, [gated[rho] for rho in out_type.representations])
        self._copies, fields = period(out_type)
        is_gate = np.concatenate([np.repeat([True, False], [len(scaled[rho]), rho.size]) for rho in fields])
        sizes = [size for rho in fields for size in scaled[rho]]
        self._single = len(fields) == 1  # then gates and features are contiguous
        self._gates = len(sizes)
        self.add_constant("gates", np.flatnonzero(is_gate), torch.empty(0))
        self.add_constant("features", np.flatnonzero(~is_gate), torch.empty(0))
        self.add_constant("which", np.repeat(np.arange(len(sizes)), sizes), torch.empty(0))
        channels = len(is_gate)
        if self._single and channels <= LARGEST:
            self._several = max(1, CHANNELS // channels)
            for name, table in zip(("gate_of", "picked"), _matrices(tuple(sizes), self._several), strict=True):
                self.add_constant(name, table, torch.empty(0))
            self.add_constant("unit", unit_scale(self.in_type.size), torch.empty(0))

    def following(self) -> Following | None:
        """What kernels on a GPU do of it; only for equal fields that are not too large."""
        if "unit" not in self._arrays:
            return None
        size = self._several * self.in_type.size // self._copies
        return Following(self.gate_of, self.picked, GATE, self._several * self._gates, size)

    @property
    def gate_channels(self) -> IntArray:
        """Which channels of the input are gates."""
        period = self.in_type.size // self._copies
        return np.asarray(period * np.arange(self._copies)[:, None] + self._arrays["gates"]).ravel()

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        traced = not isinstance(x, Tensor)
        following = self.following() if fused(x) and x.ndim > 2 else None
        if following is not None:
            return Act.apply(x, self.unit.float(), *following)  # type: ignore[no-untyped-call]
        x = x.unflatten(1, (self._copies, self.in_type.size // self._copies))
        if self._single and not (traced or torch.compiler.is_compiling()):
            out: Tensor = _gated(x, self.which, self._gates)
            return out.flatten(1, 2)
        if self._single:
            gates, features = x[:, :, : self._gates], x[:, :, self._gates :]
        else:
            gates, features = x.index_select(2, self.gates), x.index_select(2, self.features)
        return (features * gates.sigmoid().index_select(2, self.which)).flatten(1, 2)


@memo
def unit_scale(channels: int) -> AnyArray:
    """For every channel 1 and 0: a scale and a shift that change nothing."""
    return np.repeat([[1.0], [0.0]], channels, axis=1)


@memo
def _matrices(sizes: tuple[int, ...], several: int) -> tuple[AnyArray, AnyArray]:
    """Two matrices for channels as rows: to the gates of features, and to features only, with zeros around them.

    Args:
        sizes: How many channels of a field each of its gates scales.
        several: Fields side by side.
    """
    gates, features = len(sizes), sum(sizes)
    channels = gates + features
    gate_of, picked = np.zeros((channels, channels)), np.eye(channels)[:, gates:]
    gate_of[np.repeat(np.arange(gates), sizes), np.arange(gates, channels)] = 1
    wide, narrow = (tensor_core_width(several * n) for n in (channels, features))
    shapes = (wide, wide), (wide, narrow)
    out = []
    for matrix, shape in zip((gate_of, picked), shapes, strict=True):
        blocks = block_diagonal(several * [matrix])
        out.append(np.pad(blocks, [(0, n - m) for n, m in zip(shape, blocks.shape, strict=True)]))
    return out[0], out[1]


def tensor_core_width(channels: int) -> int:
    """The next power of two, at least 16: sides of matrices that tensor cores take."""
    return max(16, 1 << (channels - 1).bit_length())


class _Gate(torch.autograd.Function):
    """Gates and features side by side in (B, copies, channels, …); with a gradient that autograd would take apart."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, which: Tensor, gates: int) -> Tensor:
        return x[:, :, gates:] * x[:, :, :gates].sigmoid().index_select(2, which)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, which, ctx.gates = inputs
        ctx.save_for_backward(x, which)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, which = ctx.saved_tensors
        opened, features = x[:, :, : ctx.gates].sigmoid(), x[:, :, ctx.gates :]
        d_opened = torch.zeros_like(opened).index_add(2, which, gradients[0] * features)
        d_gates = torch.ops.aten.sigmoid_backward(d_opened, opened)
        return torch.cat([d_gates, gradients[0] * opened.index_select(2, which)], 2), None, None


_gated = differentiable(_Gate)


class NormNonlinearity(Nonlinearity):
    """Shrinks the norm of each irrep, y = x · max(|x| − b, 0) / |x|, with a learnt threshold b per irrep.

    Args:
        in_type: The fields, sums of irreps; the output has the same type.

    Shape:
        (B, in_type.size, …) → the same.
    """

    which: Tensor
    blocks: Tensor

    def __init__(self, in_type: FieldType, device: Device = None, dtype: DType = None) -> None:
        super().__init__(in_type)
        check_irrep_basis("NormNonlinearity", in_type)
        self._copies, fields = period(in_type)
        sizes = [psi.size for rho in fields for psi in rho.irreps]
        which = np.repeat(np.arange(len(sizes)), sizes)
        self.threshold = nn.Parameter(torch.full((self._copies, len(sizes)), 0.25, device=device, dtype=dtype))
        self.add_constant("which", which, self.threshold)
        self.add_constant("blocks", np.eye(len(sizes))[:, which], self.threshold)

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        fields = x.reshape(x.shape[0], self._copies, self.in_type.size // self._copies, -1)
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):  # squares leave half's range
            exact = fields.to(torch.promote_types(x.dtype, torch.float32))
            squares = torch.einsum("id,bndx->bnix", self.blocks.to(exact.dtype), exact.square())
            norm = squares.clamp_min(1e-12).sqrt()
            scale = ((norm - self.threshold[None, :, :, None]).relu() / norm).index_select(2, self.which)
        return (fields * scale.to(x.dtype)).reshape(x.shape)

    def extra_repr(self) -> str:
        return str(self.in_type)

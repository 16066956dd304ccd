"""Nonlinearities that commute with H on irrep fields: gates and norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._constants import ConstantsModule
from pscnn.groups import Representation, direct_sum
from pscnn.nn._check import check_input, check_types
from pscnn.nn._fast import like
from pscnn.nn._field_type import FieldType
from pscnn.nn._gain import fixed_point_gain


def _period(fields: FieldType) -> tuple[int, tuple[Representation, ...]]:
    """The list of fields as (copies, the fields of one copy), in the order of the channels."""
    copies = fields.layout.copies if fields.layout.order is None else 1
    return copies, fields.representations[: len(fields.representations) // copies]


def _check_irrep_basis(layer: str, fields: FieldType) -> None:
    for rho in fields.representations:
        if rho.change_of_basis is not None:
            raise ValueError(
                f"{layer}: fields must be sums of irreps, but {rho.name} has a change of basis; "
                "use FourierPointwise for regular fields"
            )


class GatedNonlinearity(ConstantsModule):
    """Scales each irrep ψ by a gate, y = σ(s) x, where s is a scalar field of its own (paper, Appendix E.1).

    Every input field is [one gate per irrep] ⊕ [irreps]; the gates are used up. Gates are trivial irreps, so the
    convolution and normalisation before this layer give each its own bias.

    Args:
        out_type: The fields after the gate, sums of irreps. ``in_type`` follows from it.

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
    order: Tensor
    members: Tensor
    present: Tensor

    def __init__(self, out_type: FieldType) -> None:
        super().__init__()
        check_types("GatedNonlinearity", out_type)
        _check_irrep_basis("GatedNonlinearity", out_type)
        trivial = out_type.group.trivial
        gated = {rho: direct_sum([trivial] * len(rho.irreps) + [rho]) for rho in set(out_type.representations)}
        self.out_type = out_type
        self.in_type = FieldType(out_type.group, [gated[rho] for rho in out_type.representations])
        self._copies, fields = _period(out_type)
        gates: list[int] = []
        features: list[int] = []
        members: list[list[int]] = []
        start = number = 0
        for rho in fields:
            gates += range(start, start + len(rho.irreps))
            start += len(rho.irreps)
            for psi in rho.irreps:
                members.append(list(range(number, number + psi.size)))
                number += psi.size
            features += range(start, start + rho.size)
            start += rho.size
        largest = max(map(len, members))
        like = torch.empty(0)
        self.add_constant("order", np.argsort(gates + features), like)
        self.add_constant("gates", np.array(gates), like)
        self.add_constant("features", np.array(features), like)
        self.add_constant("which", np.repeat(np.arange(len(members)), [len(m) for m in members]), like)
        # Row j: the j-th channel of every irrep, and whether there is one.
        self.add_constant("members", np.array([[m[min(j, len(m) - 1)] for m in members] for j in range(largest)]), like)
        self.add_constant("present", np.array([[j < len(m) for m in members] for j in range(largest)]), like)

    @property
    def gain(self) -> float:
        """The gain before this layer that keeps the variance of a signal through it."""
        return fixed_point_gain(self, self.in_type.size)

    def forward(self, x: Tensor) -> Tensor:
        check_input("GatedNonlinearity", x, self.in_type.size, None)
        constants = self.gates, self.features, self.which, self.order, self.members, self.present
        if not isinstance(x, Tensor):  # traced for export, into torch's own functions
            return _gate(x, self._copies, *constants[:3])
        return _Gate.apply(x, self._copies, *constants)  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        return f"{self.in_type} → {self.out_type}"


def _gate(x: Tensor, copies: int, gates: Tensor, features: Tensor, which: Tensor) -> Tensor:
    fields = x.unflatten(1, (copies, -1))
    opened = fields.index_select(2, gates).sigmoid().index_select(2, which)
    return (fields.index_select(2, features) * opened).flatten(1, 2)


class _Gate(torch.autograd.Function):
    """Features times the sigmoid of their gates.

    The gradient of a gate gathers the channels of its irrep. Autograd would scatter into it, with atomic additions.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        copies: int,
        gates: Tensor,
        features: Tensor,
        which: Tensor,
        order: Tensor,
        members: Tensor,
        present: Tensor,
    ) -> Tensor:
        return like(_gate(x, copies, gates, features, which), x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.copies, *constants = inputs
        ctx.save_for_backward(x, *constants)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, gates, features, which, order, members, present = ctx.saved_tensors
        fields, gradient = (t.unflatten(1, (ctx.copies, -1)) for t in (x, gradients[0]))
        opened = fields.index_select(2, gates).sigmoid()
        product = gradient * fields.index_select(2, features)
        total = torch.zeros_like(opened)
        for member, there in zip(members.unbind(), present.unbind(), strict=True):
            there = there.view(-1, *[1] * (fields.ndim - 3))
            total = total + product.index_select(2, member).where(there, 0)
        d_gates = total * opened * (1 - opened)
        d_features = gradient * opened.index_select(2, which)
        out = torch.cat([d_gates, d_features], 2).index_select(2, order)
        return like(out.flatten(1, 2), x), *[None] * 7


class NormNonlinearity(ConstantsModule):
    """Shrinks the norm of each irrep, y = x · max(|x| − b, 0) / |x|, with a learnt threshold b per irrep.

    Args:
        in_type: The fields, sums of irreps; the output has the same type.

    Shape:
        (B, in_type.size, …) → the same.
    """

    which: Tensor
    blocks: Tensor

    def __init__(
        self, in_type: FieldType, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        check_types("NormNonlinearity", in_type)
        _check_irrep_basis("NormNonlinearity", in_type)
        self.in_type = self.out_type = in_type
        self._copies, fields = _period(in_type)
        sizes = [psi.size for rho in fields for psi in rho.irreps]
        which = np.repeat(np.arange(len(sizes)), sizes)
        self.threshold = nn.Parameter(torch.full((self._copies, len(sizes)), 0.25, device=device, dtype=dtype))
        self.add_constant("which", which, self.threshold)
        self.add_constant("blocks", np.eye(len(sizes))[:, which], self.threshold)

    @property
    def gain(self) -> float:
        """The gain before this layer that keeps the variance of a signal through it."""
        return fixed_point_gain(self, self.in_type.size)

    def forward(self, x: Tensor) -> Tensor:
        check_input("NormNonlinearity", x, self.in_type.size, None)
        fields = x.reshape(x.shape[0], self._copies, self.in_type.size // self._copies, -1)
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):  # squares leave half's range
            exact = fields.to(torch.promote_types(x.dtype, torch.float32))
            squares = torch.einsum("id,bndx->bnix", self.blocks.to(exact.dtype), exact.square())
            norm = squares.clamp_min(1e-12).sqrt()
            scale = ((norm - self.threshold[None, :, :, None]).relu() / norm).index_select(2, self.which)
        return (fields * scale.to(x.dtype)).reshape(x.shape)

    def extra_repr(self) -> str:
        return str(self.in_type)

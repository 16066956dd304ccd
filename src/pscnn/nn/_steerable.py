"""The expansion of weights into a kernel: what convolutions and linear layers share."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._constants import ConstantsModule
from pscnn._types import Array
from pscnn.groups import Irrep
from pscnn.kernels import SteerableBasis, grid_points
from pscnn.likelihood import Likelihood
from pscnn.nn._bases import (
    dense_basis,
    entries,
    kinds,
    row_basis,
    sampled_basis,
    slot_matrix,
    sorted_channels,
    trivial_rows,
)
from pscnn.nn._check import check_types
from pscnn.nn._field_type import FieldType

DENSE_LIMIT = 2**20
"""Largest number of entries of a basis that is expanded in one product; larger ones go irrep by irrep of the output."""


class _Tile(NamedTuple):
    """A block of the kernel: ``out_copies`` × ``in_copies`` repetitions of one slot basis."""

    out_copies: int
    in_copies: int
    d_out: int
    d_in: int
    weights: int
    segments: tuple[tuple[int, int, int], ...]  # (index of the irrep i among the moments, its size, its slots)


class SteerableMap(ConstantsModule):
    """A map between field types whose kernel is K(x) = Σ_slots B_slot(x) · (Λ_i · w_slot).

    The basis B is constant. Λ_i are the moments of the likelihood, or absent: then only the slots with trivial i exist
    and the map is fully equivariant.
    """

    harmonics: Tensor
    out_sorted: Tensor
    out_order: Tensor
    in_order: Tensor
    out_basis: Tensor
    bias_basis: Tensor
    bias: nn.Parameter | None

    def __init__(
        self,
        in_type: FieldType,
        out_type: FieldType,
        kernel_size: int | None,
        likelihood: Likelihood | None,
        bias: bool,
        gain: float,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_types(name, in_type, out_type)
        if likelihood is not None and not isinstance(likelihood, Likelihood):
            raise TypeError(f"{name}: likelihood must be a pscnn.Likelihood or None, got {likelihood!r}")
        if likelihood is not None and likelihood.group != in_type.group:
            raise ValueError(
                f"{name}: the likelihood is over {likelihood.group.name}, the fields over {in_type.group.name}; "
                "both must be over one group"
            )
        self.in_type, self.out_type = in_type, out_type
        self.likelihood = likelihood
        self.gain = gain
        like = torch.empty(0, device=device, dtype=dtype or torch.get_default_dtype())
        if likelihood is not None and likelihood.coefficients.dtype != like.dtype:
            raise ValueError(
                f"{name}: the likelihood is in {likelihood.coefficients.dtype}, the layer in {like.dtype}; "
                "build both with one dtype"
            )
        steerable = SteerableBasis(in_type.group, kernel_size)
        moments = (in_type.group.trivial,) if likelihood is None else likelihood.irreps
        self._spatial = () if kernel_size is None else (kernel_size,) * in_type.group.dimension
        self._build(steerable, moments, like)
        count = sum(t.out_copies * t.in_copies * t.weights for t in self._tiles)
        self.weight = nn.Parameter(torch.empty(count, dtype=like.dtype, device=like.device))
        self._build_bias(bias, like)
        self._cache: tuple[Any, Tensor, Tensor | None] | None = None
        self._held: dict[Any, tuple[Tensor, Tensor | None]] | None = None
        self.reset_parameters()

    # -- construction ---------------------------------------------------------------------------------------------

    def _build(self, steerable: SteerableBasis, moments: tuple[Irrep, ...], like: Tensor) -> None:
        out, inn = self.out_type.layout, self.in_type.layout
        positions = {psi: k for k, psi in enumerate(moments)}

        self.add_constant("harmonics", steerable.sample(), like)
        self._dense = entries(out.composite, inn.composite, steerable, moments) <= DENSE_LIMIT
        if self._dense:
            found = [(out.copies, out.composite.size, *dense_basis(out.composite, inn.composite, steerable, moments))]
        else:
            found = [
                (out.copies * n, a.size, *row_basis(a, out.composite, inn.composite, steerable, moments))
                for a, n in kinds(out.composite).items()
            ]
            self.add_constant("out_sorted", sorted_channels(out.composite, out.copies), like)
            if out.composite.change_of_basis is not None:
                self.add_constant("out_basis", out.composite.change_of_basis, like)
        self._tiles = []
        for k, (copies, size, matrix, basis) in enumerate(found):
            segments = tuple((positions[psi], psi.size, count) for psi, count in basis.segments)
            self._tiles.append(_Tile(copies, inn.copies, size, inn.composite.size, len(matrix), segments))
            self.add_constant(f"basis{k}", matrix, like)
            if self.likelihood is not None:
                places, which = slot_matrix(basis.segments, moments)
                self.add_constant(f"slot_places{k}", places, like)
                self.add_constant(f"slot_moments{k}", which, like)
        if self._dense and len(matrix) * size * inn.composite.size * self.harmonics.shape[1] <= 4 * DENSE_LIMIT:
            self.add_constant("sampled0", sampled_basis(out.composite, inn.composite, steerable, moments), like)
        for side, layout in (("out", out), ("in", inn)):
            if layout.order is not None:
                self.add_constant(f"{side}_order", layout.order, like)

    def _build_bias(self, bias: bool, like: Tensor) -> None:
        out = self.out_type.layout
        trivial = trivial_rows(out.composite)
        if bias and len(trivial):
            self.add_constant("bias_basis", trivial, like)
            self.bias = nn.Parameter(torch.empty(out.copies, len(trivial), dtype=like.dtype, device=like.device))
        else:
            self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        """Gaussian weights that keep the variance of the signal (times gain²) under the uniform density; zero bias.

        The weights are as large as those of a plain layer of the same size, 1/√fan_in, so that learning rates found
        for plain networks suit these.
        """
        with torch.no_grad():
            fan_in = self.in_type.size * self.harmonics.shape[1]
            self.weight.normal_(0, self.gain / math.sqrt(fan_in))
            if self.bias is not None:
                self.bias.zero_()

    # -- expansion ------------------------------------------------------------------------------------------------

    def kernel(self) -> Tensor:
        """The kernel, shape (C_out, C_in, k, k[, k]) or (C_out, C_in); differentiable in weights and logits."""
        with torch.autocast(self.weight.device.type, enabled=False):
            if self.likelihood is None:
                return self.expand(None)
            if torch.compiler.is_compiling() or not _few_operations(self.weight):
                return self.expand(self.likelihood.moment_list())
            moments = self.likelihood.flat_moments()

            def product(k: int, weight: Tensor, basis: Tensor) -> Tensor:
                constants = (getattr(self, f"slot_{name}{k}") for name in ("places", "moments"))
                return _Expansion.apply(weight, moments, basis, *constants)[0]  # type: ignore[no-untyped-call]

            return self._assemble(product)

    def expand(self, moments: list[Tensor] | None, harmonics: Tensor | None = None) -> Tensor:
        """The kernel for given matrices Λ_i in place of the likelihood's; None stands for the identity.

        Given values of the harmonics at other points than the kernel's grid, the kernel is sampled there.
        """

        def product(k: int, weight: Tensor, basis: Tensor) -> Tensor:
            segments = self._tiles[k].segments
            return (_multiply(weight, segments, moments) if moments is not None and segments else weight) @ basis

        return self._assemble(product, harmonics)

    def _assemble(self, product: Callable[[int, Tensor, Tensor], Tensor], harmonics: Tensor | None = None) -> Tensor:
        """The kernel from the products of every tile's weights, moments and basis."""
        # Basis times harmonics: one product instead of two smaller ones.
        sampled = harmonics is None and "sampled0" in self._arrays and _few_operations(self.weight)
        rows, start = [], 0
        for k, tile in enumerate(self._tiles):
            copies = tile.out_copies * tile.in_copies
            weight = self.weight[start : start + copies * tile.weights].view(copies, tile.weights)
            start += copies * tile.weights
            rows.append(
                self._joined(product(k, weight, getattr(self, f"{'sampled' if sampled else 'basis'}{k}")), tile)
            )
        out = torch.cat(rows) if len(rows) > 1 else rows[0]
        if not self._dense:
            out = out.index_select(0, self.out_sorted)
            if "out_basis" in self._arrays:
                size = len(self.out_basis)
                out = (self.out_basis @ out.reshape(-1, size, out[0].numel())).reshape(out.shape)
        if not sampled:
            out = out @ (self.harmonics if harmonics is None else harmonics)
        return self._ordered(out)

    @staticmethod
    def _joined(block: Tensor, tile: _Tile) -> Tensor:
        """From (copies, d_out·d_in·points) to (channels out, channels in, points)."""
        block = block.view(tile.out_copies, tile.in_copies, tile.d_out, tile.d_in, -1).transpose(1, 2)
        return block.reshape(tile.out_copies * tile.d_out, tile.in_copies * tile.d_in, -1)

    def _ordered(self, out: Tensor) -> Tensor:
        """From copies of composites to the order of the fields, with the kernel's axes."""
        if "out_order" in self._arrays:
            out = out.index_select(0, self.out_order)
        if "in_order" in self._arrays:
            out = out.index_select(1, self.in_order)
        return out.reshape(self.out_type.size, self.in_type.size, *self._spatial)

    def steered(self, kernel_moments: list[Tensor] | None, element: Array) -> Tensor:
        """The kernel as h sees it, ρ_out(h) K(h⁻¹x) ρ_in(h)⁻¹: K itself where the layer is equivariant to h.

        Exact, without interpolation: K is known at every point, not only on the grid.
        """
        size = self._spatial[0] if self._spatial else None
        steerable = SteerableBasis(self.in_type.group, size)
        points = np.zeros((1, len(element))) if size is None else grid_points(size, len(element)) @ element
        harmonics = torch.as_tensor(steerable.evaluate(points)).to(self.harmonics)
        kernel = self.expand(kernel_moments, harmonics)
        left, right = (torch.as_tensor(t.matrix(element)).to(kernel) for t in (self.out_type, self.in_type))
        return torch.einsum("ij,jk...,lk->il...", left, kernel, right)

    @torch.no_grad()
    def translate(self, element: Array) -> None:
        """Turn the weights of every slot, w → ψ_i(h) w, in place: with λ(g·h) for λ(g) the kernel stays as it is."""
        if self.likelihood is None:
            return
        moments = [torch.as_tensor(psi.matrices(element[None])[0]).to(self.weight) for psi in self.likelihood.irreps]
        start = 0
        for tile in self._tiles:
            count = tile.out_copies * tile.in_copies * tile.weights
            part = self.weight[start : start + count]
            if tile.segments:
                part.copy_(_multiply(part.view(-1, tile.weights), tile.segments, moments).view(-1))
            start += count

    def full_bias(self) -> Tensor | None:
        """The bias of every channel: non-zero along trivial irreps only, shape (C_out,)."""
        if self.bias is None:
            return None
        with torch.autocast(self.weight.device.type, enabled=False):
            out = (self.bias @ self.bias_basis).reshape(-1)
        return out.index_select(0, self.out_order) if "out_order" in self._arrays else out

    def _kernel_and_bias(self) -> tuple[Tensor, Tensor | None]:
        """Kernel and bias; in eval mode without gradients, expanded once and reused until a parameter changes.

        A change behind autograd's back, through ``parameter.data``, cannot be seen: call ``eval()`` after one.
        """
        if torch.compiler.is_compiling():
            return self.kernel(), self.full_bias()
        parameters = list(self.parameters())
        if (
            self.training
            or torch.is_grad_enabled()
            or not all(isinstance(p, nn.Parameter) and not p.is_inference() for p in parameters)
        ):
            # An optimiser step may follow, and fused ones do not count up the version of what they change.
            self._cache = None
            if self._held is None:
                return self.kernel(), self.full_bias()
            mode = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
            if mode not in self._held:
                self._held[mode] = self.kernel(), self.full_bias()
            return self._held[mode]
        key = [(p, p._version, p.data_ptr(), p.dtype) for p in parameters]
        if self._cache is not None:
            old = self._cache[0]
            if len(old) == len(key) and all(a[0] is b[0] and a[1:] == b[1:] for a, b in zip(old, key, strict=True)):
                return self._cache[1], self._cache[2]
        self._cache = (key, self.kernel(), self.full_bias())
        return self._cache[1], self._cache[2]

    def train(self, mode: bool = True) -> SteerableMap:
        """Set the mode; what was expanded before is forgotten."""
        self._cache = None
        super().train(mode)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> SteerableMap:
        self._cache = None
        if self._held is not None:
            self._held.clear()
        super()._apply(fn, recurse)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": None, "_held": None}

    def extra_repr(self) -> str:
        kind = "equivariant" if self.likelihood is None else "partially equivariant"
        return f"{self.in_type} → {self.out_type}, {kind}, {self.weight.numel()} weights"


@contextlib.contextmanager
def expand_once(model: nn.Module) -> Iterator[None]:
    """Let every steerable layer of a network expand its kernel at most once, with its gradient, until the end.

    For networks that are applied several times within one step, as in forecasts from their own output, with one
    backward pass for all of them. Parameters must not change inside, and activation checkpointing cannot recompute
    layers there. Compiled code expands once by itself.

    Args:
        model: Whose layers.

    Example:
        >>> import torch
        >>> from pscnn import FieldType, nn
        >>> from pscnn.groups import C
        >>> H = C(4)
        >>> vectors = FieldType(H, [H.vector])
        >>> conv = nn.Conv2d(vectors, vectors, 3, padding=1)
        >>> x = torch.randn(1, 2, 9, 9)
        >>> with nn.expand_once(conv):
        ...     for _ in range(6):
        ...         x = conv(x)
    """
    layers = [module for module in model.modules() if isinstance(module, SteerableMap)]
    before = [layer._held for layer in layers]
    for layer in layers:
        layer._held = {}
    try:
        yield
    finally:
        for layer, held in zip(layers, before, strict=True):
            layer._held = held


def _few_operations(weight: Tensor) -> bool:
    """Whether few large operations are faster than more small ones: on a GPU, where starting one takes longer."""
    return weight.is_cuda


class _Expansion(torch.autograd.Function):
    """(w · L(Λ)) · basis, where L holds the moments in blocks along its diagonal, with its gradient written out.

    L is filled and multiplied whole, where autograd would see one product per irrep and a dozen views around it.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, moments: Tensor, basis: Tensor, places: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        flat = torch.zeros(len(basis) ** 2, dtype=moments.dtype, device=moments.device)
        matrix = flat.index_copy(0, places, moments.index_select(0, which)).view(len(basis), -1)
        return weight @ matrix @ basis, matrix

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, moments, basis, places, which, matrix = ctx.saved_tensors
        d_kernel, d_matrix = gradients  # the matrix has one if this gradient is differentiated
        d_weight = None
        if d_kernel is not None:
            turned = d_kernel @ basis.T
            d_weight, own = turned @ matrix.T, weight.T @ turned
            d_matrix = own if d_matrix is None else own + d_matrix
        if d_matrix is None:
            return None, None, None, None, None
        filled = d_matrix.reshape(-1).index_select(0, places)
        return d_weight, torch.zeros_like(moments).index_add(0, which, filled), None, None, None


def _multiply(weight: Tensor, segments: tuple[tuple[int, int, int], ...], moments: list[Tensor]) -> Tensor:
    """Λ_i w for every slot: (copies, weights) to the same shape."""
    parts = weight.split([size * count for _, size, count in segments], dim=1)
    out = []
    for part, (index, size, _) in zip(parts, segments, strict=True):
        if index == 0:  # trivial: Λ = 1
            out.append(part)
        elif size <= 3 and torch.compiler.is_compiling():
            # Written out, a compiler makes one kernel of all segments; as products they would be one each.
            columns = part.unflatten(1, (-1, size)).unbind(2)
            rows = [sum(m * w for m, w in zip(row.unbind(), columns, strict=True)) for row in moments[index].unbind()]
            out.append(torch.stack(rows, 2).view_as(part))
        else:
            out.append((part.reshape(-1, size) @ moments[index].T).view_as(part))
    return torch.cat(out, 1) if len(out) > 1 else out[0]

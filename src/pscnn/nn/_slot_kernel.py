"""The weights of a map between field types, and the kernel that they expand to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._memory import afford
from pscnn._types import Array
from pscnn._words import short
from pscnn.groups import DirectSum, Irrep
from pscnn.kernels import Gaussian, SteerableBasis, grid_points
from pscnn.measures import Measure
from pscnn.nn import _bases
from pscnn.nn._bases import Tile, multiply
from pscnn.nn._expansion import Expanded, Shape, Turned, density_of, has_kernels, moments_of, wanted_dtype
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Layer

DENSE_LIMIT = 2**20
"""Largest number of entries of a basis that is expanded in one product; larger ones go irrep by irrep of the output."""


class SlotKernel(Layer):
    """Weights, and the kernel between two field types that they expand to: K(x) = Σ_slots B_slot(x) · (Λ_i · w_slot).

    The basis B is constant. Λ_i are the moments of the likelihood, or of another measure on the group, or absent: then
    only the slots with trivial i exist and the map is fully equivariant. With several groups, each part of the output
    sees only its part of the input.
    """

    harmonics: Tensor
    out_sorted: Tensor
    out_order: Tensor
    in_order: Tensor
    out_basis: Tensor
    sampled0: Tensor
    slot_table0: Tensor
    bias_basis: Tensor
    bias: nn.Parameter | None
    _shape: Shape | None = None  # if a kernel can be made in one step

    def __init__(
        self,
        in_type: FieldType,
        out_type: FieldType,
        kernel_size: int | None,
        likelihood: Measure | None,
        bias: bool,
        gain: float,
        device: Device,
        dtype: DType,
        groups: int = 1,
        profile: Gaussian | None = None,
    ) -> None:
        super().__init__(in_type, out_type)
        name = type(self).__name__
        if out_type is None:
            raise TypeError(f"{name}: out_type must be a pscnn.FieldType, got None")
        self.groups, self.part_type = groups, part_of(name, in_type, groups)
        part_of(name, out_type, groups)
        if likelihood is not None and not isinstance(likelihood, Measure):
            raise TypeError(f"{name}: likelihood must be a pscnn.Likelihood or None, got {likelihood!r}")
        if likelihood is not None and likelihood.group != in_type.group:
            raise ValueError(
                f"{name}: the likelihood is over {likelihood.group.name}, the fields over {in_type.group.name}; "
                "both must be over one group"
            )
        self.likelihood = likelihood
        self.gain = gain
        like = torch.empty(0, device=device, dtype=dtype)
        if likelihood is not None and likelihood.dtype != like.dtype:
            raise ValueError(
                f"{name}: the likelihood is in {likelihood.dtype}, the layer in {like.dtype}; build both with one dtype"
            )
        self.kernel_size, self.profile = kernel_size, profile
        self._spatial = () if kernel_size is None else (kernel_size,) * in_type.group.dimension
        self._build(like)
        self.weight = nn.Parameter(like.new_empty(sum(tile.copies * tile.weights for tile in self._tiles)))
        trivial = _bases.trivial_rows(out_type.layout.composite)
        if bias and len(trivial):
            self.add_constant("bias_basis", trivial, like)
            self.bias = nn.Parameter(like.new_empty(out_type.layout.copies, len(trivial)))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    # -- construction ---------------------------------------------------------------------------------------------

    def _build(self, like: Tensor) -> None:
        ingredients = self._ingredients()  # says it if this is no size of a kernel
        points = (self.kernel_size or 1) ** self.in_type.group.dimension
        what = f"the kernel from {self.in_type.size} to {self.out_type.size} channels"
        afford(self.in_type.size * self.out_type.size * points, what, "use fewer fields or a smaller kernel_size")
        out, inn, steerable, moments = ingredients
        out_copies, in_copies = self.out_type.layout.copies, self.part_type.layout.copies
        self.add_constant("harmonics", steerable.sample(), like)
        self._dense = _bases.entries(*ingredients) <= DENSE_LIMIT
        if not self._dense:
            self.add_constant("out_sorted", _bases.sorted_channels(out, out_copies), like)
            if out.change_of_basis is not None:
                self.add_constant("out_basis", out.change_of_basis, like)
        positions = {psi: k for k, psi in enumerate(moments)}
        bases = self.bases()
        self._tiles = []
        for irreps, copies, matrix, slots in bases:
            segments = tuple((positions[psi], psi.size, count) for psi, count in slots.segments)
            size = sum(psi.size for psi in irreps)
            self._tiles.append(Tile(out_copies * copies, in_copies, size, inn.size, len(matrix), segments))
        self.add_constants("basis", [basis.matrix for basis in bases], like)
        if self.likelihood is not None:
            self.add_constants("slot_table", [_bases.slot_table(b.slots.segments, moments) for b in bases], like)
        points = self.harmonics.shape[1]
        if self._dense and len(bases[0].matrix) * out.size * inn.size * points <= 4 * DENSE_LIMIT:
            self.add_constants("sampled", [_bases.sampled_basis(*ingredients)], like)
        for side, layout in (("out", self.out_type.layout), ("in", self.part_type.layout)):
            if layout.order is not None:
                self.add_constant(f"{side}_order", layout.order, like)
        in_order = not {"out_order", "in_order"} & self._arrays.keys()
        if self._spatial and self.groups == 1 and self.constants("sampled") and in_order:
            sizes = () if self.likelihood is None else tuple(psi.size for psi in moments)
            self._shape = Shape(self._tiles[0], self._spatial, sizes)

    def _ingredients(self) -> tuple[DirectSum, DirectSum, SteerableBasis, tuple[Irrep, ...]]:
        """What the basis follows from: both composites, the harmonics, and the irreps of the moments."""
        group = self.in_type.group
        moments = (group.trivial,) if self.likelihood is None else self.likelihood.irreps
        steerable = SteerableBasis(group, self.kernel_size, self.profile)
        return self.out_type.layout.composite, self.part_type.layout.composite, steerable, moments

    def reset_parameters(self) -> None:
        """Gaussian weights that keep the variance of the signal (times gain²) under the uniform density; zero bias.

        The weights are as large as those of a plain layer of the same size, 1/√fan_in, so that learning rates found
        for plain networks suit these.
        """
        with torch.no_grad():
            fan_in = self.part_type.size * self.harmonics.shape[1]
            self.weight.normal_(0, self.gain / math.sqrt(fan_in))
            if self.likelihood is not None and not self.likelihood.starts_uniform and not self.weight.is_meta:
                self._spread_over_slots()
            if self.bias is not None:
                self.bias.zero_()

    def _spread_over_slots(self) -> None:
        """Scale the weights such that all slots that the measure leaves together carry what the equivariant ones would.

        A slot of irrep i carries ‖Λ_i‖² / d_i times as much as an equivariant one.
        """
        assert self.likelihood is not None
        moments = self.likelihood.moments().items()
        carried = {psi: (moment.square().sum() / psi.size).item() for psi, moment in moments}
        for (_, _, _, slots), weight in zip(self.bases(), self.tile_weights(), strict=True):
            if not slots.segments:
                continue
            power = np.concatenate([np.full(psi.size * count, carried[psi]) for psi, count in slots.segments])
            trivial = np.concatenate([np.full(psi.size * count, psi.is_trivial) for psi, count in slots.segments])
            equivariant = np.bincount(slots.out_index, trivial)
            total = np.bincount(slots.out_index, power)
            wanted = np.where(equivariant > 0, equivariant, np.bincount(slots.out_index))
            factors = np.sqrt(wanted / np.where(total > 0, total, wanted))
            weight.mul_(torch.as_tensor(factors[slots.out_index]).to(weight))

    # -- tiles, in whose bases the weights are coordinates ---------------------------------------------------------

    def bases(self) -> list[_bases.TileBasis]:
        """The basis kernels of every tile with which the layer was built, in float64."""
        return _bases.tile_bases(*self._ingredients(), self._dense)

    def set_bases(self, matrices: Sequence[Array]) -> None:
        """Use other basis kernels.

        Args:
            matrices: For every tile, in place of ``bases()[k].matrix`` and of the same shape.
        """
        self.add_constants("basis", matrices, self.weight)
        if self.constants("sampled"):
            points = [_bases.at_points(matrix, self._arrays["harmonics"]) for matrix in matrices]
            self.add_constants("sampled", points, self.weight)

    def tile_weights(self) -> list[Tensor]:
        """The weights of every tile, (copies, weights), as views."""
        if len(self._tiles) == 1:
            return [self.weight.view(self._tiles[0].copies, -1)]
        out, start = [], 0
        for tile in self._tiles:
            stop = start + tile.copies * tile.weights
            out.append(self.weight[start:stop].view(tile.copies, tile.weights))
            start = stop
        return out

    def energies(self) -> tuple[Tensor, Tensor]:
        """The squared norms of the equivariant weights, those of trivial slots, and of all others.

        In these coordinates slots are orthogonal, and equal weights add equal power to an irrep of the output.
        """
        kept, rest = [], []
        for tile, weight in zip(self._tiles, self.tile_weights(), strict=True):
            trivial = sum(size * count for index, size, count in tile.segments if index == 0)
            kept.append(weight[:, :trivial].square().sum())
            rest.append(weight[:, trivial:].square().sum())
        return torch.stack(kept).sum(), torch.stack(rest).sum()

    # -- expansion ------------------------------------------------------------------------------------------------

    def kernel(self) -> Tensor:
        """The kernel, (C_out, C_in / groups, k, k[, k]) or (C_out, C_in); differentiable in weights and logits."""
        with torch.autocast(self.weight.device.type, enabled=False):
            if self.likelihood is None:
                return self.expand(None)
            if not has_kernels(self.weight):
                return self.expand(self.likelihood.moment_list())
            turned = self._turned_weights()
            return self._assemble(lambda k, _, basis: turned[k] @ basis)

    def packed_kernel(self) -> Tensor:
        """The kernel as a convolution on a GPU wants it, where that takes fewer operations."""
        if self._shape is None or not has_kernels(self.weight, compiled=True):
            return self.kernel()
        dtype = wanted_dtype(self.weight)
        given, *constants = (None,) if self.likelihood is None else density_of(self.likelihood)
        table = None if self.likelihood is None else self.slot_table0
        return Expanded.apply(self.weight, given, self.sampled0, table, self._shape, dtype, *constants)  # type: ignore[no-untyped-call]

    def _turned_weights(self) -> list[Tensor]:
        """Λ_i w for every slot of every tile, on a GPU."""
        if self.likelihood is None:
            return self.tile_weights()
        moments, irreps = moments_of(self.likelihood), tuple(psi.size for psi in self.likelihood.irreps)
        parts = zip(self.tile_weights(), self.constants("slot_table"), self._tiles, strict=True)
        return [Turned.apply(weight, moments, table, tile, irreps) for weight, table, tile in parts]  # type: ignore[no-untyped-call]

    def expand(self, moments: list[Tensor] | None, harmonics: Tensor | None = None) -> Tensor:
        """The kernel for given matrices Λ_i in place of the likelihood's; None stands for the identity.

        Given values of the harmonics at other points than the kernel's grid, the kernel is sampled there.
        """

        def product(k: int, weight: Tensor, basis: Tensor) -> Tensor:
            segments = self._tiles[k].segments
            return (multiply(weight, segments, moments) if moments is not None and segments else weight) @ basis

        return self._assemble(product, harmonics)

    def _assemble(self, product: Callable[[int, Tensor, Tensor], Tensor], harmonics: Tensor | None = None) -> Tensor:
        """The kernel from the products of every tile's weights, moments and basis."""
        # Basis times harmonics: one product instead of two smaller ones.
        sampled = self.constants("sampled") if harmonics is None and _few_operations(self.weight) else []
        parts = zip(self._tiles, self.tile_weights(), sampled or self.constants("basis"), strict=True)
        rows = [tile.joined(product(k, weight, basis)) for k, (tile, weight, basis) in enumerate(parts)]
        out = torch.cat(rows) if len(rows) > 1 else rows[0]
        if not self._dense:
            out = out.index_select(0, self.out_sorted)
            if "out_basis" in self._arrays:
                size = len(self.out_basis)
                out = (self.out_basis @ out.reshape(-1, size, out[0].numel())).reshape(out.shape)
        if not sampled:
            out = out @ (self.harmonics if harmonics is None else harmonics)
        # From copies of composites to the order of the fields, with the kernel's axes.
        if "out_order" in self._arrays:
            out = out.index_select(0, self.out_order)
        if "in_order" in self._arrays:
            out = out.index_select(1, self.in_order)
        return out.reshape(self.out_type.size, self.part_type.size, *self._spatial)

    def steered(self, kernel_moments: list[Tensor] | None, element: Array) -> Tensor:
        """The kernel as h sees it, ρ_out(h) K(h⁻¹x) ρ_in(h)⁻¹: K itself where the layer is equivariant to h.

        Exact, without interpolation: K is known at every point, not only on the grid.
        """
        size, n = self.kernel_size, len(element)
        points = np.zeros((1, n)) if size is None else grid_points(size, n) @ element
        values = SteerableBasis(self.in_type.group, size, self.profile).evaluate(points)
        harmonics = torch.as_tensor(values).to(self.harmonics)
        kernel = self.expand(kernel_moments, harmonics)
        left, right = (torch.as_tensor(t.matrix(element)).to(kernel) for t in (self.out_type, self.part_type))
        return torch.einsum("ij,jk...,lk->il...", left, kernel, right)

    @torch.no_grad()
    def translate(self, element: Array) -> None:
        """Turn the weights of every slot, w → ψ_i(h) w, in place: with λ(g·h) for λ(g) the kernel stays as it is."""
        if self.likelihood is None:
            return
        moments = [torch.as_tensor(psi.matrices(element[None])[0]).to(self.weight) for psi in self.likelihood.irreps]
        for tile, weight in zip(self._tiles, self.tile_weights(), strict=True):
            if tile.segments:
                weight.copy_(multiply(weight, tile.segments, moments))

    def full_bias(self) -> Tensor | None:
        """The bias of every channel: non-zero along trivial irreps only, shape (C_out,)."""
        if self.bias is None:
            return None
        with torch.autocast(self.weight.device.type, enabled=False):
            out = (self.bias @ self.bias_basis).reshape(-1)
        return out.index_select(0, self.out_order) if "out_order" in self._arrays else out

    def extra_repr(self) -> str:
        kind = "equivariant" if self.likelihood is None else "partially equivariant"
        return f"{self.in_type} → {self.out_type}, {kind}, {self.weight.numel()} weights"


def part_of(name: str, fields: FieldType, groups: int) -> FieldType:
    """One of several equal parts of a type."""
    if not isinstance(groups, int) or groups < 1:
        raise ValueError(f"{name}: groups must be a whole number of 1 or more, got {short(groups)}")
    if groups == 1:
        return fields
    count = len(fields.representations)
    part = fields.representations[: count // groups]
    if not part or part * groups != fields.representations:
        raise ValueError(f"{name}: groups={groups} needs that many equal parts of whole fields, got {fields}")
    return FieldType(fields.group, part)


def _few_operations(weight: Tensor) -> bool:
    """Whether few large operations are faster than more small ones: on a GPU, where starting one takes longer."""
    return weight.is_cuda

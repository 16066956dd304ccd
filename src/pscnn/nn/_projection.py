"""Kernels that need not be made of slots: which part of them is equivariant, and how an element turns them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pscnn._memo import memo
from pscnn._types import Array, IntArray
from pscnn.groups import DirectSum
from pscnn.kernels import SteerableBasis, grid_points
from pscnn.nn._bases import scaled_basis
from pscnn.nn._field_type import FieldType, transform_space
from pscnn.nn._slot_kernel import part_of


def equivariant_part(kernel: Tensor, in_type: FieldType, out_type: FieldType) -> Tensor:
    """The mean of a kernel over the group, ∫ ρ_out(h) K(h⁻¹x) ρ_in(h)⁻¹ dh: the nearest kernel that is equivariant.

    If all elements map pixels to pixels, it is their mean. Else the kernel is read as a sum of the harmonics of its
    size, which can be turned exactly, and what they cannot express has no equivariant part.

    Args:
        kernel: Shape (C_out, C_in / groups, k, k[, k]), or (C_out, C_in) for linear maps.
        in_type: Type of the input.
        out_type: Type of the output.
    """
    group, in_type = in_type.group, _seen(kernel, in_type, out_type)
    if group.order is not None and np.allclose(elements := group.quadrature(0)[0], elements.round(), atol=1e-9):
        return torch.stack([steered_kernel(kernel, in_type, out_type, h) for h in elements]).mean(0)
    steerable = _harmonics(kernel, in_type)
    coefficients = _coefficients(kernel, steerable)
    out, inn = out_type.layout, in_type.layout
    basis = _like(_invariants(out.composite, inn.composite, steerable), kernel)
    # From the order of the fields to copies of composites, and back.
    rows, columns = _order(out.order, out_type.size), _order(inn.order, in_type.size)
    sorted_ = coefficients[np.argsort(rows)][:, np.argsort(columns)]
    shape = out.copies, out.composite.size, inn.copies, inn.composite.size, -1
    blocks = sorted_.reshape(shape).transpose(1, 2)
    flat = blocks.reshape(out.copies * inn.copies, -1)
    projected = (flat @ basis.T @ basis).view(blocks.shape).transpose(1, 2).reshape(sorted_.shape)[rows][:, columns]
    return (projected @ _like(steerable.sample(), kernel)).view(kernel.shape)


def steered_kernel(kernel: Tensor, in_type: FieldType, out_type: FieldType, element: Array) -> Tensor:
    """The kernel as h sees it, ρ_out(h) K(h⁻¹x) ρ_in(h)⁻¹; what its harmonics cannot express is interpolated.

    Exact for kernels of steerable layers, and for elements that map pixels to pixels.

    Args:
        kernel: Shape (C_out, C_in / groups, k, k[, k]), or (C_out, C_in) for linear maps.
        in_type: Type of the input.
        out_type: Type of the output.
        element: Shape (n, n).
    """
    in_type = _seen(kernel, in_type, out_type)
    steerable = _harmonics(kernel, in_type)
    coefficients, n = _coefficients(kernel, steerable), len(element)
    expressed = (coefficients @ _like(steerable.sample(), kernel)).view(kernel.shape)
    points = np.zeros((1, n)) if kernel.ndim == 2 else grid_points(kernel.shape[-1], n) @ element
    turned = (coefficients @ _like(steerable.evaluate(points), kernel)).view(kernel.shape)
    if kernel.ndim > 2:
        turned = turned + transform_space(kernel - expressed, element)
    left, right = (_like(t.matrix(element), kernel) for t in (out_type, in_type))
    return torch.einsum("ij,jk...,lk->il...", left, turned, right)


def _seen(kernel: Tensor, in_type: FieldType, out_type: FieldType) -> FieldType:
    """What one group of a layer sees of its input: all of them see fields of the same type."""
    channels, sides = kernel.shape[1] if kernel.ndim > 1 else 0, kernel.shape[2:]
    if len({*sides}) > 1 or len(sides) not in (0, in_type.group.dimension) or kernel.shape[0] != out_type.size:
        raise ValueError(
            f"a kernel of {in_type.group.name} to {out_type} has {out_type.size} output channels and equal sides, or "
            f"none, got shape {tuple(kernel.shape)}"
        )
    if not 0 < channels <= in_type.size or in_type.size % channels:
        raise ValueError(f"a kernel of shape {tuple(kernel.shape)} does not take a whole part of {in_type}")
    groups = in_type.size // channels
    part_of("kernel", out_type, groups)
    return part_of("kernel", in_type, groups)


def _like(array: Array, tensor: Tensor) -> Tensor:
    return torch.tensor(array, dtype=tensor.dtype, device=tensor.device)


def _harmonics(kernel: Tensor, in_type: FieldType) -> SteerableBasis:
    return SteerableBasis(in_type.group, None if kernel.ndim == 2 else kernel.shape[-1])


def _coefficients(kernel: Tensor, steerable: SteerableBasis) -> Tensor:
    """Of the harmonics, by least squares, (C_out, C_in, harmonics)."""
    return kernel.reshape(*kernel.shape[:2], -1) @ _like(_inverse(steerable), kernel)


def _order(order: IntArray | None, size: int) -> IntArray:
    return np.arange(size) if order is None else order


@memo
def _inverse(steerable: SteerableBasis) -> Array:
    return np.asarray(np.linalg.pinv(steerable.sample()), dtype=np.float64)


@memo
def _invariants(out: DirectSum, inn: DirectSum, steerable: SteerableBasis) -> Array:
    """An orthonormal basis of the equivariant coefficients, (dimension, d_out·d_in·harmonics).

    H acts on coefficients by orthogonal matrices, so that the mean over H is the orthogonal projection onto them.
    """
    matrix, _ = scaled_basis(None, out, inn, steerable, (steerable.group.trivial,))
    return np.asarray(matrix / np.linalg.norm(matrix, axis=1, keepdims=True), dtype=np.float64)

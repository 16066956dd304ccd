# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Triton kernels for the way from a density and weights to a kernel: one launch for what torch does in many."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pscnn.nn._launch import Kernel, ceil_div, power_of_two

# -- from the coefficients of the logits to the moments of the density ----------------------------------------------


@triton.jit
def _tile(matrix, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """A whole matrix with zeros around it."""
    r, c = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    return tl.load(matrix + r * columns + c, (r < rows) & (c < columns), 0)


@Kernel
@triton.jit
def _density(
    coefficients, logit_matrix, log_weights, moment_matrix, moments, masses, nodes, functions, entries,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    n, k, m = tl.arange(0, N), tl.arange(0, K), tl.arange(0, M)
    own = tl.load(coefficients + k, k < functions, 0)
    logits = tl.sum(_tile(logit_matrix, nodes, functions, N, K) * own[None, :], 1)
    logits = tl.where(n < nodes, logits + tl.load(log_weights + n, n < nodes, 0), float("-inf"))
    mass = tl.exp(logits - tl.max(logits, 0))
    mass = mass / tl.sum(mass, 0)
    tl.store(masses + n, mass, n < nodes)
    tl.store(moments + m, tl.sum(_tile(moment_matrix, entries, nodes, M, N) * mass[None, :], 1), m < entries)


@Kernel
@triton.jit
def _density_backward(
    up, masses, logit_matrix, moment_matrix, out, nodes, functions, entries,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    n, k, m = tl.arange(0, N), tl.arange(0, K), tl.arange(0, M)
    given = tl.load(up + m, m < entries, 0)
    slope = tl.sum(_tile(moment_matrix, entries, nodes, M, N) * given[:, None], 0)
    mass = tl.load(masses + n, n < nodes, 0)
    d_logits = mass * (slope - tl.sum(mass * slope, 0))
    tl.store(out + k, tl.sum(_tile(logit_matrix, nodes, functions, N, K) * d_logits[:, None], 0), k < functions)


def _sizes(logit_matrix: Tensor, moment_matrix: Tensor) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    entries, nodes = moment_matrix.shape
    numbers = nodes, logit_matrix.shape[1], entries
    return numbers, tuple(max(2, power_of_two(size)) for size in numbers)


def density(coefficients, logit_matrix, log_weights, moment_matrix) -> tuple[Tensor, Tensor]:
    """The moments of a density, and its masses."""
    numbers, shape = _sizes(logit_matrix, moment_matrix)
    moments, masses = coefficients.new_empty(numbers[2]), coefficients.new_empty(numbers[0])
    tensors = coefficients, logit_matrix, log_weights, moment_matrix, moments, masses
    _density.start((1,), tensors, numbers, shape, num_warps=8)
    return moments, masses


def density_backward(up, masses, logit_matrix, moment_matrix) -> Tensor:
    """The gradient of the coefficients from that of the moments."""
    numbers, shape = _sizes(logit_matrix, moment_matrix)
    out = up.new_empty(numbers[1])
    tensors = up.contiguous(), masses, logit_matrix, moment_matrix, out
    _density_backward.start((1,), tensors, numbers, shape, num_warps=8)
    return out


# -- weights times moments ----------------------------------------------------------------------------------------


@Kernel
@triton.jit(do_not_specialize=["rows", "columns"])
def _turn(w, moments, table, out, rows, columns, D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Λ_i w for every slot. Of every column: where its slot begins, its size, and where Λ_i begins."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = j < columns
    start, size = tl.load(table + j, inside, 0), tl.load(table + columns + j, inside, 0)
    first = tl.load(table + 2 * columns + j, inside, 0)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for b in tl.static_range(D):
        there = inside & (b < size)
        factor = tl.load(moments + first + (j - start) * size + b, there, 0)
        total += factor[None, :] * tl.load(w + r * columns + (start + b)[None, :], (r < rows) & there[None, :], 0)
    tl.store(out + r * columns + j[None, :], total, (r < rows) & inside[None, :])


@Kernel
@triton.jit(do_not_specialize=["rows", "columns", "steps"])
def _turn_back(
    up, w, moments, table, out, sums, rows, columns, steps,
    D: tl.constexpr, DEPTH: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Λ_iᵀ up for every slot; and of portions of the rows, Σ up_a w_b for every entry a, a column, and b of a slot."""
    r = tl.program_id(0) * ROWS * steps + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    depth = tl.arange(0, DEPTH)[:, None]
    inside = j < columns
    start, size = tl.load(table + j, inside, 0), tl.load(table + columns + j, inside, 0)
    first = tl.load(table + 2 * columns + j, inside, 0) + (j - start)
    total = tl.zeros((DEPTH, WIDTH), tl.float32)
    for _ in range(steps):
        mask = (r < rows) & inside[None, :]
        own = tl.load(up + r * columns + j[None, :], mask, 0)
        turned = tl.zeros((ROWS, WIDTH), tl.float32)
        for b in tl.static_range(D):
            there = mask & (b < size)[None, :]
            place = r * columns + (start + b)[None, :]
            turned += tl.load(moments + first + b * size, inside & (b < size), 0)[None, :] * tl.load(
                up + place, there, 0
            )
            total += tl.where(depth == b, tl.sum(own * tl.load(w + place, there, 0), 0)[None, :], 0)
        tl.store(out + r * columns + j[None, :], turned, mask)
        r += ROWS
    to = sums + (tl.program_id(0) * D + depth) * columns + j[None, :]
    tl.store(to, total, (depth < D) & inside[None, :])


@Kernel
@triton.jit(do_not_specialize=["columns", "parts"])
def _collect(sums, table, out, columns, parts, D: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr):
    """The gradient of one entry of the moments: the sum over all slots that are turned by it."""
    m, part, k = tl.program_id(0), tl.arange(0, PARTS)[:, None], tl.arange(0, WIDTH)
    total = tl.zeros((PARTS, WIDTH), tl.float32)
    for begin in range(0, columns, WIDTH):
        j = begin + k
        inside = j < columns
        start, size = tl.load(table + j, inside, 0), tl.load(table + columns + j, inside, 0)
        b = m - tl.load(table + 2 * columns + j, inside, 0) - (j - start) * size
        there = (part < parts) & (inside & (b >= 0) & (b < size))[None, :]
        total += tl.load(sums + (part * D + b[None, :]) * columns + j[None, :], there, 0)
    tl.store(out + m, tl.sum(tl.sum(total, 1), 0))


PARTS = 16
"""Portions of the rows whose sums are collected in a second step."""


def turn(w, moments, table, largest) -> Tensor:
    """Every slot's weights, (copies, weights), times its moment, the largest of which has that many rows."""
    rows, columns = w.shape
    out = torch.empty_like(w)
    grid = ceil_div(rows, 32), ceil_div(columns, 32)
    _turn.start(grid, (w, moments, table, out), (rows, columns), (largest, 32, 32))
    return out


def turn_back(up, w, moments, table, largest) -> tuple[Tensor, Tensor]:
    """The gradients of weights and moments from that of their product."""
    rows, columns = w.shape
    steps = ceil_div(rows, 32 * PARTS)
    parts = ceil_div(rows, 32 * steps)
    out, sums, own = torch.empty_like(w), w.new_empty(parts, largest, columns), torch.empty_like(moments)
    shape = largest, max(2, power_of_two(largest)), 32, 32
    tensors = up, w, moments, table, out, sums
    _turn_back.start((parts, ceil_div(columns, 32)), tensors, (rows, columns, steps), shape)
    _collect.start((len(moments),), (sums, table, own), (columns, parts), (largest, PARTS, 64))
    return out, own


# -- from blocks of copies to the layout of convolutions -----------------------------------------------------------


@Kernel
@triton.jit(do_not_specialize=["size", "in_copies", "channels", "columns"])
def _pack(
    block, y, size, in_copies, channels, columns,
    D_OUT: tl.constexpr, D_IN: tl.constexpr, POINTS: tl.constexpr, BACK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Between blocks (copies out, copies in, d_out, d_in, points) and a padded kernel (channels out, points, columns).

    Forwards every entry of the kernel is written, with zeros outside; backwards every entry of the blocks.
    """
    n = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)  # kernels have fewer entries than 32 bits count
    if BACK:
        point, b, a = n % POINTS, n // POINTS % D_IN, n // (POINTS * D_IN) % D_OUT
        copy = n // (POINTS * D_IN * D_OUT)
        k, c = copy // in_copies * D_OUT + a, copy % in_copies * D_IN + b
        v = tl.load(y + (k * POINTS + point) * columns + c, n < size, 0)
        tl.store(block + n, v.to(block.dtype.element_ty), n < size)
    else:
        c, point, k = n % columns, n // columns % POINTS, n // (columns * POINTS)
        copy = k // D_OUT * in_copies + c // D_IN
        place = ((copy * D_OUT + k % D_OUT) * D_IN + c % D_IN) * POINTS + point
        v = tl.load(block + place, (n < size) & (k < channels) & (c < in_copies * D_IN), 0)
        tl.store(y + n, v.to(y.dtype.element_ty), n < size)


def pack(block, y, shape) -> None:
    """Fill a padded kernel (channels out, channels in, …), channels innermost, from blocks of some shape."""
    out_copies, in_copies, *others = shape
    size = y.numel()
    numbers = size, in_copies, out_copies * others[0], y.shape[1]
    _pack.start((ceil_div(size, 1024),), (block, y), numbers, (*others, False, 1024))


def unpack(y, block, shape) -> None:
    """Fill blocks from a kernel with its channels innermost, and points at equal distances."""
    out_copies, in_copies, *others = shape
    size = block.numel()
    numbers = size, in_copies, out_copies * others[0], y.stride(-1)
    _pack.start((ceil_div(size, 1024),), (block, y), numbers, (*others, True, 1024))

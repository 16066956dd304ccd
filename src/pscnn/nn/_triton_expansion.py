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
    n, k, m, which = tl.arange(0, N), tl.arange(0, K), tl.arange(0, M), tl.program_id(0)
    own = tl.load(coefficients + which * functions + k, k < functions, 0)
    logits = tl.sum(_tile(logit_matrix, nodes, functions, N, K) * own[None, :], 1)
    logits = tl.where(n < nodes, logits + tl.load(log_weights + n, n < nodes, 0), float("-inf"))
    mass = tl.exp(logits - tl.max(logits, 0))
    mass = mass / tl.sum(mass, 0)
    tl.store(masses + which * nodes + n, mass, n < nodes)
    found = tl.sum(_tile(moment_matrix, entries, nodes, M, N) * mass[None, :], 1)
    tl.store(moments + which * entries + m, found, m < entries)


@Kernel
@triton.jit
def _density_backward(
    up, masses, logit_matrix, moment_matrix, out, nodes, functions, entries,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    n, k, m, which = tl.arange(0, N), tl.arange(0, K), tl.arange(0, M), tl.program_id(0)
    given = tl.load(up + which * entries + m, m < entries, 0)
    slope = tl.sum(_tile(moment_matrix, entries, nodes, M, N) * given[:, None], 0)
    mass = tl.load(masses + which * nodes + n, n < nodes, 0)
    d_logits = mass * (slope - tl.sum(mass * slope, 0))
    found = tl.sum(_tile(logit_matrix, nodes, functions, N, K) * d_logits[:, None], 0)
    tl.store(out + which * functions + k, found, k < functions)


def _sizes(logit_matrix: Tensor, moment_matrix: Tensor) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    entries, nodes = moment_matrix.shape
    numbers = nodes, logit_matrix.shape[1], entries
    return numbers, tuple(max(2, power_of_two(size)) for size in numbers)


def density(coefficients, logit_matrix, log_weights, moment_matrix) -> tuple[Tensor, Tensor]:
    """The moments of a density, and its masses; or of several with equal constants, in rows."""
    numbers, shape = _sizes(logit_matrix, moment_matrix)
    many = coefficients.shape[:-1]
    moments, masses = coefficients.new_empty(*many, numbers[2]), coefficients.new_empty(*many, numbers[0])
    tensors = coefficients, logit_matrix, log_weights, moment_matrix, moments, masses
    _density.start((*many, 1)[:1], tensors, numbers, shape, num_warps=8)
    return moments, masses


def density_backward(up, masses, logit_matrix, moment_matrix) -> Tensor:
    """The gradient of the coefficients from that of the moments."""
    numbers, shape = _sizes(logit_matrix, moment_matrix)
    many = up.shape[:-1]
    out = up.new_empty(*many, numbers[1])
    tensors = up.contiguous(), masses, logit_matrix, moment_matrix, out
    _density_backward.start((*many, 1)[:1], tensors, numbers, shape, num_warps=8)
    return out


# -- weights times moments ----------------------------------------------------------------------------------------


ROWS = 32
"""Of the weights that a program takes at a time."""
PARTS = 16
"""Portions of a layer's rows, at most, whose sums are collected in a second step."""


@triton.jit
def _portion(portions, rows, height, MANY: tl.constexpr):
    """First and last row of a program, and the row of its moments: of one layer, or from a table of several."""
    if MANY:
        own = portions + 3 * tl.program_id(0)
        return tl.load(own), tl.load(own + 1), tl.load(own + 2)
    return tl.program_id(0) * height, rows, 0


@Kernel
@triton.jit(do_not_specialize=["rows", "columns", "entries"])
def _turn(
    w, moments, table, portions, out, rows, columns, entries,
    D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    """Λ_i w for every slot. Of every column: where its slot begins, its size, and where Λ_i begins."""
    begin, end, which = _portion(portions, rows, ROWS, MANY)
    r = begin + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = j < columns
    start, size = tl.load(table + j, inside, 0), tl.load(table + columns + j, inside, 0)
    first = which * entries + tl.load(table + 2 * columns + j, inside, 0)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for b in tl.static_range(D):
        there = inside & (b < size)
        factor = tl.load(moments + first + (j - start) * size + b, there, 0)
        total += factor[None, :] * tl.load(w + r * columns + (start + b)[None, :], (r < end) & there[None, :], 0)
    tl.store(out + r * columns + j[None, :], total, (r < end) & inside[None, :])


@Kernel
@triton.jit(do_not_specialize=["rows", "columns", "entries", "steps"])
def _turn_back(
    up, w, moments, table, portions, out, sums, rows, columns, entries, steps,
    D: tl.constexpr, DEPTH: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    """Λ_iᵀ up for every slot; and of portions of the rows, Σ up_a w_b for every entry a, a column, and b of a slot."""
    begin, end, which = _portion(portions, rows, ROWS * steps, MANY)
    r = begin + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    depth = tl.arange(0, DEPTH)[:, None]
    inside = j < columns
    start, size = tl.load(table + j, inside, 0), tl.load(table + columns + j, inside, 0)
    first = which * entries + tl.load(table + 2 * columns + j, inside, 0) + (j - start)
    total = tl.zeros((DEPTH, WIDTH), tl.float32)
    for _ in range(steps):
        mask = (r < end) & inside[None, :]
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
@triton.jit(do_not_specialize=["columns", "entries", "parts"])
def _collect(
    sums, table, ranges, out, columns, entries, parts,
    D: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    """The gradient of one entry of the moments: the sum over all slots that are turned by it."""
    m, k = tl.program_id(0), tl.arange(0, WIDTH)
    first, end, which = _range(ranges, parts, MANY)
    part = first + tl.arange(0, PARTS)[:, None]
    total = tl.zeros((PARTS, WIDTH), tl.float32)
    for begin in range(0, columns, WIDTH):
        j = begin + k
        inside = j < columns
        start, size = tl.load(table + j, inside, 0), tl.load(table + columns + j, inside, 0)
        b = m - tl.load(table + 2 * columns + j, inside, 0) - (j - start) * size
        there = (part < end) & (inside & (b >= 0) & (b < size))[None, :]
        total += tl.load(sums + (part * D + b[None, :]) * columns + j[None, :], there, 0)
    tl.store(out + which * entries + m, tl.sum(tl.sum(total, 1), 0))


@triton.jit
def _range(ranges, parts, MANY: tl.constexpr):
    """First and last portion of a layer, and the row of its moments."""
    if MANY:
        own = ranges + 3 * tl.program_id(1)
        return tl.load(own), tl.load(own + 1), tl.load(own + 2)
    return 0, parts, 0


def turn(w, moments, table, largest, portions=None) -> Tensor:
    """Every slot's weights, (copies, weights), times its moment, the largest of which has that many rows.

    Of several layers with equal tables, portions of at most ``ROWS`` rows: (first row, last row, row of the moments).
    """
    rows, columns = w.shape
    out, many = torch.empty_like(w), portions is not None
    grid = len(portions) if many else ceil_div(rows, ROWS), ceil_div(columns, 32)
    tensors = w, moments, table, portions if many else table, out
    _turn.start(grid, tensors, (rows, columns, moments.shape[-1]), (largest, ROWS, 32, many))
    return out


def turn_back(up, w, moments, table, largest, portions=None, ranges=None, steps=1) -> tuple[Tensor, Tensor]:
    """The gradients of weights and moments from that of their product.

    Of several layers, portions as above but of at most ``steps`` times ``ROWS`` rows, and for every layer (first
    portion, last portion, row of the moments); moments of no layer have a gradient of zero.
    """
    (rows, columns), many, entries = w.shape, portions is not None, moments.shape[-1]
    if not many:
        steps = ceil_div(rows, ROWS * PARTS)
    parts = len(portions) if many else ceil_div(rows, ROWS * steps)
    out, sums = torch.empty_like(w), w.new_empty(parts, largest, columns)
    own = torch.zeros_like(moments) if many and len(ranges) < len(moments) else torch.empty_like(moments)
    shape = largest, max(2, power_of_two(largest)), ROWS, 32, many
    tensors = up, w, moments, table, portions if many else table, out, sums
    _turn_back.start((parts, ceil_div(columns, 32)), tensors, (rows, columns, entries, steps), shape)
    grid, where = ((entries, len(ranges)), ranges) if many else ((entries,), table)
    _collect.start(grid, (sums, table, where, own), (columns, entries, parts), (largest, PARTS, 64, many))
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


CHUNK = 1024
"""Entries of a kernel that a program writes."""


@Kernel
@triton.jit
def _pack_all(
    block, y, chunks, layers, D_OUT: tl.constexpr, D_IN: tl.constexpr, POINTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The same forwards for several kernels, one after the other.

    Of every chunk: its layer, and its first entry. Of every layer: entries, copies in, channels out, columns, and where
    it begins in the blocks and among the kernels.
    """
    own = layers + 6 * tl.load(chunks + 2 * tl.program_id(0))
    n = tl.load(chunks + 2 * tl.program_id(0) + 1) + tl.arange(0, WIDTH)
    size, in_copies = tl.load(own), tl.load(own + 1)
    channels, columns = tl.load(own + 2), tl.load(own + 3)
    c, point, k = n % columns, n // columns % POINTS, n // (columns * POINTS)
    copy = k // D_OUT * in_copies + c // D_IN
    place = tl.load(own + 4) + ((copy * D_OUT + k % D_OUT) * D_IN + c % D_IN) * POINTS + point
    v = tl.load(block + place, (n < size) & (k < channels) & (c < in_copies * D_IN), 0)
    tl.store(y + tl.load(own + 5) + n, v.to(y.dtype.element_ty), n < size)


def pack_all(block, y, chunks, layers, others) -> None:
    """Fill padded kernels of several layers, flat and one after the other, from blocks one after the other."""
    _pack_all.start((len(chunks),), (block, y, chunks, layers), (), (*others, CHUNK))


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

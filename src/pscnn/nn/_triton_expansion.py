# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Triton kernels for the way from a density and weights to a kernel: one launch for what torch does in many."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pscnn.nn._triton_kernels import on_device

# -- from the coefficients of the logits to the moments of the density ----------------------------------------------


@triton.jit
def _tile(matrix, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """A whole matrix with zeros around it."""
    r, c = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    return tl.load(matrix + r * columns + c, (r < rows) & (c < columns), 0)


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


def _sizes(logit_matrix: Tensor, moment_matrix: Tensor) -> tuple[tuple[int, int, int], dict[str, int]]:
    entries, nodes = moment_matrix.shape
    numbers = nodes, logit_matrix.shape[1], entries
    return numbers, {name: max(2, triton.next_power_of_2(size)) for name, size in zip("NKM", numbers, strict=True)}


@on_device
def density(coefficients, logit_matrix, log_weights, moment_matrix) -> tuple[Tensor, Tensor]:
    """The moments of a density, and its masses."""
    numbers, shape = _sizes(logit_matrix, moment_matrix)
    moments, masses = coefficients.new_empty(numbers[2]), coefficients.new_empty(numbers[0])
    constants = logit_matrix, log_weights, moment_matrix
    _density[(1,)](coefficients, *constants, moments, masses, *numbers, **shape, num_warps=8)
    return moments, masses


@on_device
def density_backward(up, masses, logit_matrix, moment_matrix) -> Tensor:
    """The gradient of the coefficients from that of the moments."""
    numbers, shape = _sizes(logit_matrix, moment_matrix)
    out = up.new_empty(numbers[1])
    _density_backward[(1,)](up.contiguous(), masses, logit_matrix, moment_matrix, out, *numbers, **shape, num_warps=8)
    return out


# -- weights times moments ----------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["rows", "columns"])
def _turn(
    w, moments, table, out, rows, columns,
    BACK: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Λ_i w for every slot, or Λ_iᵀ w. Of every column: where its slot begins, its size, and where Λ_i begins."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = j < columns
    start, size = tl.load(table + j, inside, 0), tl.load(table + columns + j, inside, 0)
    first = tl.load(table + 2 * columns + j, inside, 0)
    a = j - start
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for b in tl.static_range(D):
        there = inside & (b < size)
        factor = tl.load(moments + first + (b * size + a if BACK else a * size + b), there, 0)
        total += factor[None, :] * tl.load(w + r * columns + (start + b)[None, :], (r < rows) & there[None, :], 0)
    tl.store(out + r * columns + j[None, :], total, (r < rows) & inside[None, :])


@on_device
def turn(w, moments, table, largest, back) -> Tensor:
    """Every slot's weights, (copies, weights), times its moment or that transposed."""
    rows, columns = w.shape
    out = torch.empty_like(w)
    grid = triton.cdiv(rows, 32), triton.cdiv(columns, 32)
    _turn[grid](w.contiguous(), moments, table, out, rows, columns, BACK=back, D=largest, ROWS=32, WIDTH=32)
    return out


# -- from blocks of copies to the layout of convolutions -----------------------------------------------------------


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


@on_device
def pack(block, y, shape) -> None:
    """Fill a padded kernel (channels out, channels in, …), channels innermost, from blocks of some shape."""
    out_copies, in_copies, d_out, d_in, points = shape
    options = {"D_OUT": d_out, "D_IN": d_in, "POINTS": points, "WIDTH": 1024}
    size = y.numel()
    numbers = size, in_copies, out_copies * d_out, y.shape[1]
    _pack[(triton.cdiv(size, 1024),)](block, y, *numbers, **options, BACK=False)


@on_device
def unpack(y, block, shape) -> None:
    """Fill blocks from a kernel with its channels innermost, and points at equal distances."""
    out_copies, in_copies, d_out, d_in, points = shape
    options = {"D_OUT": d_out, "D_IN": d_in, "POINTS": points, "WIDTH": 1024}
    size = block.numel()
    numbers = size, in_copies, out_copies * d_out, y.stride(-1)
    _pack[(triton.cdiv(size, 1024),)](block, y, *numbers, **options, BACK=True)

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Triton kernels, each one pass over memory: normalisation with what follows it, its gradients, and the blur.

A feature map has its channels innermost: a row is a pixel, and in it lie ``copies`` fields of P channels. For gates, a
field begins with G of them, and then come the irreps that they scale. A program holds FIELDS fields of some rows as a
tile (rows · FIELDS, W), W ≥ P a power of two, and walks down ``steps`` such tiles. Every value is loaded once, by
neighbouring threads; that each gate meets its irrep is a gather inside the tile, between the threads of a warp, and a
Fourier transform is a small matrix product.
"""

from __future__ import annotations

import functools
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from pscnn.nn._launch import Kernel, ceil_div, power_of_two
from pscnn.nn._norm_act import FOURIER, NONE

TILE = 32
"""Fields in a tile, over all its rows. With it, 4 warps hold 4 values a thread, which measures best."""
PROGRAMS = 4096
"""About how many programs there are per portion of fields; sums are left in a quarter as many portions."""

# Code is not compiled anew for numbers that depend on the size of a batch.


@Kernel
@triton.jit(do_not_specialize=["rows", "channels", "steps", "parts"])
def _moments(x, found, rows, channels, x_row, steps, parts, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Per portion of the rows and channel: the mean, and the sum of the squared distances from it.

    Distances are taken from the mean of the portion's first rows, since squares of large numbers would lose small ones.
    """
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    row, column, inside = tl.arange(0, ROWS)[:, None], c[None, :], c < channels
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    squares = tl.zeros((ROWS, WIDTH), tl.float32)
    first = tl.program_id(0).to(tl.int64) * ROWS * steps
    count = tl.minimum(rows - first, ROWS * steps).to(tl.float32)
    mask = (row < rows - first) & inside[None, :]
    v = tl.load(x + first * x_row + (row * x_row + column), mask, 0).to(tl.float32)
    origin = tl.sum(v, 0) / tl.minimum(count, ROWS)
    for _ in range(steps):
        mask = (row < rows - first) & inside[None, :]
        v = tl.load(x + first * x_row + (row * x_row + column), mask, 0).to(tl.float32)
        v = tl.where(mask, v - origin[None, :], 0)
        total += v
        squares += v * v
        first += ROWS
    away = tl.sum(total, 0) / count
    to = found + tl.program_id(0) * channels + c
    tl.store(to, origin + away, inside)
    tl.store(to + parts * channels, tl.sum(squares, 0) - away * away * count, inside)


@triton.jit
def _begin(
    scale, channels, steps,
    P: tl.constexpr, W: tl.constexpr, FIELDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Row within the tile, field, and channel within the field; which exist; their scale and shift; the first row."""
    n = tl.arange(0, ROWS * FIELDS)[:, None]
    field, p = tl.program_id(1) * FIELDS + n % FIELDS, tl.arange(0, W)[None, :]
    inside = (field * P + p < channels) & (p < P)
    a = tl.load(scale + field * P + p, inside, 0)
    b = tl.load(scale + channels + field * P + p, inside, 0)
    return n // FIELDS, field, p, inside, a, b, tl.program_id(0).to(tl.int64) * ROWS * steps


@triton.jit
def _gates(v, gate_of, p, N: tl.constexpr, W: tl.constexpr):
    """Each channel's gate."""
    return tl.gather(v, tl.broadcast_to(tl.load(gate_of + p), (N, W)), 1)


@triton.jit
def _matrix(values, R: tl.constexpr, C: tl.constexpr):
    """A matrix (R, C)."""
    return tl.load(values + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])


@triton.jit
def _product(v, matrix, TYPE: tl.constexpr):
    """A matrix product in the precision of the map."""
    return tl.dot(v.to(TYPE), matrix.to(TYPE), input_precision="ieee")


@triton.jit
def _activated(
    v, one, two, p,
    KIND: tl.constexpr, TYPE: tl.constexpr, N: tl.constexpr, W: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """What follows the normalisation, applied to normalised values."""
    if KIND == 1:
        out = v * _gates(tl.sigmoid(v), one, p, N, W)
    elif KIND == 2:
        samples = _product(v, _matrix(one, W, S), TYPE)
        samples = tl.where(samples > 0, samples, tl.exp(tl.minimum(samples, 0)) - 1)
        out = _product(samples, _matrix(two, S, W), TYPE)
    else:
        out = v
    return out


@triton.jit
def _gradient(
    v, up, one, two, p,
    KIND: tl.constexpr, TYPE: tl.constexpr, N: tl.constexpr, G: tl.constexpr, W: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """The gradient of the normalised values v.

    With gates, features get up · σ(gate), and gates σ'(v) Σ up · features. With samples s = v A and up for y = γ(s) B,
    it is (up Bᵀ · γ'(s)) Aᵀ.
    """
    if KIND == 1:
        products = up * v
        total = tl.zeros_like(v)
        for m in tl.static_range(S):
            member = tl.load(two + m * W + p)
            got = tl.gather(products, tl.broadcast_to(tl.maximum(member, 0), (N, W)), 1)
            total += tl.where(member >= 0, got, 0)
        opened = tl.sigmoid(v)
        out = tl.where(p < G, total * opened * (1 - opened), up * _gates(opened, one, p, N, W))
    elif KIND == 2:
        matrix = _matrix(one, W, S)
        slope = tl.exp(tl.minimum(_product(v, matrix, TYPE), 0))
        out = _product(_product(up, tl.trans(_matrix(two, S, W)), TYPE) * slope, tl.trans(matrix), TYPE)
    else:
        out = up
    return out


@triton.jit
def _fill_surplus(y, first, rows, channels, y_row, ROWS: tl.constexpr, SURPLUS: tl.constexpr):
    """Zeros behind the channels of some rows."""
    if SURPLUS > 0:  # noqa: SIM102  # known to the compiler
        if tl.program_id(1) == 0:
            row, k = tl.arange(0, ROWS)[:, None], tl.arange(0, 32)[None, :]
            zeros = tl.zeros((ROWS, 32), y.dtype.element_ty)
            tl.store(y + first * y_row + (row * y_row + channels + k), zeros, (row < rows - first) & (k < SURPLUS))


@Kernel
@triton.jit(do_not_specialize=["rows", "channels", "out_channels", "steps", "start"])
def _forward(
    x, y, one, two, vectors, rows, channels, out_channels, x_row, y_row, steps, start,
    KIND: tl.constexpr, TYPE: tl.constexpr, G: tl.constexpr, P: tl.constexpr, W: tl.constexpr, S: tl.constexpr,
    FIELDS: tl.constexpr, ROWS: tl.constexpr, SURPLUS: tl.constexpr,
):  # fmt: skip
    row, field, p, inside, a, b, first = _begin(vectors + start, channels, steps, P, W, FIELDS, ROWS)
    for _ in range(steps):
        mask = (row < rows - first) & inside
        v = tl.load(x + first * x_row + (row * x_row + field * P + p), mask, 0).to(tl.float32) * a + b
        out = _activated(v, one, two, p, KIND, TYPE, ROWS * FIELDS, W, S)
        to = y + first * y_row + (row * y_row + field * (P - G) + p - G)
        tl.store(to, out.to(y.dtype.element_ty), mask & (p >= G))
        _fill_surplus(y, first, rows, out_channels, y_row, ROWS, SURPLUS)
        first += ROWS


@Kernel
@triton.jit(do_not_specialize=["rows", "channels", "steps", "start", "parts"])
def _sums(
    x, g, sums, one, two, vectors, rows, channels, x_row, g_row, steps, start, parts,
    KIND: tl.constexpr, TYPE: tl.constexpr, G: tl.constexpr, P: tl.constexpr, W: tl.constexpr, S: tl.constexpr,
    FIELDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Per portion of the rows and channel: the sums of the gradient, and of the gradient times x − mean.

    The mean stands two vectors before the scale.
    """
    row, field, p, inside, a, b, first = _begin(vectors + start, channels, steps, P, W, FIELDS, ROWS)
    centre = tl.load(vectors + start - 2 * channels + field * P + p, inside, 0)
    total = tl.zeros((ROWS * FIELDS, W), tl.float32)
    product = tl.zeros((ROWS * FIELDS, W), tl.float32)
    for _ in range(steps):
        mask = (row < rows - first) & inside
        own = tl.load(x + first * x_row + (row * x_row + field * P + p), mask, 0).to(tl.float32)
        up = tl.load(g + first * g_row + (row * g_row + field * (P - G) + p - G), mask & (p >= G), 0).to(tl.float32)
        # Zero where there is no row.
        d = _gradient(own * a + b, up, one, two, p, KIND, TYPE, ROWS * FIELDS, G, W, S)
        total += d
        product += d * (own - centre)
        first += ROWS
    field = tl.program_id(1) * FIELDS + tl.arange(0, FIELDS)[:, None]
    inside = (field * P + p < channels) & (p < P)
    to = sums + tl.program_id(0) * channels + field * P + p
    tl.store(to, tl.sum(tl.reshape(total, (ROWS, FIELDS, W)), 0), inside)
    tl.store(to + parts * channels, tl.sum(tl.reshape(product, (ROWS, FIELDS, W)), 0), inside)


@Kernel
@triton.jit(do_not_specialize=["rows", "channels", "steps", "start"])
def _backward(
    x, g, dx, one, two, vectors, slopes, rows, channels, x_row, g_row, dx_row, steps, start,
    KIND: tl.constexpr, TYPE: tl.constexpr, G: tl.constexpr, P: tl.constexpr, W: tl.constexpr, S: tl.constexpr,
    FIELDS: tl.constexpr, ROWS: tl.constexpr, SURPLUS: tl.constexpr,
):  # fmt: skip
    """Dx = gradient · scale + x · slope + offset."""
    row, field, p, inside, a, b, first = _begin(vectors + start, channels, steps, P, W, FIELDS, ROWS)
    s = tl.load(slopes + field * P + p, inside, 0)
    t = tl.load(slopes + channels + field * P + p, inside, 0)
    for _ in range(steps):
        mask = (row < rows - first) & inside
        own = tl.load(x + first * x_row + (row * x_row + field * P + p), mask, 0).to(tl.float32)
        up = tl.load(g + first * g_row + (row * g_row + field * (P - G) + p - G), mask & (p >= G), 0).to(tl.float32)
        d = _gradient(own * a + b, up, one, two, p, KIND, TYPE, ROWS * FIELDS, G, W, S) * a + own * s + t
        tl.store(dx + first * dx_row + (row * dx_row + field * P + p), d.to(dx.dtype.element_ty), mask)
        _fill_surplus(dx, first, rows, channels, dx_row, ROWS, SURPLUS)
        first += ROWS


class Plan:
    """How a feature map, its channels innermost and rows at equal distances, is divided among programs.

    Args:
        rows: Pixels of all samples.
        channels: Of each.
        dtype: Of the map.
        table: Shape of the second table of what follows the normalisation: channels of each gate (M, W), or the
            transform from samples (S, W).
        kind: NONE, GATE or FOURIER.
        gates: Per field.
        size: Channels per field.
        programs: About how many.
    """

    def __init__(self, rows, channels, dtype, table, kind, gates, size, programs) -> None:
        self.rows, self.channels = rows, channels
        copies = ceil_div(channels, size)
        fields = 4 if copies % 4 == 0 else 2 if copies % 2 == 0 else 1
        height = (2 * TILE if kind == FOURIER else TILE) // fields
        self.steps = ceil_div(rows, height * programs)
        self.parts = ceil_div(rows, height * self.steps)
        self.grid = self.parts, ceil_div(copies, fields)
        self.out_channels = channels - gates * copies
        samples, width = (1, 32) if kind == NONE else table
        precision = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}.get(dtype, tl.float32)
        self.shape = kind, precision, gates, size, width, samples, fields, height


_plan = functools.lru_cache(maxsize=4096)(Plan)


def plan_of(x: Tensor, two: Tensor, kind: int, gates: int, size: int, programs: int) -> Plan:
    """The same for a map; made once for maps that are alike."""
    return _plan(x.numel() // x.shape[1], x.shape[1], x.dtype, tuple(two.shape), kind, gates, size, programs)


def moments(x: Tensor) -> tuple[Tensor, int]:
    """Of portions of the rows: the mean of every channel, and the sum of squared distances from it, (2, parts, C).

    And how many rows a portion has; the last one may have fewer.
    """
    rows, channels = x.numel() // x.shape[1], x.shape[1]
    steps = ceil_div(rows, 32 * (PROGRAMS // 4))
    parts = ceil_div(rows, 32 * steps)
    found = torch.empty(2, parts, channels, device=x.device)
    grid = parts, ceil_div(channels, 64)
    _moments.start(grid, (x, found), (rows, channels, x.stride(-1), steps, parts), (32, 64))
    return found, 32 * steps


# Scale and shift are the last of ``vectors``.


def forward(x, y, one, two, vectors, kind, gates, size) -> None:
    """Fill y."""
    plan = plan_of(x, two, kind, gates, size, PROGRAMS)
    start = vectors.numel() - 2 * plan.channels
    numbers = plan.rows, plan.channels, plan.out_channels, x.stride(-1), y.stride(-1), plan.steps, start
    constants = *plan.shape, y.shape[1] - plan.out_channels
    _forward.start(plan.grid, (x, y, one, two, vectors), numbers, constants)


def sums(x, g, one, two, vectors, kind, gates, size) -> Tensor:
    """The two sums of every channel over portions of the rows, (2, parts, C)."""
    plan = plan_of(x, two, kind, gates, size, PROGRAMS // 4)
    out = vectors.new_empty(2, plan.parts, plan.channels)
    start = vectors.numel() - 2 * plan.channels
    numbers = plan.rows, plan.channels, x.stride(-1), g.stride(-1), plan.steps, start, plan.parts
    _sums.start(plan.grid, (x, g, out, one, two, vectors), numbers, plan.shape)
    return out


def backward(x, g, dx, one, two, vectors, slopes, kind, gates, size) -> None:
    """Fill dx; slope and offset are the first of ``slopes``."""
    plan = plan_of(x, two, kind, gates, size, PROGRAMS)
    start = vectors.numel() - 2 * plan.channels
    numbers = plan.rows, plan.channels, x.stride(-1), g.stride(-1), dx.stride(-1), plan.steps, start
    constants = *plan.shape, dx.shape[1] - plan.channels
    _backward.start(plan.grid, (x, g, dx, one, two, vectors, slopes), numbers, constants)


@Kernel
@triton.jit(do_not_specialize=["n", "m", "padding"])
def _blur(
    x, y, along, n, m, inner, padding,
    K: tl.constexpr, STRIDE: tl.constexpr, BACK: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """y_j = Σ_t w_t x_{sj + t − padding}, or its adjoint, along the middle of (outer, n, inner) → (outer, m, inner)."""
    outer = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    i = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)[None, :]
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for t in tl.static_range(K):
        if BACK:
            met = j + padding - t
            source = met // STRIDE
            there = (met >= 0) & (met % STRIDE == 0) & (source < n)
        else:
            source = j * STRIDE + t - padding
            there = (source >= 0) & (source < n)
        mask = there & (j < m) & (i < inner)
        total += tl.load(along + t) * tl.load(x + outer * n * inner + (source * inner + i), mask, 0).to(tl.float32)
    tl.store(y + outer * m * inner + (j * inner + i), total.to(y.dtype.element_ty), (j < m) & (i < inner))


@Kernel
@triton.jit(do_not_specialize=["rows", "height", "width", "out_height", "out_width"])
def _patches(
    x, y, rows, height, width, out_height, out_width, stride, padding,
    CHANNELS: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """All patches (B·H'·W', C·K·K) of images (B, C, H, W), with zeros up to COLUMNS."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]  # in 32 bits: divisions of longer numbers are slow
    k = tl.arange(0, WIDTH)[None, :]
    i = (row // out_width % out_height) * stride + k // K % K - padding
    j = (row % out_width) * stride + k % K - padding
    image = (row // (out_height * out_width)).to(tl.int64)
    place = (image * CHANNELS + k // (K * K)) * (height * width) + (i * width + j)
    there = (row < rows) & (k < CHANNELS * K * K) & (i >= 0) & (i < height) & (j >= 0) & (j < width)
    to = y + row.to(tl.int64) * COLUMNS + k
    tl.store(to, tl.load(x + place, there, 0), (row < rows) & (k < COLUMNS))


def patches(x, y, shape, size, stride, padding) -> None:
    """Fill y, (B·H'·W', columns), with the patches of images side by side in memory."""
    rows, columns = y.shape
    width = power_of_two(columns)
    per_program = max(1, 4096 // width)
    numbers = rows, *x.shape[2:], *shape, stride, padding
    constants = x.shape[1], size, columns, width, per_program
    _patches.start((ceil_div(rows, per_program),), (x, y), numbers, constants)


def blur(x, y, along, axis, stride, padding, back) -> None:
    """Blur a map (B, …, C), its channels innermost and rows side by side, along one axis into another."""
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    n, m = x.shape[axis], y.shape[axis]
    rows, width = 16, 64  # the same for all maps, so that few kernels are compiled
    grid = outer, ceil_div(m, rows), ceil_div(inner, width)
    _blur.start(grid, (x, y, along), (n, m, inner, padding), (len(along), stride, back, rows, width))

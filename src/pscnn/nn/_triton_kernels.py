# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Triton kernels, each one pass over memory: normalisation with what follows it, its gradients, and the blur.

A feature map has its channels innermost: a row is a pixel, and in it lie blocks of P channels, which become Q. A block
is one or more fields, as many as a matrix of tensor cores takes at once. A program holds one block of some rows as a
tile (ROWS, W), W ≥ P a power of two, and walks down ``steps`` such tiles. Every value is loaded once, by neighbouring
threads; that each gate meets its irrep is a small matrix product, as is a Fourier transform.
"""

from __future__ import annotations

import functools
import math
import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from pscnn.nn._launch import Kernel, ceil_div, power_of_two
from pscnn.nn._norm_act import NONE, RELU

TILE = 64
"""Rows of a tile: those of a tensor core's product."""
PROGRAMS = 1024
"""About how many programs there are."""
LOG2_E = tl.constexpr(math.log2(math.e))
ASSEMBLY = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1" and torch.version.hip is None)

# Code is not compiled anew for numbers that depend on the size of a batch.


@Kernel
@triton.jit(do_not_specialize=["rows", "channels", "steps", "parts"])
def _moments(x, found, rows, channels, x_row, steps, parts, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Per portion of the rows and channel: the mean, and the sum of the squared distances from it.

    Distances are taken from the mean of the portion's first rows, since squares of large numbers would lose small ones.
    """
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    row, column, inside = tl.arange(0, ROWS)[:, None], c[None, :], c < channels
    there = column < x_row  # several at a time: their number is known
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    squares = tl.zeros((ROWS, WIDTH), tl.float32)
    first = tl.program_id(0).to(tl.int64) * ROWS * steps
    count = tl.minimum(rows - first, ROWS * steps).to(tl.float32)
    mask = (row < rows - first) & there
    v = tl.load(x + first * x_row + (row * x_row + column), mask, 0).to(tl.float32)
    origin = tl.sum(v, 0) / tl.minimum(count, ROWS)
    for _ in range(steps):
        mask = (row < rows - first) & there
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
def _columns(count, P: tl.constexpr, W: tl.constexpr):
    """A program's columns of a map, (1, W): those of its block, numbers of them, and which there are of so many."""
    p = tl.arange(0, W)[None, :]
    column = tl.program_id(1) * P + p
    return p, column, (column < count) & (p < P)


@triton.jit
def _stored(p, column, width, P: tl.constexpr, W: tl.constexpr):
    """Those of its block; the last program also goes on behind them, with zeros."""
    return (p < tl.where(tl.program_id(1) == tl.num_programs(1) - 1, W, P)) & (column < width)


@triton.jit
def _within(there, column, width, PARTIAL: tl.constexpr):
    """Some columns of a tile, of which the last block may have fewer. Widths are known to be even, channels are not."""
    if PARTIAL:
        there = there & (column < width)
    return there


@triton.jit
def _only(v, inside, PARTIAL: tl.constexpr):
    """Nothing where there are no channels, whatever lies there."""
    if PARTIAL:
        v = tl.where(inside, v, 0)
    return v


@triton.jit
def _matrix(values, TYPE: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """A matrix (R, C) in the precision of the map."""
    return tl.load(values + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]).to(TYPE)


@triton.jit
def _product(v, matrix, TYPE: tl.constexpr):
    """A matrix product in the precision of the map; single precision as three products of tensor cores."""
    return tl.dot(v.to(TYPE), matrix, input_precision="tf32x3")


@triton.jit
def _power(x):
    """2ˣ, in one instruction; results below 2⁻¹²⁶ are zero."""
    if ASSEMBLY:
        out = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    else:
        out = tl.exp2(x)
    return out


@triton.jit
def _sigmoid(v):
    return 1 / (1 + _power(-v * LOG2_E))


@triton.jit
def _larger(a, b):
    """The larger of two; nothing that is not a number becomes one, or nobody saw that training has diverged."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _constants(
    one, two, KIND: tl.constexpr, TYPE: tl.constexpr, W: tl.constexpr, S: tl.constexpr, V: tl.constexpr
):  # fmt: skip
    """Both matrices, if there are any, which a program needs for all its tiles."""
    if KIND == 1 or KIND == 2:
        first, second = _matrix(one, TYPE, W, S), _matrix(two, TYPE, S, V)
    else:
        first, second = one, two
    return first, second


@triton.jit
def _activated(v, one, two, KIND: tl.constexpr, TYPE: tl.constexpr):
    """What follows the normalisation, applied to normalised values."""
    if KIND == 1:
        out = _product(v * _product(_sigmoid(v), one, TYPE), two, TYPE)
    elif KIND == 2:
        samples = _product(v, one, TYPE)  # in units of log 2; of two numbers ELU is the larger one
        samples = _larger(samples, _power(tl.minimum(samples, 0)) * LOG2_E - LOG2_E)
        out = _product(samples, two, TYPE)
    elif KIND == 3:
        out = _larger(v, 0.0)
    else:
        out = v
    return out


@triton.jit
def _gradient(v, up, one, two, KIND: tl.constexpr, TYPE: tl.constexpr):
    """The gradient of the normalised values v.

    With A the gate of each feature and B what picks features, y = (v · σ(v) A) B, features get up Bᵀ · σ(v) A, and
    gates σ'(v) · (up Bᵀ · v) Aᵀ. With samples s = v A and up for y = γ(s) B, it is (up Bᵀ · γ'(s)) Aᵀ.
    """
    if KIND == 0:
        out = up
    elif KIND == 3:
        out = tl.where(v > 0, up, 0)
    else:
        up = _product(up, tl.trans(two), TYPE)
        if KIND == 1:
            opened = _sigmoid(v)
            out = up * _product(opened, one, TYPE)
            out += opened * (1 - opened) * _product(up * v, tl.trans(one), TYPE)
        else:
            slope = _power(tl.minimum(_product(v, one, TYPE), 0))
            out = _product(up * slope, tl.trans(one), TYPE)
    return out


@triton.jit
def _fill_surplus(y, first, left, y_row, ROWS: tl.constexpr, SURPLUS: tl.constexpr, FILL: tl.constexpr):
    """Zeros in the last columns of some rows."""
    if SURPLUS > 0:  # noqa: SIM102  # known to the compiler
        if tl.program_id(1) == 0:
            row, k = tl.arange(0, ROWS)[:, None], tl.arange(0, FILL)[None, :]
            zeros = tl.zeros((ROWS, FILL), y.dtype.element_ty)
            tl.store(y + first * y_row + (row * y_row + (y_row - SURPLUS + k)), zeros, (row < left) & (k < SURPLUS))


@Kernel
@triton.jit(do_not_specialize=["rows", "channels", "steps", "start"])
def _forward(
    x, y, one, two, vectors, rows, channels, x_row, y_row, steps, start,
    KIND: tl.constexpr, TYPE: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, W: tl.constexpr, S: tl.constexpr,
    V: tl.constexpr, ROWS: tl.constexpr, PARTIAL: tl.constexpr, SURPLUS: tl.constexpr, FILL: tl.constexpr,
):  # fmt: skip
    row = tl.arange(0, ROWS)[:, None]
    p, column, inside = _columns(channels, P, W)
    q, target, _ = _columns(0, Q, V)
    a = tl.load(vectors + start + column, inside, 0)
    b = tl.load(vectors + start + channels + column, inside, 0)
    first, second = _constants(one, two, KIND, TYPE, W, S, V)
    here = tl.program_id(0).to(tl.int64) * ROWS * steps
    loaded, stored = _within(p < P, column, x_row, PARTIAL), _stored(q, target, y_row, Q, V)
    for _ in range(steps):
        left = (rows - here).to(tl.int32)
        v = tl.load(x + here * x_row + (row * x_row + column), (row < left) & loaded, 0).to(tl.float32)
        out = _activated(_only(v * a + b, inside, PARTIAL), first, second, KIND, TYPE)
        tl.store(y + here * y_row + (row * y_row + target), out.to(y.dtype.element_ty), (row < left) & stored)
        _fill_surplus(y, here, left, y_row, ROWS, SURPLUS, FILL)
        here += ROWS


@Kernel
@triton.jit(do_not_specialize=["rows", "channels", "out_channels", "steps", "start", "parts"])
def _gradients(
    x, g, d, sums, one, two, vectors, rows, channels, out_channels, x_row, g_row, d_row, steps, start, parts,
    KIND: tl.constexpr, TYPE: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, W: tl.constexpr, S: tl.constexpr,
    V: tl.constexpr, ROWS: tl.constexpr, PARTIAL: tl.constexpr, SURPLUS: tl.constexpr, FILL: tl.constexpr,
    SUMS: tl.constexpr,
):  # fmt: skip
    """The gradient d of normalised values, unless it is g itself.

    And per portion of the rows and channel: the sums of d, and of d times x − mean. The mean stands two vectors before
    the scale.
    """
    row = tl.arange(0, ROWS)[:, None]
    p, column, inside = _columns(channels, P, W)
    q, source, there = _columns(out_channels, Q, V)
    a = tl.load(vectors + start + column, inside, 0)
    b = tl.load(vectors + start + channels + column, inside, 0)
    first, second = _constants(one, two, KIND, TYPE, W, S, V)
    here = tl.program_id(0).to(tl.int64) * ROWS * steps
    loaded, given = _within(p < P, column, x_row, PARTIAL), _within(q < Q, source, g_row, PARTIAL)
    stored = _stored(p, column, d_row, P, W)
    if SUMS:
        centre = tl.load(vectors + start - 2 * channels + column, inside, 0)
        total = tl.zeros((ROWS, W), tl.float32)
        product = tl.zeros((ROWS, W), tl.float32)
    for _ in range(steps):
        left = (rows - here).to(tl.int32)
        own = tl.load(x + here * x_row + (row * x_row + column), (row < left) & loaded, 0).to(tl.float32)
        up = tl.load(g + here * g_row + (row * g_row + source), (row < left) & given, 0).to(tl.float32)
        v = _only(own * a + b, inside, PARTIAL)
        found = _gradient(v, _only(up, there, PARTIAL), first, second, KIND, TYPE)  # zero where there is no row
        if KIND != 0:
            rounded = found.to(d.dtype.element_ty)
            tl.store(d + here * d_row + (row * d_row + column), rounded, (row < left) & stored)
            _fill_surplus(d, here, left, d_row, ROWS, SURPLUS, FILL)
            found = rounded.to(tl.float32)
        if SUMS:
            total += found
            product += _only(found * (own - centre), inside, PARTIAL)
        here += ROWS
    if SUMS:
        to = sums + tl.program_id(0) * channels + column
        tl.store(to, tl.sum(total, 0)[None, :], inside)
        tl.store(to + parts * channels, tl.sum(product, 0)[None, :], inside)


@Kernel
@triton.jit(do_not_specialize=["rows", "channels", "steps", "start"])
def _combine(
    x, d, dx, vectors, slopes, rows, channels, x_row, d_row, dx_row, steps, start,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Dx = d · scale + x · slope + offset, with zeros behind the channels; dx may be d."""
    row, column = tl.arange(0, ROWS)[:, None], tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = column < channels
    a = tl.load(vectors + start + column, inside, 0)
    s = tl.load(slopes + column, inside, 0)
    t = tl.load(slopes + channels + column, inside, 0)
    here = tl.program_id(0).to(tl.int64) * ROWS * steps
    for _ in range(steps):
        there = row < (rows - here).to(tl.int32)
        own = tl.load(x + here * x_row + (row * x_row + column), there & (column < x_row), 0).to(tl.float32)
        up = tl.load(d + here * d_row + (row * d_row + column), there & (column < d_row), 0).to(tl.float32)
        out = tl.where(inside, up * a + own * s + t, 0).to(dx.dtype.element_ty)
        tl.store(dx + here * dx_row + (row * dx_row + column), out, there & (column < dx_row))
        here += ROWS


class Plan:
    """How a feature map, its channels innermost and rows at equal distances, is divided among programs.

    Args:
        rows: Pixels of all samples.
        channels: Of each.
        dtype: Of the map.
        one: Shape of the first table of what follows the normalisation, (W, S).
        two: Of the second, (S, V).
        kind: NONE, GATE, FOURIER or RELU.
        gates: Per block.
        size: Channels per block.
    """

    def __init__(self, rows, channels, dtype, one, two, kind, gates, size) -> None:
        self.rows, self.channels, blocks = rows, channels, ceil_div(channels, size)
        programs = max(1, PROGRAMS // blocks)
        self.steps = ceil_div(rows, TILE * programs)
        self.parts = ceil_div(rows, TILE * self.steps)
        self.grid = self.parts, blocks
        self.out_channels = channels * (size - gates) // size
        precision = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}.get(dtype, tl.float32)
        (width, samples), target = ((32, 1), 32) if kind in (NONE, RELU) else (one, two[1])
        self.shape = kind, precision, size, size - gates, width, samples, target, TILE, channels % size != 0
        self.ends = (blocks - 1) * (size - gates) + target, (blocks - 1) * size + width

    def surplus(self, columns, back) -> tuple[int, int]:
        """How many of a map's columns are behind those that programs fill, and the next power of two."""
        left = max(0, columns - self.ends[back])
        return left, power_of_two(max(1, left))


_plan = functools.lru_cache(maxsize=4096)(Plan)


def plan_of(x: Tensor, one: Tensor, two: Tensor, kind: int, gates: int, size: int) -> Plan:
    """The same for a map; made once for maps that are alike."""
    tables = tuple(one.shape), tuple(two.shape)
    return _plan(x.numel() // x.shape[1], x.shape[1], x.dtype, *tables, kind, gates, size)


def moments(x: Tensor) -> tuple[Tensor, int]:
    """Of portions of the rows: the mean of every channel, and the sum of squared distances from it, (2, parts, C).

    And how many rows a portion has; the last one may have fewer.
    """
    rows, channels = x.numel() // x.shape[1], x.shape[1]
    steps = ceil_div(rows, 32 * (PROGRAMS // 2))
    parts = ceil_div(rows, 32 * steps)
    found = torch.empty(2, parts, channels, device=x.device)
    grid = parts, ceil_div(channels, 64)
    _moments.start(grid, (x, found), (rows, channels, x.stride(-1), steps, parts), (32, 64))
    return found, 32 * steps


# Scale and shift are the last of ``vectors``.


def forward(x, y, one, two, vectors, kind, gates, size) -> None:
    """Fill y."""
    plan = plan_of(x, one, two, kind, gates, size)
    start = vectors.numel() - 2 * plan.channels
    numbers = plan.rows, plan.channels, x.stride(-1), y.stride(-1), plan.steps, start
    constants = *plan.shape, *plan.surplus(y.shape[1], back=False)
    _forward.start(plan.grid, (x, y, one, two, vectors), numbers, constants)


def gradients(x, g, d, one, two, vectors, kind, gates, size, summed) -> Tensor:
    """Fill d with the gradient of normalised values, unless it is g; if wanted, its sums over portions (2, parts, C).

    The second ones are of d times the distance of x from its mean. Without sums what is behind the channels is filled.
    """
    plan = plan_of(x, one, two, kind, gates, size)
    sums = vectors.new_empty(2, plan.parts, plan.channels) if summed else vectors
    start = vectors.numel() - 2 * plan.channels
    distances = x.stride(-1), g.stride(-1), d.stride(-1)
    numbers = plan.rows, plan.channels, plan.out_channels, *distances, plan.steps, start, plan.parts
    constants = *plan.shape, *((0, 1) if summed else plan.surplus(d.shape[1], back=True)), summed
    _gradients.start(plan.grid, (x, g, d, sums, one, two, vectors), numbers, constants)
    return sums


def combine(x, d, dx, vectors, slopes) -> None:
    """Fill dx, which may be d, and what is behind its channels; slope and offset are the first of ``slopes``."""
    rows, channels = x.numel() // x.shape[1], x.shape[1]
    width = 64 if dx.shape[1] % 64 == 0 else 32
    height = 2048 // width
    blocks = dx.shape[1] // width
    steps = ceil_div(rows, height * ceil_div(2 * PROGRAMS, blocks))
    numbers = rows, channels, x.stride(-1), d.stride(-1), dx.stride(-1), steps, vectors.numel() - 2 * channels
    grid = ceil_div(rows, height * steps), blocks
    _combine.start(grid, (x, d, dx, vectors, slopes), numbers, (height, width))


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


@Kernel
@triton.jit(do_not_specialize=["rows", "height", "width", "out_height", "out_width", "padding"])
def _fold(
    x, y, rows, height, width, out_height, out_width, padding, x_image, x_channel, x_row, x_pixel,
    CHANNELS: tl.constexpr, H_HALF: tl.constexpr, W_HALF: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Four pixels of images (B, C, H, W) side by side in each of (B·H'·W', COLUMNS), with zeros where there are none.

    Of an image of averages of neighbours, where H_HALF or W_HALF says so.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]  # in 32 bits, as above
    k = tl.arange(0, COLUMNS)[None, :]
    which = k // CHANNELS
    i = (row // out_width % out_height) * 2 + which // 2 - padding
    j = (row % out_width) * 2 + which % 2 - padding
    image = (row // (out_height * out_width)).to(tl.int64)
    there = (i >= 0) & (i < height - H_HALF) & (j >= 0) & (j < width - W_HALF)
    there = there & (row < rows) & (k < 4 * CHANNELS)
    place = x + image * x_image + (k % CHANNELS * x_channel + i * x_row + j * x_pixel)
    v = tl.load(place, there, 0).to(tl.float32)
    if H_HALF:
        v = (v + tl.load(place + x_row, there, 0).to(tl.float32)) / 2
    if W_HALF:
        w = tl.load(place + x_pixel, there, 0).to(tl.float32)
        if H_HALF:
            w = (w + tl.load(place + x_row + x_pixel, there, 0).to(tl.float32)) / 2
        v = (v + w) / 2
    tl.store(y + row.to(tl.int64) * COLUMNS + k, v.to(y.dtype.element_ty), row < rows)


def fold(x, y, padding, halves) -> None:
    """Fill y (B, columns, H', W'), its channels innermost."""
    columns, rows = y.shape[1], y.numel() // y.shape[1]
    per_program = 2048 // columns
    numbers = rows, *x.shape[2:], *y.shape[2:], padding, *x.stride()
    _fold.start((ceil_div(rows, per_program),), (x, y), numbers, (x.shape[1], *halves, columns, per_program))


def blur(x, y, along, axis, stride, padding, back) -> None:
    """Blur a map (B, …, C), its channels innermost and rows side by side, along one axis into another."""
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    n, m = x.shape[axis], y.shape[axis]
    rows, width = 16, 64  # the same for all maps, so that few kernels are compiled
    grid = outer, ceil_div(m, rows), ceil_div(inner, width)
    _blur.start(grid, (x, y, along), (n, m, inner, padding), (len(along), stride, back, rows, width))

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Triton kernels: normalisation and gate, and their gradients, in one pass over memory each.

A feature map has its channels innermost: a row is a pixel, and in it lie ``copies`` fields of P channels, G gates and
then the irreps that they scale. A program holds FIELDS fields of some rows as a tile (rows · FIELDS, W), W ≥ P a power
of two, and walks down ``steps`` such tiles. Every value is loaded once, by neighbouring threads; that each gate meets
its irrep is a gather inside the tile, between the threads of a warp.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

TILE = 32
"""Fields in a tile, over all its rows. With it, 4 warps hold 4 values a thread, which measures best."""
PROGRAMS = 4096
"""About how many programs there are per portion of fields; sums are left in a quarter as many portions."""


@triton.jit
def _begin(scale, shift, copies, steps, P: tl.constexpr, W: tl.constexpr, FIELDS: tl.constexpr, ROWS: tl.constexpr):
    """Row within the tile, field, and channel within the field; which exist; their scale and shift; the first row."""
    n = tl.arange(0, ROWS * FIELDS)[:, None]
    field, p = tl.program_id(1) * FIELDS + n % FIELDS, tl.arange(0, W)[None, :]
    inside = (field < copies) & (p < P)
    a = tl.load(scale + field * P + p, inside, 0)
    b = tl.load(shift + field * P + p, inside, 0)
    return n // FIELDS, field, p, inside, a, b, tl.program_id(0).to(tl.int64) * ROWS * steps


@triton.jit
def _gates(v, gate_of, p, N: tl.constexpr, W: tl.constexpr):
    """Each channel's gate."""
    return tl.gather(v, tl.broadcast_to(tl.load(gate_of + p), (N, W)), 1)


@triton.jit
def _gradient(v, up, gate_of, members, p, N: tl.constexpr, G: tl.constexpr, W: tl.constexpr, M: tl.constexpr):
    """The gradient of the normalised values v: features get up · σ(gate), gates σ'(v) Σ up · features."""
    products = up * v
    total = tl.zeros_like(v)
    for m in tl.static_range(M):
        member = tl.load(members + m * W + p)
        got = tl.gather(products, tl.broadcast_to(tl.maximum(member, 0), (N, W)), 1)
        total += tl.where(member >= 0, got, 0)
    opened = tl.sigmoid(v)
    return tl.where(p < G, total * opened * (1 - opened), up * _gates(opened, gate_of, p, N, W))


@triton.jit
def _forward(
    x, y, gate_of, scale, shift, rows, copies, x_row, y_row, steps,
    G: tl.constexpr, P: tl.constexpr, W: tl.constexpr, FIELDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row, field, p, inside, a, b, first = _begin(scale, shift, copies, steps, P, W, FIELDS, ROWS)
    for _ in range(steps):
        mask = (row < rows - first) & inside
        v = tl.load(x + first * x_row + (row * x_row + field * P + p), mask, 0).to(tl.float32) * a + b
        out = v * _gates(tl.sigmoid(v), gate_of, p, ROWS * FIELDS, W)
        to = y + first * y_row + (row * y_row + field * (P - G) + p - G)
        tl.store(to, out.to(y.dtype.element_ty), mask & (p >= G))
        first += ROWS


@triton.jit
def _sums(
    x, g, sums, gate_of, members, scale, shift, mean, rows, copies, x_row, g_row, steps, parts,
    G: tl.constexpr, P: tl.constexpr, M: tl.constexpr, W: tl.constexpr, FIELDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Per portion of the rows and channel: the sums of the gradient, and of the gradient times x − mean."""
    row, field, p, inside, a, b, first = _begin(scale, shift, copies, steps, P, W, FIELDS, ROWS)
    centre = tl.load(mean + field * P + p, inside, 0)
    total = tl.zeros((ROWS * FIELDS, W), tl.float32)
    product = tl.zeros((ROWS * FIELDS, W), tl.float32)
    for _ in range(steps):
        mask = (row < rows - first) & inside
        own = tl.load(x + first * x_row + (row * x_row + field * P + p), mask, 0).to(tl.float32)
        up = tl.load(g + first * g_row + (row * g_row + field * (P - G) + p - G), mask & (p >= G), 0).to(tl.float32)
        d = _gradient(own * a + b, up, gate_of, members, p, ROWS * FIELDS, G, W, M)  # zero where there is no row
        total += d
        product += d * (own - centre)
        first += ROWS
    field = tl.program_id(1) * FIELDS + tl.arange(0, FIELDS)[:, None]
    inside = (field < copies) & (p < P)
    to = sums + tl.program_id(0) * copies * P + field * P + p
    tl.store(to, tl.sum(tl.reshape(total, (ROWS, FIELDS, W)), 0), inside)
    tl.store(to + parts * copies * P, tl.sum(tl.reshape(product, (ROWS, FIELDS, W)), 0), inside)


@triton.jit
def _backward(
    x, g, dx, gate_of, members, scale, shift, slope, offset, rows, copies, x_row, g_row, dx_row, steps,
    G: tl.constexpr, P: tl.constexpr, M: tl.constexpr, W: tl.constexpr, FIELDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Dx = gradient · scale + x · slope + offset."""
    row, field, p, inside, a, b, first = _begin(scale, shift, copies, steps, P, W, FIELDS, ROWS)
    s = tl.load(slope + field * P + p, inside, 0)
    t = tl.load(offset + field * P + p, inside, 0)
    for _ in range(steps):
        mask = (row < rows - first) & inside
        own = tl.load(x + first * x_row + (row * x_row + field * P + p), mask, 0).to(tl.float32)
        up = tl.load(g + first * g_row + (row * g_row + field * (P - G) + p - G), mask & (p >= G), 0).to(tl.float32)
        d = _gradient(own * a + b, up, gate_of, members, p, ROWS * FIELDS, G, W, M) * a + own * s + t
        tl.store(dx + first * dx_row + (row * dx_row + field * P + p), d.to(dx.dtype.element_ty), mask)
        first += ROWS


class Plan:
    """How a feature map, its channels innermost and rows at equal distances, is divided among programs."""

    def __init__(self, x: Tensor, members: Tensor, gates: int, copies: int, programs: int) -> None:
        self.rows = x.numel() // x.shape[1]
        fields = 4 if copies % 4 == 0 else 2 if copies % 2 == 0 else 1
        rows = TILE // fields
        self.steps = triton.cdiv(self.rows, rows * programs)
        self.parts = triton.cdiv(self.rows, rows * self.steps)
        self.grid = self.parts, triton.cdiv(copies, fields)
        self.shape = {"G": gates, "P": x.shape[1] // copies, "W": members.shape[1], "FIELDS": fields, "ROWS": rows}


def forward(x, y, gate_of, members, vectors, gates, copies) -> None:
    """Fill y, given scale and shift."""
    plan = Plan(x, members, gates, copies, PROGRAMS)
    numbers = plan.rows, copies, x.stride(-1), y.stride(-1), plan.steps
    _forward[plan.grid](x, y, gate_of, *vectors, *numbers, **plan.shape)


def sums(x, g, gate_of, members, vectors, gates, copies) -> Tensor:
    """The two sums of every channel, (2, C), given scale, shift and mean."""
    plan = Plan(x, members, gates, copies, PROGRAMS // 4)
    out = vectors[0].new_empty(2, plan.parts, x.shape[1])
    numbers = plan.rows, copies, x.stride(-1), g.stride(-1), plan.steps, plan.parts
    _sums[plan.grid](x, g, out, gate_of, members, *vectors, *numbers, M=len(members), **plan.shape)
    return out.sum(1)


def backward(x, g, dx, gate_of, members, vectors, gates, copies) -> None:
    """Fill dx, given scale, shift, slope and offset."""
    plan = Plan(x, members, gates, copies, PROGRAMS)
    numbers = plan.rows, copies, x.stride(-1), g.stride(-1), dx.stride(-1), plan.steps
    _backward[plan.grid](x, g, dx, gate_of, members, *vectors, *numbers, M=len(members), **plan.shape)

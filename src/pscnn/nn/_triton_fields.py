# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""Triton kernels for the statistics of fields: one program per field, one launch for a dozen small operations.

What a field is stands in a table of five numbers: its first channel, its size, its first and its number of trivial
irreps, and its kind. Each kind has its directions of trivial irreps, T rows of W ≥ size, zero where there are fewer.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from pscnn.nn._launch import Kernel, ceil_div


@triton.jit
def _field(table, W: tl.constexpr):
    """The channels of this program's field and which exist; its size, first and number of trivial irreps, and kind."""
    row = table + 5 * tl.program_id(0)
    p, size = tl.arange(0, W), tl.load(row + 1)
    return tl.load(row) + p, p < size, size, tl.load(row + 2), tl.load(row + 3), tl.load(row + 4)


@triton.jit
def _follow(running, value, momentum, there):
    """A running average follows a value."""
    old = tl.load(running, there, 0)
    tl.store(running, old + momentum * (value - old), there)


@Kernel
@triton.jit(do_not_specialize=["rows", "channels", "parts", "portion", "fields", "trivial"])
def _statistics(
    found, out, table, directions, weight, bias, running_mean, running_var, batches,
    rows, channels, parts, portion, fields, trivial, eps, momentum,
    T: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr, FOLLOW: tl.constexpr,
):  # fmt: skip
    """From the means and squared distances of portions of rows to all that ``FieldStatistics`` has.

    With FOLLOW the running statistics follow, too.
    """
    c, inside, size, first, count, kind = _field(table, W)
    p, k, f = tl.arange(0, W), tl.arange(0, BLOCK), tl.program_id(0)
    mean = tl.zeros((W,), tl.float32)
    for start in range(0, parts, BLOCK):
        part = start + k
        share = tl.where(part < parts, tl.minimum(rows - part * portion, portion), 0).to(tl.float32) / rows
        there = (part < parts)[:, None] & inside[None, :]
        mean += tl.sum(tl.load(found + part[:, None] * channels + c[None, :], there, 0) * share[:, None], 0)
    spread = tl.zeros((W,), tl.float32)
    for start in range(0, parts, BLOCK):
        part = start + k
        share = tl.where(part < parts, tl.minimum(rows - part * portion, portion), 0).to(tl.float32) / rows
        there = (part < parts)[:, None] & inside[None, :]
        place = found + part[:, None] * channels + c[None, :]
        away = tl.load(place, there, 0) - mean[None, :]
        squares = tl.load(place + parts * channels, there, 0)
        spread += tl.sum(tl.where(there, squares / rows + share[:, None] * away * away, 0), 0)
    removed, constant = tl.zeros((W,), tl.float32), tl.zeros((W,), tl.float32)
    for t in tl.static_range(T):
        direction = tl.load(directions + (kind * T + t) * W + p)
        along = tl.sum(mean * direction, 0)
        removed += along * direction
        constant += tl.load(bias + first + t, t < count, 0) * direction
        tl.store(out + first + t, along, t < count)
        if FOLLOW:
            _follow(running_mean + first + t, along, momentum, t < count)
    excess = mean - removed
    variance = tl.sum(tl.where(inside, spread + excess * excess, 0), 0) / size
    inverse = 1 / tl.sqrt(variance + eps)
    if FOLLOW:
        _follow(running_var + f, variance * (rows / (rows - 1.0)), momentum, f < fields)
        if f == 0:
            tl.store(batches, tl.load(batches) + 1)
    scale = tl.load(weight + f) * inverse
    to = out + trivial
    tl.store(to + f, variance)
    tl.store(to + fields + f, inverse)
    to += 2 * fields + c
    tl.store(to, mean, inside)
    tl.store(to + channels, removed, inside)
    tl.store(to + 2 * channels, tl.where(inside, scale, 0), inside)
    tl.store(to + 3 * channels, constant - removed * scale, inside)


@Kernel
@triton.jit(do_not_specialize=["channels", "parts", "fields", "trivial"])
def _slopes(
    sums, found, out, table, directions, count, channels, parts, fields, trivial,
    T: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From the sums over portions of rows to all that ``field_gradients`` gives."""
    c, inside, size, first, several, kind = _field(table, W)
    p, k, f = tl.arange(0, W), tl.arange(0, BLOCK), tl.program_id(0)
    total, dots = tl.zeros((W,), tl.float32), tl.zeros((W,), tl.float32)
    for start in range(0, parts, BLOCK):
        part = start + k
        there = (part < parts)[:, None] & inside[None, :]
        place = sums + part[:, None] * channels + c[None, :]
        total += tl.sum(tl.load(place, there, 0), 0)
        dots += tl.sum(tl.load(place + parts * channels, there, 0), 0)
    at = found + trivial
    inverse = tl.load(at + fields + f)
    at += 2 * fields + c
    mean, removed = tl.load(at, inside, 0), tl.load(at + channels, inside, 0)
    scale = tl.load(at + 2 * channels, inside, 0)
    excess = mean - removed
    d_scale = tl.sum(dots + excess * total, 0) * inverse / size
    slope = -scale * d_scale * inverse / count
    offset = -slope * removed
    pulled = slope * excess + scale * total / count
    for t in tl.static_range(T):
        direction = tl.load(directions + (kind * T + t) * W + p)
        offset -= tl.sum(pulled * direction, 0) * direction
        tl.store(out + 2 * channels + fields + first + t, tl.sum(total * direction, 0), t < several)
    tl.store(out + c, slope, inside)
    tl.store(out + channels + c, offset, inside)
    tl.store(out + 2 * channels + f, d_scale * size)


@Kernel
@triton.jit(do_not_specialize=["trivial", "fields"])
def _follow_batch(found, running_mean, running_var, batches, trivial, fields, factor, momentum, WIDTH: tl.constexpr):
    """What ``_statistics`` does with FOLLOW, for statistics that are there."""
    k = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    _follow(running_mean + k, tl.load(found + k, k < trivial, 0), momentum, k < trivial)
    _follow(running_var + k, tl.load(found + trivial + k, k < fields, 0) * factor, momentum, k < fields)
    if tl.program_id(0) == 0:
        tl.store(batches, tl.load(batches) + 1)


def follow(found, running_mean, running_var, batches, count, momentum) -> None:
    """Let running statistics follow those of a batch with ``count`` values per channel."""
    trivial, fields = len(running_mean), len(running_var)
    numbers = trivial, fields, count / (count - 1.0), float(momentum)
    grid = (ceil_div(max(trivial, fields), 256),)
    _follow_batch.start(grid, (found, running_mean, running_var, batches), numbers, (256,))


def _shape(directions: Tensor) -> tuple[int, int, int]:
    _, trivial, width = directions.shape
    return trivial, width, max(16, 8192 // width)


def field_statistics(found, portion, rows, weight, bias, table, directions, eps, running=None) -> Tensor:
    """All of ``FieldStatistics``, one after the other, from the moments of portions (2, parts, C).

    Args:
        found: The moments.
        portion: Rows of a portion.
        rows: Of all.
        weight: As the following ones, of the normalisation.
        bias: Its bias.
        table: Its fields.
        directions: Their trivial irreps.
        eps: Added to variances.
        running: Mean, variance, number of batches and momentum, if these are to follow.
    """
    _, parts, channels = found.shape
    fields, trivial = len(table), len(bias)
    out = found.new_empty(trivial + 2 * fields + 4 * channels)
    *followers, momentum = (weight, weight, weight, 0.0) if running is None else running
    tensors = found, out, table, directions, weight, bias, *followers
    numbers = rows, channels, parts, portion, fields, trivial, float(eps), float(momentum)
    _statistics.start((fields,), tensors, numbers, (*_shape(directions), running is not None), num_warps=8)
    return out


def field_gradients(sums, found, count, table, directions) -> Tensor:
    """Slope, offset, and the gradients of weight and bias, one after the other, from sums of portions (2, parts, C)."""
    _, parts, channels = sums.shape
    fields = len(table)
    trivial = len(found) - 2 * fields - 4 * channels
    out = sums.new_empty(2 * channels + fields + trivial)
    numbers = float(count), channels, parts, fields, trivial
    _slopes.start((fields,), (sums, found, out, table, directions), numbers, _shape(directions), num_warps=8)
    return out

"""The mathematics of a normalisation that commutes with H: statistics of fields, and their gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pscnn._differentiable import differentiable


class FieldStatistics(NamedTuple):
    """Of y = γ_f (x − T Tᵀm) / σ_f + T b = scale·x + shift: Tᵀm, σ_f², m, T Tᵀm, 1/σ_f, scale and shift."""

    centre: Tensor
    variance: Tensor
    mean: Tensor
    removed: Tensor
    inverse: Tensor
    scale: Tensor
    shift: Tensor


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.view(-1, *[1] * (x.ndim - 2))


def affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """scale·x + shift per channel, in one pass: batch norm in eval mode with nothing to normalise."""
    if torch.compiler.is_compiling():
        return x * _per_channel(scale, x) + _per_channel(shift, x)
    zero = torch.zeros_like(scale)
    return F.batch_norm(x, zero, zero, scale, shift, eps=1.0)


# The following are written with as few operations as there can be: on a GPU each costs more than its arithmetic.


def channel_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and mean of every channel."""
    axes = [0, *range(2, x.ndim)]
    if x.device.type != "cpu":
        return torch.var_mean(x, axes, correction=0)
    mean = x.mean(axes)  # on a CPU two passes take a tenth of the time of one by Welford's formula
    return (x - _per_channel(mean, x)).square().mean(axes), mean


def field_statistics(
    channels: tuple[Tensor, Tensor], weight: Tensor, bias: Tensor, field_of: Tensor, average: Tensor, trivial: Tensor,
    eps: float,
) -> FieldStatistics:  # fmt: skip
    """The statistics of fields from the variances and means of channels."""
    variance, mean = channels
    centre = mean @ trivial  # the part of the mean that lies along trivial irreps
    removed = trivial @ centre
    excess = mean - removed
    field_variance = average @ torch.addcmul(variance, excess, excess)
    inverse = (field_variance + eps).rsqrt()
    scale = (weight * inverse).index_select(0, field_of)
    shift = torch.addcmul(trivial @ bias, removed, scale, value=-1)
    return FieldStatistics(centre, field_variance, mean, removed, inverse, scale, shift)


def field_gradients(
    sums: Tensor, dots: Tensor, count: int, constants: list[Tensor], mean: Tensor, removed: Tensor, inverse: Tensor,
    scale: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What the gradient g of y becomes: dx = g·scale + x·slope + offset, and the gradients of weight and bias.

    Autograd would make a dozen passes over the feature map to differentiate the statistics; all of them fold into two
    vectors per channel, which follow from Σ g and Σ g(x − m).
    """
    field_of, field_size, average, trivial = constants
    with torch.autocast(sums.device.type, enabled=False):  # compiled code runs this under the forward pass's autocast
        excess = mean - removed
        d_scale = (average @ torch.addcmul(dots, excess, sums)) * inverse  # of a field's γ, per channel
        slope = scale * (d_scale * inverse * (-1 / count)).index_select(0, field_of)
        along = torch.addcmul(slope * excess, scale, sums, value=1 / count) @ trivial
        offset = torch.addmv(slope * removed, trivial, along, beta=-1, alpha=-1)
        return slope, offset, d_scale * field_size, sums @ trivial


class FieldNorm(torch.autograd.Function):
    """``scale·x + shift`` with its gradient written out."""

    @staticmethod
    def forward(x: Tensor, *ingredients_and_size: Any) -> tuple[Tensor, ...]:
        found = field_statistics(channel_statistics(x), *ingredients_and_size[:-1])
        return affine(x, found.scale, found.shift), *found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, _, _, field_of, average, trivial, _, field_size = inputs
        _, _, _, *statistics, _ = output  # mean, removed, inverse, scale
        ctx.save_for_backward(x, field_of, field_size, average, trivial, *statistics)
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Several networks at once: batched by autograd's own rules."""
        out = torch.vmap(FieldNorm.forward, in_dims)(*inputs)
        return out, (0,) * len(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        x, *constants, mean, removed, inverse, scale = ctx.saved_tensors
        if torch.compiler.is_compiling():
            axes = [0, *range(2, x.ndim)]
            dx = gradients[0] * _per_channel(scale, x)
            dots, sums = (gradients[0] * (x - _per_channel(mean, x))).sum(axes), gradients[0].sum(axes)
        else:
            # Native batch norm in eval mode has a fused kernel for g·scale, Σ g(x − mean) and Σ g. On a GPU it fails if
            # channels are innermost.
            x = x.contiguous()
            dx, dots, sums = torch.ops.aten.native_batch_norm_backward(
                gradients[0].contiguous(), x, scale, mean, torch.zeros_like(mean), None, None, False, 1.0, [True] * 3
            )
        slope, offset, d_weight, d_bias = field_gradients(
            sums, dots, x.numel() // x.shape[1], constants, mean, removed, inverse, scale
        )
        return dx + affine(x, slope, offset), d_weight, d_bias, *[None] * 5


field_norm = differentiable(FieldNorm)

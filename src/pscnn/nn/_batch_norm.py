"""Batch normalisation that commutes with H."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pscnn._memo import memo
from pscnn._types import AnyArray
from pscnn.groups import Representation, block_diagonal
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Layer


class FieldStatistics(NamedTuple):
    """Of y = γ_f (x − T Tᵀm) / σ_f + T b = scale·x + shift: Tᵀm, σ_f², m, T Tᵀm, 1/σ_f, scale and shift."""

    centre: Tensor
    variance: Tensor
    mean: Tensor
    removed: Tensor
    inverse: Tensor
    scale: Tensor
    shift: Tensor


class BatchNorm(Layer):
    """Divides each field by one standard deviation and centres its trivial irreps only.

    A field of size d has the variance of its channels, averaged; means exist only along trivial irreps (all others
    average to zero over the group). Learnt: one scale per field, one shift per trivial irrep.

    Args:
        in_type: The fields; the output has the same type.
        eps: Added to the variance.
        momentum: Of the running statistics, as in ``torch.nn.BatchNorm2d``.

    Shape:
        (B, in_type.size, …) → the same.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    field_of: Tensor
    field_size: Tensor
    average: Tensor
    trivial: Tensor

    def __init__(
        self, in_type: FieldType, eps: float = 1e-5, momentum: float = 0.1, device: Device = None, dtype: DType = None
    ) -> None:
        super().__init__(in_type)
        self.eps, self.momentum = eps, momentum
        constants = _constants(in_type.representations)
        self.weight = nn.Parameter(torch.ones(len(constants["field_size"]), device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(constants["trivial"].shape[1], device=device, dtype=dtype))
        self.register_buffer("running_mean", torch.zeros_like(self.bias.data))
        self.register_buffer("running_var", torch.ones_like(self.weight.data))
        self.register_buffer("num_batches_tracked", torch.tensor(0, device=device))
        for name, array in constants.items():
            self.add_constant(name, array, self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise; in training the gradient can be taken once, not twice."""
        self.check(x)
        with torch.autocast(x.device.type, enabled=False):
            if not self.training:
                return F.batch_norm(x, *self.channel_statistics(), eps=self.eps)
            full = x if x.dtype in (torch.float32, torch.float64) else x.float()
            y, centre, variance, *_ = _FieldNorm.apply(full, *self.ingredients(full), self.field_size.to(full.dtype))  # type: ignore[no-untyped-call]
            self.update(centre, variance, x.numel() // x.shape[1])
            return y.to(x.dtype)

    def statistics(self, x: Tensor) -> FieldStatistics:
        """What a batch in single or double precision says."""
        return field_statistics(x, *self.ingredients(x))

    def ingredients(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, float]:
        """What ``field_statistics`` needs, in the precision of x."""
        weight, bias, average, trivial = (t.to(x.dtype) for t in (self.weight, self.bias, self.average, self.trivial))
        return weight, bias, self.field_of, average, trivial, self.eps

    def update(self, centre: Tensor, variance: Tensor, count: int) -> None:
        """Let the running statistics follow those of a batch with ``count`` values per channel."""
        if count == 1:
            raise ValueError("BatchNorm: needs more than one value per channel in training")
        if count == 0:  # an empty batch says nothing
            return
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            unbiased = variance.detach() * (count / (count - 1))
            for running, new in ((self.running_mean, centre.detach()), (self.running_var, unbiased)):
                running.mul_(1 - self.momentum).add_(new.to(running.dtype), alpha=self.momentum)

    def channel_statistics(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Running mean, running variance, scale and shift of every channel."""
        return (
            self.trivial @ self.running_mean,
            self.running_var.index_select(0, self.field_of),
            self.weight.index_select(0, self.field_of),
            self.trivial @ self.bias,
        )

    def extra_repr(self) -> str:
        return f"{self.in_type}, eps={self.eps}, momentum={self.momentum}"


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.view(-1, *[1] * (x.ndim - 2))


def affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """scale·x + shift per channel, in one pass: batch norm in eval mode with nothing to normalise."""
    if torch.compiler.is_compiling():
        return x * _per_channel(scale, x) + _per_channel(shift, x)
    zero = torch.zeros_like(scale)
    return F.batch_norm(x, zero, zero, scale, shift, eps=1.0)


# The following are written with as few operations as there can be: on a GPU each costs more than its arithmetic.


def field_statistics(
    x: Tensor, weight: Tensor, bias: Tensor, field_of: Tensor, average: Tensor, trivial: Tensor, eps: float
) -> FieldStatistics:
    """The statistics of a batch."""
    variance, mean = torch.var_mean(x, [0, *range(2, x.ndim)], correction=0)
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


class _FieldNorm(torch.autograd.Function):
    """``scale·x + shift`` with its gradient written out."""

    @staticmethod
    def forward(x: Tensor, *ingredients_and_size: Any) -> tuple[Tensor, ...]:
        found = field_statistics(x, *ingredients_and_size[:-1])
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
        out = torch.vmap(_FieldNorm.forward, in_dims)(*inputs)
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


@memo
def _constants(fields: tuple[Representation, ...]) -> dict[str, AnyArray]:
    sizes = np.array([rho.size for rho in fields], dtype=np.float64)
    field_of = np.repeat(np.arange(len(fields)), [rho.size for rho in fields])
    return {
        "field_of": field_of,  # of each channel
        "field_size": sizes,
        "average": np.eye(len(fields))[:, field_of] / sizes[:, None],  # (fields, channels)
        "trivial": block_diagonal([rho.trivial_vectors() for rho in fields]),  # directions, (channels, trivial irreps)
    }

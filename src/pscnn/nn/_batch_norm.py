"""Batch normalisation that commutes with H."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pscnn._memo import memo
from pscnn._types import AnyArray
from pscnn.groups import Representation, block_diagonal
from pscnn.nn._fast import fused
from pscnn.nn._field_norm import FieldStatistics, channel_statistics, field_norm, field_statistics
from pscnn.nn._field_type import FieldType, allow_any_function
from pscnn.nn._layer import Device, DType, Layer
from pscnn.nn._norm_act import NONE, RELU, Following, follow, norm_act, normalised, split_statistics


class BatchNorm(Layer):
    """Divides each field by one standard deviation and centres its trivial irreps only.

    A field of size d has the variance of its channels, averaged; means exist only along trivial irreps (all others
    average to zero over the group). Learnt: one scale per field, one shift per trivial irrep.

    Args:
        in_type: The fields; the output has the same type.
        eps: Added to the variance.
        momentum: Of the running statistics, as in ``torch.nn.BatchNorm2d``.
        relu: Whether a ReLU of every channel follows, for regular fields and scalars; on a GPU in the same pass.

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
    table: Tensor
    directions: Tensor
    relu = False  # in modules that were pickled before there was one, too

    def __init__(
        self,
        in_type: FieldType,
        eps: float = 1e-5,
        momentum: float = 0.1,
        device: Device = None,
        dtype: DType = None,
        relu: bool = False,
    ) -> None:
        super().__init__(in_type)
        if relu and not allow_any_function(in_type):
            raise ValueError(f"BatchNorm: relu=True needs regular fields or scalars, got {in_type}")
        self.eps, self.momentum, self.relu = eps, momentum, relu
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
        if fused(x) and self.one_pass(x):
            # There are no tables. The compiler wants every tensor only once.
            return self.then(x, Following(self.average, self.trivial, RELU if self.relu else NONE, 0, 32))
        y = self._normalise(x)
        return F.relu(y) if self.relu else y

    def _normalise(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            if not self.training:
                return F.batch_norm(x, *self.channel_statistics(), eps=self.eps)
            full = x if x.dtype in (torch.float32, torch.float64) else x.float()
            y, centre, variance, *_ = field_norm(full, *self.ingredients(full), self.field_size.to(full.dtype))
            self.update(centre, variance, x.numel() // x.shape[1])
            return y.to(x.dtype)

    def one_pass(self, x: Tensor) -> bool:
        """Whether there are kernels for it on a GPU: in training or without gradients."""
        return (
            x.ndim > 2
            and x.shape[1] == self.in_type.size
            and self.weight.dtype == torch.float32
            and (self.training or not torch.is_grad_enabled())
        )

    def then(self, x: Tensor, following: Following) -> Tensor:
        """Normalise and apply what follows, in one pass over memory."""
        if not self.training:
            with torch.autocast(x.device.type, enabled=False):
                mean, variance, weight, bias = self.channel_statistics()
            scale = weight * (variance + self.eps).rsqrt()
            one, two, *numbers = following
            return norm_act(x, one, two, torch.cat([scale, bias - mean * scale]), *numbers)
        count = x.numel() // x.shape[1]
        # A compiler is told of operations that change nothing.
        alone = count > 1 and type(x) is Tensor and not torch.compiler.is_compiling()
        running = (self.running_mean, self.running_var, self.num_batches_tracked, self.momentum) if alone else None
        ingredients = self.weight, self.bias, self.table, self.directions, self.eps
        y, found = normalised(x, *ingredients, *following, running)
        if torch.compiler.is_compiling() and count > 1 and self.running_mean.dtype == torch.float32:
            follow(found, self.running_mean, self.running_var, self.num_batches_tracked, count, self.momentum)
        elif running is None:
            centre, variance, *_ = split_statistics(found, len(self.weight), x.shape[1])
            self.update(centre, variance, count)
        return y

    def statistics(self, x: Tensor) -> FieldStatistics:
        """What a batch in single or double precision says."""
        return field_statistics(channel_statistics(x), *self.ingredients(x))

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
        return f"{self.in_type}, eps={self.eps}, momentum={self.momentum}{', relu=True' if self.relu else ''}"


@memo
def _constants(fields: tuple[Representation, ...]) -> dict[str, AnyArray]:
    sizes = np.array([rho.size for rho in fields], dtype=np.float64)
    field_of = np.repeat(np.arange(len(fields)), [rho.size for rho in fields])
    return {
        "field_of": field_of,  # of each channel
        "field_size": sizes,
        "average": np.eye(len(fields))[:, field_of] / sizes[:, None],  # (fields, channels)
        "trivial": block_diagonal([rho.trivial_vectors() for rho in fields]),  # directions, (channels, trivial irreps)
        **_tables(fields),
    }


def _tables(fields: tuple[Representation, ...]) -> dict[str, AnyArray]:
    """The same for kernels: ``_triton_fields`` says what they are."""
    kinds = list(dict.fromkeys(fields))
    vectors = {rho: rho.trivial_vectors() for rho in kinds}
    width = max(16, 1 << (max(rho.size for rho in kinds) - 1).bit_length())
    directions = np.zeros((len(kinds), max(v.shape[1] for v in vectors.values()), width))
    for k, rho in enumerate(kinds):
        directions[k, : vectors[rho].shape[1], : rho.size] = vectors[rho].T
    sizes = np.array([(rho.size, vectors[rho].shape[1], kinds.index(rho)) for rho in fields])
    starts = np.cumsum(sizes[:, :2], axis=0) - sizes[:, :2]
    columns = starts[:, 0], sizes[:, 0], starts[:, 1], sizes[:, 1], sizes[:, 2]
    return {"table": np.stack(columns, axis=1).astype(np.int32), "directions": directions}

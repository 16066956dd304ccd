"""Normalisation of single samples that commutes with H: over space, over groups of fields, or at every point."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._memo import memo
from pscnn._types import AnyArray
from pscnn.groups import Representation, block_diagonal
from pscnn.nn._field_type import FieldType
from pscnn.nn._layer import Device, DType, Layer


class _SampleNorm(Layer):
    """y = γ_f (x − T m) / σ + T b, where T are the directions of trivial irreps and m their mean over a group."""

    group_of: Tensor
    field_of: Tensor
    average: Tensor
    trivial: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(
        self, in_type: FieldType, groups: int, eps: float, affine: bool, device: Device = None, dtype: DType = None
    ) -> None:
        super().__init__(in_type)
        count = len(in_type.representations)
        if groups < 1 or count % groups:
            raise ValueError(f"{type(self).__name__}: groups must divide the number of fields {count}, got {groups}")
        self.groups, self.eps = groups, eps
        constants = _constants(in_type.representations, groups)
        like = torch.empty(0, device=device, dtype=dtype)
        if affine:
            self.weight: nn.Parameter | None = nn.Parameter(like.new_ones(count))
            self.bias: nn.Parameter | None = nn.Parameter(like.new_zeros(constants["trivial"].shape[1]))
        else:
            self.register_parameter("weight", None)
            self.register_parameter("bias", None)
        for name, array in constants.items():
            self.add_constant(name, array, like)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise every sample by itself."""
        self.check(x)
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            full = x.reshape(x.shape[0], self.in_type.size, -1).to(self._precision(x))
            scale, shift = self._scale_and_shift(full)
            if self.weight is not None and self.bias is not None:
                field = self.weight.to(scale.dtype).index_select(0, self.field_of)[:, None]
                scale, shift = scale * field, shift * field + (self.trivial @ self.bias).to(scale.dtype)[:, None]
            return (full * scale + shift).to(x.dtype).reshape(x.shape)

    def _precision(self, x: Tensor) -> torch.dtype:
        """That of the statistics; a traced network calculates in its own."""
        return torch.promote_types(x.dtype, torch.float32) if isinstance(x, Tensor) else self.average.dtype

    def _scale_and_shift(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """1/σ and −T m/σ of every channel of (B, C, points), to be broadcast."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{self.in_type}, groups={self.groups}, eps={self.eps}"


class GroupNorm(_SampleNorm):
    """Divides each group of fields by one standard deviation over space and centres its trivial irreps only.

    The trivial irreps of a group have one mean, its channels one variance, per sample. Learnt: one scale per field, one
    shift per trivial irrep.

    Args:
        in_type: The fields; the output has the same type.
        groups: Number of groups, of equally many consecutive fields.
        eps: Added to the variance.
        affine: Whether to learn scales and shifts.

    Shape:
        (B, in_type.size, …) → the same.
    """

    def __init__(
        self,
        in_type: FieldType,
        groups: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        super().__init__(in_type, groups, eps, affine, device, dtype)

    def _scale_and_shift(self, x: Tensor) -> tuple[Tensor, Tensor]:
        variance, mean = torch.var_mean(x, 2, correction=0)
        average, centre, spread = (t.to(x.dtype) for t in (self.average, self.centre, self.spread))
        removed = mean @ centre @ spread
        of_group = (variance + (mean - removed).square()) @ average
        scale = (of_group + self.eps).rsqrt().index_select(1, self.group_of)
        return scale[:, :, None], (-removed * scale)[:, :, None]


class InstanceNorm(GroupNorm):
    """``GroupNorm`` with every field in a group of its own.

    Args:
        in_type: The fields; the output has the same type.
        eps: Added to the variance.
        affine: Whether to learn scales and shifts.

    Shape:
        (B, in_type.size, …) → the same.
    """

    def __init__(
        self,
        in_type: FieldType,
        eps: float = 1e-5,
        affine: bool = False,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        groups = len(in_type.representations) if isinstance(in_type, FieldType) else 1
        super().__init__(in_type, groups, eps, affine, device, dtype)


class LayerNorm(_SampleNorm):
    """Divides the channels at every point by their standard deviation and centres the trivial irreps only.

    As ``torch.nn.LayerNorm`` over channels: at each point, the trivial irreps have one mean and all channels one
    variance. Learnt: one scale per field, one shift per trivial irrep.

    Args:
        in_type: The fields; the output has the same type.
        eps: Added to the variance.
        affine: Whether to learn scales and shifts.

    Shape:
        (B, in_type.size, …) → the same.
    """

    def __init__(
        self,
        in_type: FieldType,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        super().__init__(in_type, 1, eps, affine, device, dtype)

    def _scale_and_shift(self, x: Tensor) -> tuple[Tensor, Tensor]:
        centre, spread = self.centre.to(x.dtype), self.spread.to(x.dtype)
        removed = (x * centre).sum(1, keepdim=True) * spread.T
        scale = ((x - removed).square().mean(1, keepdim=True) + self.eps).rsqrt()
        return scale, -removed * scale

    def extra_repr(self) -> str:
        return f"{self.in_type}, eps={self.eps}"


@memo
def _constants(fields: tuple[Representation, ...], groups: int) -> dict[str, AnyArray]:
    sizes = [rho.size for rho in fields]
    field_of = np.repeat(np.arange(len(fields)), sizes)
    group_of = field_of // (len(fields) // groups)
    trivial = block_diagonal([rho.trivial_vectors() for rho in fields])  # directions, (channels, trivial irreps)
    member = np.eye(groups)[group_of]  # (channels, groups)
    within = (np.abs(trivial).T @ member > 1e-9).astype(np.float64)  # of trivial irreps, (trivial irreps, groups)
    return {
        "field_of": field_of,  # of each channel
        "group_of": group_of,
        "average": member / member.sum(0),  # (channels, groups)
        "trivial": trivial,
        "centre": trivial @ (within / np.maximum(within.sum(0), 1)),  # from channels to the means of trivial irreps
        "spread": (trivial @ within).T,  # and back, (groups, channels)
    }

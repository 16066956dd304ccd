"""Pointwise nonlinearities on functions over H or a quotient of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn._memo import memo
from pscnn._types import Array
from pscnn.groups import O2, SO2, FunctionSpace, Group, block_diagonal
from pscnn.nn._batch_norm import BatchNorm
from pscnn.nn._fast import CHANNELS, fused
from pscnn.nn._field_type import FieldType, is_permuted
from pscnn.nn._layer import Device, DType, Layer, Nonlinearity
from pscnn.nn._nonlinearity import tensor_core_width, unit_scale
from pscnn.nn._norm_act import FOURIER, Act, Following

LARGEST = 64
"""Channels of a field whose transform is done within a kernel; larger ones are products of their own."""


def function_field(group: Group, frequency: int) -> FunctionSpace:
    """Functions on the group, if it acts in a plane or about an axis, else on the sphere.

    Args:
        group: H.
        frequency: The highest of the functions.

    Example:
        >>> from pscnn.groups import SO3
        >>> function_field(O2(), 2).size, function_field(SO3(), 2).size
        (10, 9)
    """
    if group.planar is not None:
        return group.functions(frequency)
    return group.functions(frequency, O2() if group.has_reflections else SO2())


def softplus(x: Tensor) -> Tensor:
    """log(1 + eˣ) − log 2: smoother than ELU, so that samples of it alias less; zero at zero."""
    return F.softplus(x).sub_(math.log(2))


class FourierPointwise(Nonlinearity):
    """y = FT γ(IFT x): sample the function that a field encodes, apply γ at each sample, transform back.

    Exactly equivariant for finite groups; for continuous ones up to the aliasing of γ, which falls with ``degree``, and
    exactly at elements that map the samples to themselves: for groups of the plane the samples are closed under D(4),
    so right angles and mirrors along the axes are exact (paper, Appendix E.1).

    Args:
        in_type: Copies of ``H.functions(L)``, or of ``H.regular`` for finite groups. The output has the same type.
        function: γ, ELU by default.
        degree: The quadrature of the samples is exact to this frequency; 4L by default.

    Shape:
        (B, in_type.size, …) → the same.

    Example:
        >>> from pscnn.groups import SO2
        >>> H = SO2()
        >>> FourierPointwise(FieldType(H, 4 * [H.functions(2)])).samples
        12
    """

    to_samples: Tensor
    to_coefficients: Tensor
    forth: Tensor
    back: Tensor
    unit: Tensor
    _quotient = False

    def __init__(
        self,
        in_type: FieldType,
        function: Callable[[Tensor], Tensor] = F.elu,
        degree: int | None = None,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        super().__init__(in_type)
        name = type(self).__name__
        rho = in_type.representations[0]
        if any(other != rho for other in in_type.representations):
            raise ValueError(f"{name}: all fields must be equal, got {in_type}")
        fits = (
            (rho.subgroup is not None) == self._quotient
            if isinstance(rho, FunctionSpace)
            else is_permuted(rho) and not self._quotient
        )
        if not fits:
            wanted = "H.functions(L, K)" if self._quotient else "H.functions(L), or H.regular for finite groups"
            raise ValueError(f"{name}: fields must be {wanted}, got {rho.name}")
        lowest = 2 * rho.frequency
        degree = 2 * lowest if degree is None else degree
        if degree < lowest:
            raise ValueError(f"{name}: degree must be {lowest} or more to transform back exactly, got {degree}")
        self.function, self.degree = function, degree
        self._size = rho.size
        if isinstance(rho, FunctionSpace):
            names, arrays = ("to_samples", "to_coefficients"), _transforms(rho, degree)
            if function is F.elu and rho.size <= LARGEST:
                self._several = _together(rho, degree)
                more = _tables(rho, degree, self._several)
                names, arrays = (*names, "forth", "back"), (*arrays, *more)  # type: ignore[assignment]
                self.add_constant("unit", unit_scale(in_type.size), torch.empty(0, device=device))
            for key, array in zip(names, arrays, strict=True):
                self.add_constant(key, array, torch.empty(0, device=device, dtype=dtype))
            self.samples = len(self.to_samples)
        else:
            self.samples = self._size  # one channel per element (or coset) already

    def following(self) -> Following | None:
        """What kernels on a GPU do of it: ELU of functions in single precision."""
        if "forth" not in self._arrays or self.forth.dtype != torch.float32:
            return None
        return Following(self.forth, self.back, FOURIER, 0, self._several * self._size)

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        if "to_samples" not in self._arrays:
            return self.function(x)
        following = self.following() if fused(x) and x.ndim > 2 else None
        if following is not None:
            return Act.apply(x, self.unit.float(), *following)  # type: ignore[no-untyped-call]
        x = x.unflatten(1, (-1, self._size))
        values = self.function(torch.einsum("sd,bnd...->bns...", self.to_samples.to(x.dtype), x))
        return torch.einsum("ds,bns...->bnd...", self.to_coefficients.to(x.dtype), values).flatten(1, 2)

    def extra_repr(self) -> str:
        return f"{self.in_type}, {self.samples} samples"


class QuotientFourierPointwise(FourierPointwise):
    """``FourierPointwise`` for functions on a quotient H/K, for instance the sphere SO(3)/SO(2).

    On the sphere the samples are closed under the symmetries of the cube, at which the layer is exactly equivariant.

    Args:
        in_type: Copies of ``H.functions(L, K)``.
        function: γ, ELU by default.
        degree: The quadrature of the samples is exact to this frequency; 4L by default.
    """

    _quotient = True


class FourierBatchNorm(Layer):
    """``BatchNorm`` followed by ``FourierPointwise``, or ``QuotientFourierPointwise`` for functions on a quotient.

    Args:
        in_type: Copies of ``H.functions(L)`` or ``H.functions(L, K)``. The output has the same type.
        degree: As in ``FourierPointwise``.
        eps: As in ``BatchNorm``.
        momentum: As in ``BatchNorm``.
        function: As in ``FourierPointwise``.

    Shape:
        (B, in_type.size, …) → the same.

    Example:
        >>> from pscnn.groups import O2
        >>> H = O2()
        >>> layer = FourierBatchNorm(FieldType(H, 4 * [H.functions(2)]))
        >>> layer(torch.randn(2, 40, 5, 5)).shape
        torch.Size([2, 40, 5, 5])
    """

    def __init__(
        self,
        in_type: FieldType,
        degree: int | None = None,
        eps: float = 1e-5,
        momentum: float = 0.1,
        device: Device = None,
        dtype: DType = None,
        function: Callable[[Tensor], Tensor] = F.elu,
    ) -> None:
        super().__init__(in_type)
        self.norm = BatchNorm(in_type, eps, momentum, device, dtype)
        rho = in_type.representations[0]
        quotient = isinstance(rho, FunctionSpace) and rho.subgroup is not None
        make = QuotientFourierPointwise if quotient else FourierPointwise
        self.pointwise = make(in_type, function, degree, device, dtype)

    @property
    def gain(self) -> float:
        """The gain before this layer that keeps the variance of a signal through it."""
        return self.pointwise.gain

    def forward(self, x: Tensor) -> Tensor:
        following = self.pointwise.following() if fused(x) and self.norm.one_pass(x) else None
        return self.pointwise(self.norm(x)) if following is None else self.norm.then(x, following)


@memo
def _tables(space: FunctionSpace, degree: int, several: int) -> tuple[Array, Array]:
    """Both transforms of several fields side by side, as kernels want them.

    As right factors, (W, S) and (S, W), with zeros up to powers of two of 16 or more, and samples in units of log 2.
    """
    to_samples, to_coefficients = (block_diagonal(several * [matrix]) for matrix in _transforms(space, degree))
    samples, width = to_samples.shape
    grow = [(0, tensor_core_width(n) - n) for n in (width, samples)]
    # The kernels read them row by row.
    forth = np.pad(to_samples.T / math.log(2), grow)
    return np.ascontiguousarray(forth), np.ascontiguousarray(np.pad(to_coefficients.T * math.log(2), grow[::-1]))


def _together(space: FunctionSpace, degree: int) -> int:
    """How many fields one product transforms: as fill a tile of a GPU's tensor cores best."""
    return max(1, min(CHANNELS // space.size, 2 * CHANNELS // len(_transforms(space, degree)[0])))


@memo
def _transforms(space: FunctionSpace, degree: int) -> tuple[Array, Array]:
    """Sampling matrix, scaled such that coefficients of variance 1 give values of variance 1, and its left inverse."""
    elements, weights = space.quadrature(degree)
    matrix = space.sample(elements)
    scale = np.sqrt(space.size)
    return matrix / scale, (matrix * weights[:, None]).T * scale

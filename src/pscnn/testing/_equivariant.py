"""Raise where equivariance is lost."""

import torch
from torch import Tensor, nn

from pscnn._types import ArrayLike
from pscnn.densities import equivariance_error
from pscnn.nn import FieldType


def assert_equivariant(
    model: nn.Module,
    x: Tensor,
    elements: ArrayLike,
    tolerance: float | None = None,
    in_type: FieldType | None = None,
    out_type: FieldType | None = None,
) -> None:
    """Raise an AssertionError that names the worst element unless the model is equivariant at all elements.

    Args:
        model: A layer or network.
        x: A batch.
        elements: Shape (N, n, n). On images, right angles and mirrors are exact; other elements interpolate.
        tolerance: Largest relative error; by default 1e-10 in float64 and 1e-4 in float32.
        in_type: See ``equivariance_error``.
        out_type: See ``equivariance_error``.

    Example:
        >>> from pscnn.groups import C
        >>> from pscnn import FieldType, nn
        >>> H = C(4)
        >>> layer = nn.Conv2d(FieldType(H, [H.trivial]), FieldType(H, [H.regular]), 3)
        >>> assert_equivariant(layer, torch.randn(2, 1, 9, 9), H.sample(4, seed=0))
    """
    errors = equivariance_error(model, x, elements, in_type, out_type)
    if tolerance is None:
        tolerance = 1e-10 if x.dtype == torch.float64 else 1e-4
    worst = int(errors.argmax())
    value = errors[worst].item()
    if not value <= tolerance:
        raise AssertionError(
            f"{type(model).__name__} is not equivariant: relative error {value:.3g} > {tolerance:.3g} at element "
            f"{worst}"
        )

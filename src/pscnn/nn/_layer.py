"""What layers share: their types, checks with messages that say what was expected and what came, and gains."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Proxy

from pscnn._constants import ConstantsModule
from pscnn.groups import Representation
from pscnn.nn._field_type import FieldType

Device = torch.device | str | None
DType = torch.dtype | None


class Layer(ConstantsModule):
    """A map between two field types over one group; without ``out_type`` both are the same."""

    def __init__(self, in_type: FieldType, out_type: FieldType | None = None) -> None:
        super().__init__()
        self.in_type, self.out_type = in_type, in_type if out_type is None else out_type
        for name in ("in_type", "out_type"):
            if not isinstance(given := getattr(self, name), FieldType):
                raise TypeError(f"{type(self).__name__}: {name} must be a pscnn.FieldType, got {given!r}")
        if self.in_type.group != self.out_type.group:
            raise ValueError(
                f"{type(self).__name__}: in_type is over {self.in_type.group.name}, out_type over "
                f"{self.out_type.group.name}; both must be over one group"
            )

    def check(self, x: Tensor, spatial: int | None = None) -> None:
        """Raise unless x is (batch, channels, and ``spatial`` more axes); None allows any number."""
        if isinstance(x, Proxy):  # exported layers are traced symbolically
            return
        channels = self.in_type.size
        if not isinstance(x, Tensor) or not x.dtype.is_floating_point:
            given = f"a tensor of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(
                f"{type(self).__name__}: expected a tensor of floating-point numbers, got {given}: use x.float()"
            )
        if x.ndim < 2 or x.shape[1] != channels or (spatial is not None and x.ndim != 2 + spatial):
            axes = {None: ", …", 0: "", 2: ", height, width", 3: ", depth, height, width"}[spatial]
            expected = f"(batch, {channels}{axes})"
            raise ValueError(f"{type(self).__name__}: expected input of shape {expected}, got {tuple(x.shape)}")

    def extra_repr(self) -> str:
        return f"{self.in_type} → {self.out_type}"


class Nonlinearity(Layer):
    """A layer that changes the variance of a signal."""

    @property
    @torch.no_grad()
    def gain(self) -> float:
        """The gain before this layer that keeps the variance of a signal through it.

        Noise of variance gain² leaves the layer with variance 1. Solved by bisection on one fixed sample of Gaussian
        noise, so the answer is the same every time and the process's random state is not touched.
        """
        channels = self.in_type.size
        noise = torch.randn(max(64, 2**16 // channels), channels, generator=torch.Generator().manual_seed(0))
        parameter = next(self.parameters(), None)
        if parameter is not None:
            noise = noise.to(parameter)
        low, high = 0.1, 10.0
        for _ in range(30):
            middle = (low * high) ** 0.5
            power = self(middle * noise).square().mean().item()
            low, high = (low, middle) if power > 1 else (middle, high)
        return (low * high) ** 0.5


def period(fields: FieldType) -> tuple[int, tuple[Representation, ...]]:
    """The list of fields as (copies, the fields of one copy), in the order of the channels."""
    copies = fields.layout.copies if fields.layout.order is None else 1
    return copies, fields.representations[: len(fields.representations) // copies]

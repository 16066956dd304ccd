"""Augmentation: a plain network sees its inputs transformed, by all of H alike or by a learnt part (Augerino)."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch import nn as tnn

from pscnn._constants import ConstantsModule
from pscnn._memo import memo
from pscnn._types import AnyArray, Array
from pscnn._words import short
from pscnn.groups import Axial, Group, axis_angle
from pscnn.models._methods._method import STEEP, checked_strength
from pscnn.nn import FieldType

ELEMENTS = 4096
"""Of a continuous group in space, drawn once; in the plane there are as many, equally spaced."""
ROWS = 1024
"""Random numbers of a step are drawn for so many inputs of a batch; more inputs share them."""
UNIT = 2**24
"""Random numbers of float32 are multiples of its inverse."""
COPIES = 8
"""Over which a network with a learnt distribution averages when it is not trained."""


class Augmented(ConstantsModule):
    """A network f of which f(h·x) is trained, with h drawn anew for every input and call; f alone is tested.

    Where outputs are fields, what is trained is h⁻¹·f(h·x). Here h is drawn from all of H alike. Once ``advance`` was
    called, draws depend on the step alone.

    Args:
        network: Any.
        in_type: Of its inputs: scalars and vectors, over H.
        out_type: Of its outputs if they are fields, of the same kinds; None where the answer does not depend on h.
    """

    elements: Tensor
    numerators: Tensor
    in_vectors: Tensor
    out_vectors: Tensor

    def __init__(self, network: tnn.Module, in_type: FieldType, out_type: FieldType | None) -> None:
        super().__init__()
        self.network, self.in_type, self.out_type = network, in_type, out_type
        own = type(self).__name__
        for name, fields in (("in", in_type), ("out", in_type if out_type is None else out_type)):
            if not isinstance(fields, FieldType):
                raise TypeError(f"{own}: {name}_type must be a pscnn.FieldType, got {short(fields)}")
            if fields.group != in_type.group:
                raise ValueError(f"{own}: out_type is over {fields.group.name}, in_type over {in_type.group.name}")
            self.add_constant(f"{name}_vectors", _vectors(own, fields), torch.empty(0))
        self.prepare(in_type.group)
        self.seed, self.advanced = int(torch.randint(2**31, (), device="cpu")), False
        # Whole numbers stay as they are when the module changes its dtype; in half precision some would become 1.
        self.register_buffer("numerators", torch.zeros(ROWS, 2, dtype=torch.int32), persistent=False)

    def prepare(self, group: Group) -> None:
        """What is needed to draw elements."""
        self.add_constant("elements", _elements(group), torch.empty(0))

    def draw(self, noise: Tensor) -> Tensor:
        """Elements (N, n, n) from numbers (N, 2) in [0, 1)."""
        return self.elements[(noise[:, 0] * len(self.elements)).long()]

    def advance(self, step: int, steps: int) -> None:
        """New random numbers, which depend on the step alone: it makes no difference whether a run was interrupted."""
        generator = torch.Generator().manual_seed(self.seed + step)
        noise = torch.rand(self.numerators.shape, generator=generator, device="cpu", dtype=torch.float32)
        self.numerators.copy_(noise * UNIT)
        self.advanced = True

    @property
    def noise(self) -> Tensor:
        """The random numbers of a step, (N, 2) in [0, 1): in float32, whatever the precision of the module."""
        return self.numerators.float() / UNIT

    def forward(self, x: Tensor) -> Tensor:
        """Scores, or fields."""
        if not self.training:
            return self.tested(x)
        if self.advanced:
            noise = self.noise[torch.arange(x.shape[0], device=x.device) % ROWS]
        else:
            noise = torch.rand(x.shape[0], 2, device=x.device, dtype=torch.float32)
        return self.turned(x, self.draw(noise))

    def tested(self, x: Tensor) -> Tensor:
        """What is not trained."""
        return self.network(x)

    def turned(self, x: Tensor, elements: Tensor) -> Tensor:
        """f(h·x), or h⁻¹·f(h·x), with an element for every input, or one for all."""
        y = self.network(self._act(x, elements, self.in_type, self.in_vectors))
        if self.out_type is not None:
            return self._act(y, elements.mT, self.out_type, self.out_vectors)
        if isinstance(y, Tensor) and y.ndim > 2:
            raise ValueError(
                f"{type(self).__name__}: the network gives maps of shape {tuple(y.shape)}, which turn with its inputs: "
                "give their out_type, for example FieldType(H, channels * [H.trivial])"
            )
        return y

    def _act(self, x: Tensor, elements: Tensor, fields: FieldType, vectors: Tensor) -> Tensor:
        """(h·x)(p) = ρ(h) x(h⁻¹p), with the channels of the vectors among the fields."""
        n, traced = fields.group.dimension, not isinstance(x, Tensor)
        if not traced and (x.ndim not in (2, n + 2) or x.shape[1] != fields.size):
            raise ValueError(
                f"{type(self).__name__}: expected (batch, {fields.size}) or (batch, {fields.size}, and {n} spatial "
                f"axes) for {fields}, got {tuple(x.shape)}"
            )
        given = elements.dtype
        with torch.autocast(self.numerators.device.type, enabled=False):
            if not traced:  # half precision does not tell the pixels of large images apart
                elements = elements.to(torch.promote_types(given, torch.float32))
            x = x.to(elements.dtype)
            if len(vectors):
                places = vectors.flatten()
                parts = x.index_select(1, places).reshape(x.shape[0], -1, n, math.prod(x.shape[2:]))
                turned = (elements[:, None] @ parts).reshape(x.shape[0], -1, *x.shape[2:])
                x = turned if len(places) == fields.size else x.index_copy(1, places, turned)
            if not traced and x.ndim == 2:  # no map
                return x.to(given)
            # In affine_grid's coordinates every axis goes from −1 to 1, and rows are counted downwards.
            sides = [x.shape[-1 - k] - 1 for k in range(n)]
            sides = [side + (side == 0) for side in sides]
            sides[1] = -sides[1]
            entries = [elements[..., j, i] * (sides[j] / sides[i]) for i in range(n) for j in range(n)]
            source = torch.stack(entries, -1).unflatten(-1, (n, n))
            affine = torch.cat([source, torch.zeros_like(source[..., :1])], 2)
            grid = F.affine_grid(affine.expand(x.shape[0], -1, -1), x.size(), align_corners=True)  # type: ignore[arg-type]
            return F.grid_sample(x, grid, align_corners=True).to(given)


class Augerino(Augmented):
    """Augmentation by rotations up to a learnt angle (arXiv 2010.11882).

    The angle (in space: the rotation vector) is uniform between ±width/2, and the width earns strength · width, up to a
    whole turn. It starts at log 2, and the strength is 0.01, as in the paper's code. Reflections have no width and are
    left out. When it is not trained, the network averages over eight such rotations, the same for all inputs.
    """

    usual_strength = 0.01
    decays = False
    generators: Tensor

    def __init__(
        self,
        network: tnn.Module,
        in_type: FieldType,
        out_type: FieldType | None,
        strength: float = usual_strength,
    ) -> None:
        super().__init__(network, in_type, out_type)
        self.strength = checked_strength("Augerino", strength)

    def prepare(self, group: Group) -> None:
        """Axes of rotations, and the width."""
        if group.order is not None:
            raise ValueError(f"augerino needs a continuous group, whose rotations have a width, got {group.name}")
        self.raw_width = tnn.Parameter(torch.zeros(()))
        self.add_constant("generators", _generators(group), torch.empty(0))

    @property
    def width(self) -> Tensor:
        """In radians."""
        return F.softplus(STEEP * self.raw_width)

    def penalty(self) -> Tensor:
        """The negative of what the width earns."""
        return -self.strength * self.width.clamp(max=2 * math.pi)

    def draw(self, noise: Tensor) -> Tensor:
        """Rotations by Rodrigues' formula."""
        turns = self.generators[(noise[:, 1] * len(self.generators)).long()]
        distance = noise[:, 0] - 0.5 if len(self.generators) == 1 else noise[:, 0] ** (1 / 3) / 2
        angles = (self.width * distance.to(turns.dtype))[:, None, None]
        unit = torch.eye(turns.shape[-1], dtype=turns.dtype, device=turns.device)
        return unit + angles.sin() * turns + (1 - angles.cos()) * (turns @ turns)

    def tested(self, x: Tensor) -> Tensor:
        """The mean over fixed rotations."""
        middles = (torch.arange(COPIES, dtype=torch.float32, device=self.numerators.device) + 0.5) / COPIES
        several = self.draw(torch.stack([middles, middles.flip(0)], 1))
        return torch.stack([self.turned(x, several[k : k + 1]) for k in range(COPIES)]).mean(0)

    def extra_repr(self) -> str:
        """The interval."""
        return f"±{math.degrees(self.width.item()) / 2:.0f}°"


def _vectors(name: str, fields: FieldType) -> AnyArray:
    """The channels of every vector among some fields, (vectors, n); the others are scalars."""
    group, found, start = fields.group, list[range](), 0
    for rho in fields.representations:
        if rho != group.vector and not all(psi.is_trivial for psi in rho.irreps):
            raise ValueError(
                f"{name}: fields must be scalars or vectors, {group!r}.trivial or {group!r}.vector, got {rho.name}"
            )
        if rho == group.vector:
            found.append(range(start, start + rho.size))
        start += rho.size
    return np.array(found, dtype=np.int64).reshape(-1, group.dimension)


@memo
def _elements(group: Group) -> Array:
    count = ELEMENTS // (2 if group.has_reflections else 1)
    return group.quadrature(count - 1)[0] if group.planar is not None else group.sample(ELEMENTS, seed=0)


@memo
def _generators(group: Group) -> Array:
    """The derivative at the identity of the rotations about the group's axis, or about axes in all directions."""
    if group.dimension == 2:
        return np.array([[[0.0, -1.0], [1.0, 0.0]]])
    axes = np.array([group.axis]) if isinstance(group, Axial) else np.random.default_rng(0).normal(size=(ELEMENTS, 3))
    quarters = axis_angle(axes / np.linalg.norm(axes, axis=1, keepdims=True), np.pi / 2)
    return np.asarray(quarters - quarters.transpose(0, 2, 1)) / 2  # what Rodrigues' formula has beside sin

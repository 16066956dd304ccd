"""One equivariant network with many ends: every subgroup K has an end of its own that can only do what K allows.

The trunk is equivariant to H and gives features v(x) that turn with the example, v(hx) = ρ(h)v(x). The end of K
averages a small network over K,

    f_K(x) = (1/|K|) Σ_k ρ_out(k)⁻¹ m_K(ρ(k) v(x)),

which is invariant (for vectors: equivariant) under K and, with free m_K, under nothing else. All ends are trained at
once on one trunk, so that what they score differs by what is enforced and by little else, and a dozen subgroups cost as
much as one network.

No end may read the pose of an example off the grid of pixels: the trunk sees g·x for a random g, and ρ(g)⁻¹ takes its
features back. What the grid adds is then the same for all poses, and the end of K = H, for which g is unknown, can tell
nothing from it. Nor off the frame: of every example only a disk is seen, which fades to the mean along its rim, and
large ones are made smaller by a Gaussian, which has no corners and looks alike on pixels and between them. Nor off
where it lies: programs draw and scanners scan half a pixel beside the centre, the same way in every example, so that
all are moved a little at random as well, once for all turns over which an answer is averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn.data import transform, transform_targets
from pscnn.experiments._discover._subgroups import Subgroup
from pscnn.groups import DirectSum, Group, direct_sum
from pscnn.nn import FieldType

FINEST = {2: 40, 3: 20}
"""Longest side that the trunk looks at; larger examples are averaged down to it."""
COARSEST = {2: 9, 3: 5}
"""Side of the map that is read as a whole."""
SHIFT = 0.05
"""Standard deviation of the distance by which examples are moved along each axis, as a share of the longest side."""
BLUR = 1.0
"""Standard deviation of the Gaussian by which examples are made smaller, in pixels of the smaller ones."""
RIM = 2.0
"""Pixels over which an example fades, in the outermost part of its disk."""
HIDDEN = 32
DROPPED = 0.1
# Numbers of fields and their highest frequency, by layer; of the features at last.
_FIELDS = {2: ((3, 2), (4, 3), (6, 4)), 3: ((2, 1), (3, 2), (4, 2))}
_LAST = {2: (8, 4), 3: (6, 2)}
_KERNELS = (7, 5, 3)


class Trunk(tnn.Module):
    """Equivariant layers, down to features of the whole example that turn with it.

    Args:
        group: H.
        channels: Of the examples.
        shape: Of the examples.
        dense: Whether there are features of single pixels, too.

    Shape:
        (B, channels, *shape) → (B, 2, features.size), or (B, P, 3, features.size) at P pixels.
    """

    def __init__(self, group: Group, channels: int, shape: Sequence[int], dense: bool = False) -> None:
        super().__init__()
        n = group.dimension
        scale = min(1.0, FINEST[n] / max(shape))
        self.sides = tuple(max(COARSEST[n], round(side * scale)) // 2 * 2 + 1 for side in shape)
        fields = FieldType(group, channels * [group.trivial])
        convolution = nn.Conv2d if n == 2 else nn.Conv3d
        layers: list[tnn.Module] = []
        maps: list[FieldType] = []
        side = max(self.sides)
        for (copies, frequency), kernel in zip(_FIELDS[n], _KERNELS, strict=True):
            kernel = min(kernel, 5) if n == 3 else kernel
            act = nn.GatedBatchNorm(FieldType(group, copies * [_irreps(group, frequency)]))
            layers += [convolution(fields, act.in_type, kernel, padding=kernel // 2, bias=False), act]
            fields = act.out_type
            maps.append(fields)
            if side > COARSEST[n]:
                layers.append(nn.AvgPoolAntialiased(fields, 2, 2))
                side = (side + 1) // 2
        self.body = tnn.Sequential(*layers)
        copies, frequency = _LAST[n]
        self.features = FieldType(group, copies * [_irreps(group, frequency)])
        self.register_buffer("disk", _disk(self.sides), persistent=False)
        self.side = side
        self.centre = convolution(fields, self.features, side, bias=False)
        self.mean = convolution(fields, self.features, 1, bias=False)
        self.local = tnn.ModuleList([convolution(one, self.features, 1, bias=False) for one in maps if dense])
        self.norms = tnn.ModuleList([nn.BatchNorm(self.features) for _ in range(3 if dense else 2)])

    disk: Tensor

    def forward(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        """Features about the centre, and features wherever they are; at pixels of its own grid, theirs as well.

        Args:
            x: Examples.
            places: Numbers of pixels, (P,).
        """
        if x.shape[2:] != self.sides:
            x = self.averaged(x) if self.is_smaller(x) else self._enlarged(x)
        x, pixels = x * self.disk, x.new_zeros(())
        maps = iter(self.local)
        for layer in self.body:
            x = layer(x)
            if places is not None and isinstance(layer, nn.GatedBatchNorm):
                pixels = pixels + self._enlarged(next(maps)(x))
        missing = [self.side - side for side in x.shape[2:]]
        pads = [part for m in reversed(missing) for part in (m // 2, m - m // 2)]
        axes = tuple(range(2, x.ndim))
        ends = self.centre(F.pad(x, pads)), self.mean(x.mean(axes, keepdim=True))
        whole = torch.stack([norm(end).flatten(1) for norm, end in zip(self.norms, ends, strict=False)], 1)
        if places is None:
            return whole
        chosen = self.norms[2](pixels).flatten(2)[:, :, places].mT[:, :, None]
        return torch.cat([chosen, whole[:, None].expand(-1, len(places), -1, -1)], 2)

    def is_smaller(self, x: Tensor) -> bool:
        """Whether its grid is coarser than that of the examples."""
        return any(a > b for a, b in zip(x.shape[2:], self.sides, strict=True))

    def averaged(self, x: Tensor) -> Tensor:
        """Examples on its coarser grid."""
        out = []
        for some in x.split(64):
            for axis, side in enumerate(self.sides, 2):
                some = (some.movedim(axis, -1) @ _gaussian(x.shape[axis], side).to(x).T).movedim(-1, axis)
            out.append(some)
        return torch.cat(out)

    def _enlarged(self, x: Tensor) -> Tensor:
        how = {2: "bilinear", 3: "trilinear"}[x.ndim - 2]
        return F.interpolate(x, self.sides, mode=how, align_corners=True)


def _irreps(group: Group, frequency: int) -> DirectSum:
    highest = frequency if group.max_frequency is None else min(frequency, group.max_frequency)
    return direct_sum(list(group.irreps(highest)))


def _distance(sides: Sequence[int]) -> Tensor:
    """Of every pixel from the centre."""
    axes = [torch.arange(side) - (side - 1) / 2 for side in sides]
    return torch.stack(torch.meshgrid(*axes, indexing="ij")).square().sum(0).sqrt()


def _disk(sides: Sequence[int]) -> Tensor:
    """1 where every rotation stays on the grid, fading to 0 over a pixel: corners would tell how it was turned."""
    return ((max(sides) / 2 - _distance(sides)) / 1.5 + 0.5).clamp(0, 1)


def without_frame(x: Tensor, share: float = 1.0) -> Tensor:
    """What lies in the largest disk of examples (B, C, …); towards its rim and beyond, the mean along the rim.

    The mean along the frame would not do: it may depend on how what is in it lies to the frame.

    Args:
        x: Examples.
        share: Of the diameter of the largest disk; less where padding could be seen in it.
    """
    sides = x.shape[2:]
    inside = ((share * max(sides) / 2 - 0.5 - _distance(sides).to(x)) / RIM).clamp(0, 1)
    rim = ((inside > 0) & (inside < 1)).to(x)
    mean = (x * rim).sum(tuple(range(2, x.ndim)), keepdim=True) / rim.sum()
    return mean + (x - mean) * inside


def _gaussian(many: int, few: int) -> Tensor:
    """From pixels along an axis to fewer ones, (few, many): Gaussian weights about where these lie."""
    step = many / few
    places = (torch.arange(few) + 0.5) * step - 0.5
    weights = (-((torch.arange(many) - places[:, None]) / (BLUR * step)).square() / 2).exp()
    return weights / weights.sum(1, keepdim=True)


class Probe(tnn.Module):
    """A trunk and an end for every subgroup.

    Args:
        group: H.
        subgroups: Those that are enforced.
        channels: Of the examples.
        shape: Of the examples.
        outputs: Numbers that every end gives.
        vectors: Whether these are the components of vectors, which turn with the example.
        dense: Whether they belong to pixels, which move with the example.
        share: Of the largest disk's diameter, how much of it is looked at.
    """

    def __init__(
        self,
        group: Group,
        subgroups: Sequence[Subgroup],
        channels: int,
        shape: Sequence[int],
        outputs: int,
        *,
        vectors: bool = False,
        dense: bool = False,
        share: float = 1.0,
    ) -> None:
        super().__init__()
        self.group, self.subgroups, self.vectors, self.share = group, list(subgroups), vectors, share
        self.trunk = Trunk(group, channels, shape, dense)
        count, inputs = len(self.subgroups), (3 if dense else 2) * self.trunk.features.size
        self.first = tnn.Parameter(torch.randn(count, inputs, HIDDEN) / math.sqrt(inputs))
        self.first_bias = tnn.Parameter(torch.zeros(count, HIDDEN))
        self.second = tnn.Parameter(0.3 * torch.randn(count, HIDDEN, outputs) / math.sqrt(HIDDEN))
        self.second_bias = tnn.Parameter(torch.zeros(count, outputs))
        self.dropout = tnn.Dropout(DROPPED)

    def forward(self, x: Tensor, shifts: Tensor, rng: np.random.Generator) -> Tensor:
        """What every end says, (subgroups, B, outputs), to examples (B, channels, *shape).

        Args:
            x: Examples.
            shifts: By how many pixels they are moved, from ``shifts``.
            rng: Of the elements by which they are turned and over which is averaged.
        """
        return self.ends(self.features(x, shifts, rng), rng)

    def features(self, x: Tensor, shifts: Tensor, rng: np.random.Generator) -> Tensor:
        """ρ(g)⁻¹ v(g·x) for a random g for every example, (B, 2, size)."""
        elements = self.group.sample(len(x), int(rng.integers(2**31)))
        turned = self.trunk(transform(without_frame(x, self.share), torch.as_tensor(elements), shifts))
        back = torch.as_tensor(self.trunk.features.matrix(elements.transpose(0, 2, 1))).to(turned)
        return torch.einsum("bij,bcj->bci", back, turned)

    def at_pixels(
        self, x: Tensor, masks: Tensor, places: Tensor, shifts: Tensor, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """What every end says of pixels of turned examples, (subgroups, B, outputs, P), and their classes, (B, P).

        Args:
            x: Examples.
            masks: The classes of their pixels, −1 where they are not known.
            places: Numbers of pixels of the trunk's grid, (P,).
            shifts: By how many pixels they are moved.
            rng: Of the elements.
        """
        elements = self.group.sample(len(x), int(rng.integers(2**31)))
        turned = self.trunk(transform(without_frame(x, self.share), torch.as_tensor(elements), shifts), places)
        back = torch.as_tensor(self.trunk.features.matrix(elements.transpose(0, 2, 1))).to(turned)
        features = torch.einsum("bij,bpcj->bpci", back, turned)
        said = self.ends(features.flatten(0, 1), rng).unflatten(1, features.shape[:2]).movedim(-1, 2)
        moved = transform_targets(masks.long() + 1, torch.as_tensor(elements), "masks", shifts) - 1
        return said, self.on_grid(moved)[:, places]

    def shifts(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """By how many pixels every example is moved along the axes of its array, (B, n)."""
        moves = rng.standard_normal((len(x), x.ndim - 2))  # alike in all directions
        moves *= np.minimum(1, 2 / np.linalg.norm(moves, axis=1, keepdims=True))
        return torch.as_tensor(SHIFT * max(x.shape[2:]) * moves)

    def on_grid(self, masks: Tensor) -> Tensor:
        """Classes at all pixels of the trunk's grid, (B, pixels)."""
        return F.interpolate(masks[:, None].float(), self.trunk.sides, mode="nearest-exact").flatten(1).round().long()

    def ends(self, features: Tensor, rng: np.random.Generator) -> Tensor:
        """f_K for all K."""
        nodes = [subgroup.nodes(rng) for subgroup in self.subgroups]
        counts = torch.tensor([len(own) for own in nodes], device=features.device)
        which = torch.repeat_interleave(torch.arange(len(nodes), device=features.device), counts)
        elements = np.concatenate(nodes)
        matrices = torch.as_tensor(self.trunk.features.matrix(elements)).to(features)
        turned = torch.einsum("nij,bcj->nbci", matrices, self.dropout(features)).flatten(2)
        hidden = F.elu(torch.bmm(turned, self.first[which]) + self.first_bias[which][:, None])
        said = torch.bmm(hidden, self.second[which]) + self.second_bias[which][:, None]
        if self.vectors:
            said = (said.unflatten(2, (-1, elements.shape[-1])) @ torch.as_tensor(elements).to(said)[:, None]).flatten(
                2
            )
        total = said.new_zeros(len(nodes), *said.shape[1:]).index_add(0, which, said)
        return total / counts[:, None, None]

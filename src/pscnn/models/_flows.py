"""Forecasting networks: ten velocity fields in, the next one out, by P-SCNN and by every rival of the paper's Table 3.

Channels are the x- and y-components of past frames, which turn with space: each frame is a vector field, the
frequency-1 irrep of C(4). Hidden features are regular fields of four channels, so that a plain ReLU is equivariant;
over other groups they are irreps, with gates.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn.groups import C, Group, direct_sum
from pscnn.models._by_method import check_width
from pscnn.models._methods import METHODS, ResidualPathway
from pscnn.nn import FieldType

PAPER_FLOW_METHODS = ("mlp", "cnn", "e2cnn", "rpp", "combo", "clcnn", "lift", "rgroup", "rsteer", "p-scnn")
"""Those of the paper's Table 3."""
FLOW_METHODS = tuple(dict.fromkeys((*PAPER_FLOW_METHODS, *(name for name, one in METHODS.items() if one.has_measures))))
Make = Callable[..., tnn.Module]
PAST = 10
"""Frames that a network sees."""
TURNS = 4
VECTORS, VECTOR = (FieldType(C(4), count * [C(4).vector]) for count in (PAST, 1))
PLAIN_PENALTY = 1e-6
LIFT_GRID = (62, 23)
"""The grid that the published Lift network reads, whatever the data; others are resized to it."""


def flows(
    method: str,
    group: Group,
    *,
    size: tuple[int, int] = (64, 64),
    hidden: int = 92,
    layers: int = 5,
    kernel: int = 3,
    bandlimit: int = 2,
    density: dict[str, Any] | None = None,
) -> tnn.Sequential:
    """A network from (B, 20, H, W) to (B, 2, H, W)."""
    if not isinstance(size, Sequence) or len(size) != 2 or not all(isinstance(n, int) and n > 0 for n in size):
        raise ValueError(f"size must be height and width, whole numbers of 1 or more, got {size!r}")
    check_width(hidden, hidden, 1, 2, "hidden")

    def plain(source: int, target: int) -> tnn.Conv2d:
        return tnn.Conv2d(source, target, kernel, padding=kernel // 2)

    def steered(source: FieldType, target: FieldType) -> nn.Conv2d:
        likelihood = METHODS[method].density(group, bandlimit, **density or {}) if method in METHODS else None
        bias = group == C(4) or target.size == 2  # irreps are normalised with their means taken off
        return nn.Conv2d(source, target, kernel, padding="same", bias=bias, likelihood=likelihood)

    def both(source: FieldType, target: FieldType) -> ResidualPathway:
        free = plain(source.size, target.size)
        return ResidualPathway(steered(source, target), free, (0.0, PLAIN_PENALTY))

    def relaxed(source: FieldType, target: FieldType) -> RelaxedSteerable:
        return RelaxedSteerable(source, target, kernel)

    makes: dict[str, Make] = {name: steered for name, one in METHODS.items() if one.has_measures}
    makes |= {"rpp": both, "rsteer": relaxed}
    if group != C(4) and method in makes:
        return _irreps(group, hidden, layers, makes[method])
    widths = [2 * PAST, *[hidden] * (layers - 1), 2]
    fields = [VECTORS, *[_regular(hidden)] * (layers - 1), VECTOR]
    if method == "mlp":
        pixels = math.prod(size)
        flat = [2 * PAST * pixels, *widths[1:-1], 2 * pixels]
        chain = [tnn.Flatten(), *_chain(flat, tnn.Linear, tnn.BatchNorm1d), tnn.Unflatten(1, (2, *size))]
    elif method == "cnn":
        chain = _chain(widths, plain, tnn.BatchNorm2d)
    elif method == "rgroup":
        lifting = RelaxedGroupConvolution(2 * PAST, hidden, kernel, lifting=True)
        rest = _chain(widths[1:], lambda a, b: RelaxedGroupConvolution(a, b, kernel, lifting=False))
        chain = [lifting, tnn.ReLU(), *rest, _OverTurns()]
    elif method == "rpp":
        chain = _chain(fields, both, lambda target: tnn.BatchNorm2d(target.size))
    elif method == "rsteer":
        chain = _chain(fields, relaxed, _norm)
    elif method == "combo":
        first = _blocks([2 * PAST, hidden, TURNS * hidden], plain, tnn.BatchNorm2d)
        last = steered(_regular(hidden), VECTOR)
        chain = [*first, *_blocks(2 * [_regular(hidden)], steered, _norm), last]
    elif method == "clcnn":
        chain = _chain(widths, lambda a, b: LocallyConnected(a, b, size, kernel))
    elif method == "lift":
        chain = [Lift(hidden, steered)]
    else:
        chain = _chain(fields, steered, _norm)
    return tnn.Sequential(*chain)


def _regular(copies: int) -> FieldType:
    return FieldType(C(4), copies * [C(4).regular])


def _blocks(types: Sequence[Any], make: Make, norm: Make | None = None) -> list[tnn.Module]:
    """A layer, its normalisation and a ReLU between every two types.

    Steerable normalisations do the ReLU as well; nothing takes its place, so that stored weights keep their names.
    Biases that a normalisation takes off again are not trained: they are there because the published ones are.
    """
    out: list[tnn.Module] = []
    for source, target in pairwise(types):
        layer, norms = make(source, target), [norm(target)] if norm else []
        if norms and (isinstance(layer, nn.Conv2d) or not isinstance(norms[0], nn.BatchNorm)):
            for name, parameter in layer.named_parameters():
                parameter.requires_grad_(name.rpartition(".")[2] != "bias")
        done = any(isinstance(one, nn.BatchNorm) for one in norms)
        out += [layer, *norms, tnn.Identity() if done else tnn.ReLU()]
    return out


def _norm(target: FieldType) -> nn.BatchNorm:
    return nn.BatchNorm(target, relu=True)


def _chain(types: Sequence[Any], make: Make, norm: Make | None = None) -> list[tnn.Module]:
    """Blocks whose last is a layer alone."""
    return [*_blocks(types[:-1], make, norm), make(types[-2], types[-1])]


def _irreps(group: Group, hidden: int, layers: int, make: Make) -> tnn.Sequential:
    """Fields of all irreps up to frequency 2, with gates."""
    fields = FieldType(group, PAST * [group.vector])
    out: list[tnn.Module] = []
    for _ in range(layers - 1):
        gate = nn.GatedBatchNorm(FieldType(group, hidden * [direct_sum(list(group.irreps(2)))]))
        out += [make(fields, gate.in_type), gate]
        fields = gate.out_type
    return tnn.Sequential(*out, make(fields, FieldType(group, [group.vector])))


class LocallyConnected(tnn.Module):
    """A convolution with a kernel of its own at every pixel, and a penalty on how much turning each kernel changes it.

    The penalty is the literature's: pairs of channels are vectors, which turn with the kernel, on both sides; the
    pixels of the image stay where they are. So it asks for kernels that are steerable at each pixel, and not for equal
    ones at pixels that are turned to each other.
    """

    def __init__(self, source: int, target: int, size: tuple[int, int], kernel: int) -> None:
        super().__init__()
        self.size, self.kernel_size = size, kernel
        self.weight = tnn.Parameter(torch.randn(target, source, *size, kernel, kernel) / source)

    def forward(self, x: Tensor) -> Tensor:
        """From (B, source, H, W) to (B, target, H, W)."""
        patches = F.unfold(x, self.kernel_size, padding=self.kernel_size // 2)  # (B, source · k · k, H · W)
        patches = patches.unflatten(1, (self.weight.shape[1], -1)).unflatten(3, self.size)
        return torch.einsum("bikhw,oihwk->bohw", patches, self.weight.flatten(4))

    def penalty(self) -> Tensor:
        """The squared difference to the turned kernels, for all three turns."""
        if any(count % 2 for count in self.weight.shape[:2]):  # not before: networks of an earlier penalty may be so
            target, source = self.weight.shape[:2]
            raise ValueError(f"channels must come in pairs, the components of vectors, got {source} and {target}")
        total = self.weight.new_zeros(())
        turned: Tensor = self.weight
        for _ in range(1, TURNS):
            turned = _turned(_turned(turned.rot90(1, (4, 5)), 0), 1)
            total = total + (turned - self.weight).square().mean()
        return total


def _turned(pairs: Tensor, dim: int) -> Tensor:
    """Vectors turned by 90° from x to y; their components lie side by side along a dimension."""
    x, y = pairs.unflatten(dim, (-1, 2)).unbind(dim + 1)
    return torch.stack([-y, x], dim + 1).flatten(dim, dim + 1)


class RelaxedSteerable(tnn.Module):
    """A steerable convolution in which every pixel of the kernel has weights of its own.

    K(x) = Σ_b B_b(x) w_b(x) and a bias for every channel: equivariant where w is the same at all x and the bias zero.
    The penalty is the mean absolute difference between the weights of consecutive pixels, times the literature's weight
    for smoke. (For jets it is ten times as large. The loss squares it: neither can be felt.)
    """

    basis: Tensor
    penalty_weight = 1e-5

    def __init__(self, source: FieldType, target: FieldType, kernel: int) -> None:
        super().__init__()
        self.in_type, self.out_type, self.kernel_size = source, target, kernel
        one = nn.Conv2d(
            FieldType(source.group, source.representations[:1]),
            FieldType(target.group, target.representations[:1]),
            kernel,
            bias=False,
        )
        columns = []
        with torch.no_grad():
            for k in range(one.weight.numel()):
                one.weight.copy_(torch.eye(one.weight.numel())[k])
                columns.append(one.kernel().flatten(2))
        basis = torch.stack(columns)  # (basis, d_out, d_in, pixels)
        # As large as makes the kernel at the start that of a plain convolution, uniform of variance 1 / (3 fan_in).
        self.register_buffer("basis", basis / (basis.shape[2] * basis.square().sum(0).mean()).sqrt(), persistent=False)
        fields, ins = len(target.representations), len(source.representations)
        bound = 1 / math.sqrt(kernel**2 * ins)
        self.weight = tnn.Parameter(torch.empty(fields, len(basis), ins, kernel**2).uniform_(-bound, bound))
        self.bias = tnn.Parameter(torch.empty(target.size).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        kernel = torch.einsum("obip,bcdp->ocidp", self.weight, self.basis)
        size = self.kernel_size
        kernel = kernel.reshape(self.out_type.size, self.in_type.size, size, size)
        return F.conv2d(x, kernel, self.bias, padding=size // 2)

    def penalty(self) -> Tensor:
        """How much the weights of consecutive pixels differ."""
        return self.penalty_weight * self.weight.diff(dim=3).abs().mean()


class RelaxedGroupConvolution(tnn.Module):
    """A convolution over turns by 90° whose filters are mixed by coefficients that may differ from turn to turn.

    K_g = Σ_f c_f(g) · g(W_f): equivariant as long as c does not depend on g, as at the start, where c is 1 / banks, and
    after the lifting 1 / (4 · banks), as published: there is no normalisation, and Adam moves every c by as much.

    When lifting, the input has one channel per field (an image) instead of one per turn.
    """

    def __init__(self, source: int, target: int, kernel: int, *, lifting: bool, banks: int = 2) -> None:
        super().__init__()
        depth = 1 if lifting else TURNS
        self.kernel_size = kernel
        bound = 1 / math.sqrt(source * kernel**2)
        shape = (banks, target, source, depth, kernel, kernel)
        self.weight = tnn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.mixing = tnn.Parameter(torch.full((banks, TURNS), 1 / (banks * depth)))

    def forward(self, x: Tensor) -> Tensor:
        """From (B, source · depth, H, W) to (B, target · 4, H, W)."""
        turned = []
        for g in range(TURNS):
            filters = torch.einsum("f,f...->...", self.mixing[:, g], self.weight)  # (target, source, depth, k, k)
            filters = filters.rot90(-g, (3, 4))
            turned.append(filters.roll(g, 2) if filters.shape[2] > 1 else filters)
        kernel = torch.stack(turned, 1).flatten(2, 3).flatten(0, 1)
        return F.conv2d(x, kernel, padding=self.kernel_size // 2)


class _OverTurns(tnn.Module):
    """The mean over turns."""

    def forward(self, x: Tensor) -> Tensor:
        """From (B, fields · 4, H, W) to (B, fields, H, W)."""
        return x.unflatten(1, (-1, TURNS)).mean(2)


class Lift(tnn.Module):
    """An equivariant network that is given features of the whole image in its middle, from a plain encoder."""

    def __init__(self, hidden: int, steered: Make) -> None:
        super().__init__()
        self.in_type, self.out_type = VECTORS, VECTOR
        middle, more = _regular(hidden), _regular(hidden + hidden // TURNS)
        widths = [2 * PAST * math.prod(LIFT_GRID), hidden, hidden, hidden]
        self.encoder = tnn.Sequential(tnn.Flatten(), *_chain(widths, tnn.Linear, tnn.BatchNorm1d))
        self.before = tnn.Sequential(*_blocks([VECTORS, middle, middle], steered, _norm))
        last = steered(middle, VECTOR)
        self.after = tnn.Sequential(*_blocks([more, middle, middle], steered, _norm), last)

    def forward(self, x: Tensor) -> Tensor:
        """The next frame."""
        small = x if x.shape[2:] == LIFT_GRID else F.interpolate(x, LIFT_GRID, mode="bilinear")
        features = self.encoder(small)[:, :, None, None].expand(-1, -1, *x.shape[2:])
        return self.after(torch.cat([self.before(x), features], 1))


def roll_out(model: tnn.Module, past: Tensor, steps: int) -> Tensor:
    """Let a network see its own frames: the oldest is dropped, what it said is appended.

    Args:
        model: From (B, 20, H, W) to (B, 2, H, W).
        past: (B, 20, H, W).
        steps: How many frames.

    Returns:
        (B, steps, 2, H, W).
    """
    frames = []
    # A compiler sees for itself that kernels are the same in every step.
    once = contextlib.nullcontext() if torch.compiler.is_compiling() else nn.expand_once(model)
    with once:
        for _ in range(steps):
            frames.append(model(past))
            past = torch.cat([past[:, 2:], frames[-1].to(past.dtype)], 1)
    return torch.stack(frames, 1)

"""What a network that should be equivariant lets through at elements that do not map the pixels to pixels."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._types import Array, ArrayLike
from pscnn._words import short
from pscnn.densities import checked_elements, likelihoods
from pscnn.groups import Group
from pscnn.nn import FieldType
from pscnn.testing._scenes import draw, scenes


@dataclass(frozen=True)
class Leak:
    """How much outputs change where they should not, as a share of how much they differ from image to image.

    Attributes:
        elements: Shape (N, n, n).
        total: Of the network's output at each element, (N,).
        layers: The same of every layer's output, by name. Of feature maps what is compared is the norm of every irrep
            over the map, which an element leaves as it is; so nothing needs to be interpolated here, either.
        interpolated: As ``total``, with test images that were turned by bilinear interpolation instead of drawn anew.
    """

    elements: Array
    total: Tensor
    layers: dict[str, Tensor]
    interpolated: Tensor

    @property
    def worst(self) -> float:
        """The largest of ``total``."""
        return self.total.max().item()

    def __str__(self) -> str:
        """A line per layer."""
        rows = {**self.layers, "in all": self.total, "in all, with interpolated images": self.interpolated}
        return "\n".join(f"{name}: {100 * e.mean():.2f} %, at most {100 * e.max():.2f} %" for name, e in rows.items())


@torch.no_grad()
def leak(
    model: nn.Module,
    images: str | Tensor = "smooth",
    *,
    shape: Sequence[int],
    group: Group | None = None,
    elements: ArrayLike | None = None,
    out_type: FieldType | None = None,
    channels: int = 1,
    count: int = 32,
    seed: int = 0,
) -> Leak:
    """Measure what a network lets through between right angles, on pictures that are drawn at every angle anew.

    For every element h, √(mean ‖f(h·x) − h·f(x)‖²) / √(mean ‖f(x) − f̄‖²) over test images x, where f̄ is the mean of f.

    Args:
        model: A network for images or volumes; not changed. If it was never trained, a copy first sees the images a few
            times, so that its normalisation has statistics.
        images: See ``scenes``: "smooth", "plus", or images.
        shape: Height and width, with a depth before them for volumes.
        group: H; by default that of the first layer that has one.
        elements: Shape (N, n, n); by default 12 random ones of H.
        out_type: Type of the output; None if it should be invariant.
        channels: Of the input; all show the same picture with different brightness.
        count: Of pictures.
        seed: Of pictures and elements.

    Example:
        >>> from pscnn.models import build
        >>> model = build("own", "scnn", "O(2)", shape=(16, 16), outputs=3, width=0.1)
        >>> leak(model, shape=(16, 16), count=8).worst < 0.1
        True
    """
    likelihoods(model)  # says it if this is no model
    pictures = scenes(images, shape, count, seed)
    if type(channels) is not int or channels < 1:
        raise ValueError(f"channels must be a whole number of 1 or more, got {short(channels)}")
    if out_type is not None and not isinstance(out_type, FieldType):
        raise TypeError(f"out_type must be a pscnn.FieldType or None, got {short(out_type)}")
    model = copy.deepcopy(model)
    if group is None:
        types = (getattr(module, "in_type", None) for module in model.modules())
        group = next((found.group for found in types if isinstance(found, FieldType)), None)
        if group is None:
            raise ValueError("leak: the network has no layer with an in_type: give group")
    if not isinstance(group, Group):
        raise TypeError(f"group must be a group such as O2(), got {short(group)}")
    if group.dimension != len(shape):
        raise ValueError(f"{group.name} acts on {group.dimension} axes, got images of shape {tuple(shape)}")
    chosen = group.sample(12, seed=seed) if elements is None else checked_elements(elements, group)
    first = next(model.parameters(), torch.empty(0))
    brightness = torch.linspace(1, 0.5, channels).view(1, -1, *[1] * len(shape))

    def drawn(element: Array) -> Tensor:
        return (brightness * draw(pictures, shape, element)).to(first)

    x = drawn(np.eye(len(shape)))
    # Where interpolation finds nothing, it puts what is in the corner.
    border = x.flatten(2)[..., :1].view(*x.shape[:2], *[1] * len(shape))
    _settle(model, x)
    before = _Answers(model, x)
    spread = {name: _norm(value - value.mean(0)) for name, value in before.values.items()}
    if not spread[""] > 0:
        raise ValueError("leak: the network says the same of all images; give two or more that differ")
    scalars = FieldType(group, channels * [group.trivial])
    changes: list[dict[str, Tensor]] = []
    interpolated = []
    for element in chosen:
        expected = dict(before.values)
        if out_type is not None:
            expected[""] = out_type.transform(expected[""], element)
        after = _Answers(model, drawn(element)).values
        changes.append({name: _norm(after[name] - value) / spread[name] for name, value in expected.items()})
        turned = _Answers(model, scalars.transform(x - border, element) + border).values[""]
        interpolated.append(_norm(turned - expected[""]) / spread[""])
    found = {name: torch.stack([change[name] for change in changes]) for name in before.values}
    total = found.pop("")
    return Leak(chosen, total, found, torch.stack(interpolated))


def _norm(difference: Tensor) -> Tensor:
    """Of one difference per image, the root of the mean square."""
    return difference.flatten(1).norm(dim=1).square().mean().sqrt()


def _settle(model: nn.Module, x: Tensor) -> None:
    """Let normalisation that has seen nothing see these images."""
    norms = [m for m in model.modules() if isinstance(getattr(m, "num_batches_tracked", None), Tensor)]
    if norms and all(int(norm.num_batches_tracked) == 0 for norm in norms):  # type: ignore[arg-type]
        for _ in range(30):
            model.train()(x)
    model.eval()


class _Answers:
    """Outputs of a network, under "", and invariants of its layers' outputs."""

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        self.values: dict[str, Tensor] = {}
        hooks = []
        for name, module in model.named_modules():
            fields = getattr(module, "out_type", None)
            if name and isinstance(fields, FieldType) and not list(module.children()):
                hooks.append(module.register_forward_hook(self._remember(name, fields)))
        try:
            y = model(x)
        finally:
            for hook in hooks:
                hook.remove()
        self.values[""] = y

    def _remember(self, name: str, fields: FieldType) -> Any:
        def hook(module: nn.Module, inputs: Any, y: Tensor) -> None:
            self.values[name] = _invariants(fields, y)

        return hook


def _invariants(fields: FieldType, y: Tensor) -> Tensor:
    """The norm of every irrep, or field with another basis, over the map: (B, numbers)."""
    sizes: list[int] = []
    for rho in fields.representations:
        sizes += [rho.size] if rho.change_of_basis is not None else [psi.size for psi in rho.irreps]
    which = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(y.device)
    squares = y.flatten(2).square().sum(2) if y.ndim > 2 else y.square()
    return squares.new_zeros(len(y), len(sizes)).index_add(1, which, squares).sqrt()

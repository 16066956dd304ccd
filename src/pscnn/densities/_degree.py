"""One number per layer that means the same for all methods: how much of its kernel is not equivariant."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pscnn._types import Array
from pscnn.densities._regularization import likelihoods
from pscnn.groups import Group
from pscnn.measures import Measure
from pscnn.nn import FieldType, SteerableMap, equivariant_part, steered_kernel


class TypedLayer(NamedTuple):
    """A layer with a kernel, and the types of what it maps; scalars where they are not known."""

    module: Any
    in_type: FieldType
    out_type: FieldType

    @property
    def steerable(self) -> bool:
        """Whether the kernel is one of slots of these types."""
        return isinstance(self.module, SteerableMap) and self.module.in_type == self.in_type

    def kernel(self) -> Tensor:
        """The kernel."""
        layer = self.module
        if isinstance(layer, SteerableMap):
            return layer.kernel()
        kernel: Tensor = layer.kernel_and_bias()[0] if hasattr(layer, "kernel_and_bias") else layer.weight
        return kernel

    def equivariant_part(self) -> Tensor:
        """The mean of the kernel over the group."""
        if not self.steerable:
            return equivariant_part(self.kernel(), self.in_type, self.out_type)
        measure: Measure | None = self.module.likelihood
        moments = None if measure is None else [m * (k == 0) for k, m in enumerate(measure.moment_list())]
        kernel: Tensor = self.module.expand(moments)
        return kernel

    def steered(self, element: Array) -> Tensor:
        """The kernel as an element sees it."""
        if not self.steerable:
            return steered_kernel(self.kernel(), self.in_type, self.out_type, element)
        measure: Measure | None = self.module.likelihood
        kernel: Tensor = self.module.steered(None if measure is None else measure.moment_list(), element)
        return kernel


def typed_layers(model: nn.Module, group: Group | None = None) -> dict[str, TypedLayer]:
    """The layers of a model whose kernels map fields, by name, in the order of the modules.

    Args:
        model: Any.
        group: H, with which plain convolutions count, too: as maps between scalars.
    """
    likelihoods(model)  # says it if this is no model
    if group is not None and not isinstance(group, Group):
        raise TypeError(f"group must be a group such as O2(), got {group!r}")
    found: dict[str, TypedLayer] = {}
    whole = group
    for name, module in model.named_modules():
        if any(name.startswith(f"{outer}." if outer else "") for outer in found):
            continue
        types = [one for side in ("in_type", "out_type") if isinstance(one := getattr(module, side, None), FieldType)]
        if hasattr(module, "kernel_and_bias") and len(types) == 2:
            whole = whole or types[0].group  # a smaller one after it, from a restriction: fields of unknown type
            found[name] = TypedLayer(module, *(_over(whole, one) for one in types))
        elif group is not None and isinstance(module, nn.Conv2d | nn.Conv3d) and _is_centred(module, group):
            sizes = module.in_channels, module.out_channels
            found[name] = TypedLayer(module, *(_scalars(group, size) for size in sizes))
    return found


def _over(group: Group, fields: FieldType) -> FieldType:
    if fields.group.dimension != group.dimension:
        raise ValueError(
            f"{group.name} acts on {group.dimension} axes, {fields.group.name} of the network's fields on "
            f"{fields.group.dimension}: use a group of {fields.group.dimension} axes"
        )
    return fields if fields.group == group else _scalars(group, fields.size)


def _scalars(group: Group, size: int) -> FieldType:
    return FieldType(group, size * [group.trivial])


def _is_centred(module: nn.Conv2d | nn.Conv3d, group: Group) -> bool:
    """Whether a plain kernel can be turned: it has a centre, and all directions are alike."""
    size = module.kernel_size
    return len(size) == group.dimension and len(set(size)) == 1 and size[0] % 2 == 1


@torch.no_grad()
def degree(model: nn.Module, group: Group | None = None) -> dict[str, float]:
    """The share of every layer's kernel that is not equivariant: 0 for an equivariant layer, 1 for a free one at worst.

    ‖K − K̄‖² / (‖K̄‖² + ‖K − K̄‖²), where K̄ is the mean of the kernel over the group (``nn.equivariant_part``) and norms
    are over its channels and pixels. It is the same for all ways to relax equivariance, with densities or without.

    Args:
        model: Any network; what it does in its current mode counts.
        group: H. Given, plain ``torch.nn`` convolutions between channels of unknown type count, too; their channels are
            taken for scalars, which says how they turn images but not whether the network as a whole is equivariant.

    Returns:
        By name of the layer, in the order of the modules.

    Example:
        >>> from pscnn import FieldType, Likelihood, nn as pnn
        >>> from pscnn.groups import SO2
        >>> H = SO2()
        >>> fields = FieldType(H, [H.vector])
        >>> layer = pnn.Conv2d(fields, fields, 3, likelihood=Likelihood(H, 2))
        >>> {name: round(share, 6) for name, share in degree(layer).items()}  # uniform at first
        {'': 0.0}
    """
    out = {}
    for name, layer in typed_layers(model, group).items():
        kernel, kept = layer.kernel(), layer.equivariant_part()
        inside, outside = (part.double().square().sum() for part in (kept, kernel - kept))
        out[name] = (outside / (inside + outside).clamp_min(1e-300)).item()
    return out

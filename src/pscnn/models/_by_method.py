"""Plain networks, built with a method."""

from types import SimpleNamespace
from typing import Any

from torch import nn as tnn

from pscnn import nn
from pscnn.groups import O2, SO3, Group, parse
from pscnn.models._methods import METHODS


def by_method(plain: tnn.Module, method: str, group: Group | str, **options: Any) -> tnn.Module:
    """A plain network of ``torch.nn`` layers, built with a method: ``pscnn.nn.convert`` with other layers.

    Methods change convolutions. What else has weights (transposed convolutions, excitation) is equivariant with all
    of them, and has a density where the method has densities.

    Args:
        plain: What ``nn.convert`` can convert; it is not changed.
        method: "cnn" for the network itself, "p-scnn" for what ``nn.convert`` gives, or another one of
            ``pscnn.models.STEERABLE``, such as "scnn" (equivariant), "restricted" (free after ``nn.RestrictHere``),
            "rpp" (a free convolution beside every steerable one) or "twin" (free convolutions only).
        group: H, or its name.
        options: Those of ``nn.convert``: ``bandlimit``, ``fields``, ``frequency``, ``in_type``, ``out_type`` and those
            of densities. "cnn" has no use for them, and methods without densities none for those of densities.

    Example:
        >>> import torch
        >>> plain = tnn.Sequential(tnn.Conv2d(1, 8, 3), tnn.ReLU(), tnn.Conv2d(8, 2, 3))
        >>> by_method(plain, "rpp", "C4")(torch.randn(1, 1, 7, 7)).shape
        torch.Size([1, 2, 3, 3])
    """
    if method == "cnn":
        return plain
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: use one of cnn, {', '.join(METHODS)}")
    group = parse(group) if isinstance(group, str) else group
    return nn.convert(plain, group, method=METHODS[method], **options)


def torch_layers(dimension: int) -> SimpleNamespace:
    """The layers of ``torch.nn`` for images or volumes."""
    return SimpleNamespace(
        convolution=(tnn.Conv2d, tnn.Conv3d)[dimension - 2],
        norm=(tnn.BatchNorm2d, tnn.BatchNorm3d)[dimension - 2],
        max_pool=(tnn.MaxPool2d, tnn.MaxPool3d)[dimension - 2],
        global_pool=(tnn.AdaptiveAvgPool2d, tnn.AdaptiveAvgPool3d)[dimension - 2],
    )


def default_group(network: str, group: Group | str | None, dimension: int) -> Group:
    """The given group, or O(2) for images and SO(3) for volumes; checked against the number of axes."""
    if dimension not in (2, 3):
        raise ValueError(f"{network}: dimension must be 2 for images or 3 for volumes, got {dimension!r}")
    if group is None:
        return O2() if dimension == 2 else SO3()
    group = parse(group) if isinstance(group, str) else group
    if group.dimension != dimension:
        raise ValueError(f"{network}: {group.name} acts on {group.dimension} axes, give dimension={group.dimension}")
    return group

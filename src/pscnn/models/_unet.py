"""U-Nets for dense prediction on images and volumes of any size, with any method."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import nn as tnn

from pscnn import nn
from pscnn.groups import Group
from pscnn.models._by_method import by_method, check_counts, check_options, check_width, default_group, torch_layers


def unet(
    method: str = "p-scnn",
    group: Group | str | None = None,
    *,
    dimension: int = 2,
    channels: int = 1,
    outputs: int = 2,
    width: int = 32,
    levels: int = 4,
    fields: str = "functions",
    **options: Any,
) -> tnn.Module:
    """A U-Net: one prediction for every pixel or voxel, on images or volumes of any size.

    One network for all methods: written in ``torch.nn``, then converted (``by_method``). Equivariant methods start
    equivariant to the group's symmetries of the grid.

    Args:
        method: "cnn" (plain), "p-scnn" (learnt densities) or another one of ``METHODS``; "restricted" is free after
            the encoder.
        group: H, or its name; O(2) by default, SO(3) for volumes.
        dimension: 2 for images, 3 for volumes.
        channels: Of the input: scalars, unless ``in_type`` is given.
        outputs: Scores of classes, or numbers to regress, for every pixel: scalars, unless ``out_type`` is given (for
            instance ``FieldType(H, [H.vector])`` for a flow).
        width: Channels at full resolution; they double from level to level. Of fields as many as fit.
        levels: Resolutions, each half of that before; inputs should have 2^(levels − 1) pixels or more.
        fields: As in ``nn.convert``: "functions", with Fourier nonlinearities, or "irreps" with gates, or "regular".
        options: Further options of ``nn.convert``: ``bandlimit``, ``frequency``, ``in_type``, ``out_type`` and those of
            densities.

    Shape:
        (B, channels, H, W) → (B, outputs, H, W), or with a depth before the height.

    Example:
        >>> import torch
        >>> model = unet("p-scnn", "D4", width=8, levels=2).eval()
        >>> x = torch.randn(2, 1, 17, 17)
        >>> y = model(x)
        >>> y.shape, bool((model(x.rot90(1, (2, 3))) - y.rot90(1, (2, 3))).abs().max() < 1e-4)
        (torch.Size([2, 2, 17, 17]), True)
    """
    group = default_group("unet", group, dimension)
    check_options(unet, method, options)
    check_counts(channels=channels, outputs=outputs)
    check_counts(16, levels=levels)
    check_counts(math.inf, width=width)
    check_width(width, width * 2 ** (levels - 1), 3, dimension)
    options.setdefault("out_type", nn.FieldType(group, outputs * [group.trivial]))
    return by_method(UNet(dimension, channels, outputs, width, levels), method, group, fields=fields, **options)


class UNet(tnn.Module):
    """The plain network; ``unet`` says what its arguments are."""

    def __init__(self, dimension: int, channels: int, outputs: int, width: int, levels: int) -> None:
        super().__init__()
        layers = torch_layers(dimension)
        widths = [width * 2**level for level in range(levels)]

        def block(source: int, target: int) -> tnn.Sequential:
            parts: list[tnn.Module] = []
            for own in (source, target):
                parts += [layers.convolution(own, target, 3, 1, 1, bias=False), layers.norm(target), tnn.ReLU()]
            return tnn.Sequential(*parts)

        self.linear = "bilinear" if dimension == 2 else "trilinear"
        self.down = tnn.ModuleList(block(*pair) for pair in zip([channels, *widths], widths, strict=False))
        self.pool = layers.max_pool(3, 2, 1)  # odd: it is centred on pixels, at odd and at even sizes
        self.restrict = tnn.ModuleList(nn.RestrictHere() for _ in widths)
        self.up = tnn.ModuleList(layers.convolution(2 * n, n, 3, 1, 1) for n in widths[:-1])
        self.merge = tnn.ModuleList(block(2 * n, n) for n in widths[:-1])
        self.last = layers.convolution(width, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Predictions."""
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            skips.append(self.restrict[level](x))
        x = skips.pop()
        for skip, up, merge in zip(reversed(skips), reversed(self.up), reversed(self.merge), strict=True):
            x = F.interpolate(x, size=skip.shape[2:], mode=self.linear, align_corners=False)
            x = merge(torch.cat([up(x), skip], 1))
        return self.last(x)

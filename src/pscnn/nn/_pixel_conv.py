"""Plain convolutions as points in the space of all slots: any kernel, between scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pscnn._memo import memo
from pscnn._types import Array
from pscnn.groups import DirectSum, Group, Irrep
from pscnn.kernels import PixelBasis, SteerableBasis, exchanges
from pscnn.likelihood import Likelihood
from pscnn.nn import _bases
from pscnn.nn._field_type import FieldType
from pscnn.nn._steerable import SteerableMap

PLAIN = nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.ConvTranspose3d
FUNCTIONS: dict[tuple[int, bool], Any] = {
    (2, False): F.conv2d, (3, False): F.conv3d, (2, True): F.conv_transpose2d, (3, True): F.conv_transpose3d
}  # fmt: skip
LEAST_MOMENT = 1e-4
"""The least singular value of a moment Λ_i by whose inverse kernels are multiplied without losing half their digits."""


class PixelConv(SteerableMap):
    """A plain convolution that can be drawn towards symmetry: K(x) = Σ_slots B_slot(x) (Λ_i w_slot), between scalars.

    The basis is that of all functions on the kernel's pixels (``PixelBasis``), orthonormal, so every plain kernel is
    one of these, for every density whose Λ_i have an inverse: w_slot = Λ_i⁻¹ (what B_slot sees of the kernel). The
    layer starts as the same function as the plain one. With a density on the identity alone the weights are the plain
    kernel in other coordinates, and train as it does; with the uniform one the kernel is its own mean over H and the
    layer commutes with H.

    Args:
        convolution: A ``torch.nn`` convolution of images or volumes, transposed or not, with all its settings.
        likelihood: A density over a group that maps the pixels to pixels, such as D(4), with all its irreps.

    Shape:
        As the convolution.

    Example:
        >>> from pscnn.groups import D
        >>> plain = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        >>> density = Likelihood(D(4), initial=lambda h: 3 * h.trace(axis1=1, axis2=2))
        >>> layer, x = PixelConv(plain, density), torch.randn(1, 8, 9, 9)
        >>> torch.allclose(layer(x), plain(x), atol=1e-5)
        True
    """

    likelihood: Likelihood

    def __init__(self, convolution: PLAIN, likelihood: Likelihood) -> None:
        group = likelihood.group
        if likelihood.irreps != group.irreps(group.max_frequency):
            raise ValueError(
                f"PixelConv: the density must have all irreps of {group.name}, use bandlimit={group.max_frequency}"
            )
        # Set before the base class builds the kernel's basis from them.
        self.shape, self.settings = _placed(convolution, group)
        self.transposed, self._class = convolution.transposed, cast(Any, type(convolution))
        channels, like = (convolution.in_channels, convolution.out_channels), convolution.weight
        source, target = (FieldType(group, n * [group.trivial]) for n in channels)
        options = convolution.bias is not None, 1.0, like.device, like.dtype, convolution.groups
        super().__init__(source, target, None, likelihood, *options)
        self._spatial = self.shape
        self.set_bases([_orthonormal(*self._ingredients())])
        self.set_kernel(convolution.weight)
        self.weight.requires_grad_(convolution.weight.requires_grad)
        if self.bias is not None and convolution.bias is not None:
            with torch.no_grad():
                self.bias.copy_(convolution.bias[:, None])
            self.bias.requires_grad_(convolution.bias.requires_grad)
        self.train(convolution.training)

    def _ingredients(self) -> tuple[DirectSum, DirectSum, SteerableBasis, tuple[Irrep, ...]]:
        pixels = cast(SteerableBasis, PixelBasis(self.likelihood.group, self.shape))  # offers the same
        return self.out_type.layout.composite, self.part_type.layout.composite, pixels, self.likelihood.irreps

    def reset_parameters(self) -> None:
        """Zeros, until a kernel is set."""
        with torch.no_grad():
            self.weight.zero_()
            if self.bias is not None:
                self.bias.zero_()

    @torch.no_grad()
    def set_kernel(self, kernel: Tensor) -> None:
        """Choose the weights with which the layer has a given kernel, under its density as it is.

        Args:
            kernel: As of the plain convolution; smaller ones are surrounded by zeros.
        """
        missing = [(n - m) // 2 for n, m in zip(self.shape, kernel.shape[2:], strict=True)]
        padded = F.pad(kernel.detach().double(), [n for m in reversed(missing) for n in (m, m)])
        if self.transposed:
            padded = _exchanged(padded, self.groups)
        moments = [moment.double() for moment in self.likelihood.moment_list()]
        if min(float(torch.linalg.svdvals(moment).min()) for moment in moments) < LEAST_MOMENT:
            raise ValueError(
                f"PixelConv: the density over {self.likelihood.group.name} is too even for a kernel without symmetry; "
                "start from one that is concentrated at the identity"
            )
        basis = torch.tensor(_sampled(*self._ingredients()), device=padded.device)  # a copy: the array is read-only
        inverse = [torch.linalg.inv(moment) for moment in moments]
        tile = self._tiles[0]
        found = _bases.multiply(padded.reshape(tile.copies, -1) @ basis.T, tile.segments, inverse)
        self.weight.copy_(found.reshape(-1))

    def steered(self, kernel_moments: list[Tensor] | None, element: Array) -> Tensor:
        """The kernel as h sees it, K(h⁻¹x): its pixels in another order."""
        pixels = PixelBasis(self.likelihood.group, self.shape)
        harmonics = torch.as_tensor(pixels.evaluate(pixels.points @ element)).to(self.weight)
        return self.expand(kernel_moments, harmonics)

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        self.check(x, len(self.shape))
        return self.convolve(x, *self.kernel_and_bias(), output_size)

    def convolve(
        self, x: Tensor, kernel: Tensor, bias: Tensor | None, output_size: Sequence[int] | None = None
    ) -> Tensor:
        """Convolve with a given kernel and bias under this layer's settings."""
        given = self.settings
        apply, stride, dilation = FUNCTIONS[len(self.shape), self.transposed], given["stride"], given["dilation"]
        if self.transposed:
            extra = given["output_padding"]
            if output_size is not None:
                shapes = zip(output_size[-len(self.shape) :], x.shape[2:], self.shape, strict=True)
                rows = zip(shapes, stride, given["padding"], dilation, strict=True)
                extra = [want - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for (want, n, k), s, p, d in rows]
            kernel = _exchanged(kernel, self.groups)
            return apply(x, kernel, bias, stride, given["padding"], extra, self.groups, dilation)
        padding = given["padding"]
        if given["padding_mode"] != "zeros":
            x = F.pad(x, _sides(padding, self.shape, dilation), mode=given["padding_mode"])
            padding = 0
        return apply(x, kernel, bias, stride, padding, dilation, self.groups)

    def plain(self) -> nn.Module:
        """The same map as a ``torch.nn`` convolution with a fixed kernel."""
        kernel = _exchanged(self.kernel(), self.groups) if self.transposed else self.kernel()
        settings = {**self.settings, "groups": self.groups}
        plain: nn.Module = self._fill(self._class, kernel, self.full_bias(), self.shape, **settings)
        return plain

    def extra_repr(self) -> str:
        shown = {name: value for name, value in self.settings.items() if name in ("stride", "padding")}
        return f"{super().extra_repr()}, kernel_size={self.shape}, " + ", ".join(f"{k}={v}" for k, v in shown.items())


def _placed(convolution: PLAIN, group: Group) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The kernel's shape and the convolution's settings; where H exchanges axes of a kernel, it becomes a square."""
    dimension = len(convolution.kernel_size)
    if group.dimension != dimension:
        place = "the plane" if group.dimension == 2 else "space"
        hint = "; group.about(axis) acts on space" if group.dimension == 2 else ""
        raise ValueError(f"{group.name} acts on {place}, the kernel has {dimension} axes{hint}")
    names = ["stride", "padding", "dilation", "padding_mode", *(["output_padding"] if convolution.transposed else [])]
    settings = {name: getattr(convolution, name) for name in names}
    for name in ("stride", "dilation"):
        if exchanges(group, settings[name]):
            raise ValueError(f"{name} {settings[name]} differs along axes that {group.name} exchanges")
    sizes = tuple(convolution.kernel_size)
    if not exchanges(group, sizes):
        return sizes, settings
    square = (max(sizes),) * dimension
    if len({n % 2 for n in sizes}) > 1:
        raise ValueError(
            f"kernel size {sizes} is even and odd along axes that {group.name} exchanges, and has no common centre"
        )
    if settings["padding"] != "same":
        given = (0,) * dimension if settings["padding"] == "valid" else settings["padding"]
        added = zip(given, square, sizes, settings["dilation"], strict=True)
        settings["padding"] = tuple(p + d * (n - m) // 2 for p, n, m, d in added)
    return square, settings


def _exchanged(kernel: Tensor, groups: int) -> Tensor:
    """A kernel (in, out / groups, …), as transposed convolutions have it, from (out, in / groups, …), or back."""
    return kernel.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)


def _sides(padding: str | tuple[int, ...], shape: tuple[int, ...], dilation: tuple[int, ...]) -> list[int]:
    """Pixels to add on both sides of every axis, the last axis first."""
    if isinstance(padding, str):
        totals = [d * (k - 1) if padding == "same" else 0 for k, d in zip(shape, dilation, strict=True)]
        return [n for total in reversed(totals) for n in (total // 2, total - total // 2)]
    return [n for p in reversed(padding) for n in (p, p)]


@memo
def _orthonormal(rows: DirectSum, columns: DirectSum, pixels: SteerableBasis, moments: tuple[Irrep, ...]) -> Array:
    """The basis kernels of unit norm instead of unit variance: plain weights in other coordinates."""
    matrix = _bases.scaled_basis(None, rows, columns, pixels, moments)[0]
    factor = _bases.scales(rows, columns, pixels, moments)[rows.irreps[0]]
    return matrix / factor


@memo
def _sampled(rows: DirectSum, columns: DirectSum, pixels: SteerableBasis, moments: tuple[Irrep, ...]) -> Array:
    """The same at the pixels: an orthogonal matrix."""
    return _orthonormal(rows, columns, pixels, moments) @ pixels.sample()

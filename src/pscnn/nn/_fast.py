"""Plain operations in the form that a compiler on a GPU turns into the fewest passes over memory."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHANNELS = 32
"""Tensor cores take channels in such portions; other counts fall back to kernels of half the speed or less."""
FEW_CHANNELS, COLUMNS = 4, 352
"""A kernel of no more input channels and entries per output channel is multiplied with the image's patches."""


def compiled(x: Tensor) -> bool:
    """Whether a map is met while code for a GPU is compiled."""
    return torch.compiler.is_compiling() and x.is_cuda


def fast_layout(x: Tensor) -> bool:
    """Whether to lay out feature maps for tensor cores.

    In compiled code, where copies join the operations around, and for volumes, where they are small beside the
    convolution.
    """
    return compiled(x) or (isinstance(x, Tensor) and x.is_cuda and x.ndim == 5)  # a tracer's proxy is no tensor


def channels_last(x: Tensor) -> Tensor:
    """The same map with its channels innermost in memory."""
    if not torch.compiler.is_compiling():  # the same in words that torch.vmap understands
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    return x.contiguous(memory_format=torch.channels_last if x.ndim == 4 else torch.channels_last_3d)


def convolve(x: Tensor, kernel: Tensor, bias: Tensor | None, stride: int, padding: int, dilation: int) -> Tensor:
    """``torch.nn.functional.conv2d`` or ``conv3d``."""
    if not fast_layout(x):
        plain = F.conv2d if x.ndim == 4 else F.conv3d
        if bias is None or not torch.compiler.is_compiling():
            return plain(x, kernel, bias, stride, padding, dilation)
        y = plain(x, kernel, None, stride, padding, dilation)
        # Apart, since torch 2.11 cannot compile it with a bias that is calculated.
        return y + bias.to(y.dtype).view(-1, *[1] * (x.ndim - 2))
    if torch.is_autocast_enabled("cuda"):
        x, kernel = (t.to(torch.get_autocast_dtype("cuda")) for t in (x, kernel))
    few = kernel.shape[1] <= FEW_CHANNELS and kernel[0].numel() <= COLUMNS
    if few and dilation == 1 and not x.requires_grad:
        y = (by_patches if compiled(x) else ByPatches.apply)(x, kernel, stride, padding)
    else:
        y = ByPortions.apply(x, kernel, stride, padding, dilation)  # type: ignore[no-untyped-call]
    return y if bias is None else y + bias.to(y.dtype).view(-1, *[1] * (x.ndim - 2))


def by_patches(x: Tensor, kernel: Tensor, stride: int, padding: int) -> Tensor:
    """A convolution as one product of all patches (B·H·W, C·k·k) with the kernel: for images of a few channels."""
    # The patches are many times as large as the image: kept for the gradient, they would be a tenth of all memory.
    options = kernel.shape[-1], stride, padding
    columns = checkpoint(_columns, x, *options, use_reentrant=False, preserve_rng_state=False)
    return _times_patches(columns, x, kernel, stride, padding)


def _times_patches(columns: Tensor, x: Tensor, kernel: Tensor, stride: int, padding: int) -> Tensor:
    flat, count, size = kernel[0].numel(), len(kernel), kernel.shape[-1]
    rows = F.pad(kernel.reshape(count, flat), (0, -flat % CHANNELS, 0, -count % CHANNELS))
    shape = [(n + 2 * padding - size) // stride + 1 for n in x.shape[2:]]
    return F.linear(columns, rows).view(len(x), *shape, len(rows)).movedim(-1, 1)[:, :count]


class ByPatches(torch.autograd.Function):
    """``by_patches`` without a compiler: the patches are made again for the kernel's gradient; the image has none."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, kernel: Tensor, stride: int, padding: int) -> Tensor:
        return _times_patches(_columns(x, kernel.shape[-1], stride, padding), x, kernel, stride, padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, kernel, *ctx.options = inputs
        ctx.save_for_backward(x)
        ctx.shape = kernel.shape

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        columns = _columns(x, ctx.shape[-1], *ctx.options)
        rows = gradients[0].to(x.dtype).movedim(1, -1).flatten(0, -2)
        return None, (rows.T @ columns)[:, : math.prod(ctx.shape[1:])].reshape(ctx.shape), None, None


def _columns(x: Tensor, size: int, stride: int, padding: int) -> Tensor:
    """All patches of side ``size`` as rows, filled up to whole portions."""
    spatial = x.ndim - 2
    patches = F.pad(x, (padding, padding) * spatial)
    for axis in range(2, x.ndim):
        patches = patches.unfold(axis, size, stride)
    patches = patches.movedim(1, 1 + spatial)  # (B, H, W, C, k, k)
    flat = x.shape[1] * size**spatial
    return F.pad(patches.reshape(-1, flat), (0, -flat % CHANNELS))


class ByPortions(torch.autograd.Function):
    """A convolution with zeros in both maps and the kernel up to whole portions of channels; a view without surplus.

    The gradient is written out because autograd would hand it on in another layout, to be copied.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, kernel: Tensor, stride: int, padding: int, dilation: int) -> Tensor:
        padded = _portions(x, x.shape[1]), _portions(kernel, kernel.shape[1], len(kernel))
        run = F.conv2d if x.ndim == 4 else F.conv3d
        return run(*padded, None, stride, padding, dilation)[:, : len(kernel)]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, kernel, *ctx.options = inputs
        ctx.save_for_backward(x, kernel)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel = ctx.saved_tensors
        spatial = x.ndim - 2
        stride, padding, dilation = ([n] * spatial for n in ctx.options)
        g, wanted = _portions(gradients[0].to(x.dtype), len(kernel)), [ctx.needs_input_grad[0], True, False]
        padded = _portions(x, x.shape[1]), _portions(kernel, kernel.shape[1], len(kernel))
        dx, d_kernel, _ = torch.ops.aten.convolution_backward(
            g, *padded, None, stride, padding, dilation, False, [0] * spatial, 1, wanted
        )
        dx = dx[:, : x.shape[1]] if ctx.needs_input_grad[0] else None
        return dx, d_kernel[: len(kernel), : x.shape[1]], None, None, None


def _portions(t: Tensor, second: int, first: int = 0) -> Tensor:
    """Zeros behind the second and first axis up to whole portions, and channels innermost."""
    return channels_last(F.pad(t, (*[0] * (2 * (t.ndim - 2)), 0, -second % CHANNELS, 0, -first % CHANNELS)))


def blur(x: Tensor, channels: int, kernel: Tensor, stride: int, padding: int) -> Tensor:
    """Every channel convolved with one kernel (k, k[, k]), which is a product of equal ones along the axes."""
    if fast_layout(x):
        along = kernel.sum(tuple(range(1, kernel.ndim)))
        return channels_last(Blur.apply(x, along.to(x.dtype), stride, padding))  # type: ignore[no-untyped-call]
    weight = kernel.to(x.dtype).expand(channels, 1, *kernel.shape)
    return (F.conv2d if kernel.ndim == 2 else F.conv3d)(x, weight, None, stride, padding, groups=channels)


class Blur(torch.autograd.Function):
    """The blur axis by axis as sums of shifted maps, forwards and backwards."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, along: Tensor, stride: int, padding: int) -> Tensor:
        y = F.pad(x, (padding, padding) * (x.ndim - 2))
        for axis in range(2, x.ndim):
            last = stride * ((y.shape[axis] - len(along)) // stride)
            before = (slice(None),) * axis
            terms = [w * y[(*before, slice(t, t + last + 1, stride))] for t, w in enumerate(along.unbind())]
            y = sum(terms[1:], terms[0])
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, along, ctx.stride, ctx.padding = inputs
        ctx.sizes = x.shape
        ctx.save_for_backward(along)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (along,) = ctx.saved_tensors
        g, stride, size = gradients[0], ctx.stride, len(along)
        for axis in range(2, g.ndim):
            # Input j = s·m + a − padding met output m − u through the tap s·u + a: a short sum over u. The entries are
            # picked one by one, since some versions of the compiler misread maps that are put together and flattened.
            j = torch.arange(ctx.padding, ctx.padding + ctx.sizes[axis], device=g.device)
            terms = []
            for u in range(-(-size // stride)):
                tap, output = stride * u + j % stride, j // stride - u
                met = (tap < size) & (output >= 0) & (output < g.shape[axis])
                weight = torch.where(met, along[tap.clamp(max=size - 1)], 0)
                chosen = g.index_select(axis, output.clamp(0, g.shape[axis] - 1))
                terms.append(chosen * weight.view(-1, *[1] * (g.ndim - 1 - axis)))
            g = sum(terms[1:], terms[0])
        return g, None, None, None

"""Plain operations in the form that takes the fewest passes over a GPU's memory."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn._differentiable import differentiable
from pscnn.nn._operation import Operation

CHANNELS = 32
"""Tensor cores take channels in such portions; other counts fall back to kernels of half the speed or less."""
FEW_CHANNELS, COLUMNS = 4, 352
"""A kernel of no more input channels and entries per output channel is multiplied with the image's patches."""
FOLDED = 16
"""Channels of images that are folded: four times as many as before, filled up."""
HAS_TRITON = importlib.util.find_spec("triton") is not None  # not asked within a network: compilers would stop there


def fused(x: Tensor) -> bool:
    """Whether a map can be given to kernels of our own: on a GPU, and not inside a transform of ``torch.func``."""
    return (
        isinstance(x, Tensor)  # a tracer's proxy is none
        and x.is_cuda
        and x.dtype != torch.float64
        and (torch.compiler.is_compiling() or x.numel() > 0)
        and not _transformed(x)
        and HAS_TRITON
    )


def _transformed(x: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return False
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def fast_layout(x: Tensor) -> bool:
    """Whether to lay out feature maps for tensor cores; without kernels of our own only where copies cost little."""
    return fused(x) or (isinstance(x, Tensor) and x.is_cuda and x.ndim == 5)


# -- layout -------------------------------------------------------------------------------------------------------


def channels_last(x: Tensor) -> Tensor:
    """The same map with its channels innermost in memory."""
    if not torch.compiler.is_compiling():  # the same in words that torch.vmap understands
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    return x.contiguous(memory_format=torch.channels_last if x.ndim == 4 else torch.channels_last_3d)


def empty(like: Tensor, rows: int, channels: int, spatial: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """An empty map or kernel (rows, channels, …) with its channels innermost."""
    strides, step = [], channels
    for n in reversed(spatial):
        strides.append(step)
        step *= n
    return like.new_empty_strided((rows, channels, *spatial), (step, 1, *reversed(strides)), dtype=dtype)


def empty_map(x: Tensor, channels: int) -> Tensor:
    """An empty map like x with its channels innermost, filled up to whole portions."""
    return empty(x, x.shape[0], channels + -channels % CHANNELS, x.shape[2:])


def even(x: Tensor) -> Tensor:
    """X with all channels of a pixel together and pixels at equal distances."""
    shape, strides = x.shape, x.stride()
    step, fits = strides[-1], strides[1] == 1
    for axis in (*range(len(shape) - 1, 1, -1), 0):
        fits &= strides[axis] == step
        step *= shape[axis]
    # Not channels_last: of maps with one pixel it may leave any distances.
    return x if fits else empty(x, shape[0], shape[1], shape[2:]).copy_(x)


def with_surplus(padded: Tensor, channels: int, rows: int | None = None) -> Tensor:
    """The first channels of a map, or of a kernel, behind which there are zeros.

    ``portions`` and ``padded_kernel`` find them again, without a copy.
    """
    x = padded.narrow(1, 0, channels)
    if rows is not None:
        x = x.narrow(0, 0, rows)
    if not (torch.compiler.is_compiling() or _transformed(x)):
        x._padded = padded  # type: ignore[attr-defined]
    return x


def portions(x: Tensor) -> Tensor:
    """A map with zeros behind its channels up to whole portions, channels innermost."""
    handed = _handed_on(x)
    return _padded(x, x.shape[1]) if handed is None else handed


def padded_kernel(kernel: Tensor) -> Tensor:
    """A kernel with zeros behind its channels, in and out, up to whole portions, channels innermost."""
    handed = _handed_on(kernel)
    return _padded(kernel, kernel.shape[1], len(kernel)) if handed is None else handed


def _saved(x: Tensor, rows: int) -> Tensor | None:
    """A map, or a kernel, that was kept for the way back, with what lies behind it up to whole portions.

    Found by its distances in memory, since compiled code keeps tensors and not what was handed on with them. Only maps
    of ours and slices of larger ones have such; what lies behind the latter meets zeros or is not looked at.
    """
    step = x.shape[1] + -x.shape[1] % CHANNELS
    if torch.is_grad_enabled() or _transformed(x) or x.stride(1) != 1:
        return None
    strides, size = [], step
    for n in reversed(x.shape[2:]):
        strides.append(size)
        size *= n
    shape, wanted = (rows, step, *x.shape[2:]), (size, 1, *reversed(strides))
    memory = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
    return x.as_strided(shape, wanted) if x.stride() == wanted and rows * size <= memory else None


def _handed_on(x: Tensor) -> Tensor | None:
    # What was handed on has no history: where gradients have gradients it would be lost.
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or _transformed(x):
        return None
    padded: Tensor | None = getattr(x, "_padded", None)
    return padded if padded is not None and padded.data_ptr() == x.data_ptr() and padded.dtype == x.dtype else None


def _padded(t: Tensor, second: int, first: int = 0) -> Tensor:
    """Zeros behind the second and first axis up to whole portions, and channels innermost."""
    return channels_last(F.pad(t, (*[0] * (2 * (t.ndim - 2)), 0, -second % CHANNELS, 0, -first % CHANNELS)))


# -- convolution --------------------------------------------------------------------------------------------------


def convolve(
    x: Tensor, kernel: Tensor, bias: Tensor | None, stride: int, padding: int, dilation: int, groups: int = 1
) -> Tensor:
    """``torch.nn.functional.conv2d`` or ``conv3d``."""
    if not fast_layout(x) or groups > 1 or (x.ndim == 4 and _transformed(kernel)):
        plain = F.conv2d if x.ndim == 4 else F.conv3d
        if bias is None or not torch.compiler.is_compiling():
            return plain(x, kernel, bias, stride, padding, dilation, groups)
        y = plain(x, kernel, None, stride, padding, dilation, groups)
        # Apart, since torch 2.11 cannot compile it with a bias that is calculated.
        return y + bias.to(y.dtype).view(-1, *[1] * (x.ndim - 2))
    if torch.is_autocast_enabled("cuda"):
        x, kernel = (t.to(torch.get_autocast_dtype("cuda")) for t in (x, kernel))
    if can_fold(x, kernel, stride, dilation, groups):
        return by_folding(x, kernel, bias, padding, [0, 0])
    few = kernel.shape[1] <= FEW_CHANNELS and kernel[0].numel() <= COLUMNS
    if few and dilation == 1 and not x.requires_grad:
        y = by_patches(x, kernel, stride, padding)
    else:
        return by_portions(x, kernel, bias, stride, padding, dilation)
    return y if bias is None else y + bias.to(y.dtype).view(-1, *[1] * (x.ndim - 2))


class ByPatches(torch.autograd.Function):
    """A convolution as one product of all patches (B·H·W, C·k·k) with the kernel: for images of a few channels.

    The patches, many times as large as the image, are made again for the kernel's gradient; the image has none.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, kernel: Tensor, stride: int, padding: int) -> Tensor:
        flat, count, size = kernel[0].numel(), len(kernel), kernel.shape[-1]
        columns = _columns(x, size, stride, padding)
        rows = F.pad(kernel.reshape(count, flat), (0, columns.shape[1] - flat, 0, -count % CHANNELS))
        y = F.linear(columns, rows).view(len(x), *_sides(x, size, stride, padding), len(rows))
        return with_surplus(y.movedim(-1, 1), count)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, kernel, *ctx.options = inputs
        ctx.save_for_backward(x)
        ctx.shape = kernel.shape

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        columns = _columns(x, ctx.shape[-1], *ctx.options)
        rows = portions(gradients[0].to(x.dtype)).movedim(1, -1).flatten(0, -2)
        d_kernel = (rows.T @ columns)[: ctx.shape[0], : math.prod(ctx.shape[1:])]
        return None, d_kernel.reshape(ctx.shape), None, None


by_patches = differentiable(ByPatches)


def _sides(x: Tensor, size: int, stride: int, padding: int) -> list[int]:
    """The side lengths of a convolution's output."""
    return [(n + 2 * padding - size) // stride + 1 for n in x.shape[2:]]


def _columns(x: Tensor, size: int, stride: int, padding: int) -> Tensor:
    """All patches of side ``size`` as rows, filled up to whole portions."""
    spatial = x.ndim - 2
    flat = x.shape[1] * size**spatial
    columns = flat + -flat % CHANNELS
    if fused(x) and spatial == 2:
        return image_patches(x, _sides(x, size, stride, padding), size, stride, padding, columns)
    patches = F.pad(x, (padding, padding) * spatial)
    for axis in range(2, x.ndim):
        patches = patches.unfold(axis, size, stride)
    patches = patches.movedim(1, 1 + spatial)  # (B, H, W, C, k, k)
    return F.pad(patches.reshape(-1, flat), (0, columns - flat))


def _image_patches(x: Tensor, sides: list[int], size: int, stride: int, padding: int, columns: int) -> Tensor:
    """All patches of images as rows."""
    from pscnn.nn import _triton_kernels

    y = x.new_empty(len(x) * math.prod(sides), columns)
    _triton_kernels.patches(x.contiguous(), y, sides, size, stride, padding)
    return y


image_patches = Operation(
    "(Tensor x, SymInt[] sides, SymInt size, SymInt stride, SymInt padding, SymInt columns) -> Tensor",
    _image_patches,
    lambda x, sides, *_: x.new_empty(len(x) * math.prod(sides), _[-1]),
)


def can_fold(x: Tensor, kernel: Tensor, stride: int, dilation: int, groups: int) -> bool:
    """Whether ``by_folding`` does this convolution."""
    few = kernel.ndim == 4 and kernel.shape[1] <= FEW_CHANNELS and kernel.shape[-1] > 2
    alone = (stride, dilation, groups) == (2, 1, 1)
    return few and alone and fused(x) and not x.requires_grad and not _transformed(kernel)


def by_folding(x: Tensor, kernel: Tensor, bias: Tensor | None, padding: int, halves: Sequence[int]) -> Tensor:
    """A convolution of stride 2 of images with a few channels that have no gradient.

    Args:
        x: The images.
        kernel: Of any size.
        bias: Or none.
        padding: Zeros around the images.
        halves: For each axis 1 if images are averages of two neighbours along it, one pixel fewer, else 0.
    """
    if torch.is_autocast_enabled("cuda"):
        kernel = kernel.to(torch.get_autocast_dtype("cuda"))
    y: Tensor = _by_folding(x, kernel, padding, list(halves))
    return y if bias is None else y + bias.to(y.dtype).view(-1, *[1] * (x.ndim - 2))


class ByFolding(torch.autograd.Function):
    """Four neighbouring pixels of an image become one with four times the channels, for a kernel of half the size.

    So it has stride 1 and enough channels for tensor cores. The image is folded again for the kernel's gradient.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, kernel: Tensor, padding: int, halves: list[int]) -> Tensor:
        folded, small = _folded(x, kernel, padding, halves), -(-kernel.shape[-1] // 2)
        parts = F.pad(kernel, (0, 2 * small - kernel.shape[-1]) * 2).unflatten(3, (small, 2)).unflatten(2, (small, 2))
        parts = parts.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
        y = F.conv2d(folded, _padded(parts, len(parts[0]) - folded.shape[1], len(kernel)))
        return with_surplus(y, len(kernel))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, kernel, *ctx.options = inputs
        ctx.save_for_backward(x, kernel)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel = ctx.saved_tensors
        folded, (count, channels, size, _) = _folded(x, kernel, *ctx.options), kernel.shape
        g, small = portions(gradients[0].to(folded.dtype)), -(-size // 2)
        like = empty(folded, g.shape[1], folded.shape[1], (small, small))
        where = [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]
        _, parts, _ = torch.ops.aten.convolution_backward(g, folded, like, None, *where)
        parts = parts[:count, : 4 * channels].unflatten(1, (2, 2, channels)).permute(0, 3, 4, 1, 5, 2)
        return None, parts.flatten(4, 5).flatten(2, 3)[:, :, :size, :size], None, None


_by_folding = differentiable(ByFolding)


def _folded(x: Tensor, kernel: Tensor, padding: int, halves: list[int]) -> Tensor:
    small = -(-kernel.shape[-1] // 2)
    sides = [
        (n - half + 2 * padding - kernel.shape[-1]) // 2 + small for n, half in zip(x.shape[2:], halves, strict=True)
    ]
    return folded_image(x, sides, padding, halves, kernel.dtype)


def _folded_image(x: Tensor, sides: list[int], padding: int, halves: list[int], dtype: torch.dtype) -> Tensor:
    """Images (B, C, H, W) to (B, 4 C and zeros, H', W'); of four pixels the channels lie one after the other."""
    from pscnn.nn import _triton_kernels

    y = empty(x, len(x), FOLDED, sides, dtype)
    _triton_kernels.fold(x, y, padding, halves)
    return y


folded_image = Operation(
    "(Tensor x, SymInt[] sides, SymInt padding, SymInt[] halves, ScalarType dtype) -> Tensor",
    _folded_image,
    lambda x, sides, padding, halves, dtype: empty(x, len(x), FOLDED, sides, dtype),
)


def _convolved(x: Tensor, kernel: Tensor, bias: Tensor | None, stride: int, padding: int, dilation: int) -> Tensor:
    run = F.conv2d if x.ndim == 4 else F.conv3d
    y = channels_last(run(portions(x), padded_kernel(kernel), None, stride, padding, dilation))
    if bias is not None:
        surplus = F.pad(bias.to(y.dtype), (0, -len(bias) % CHANNELS))
        y = y.add_(surplus.view(-1, *[1] * (x.ndim - 2)))
    return with_surplus(y, len(kernel))  # kernels of zeros give zeros


def _convolved_back(
    g: Tensor, x: Tensor, kernel: Tensor, stride: int, padding: int, dilation: int, wanted: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of the map, if it is wanted, and of the kernel."""
    spatial, rows = x.ndim - 2, len(kernel) + -len(kernel) % CHANNELS
    map_, whole = _saved(x, len(x)), _saved(kernel, rows)
    given = portions(x) if map_ is None else map_, padded_kernel(kernel) if whole is None else whole
    options = [stride] * spatial, [padding] * spatial, [dilation] * spatial
    dx, d_kernel, _ = torch.ops.aten.convolution_backward(
        portions(g), *given, None, *options, False, [0] * spatial, 1, [wanted, True, False]
    )
    d_kernel = channels_last(d_kernel).narrow(0, 0, len(kernel)).narrow(1, 0, x.shape[1])
    return with_surplus(channels_last(dx), x.shape[1]) if wanted else g.new_empty(0), d_kernel


def _fake_convolved(x: Tensor, kernel: Tensor, bias: Tensor | None, stride: int, padding: int, dilation: int) -> Tensor:
    sides = _sides(x, dilation * (kernel.shape[-1] - 1) + 1, stride, padding)
    return empty(x, len(x), len(kernel) + -len(kernel) % CHANNELS, sides).narrow(1, 0, len(kernel))


def _fake_convolved_back(
    g: Tensor, x: Tensor, kernel: Tensor, stride: int, padding: int, dilation: int, wanted: bool
) -> tuple[Tensor, Tensor]:
    count, channels = kernel.shape[:2]
    rows, columns = count + -count % CHANNELS, channels + -channels % CHANNELS
    d_kernel = empty(kernel, rows, columns, kernel.shape[2:]).narrow(0, 0, count).narrow(1, 0, channels)
    return empty_map(x, channels).narrow(1, 0, channels) if wanted else g.new_empty(0), d_kernel


_NUMBERS = "SymInt stride, SymInt padding, SymInt dilation"
convolved = Operation(f"(Tensor x, Tensor kernel, Tensor? bias, {_NUMBERS}) -> Tensor", _convolved, _fake_convolved)
convolved_back = Operation(
    f"(Tensor g, Tensor x, Tensor kernel, {_NUMBERS}, bool wanted) -> (Tensor, Tensor)",
    _convolved_back,
    _fake_convolved_back,
)


class ByPortions(torch.autograd.Function):
    """A convolution with zeros in both maps and the kernel up to whole portions of channels; a view without surplus.

    The gradient is written out because autograd would hand it on in another layout, to be copied.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, kernel: Tensor, bias: Tensor | None, stride: int, padding: int, dilation: int) -> Tensor:
        return convolved(x, kernel, bias, stride, padding, dilation)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, kernel, _, *ctx.options = inputs
        ctx.save_for_backward(x, kernel)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel = ctx.saved_tensors
        stride, padding, dilation = ctx.options
        wanted, _, of_bias, *_ = ctx.needs_input_grad
        g = gradients[0].to(x.dtype)
        dx, d_kernel = convolved_back(g, x, kernel, stride, padding, dilation, wanted)
        d_bias = g.sum((0, *range(2, g.ndim))) if of_bias else None
        return dx if wanted else None, d_kernel, d_bias, None, None, None


by_portions = differentiable(ByPortions)

# -- blur ---------------------------------------------------------------------------------------------------------


def blur(x: Tensor, channels: int, kernel: Tensor, stride: int, padding: int) -> Tensor:
    """Every channel convolved with one kernel (k, k[, k]), which is a product of equal ones along the axes."""
    if fast_layout(x):
        along = kernel.sum(tuple(range(1, kernel.ndim)))
        sizes = _sides(x, len(along), stride, padding)
        return _blur(x, along, sizes, stride, padding, False)
    return depthwise(x, channels, kernel, kernel.ndim, stride, padding)


def depthwise(x: Tensor, channels: int, kernel: Tensor, dimension: int, stride: int, padding: int = 0) -> Tensor:
    """Every channel convolved with one kernel."""
    weight = kernel.to(x.dtype).expand(channels, 1, *[-1] * dimension)
    return (F.conv2d if dimension == 2 else F.conv3d)(x, weight, None, stride, padding, groups=channels)


def average(x: Tensor, sides: list[Any]) -> Tensor:
    """Averages of windows with sides of 1 or 2 pixels at every place; of 2 along all axes, a blur by ½, ½."""
    if fast_layout(x) and x.shape[1] > FEW_CHANNELS and all(n == 2 for n in sides):
        return _blur(x, x.new_full((2,), 0.5, dtype=torch.float32), _sides(x, 2, 1, 0), 1, 0, False)
    if not isinstance(x, Tensor):  # traced
        # Functions of torch 2.4 do not take sides that are traced, operators do. Channels are taken for examples:
        # onnxruntime would join a pooling with zeros around a map before it, and fail.
        operator: Any = torch.ops.aten.avg_pool2d if len(sides) == 2 else torch.ops.aten.avg_pool3d
        return operator(x.flatten(0, 1), sides, [1] * len(sides)).unflatten(0, (-1, x.shape[1]))
    return (F.avg_pool2d if len(sides) == 2 else F.avg_pool3d)(x, sides, 1)


def average_pool(x: Tensor, size: int, stride: int, padding: int) -> Tensor:
    """``torch.nn.functional.avg_pool2d`` or ``avg_pool3d``: means of windows, zeros around the map included.

    With channels innermost and zeros around, torch 2.11 calculates wrong gradients of these on GPUs
    (github.com/pytorch/pytorch/issues/188344); the blur has its own.
    """
    if fast_layout(x):
        along = x.new_full((size,), 1 / size, dtype=torch.float32)
        return _blur(x, along, _sides(x, size, stride, padding), stride, padding, False)
    return (F.avg_pool2d if x.ndim == 4 else F.avg_pool3d)(x, size, stride, padding)


class Blur(torch.autograd.Function):
    """The blur axis by axis, to sides of given lengths, or its adjoint, which is its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, along: Tensor, sizes: list[int], stride: int, padding: int, back: bool) -> Tensor:
        if fused(x):
            return blurred(x, along.float(), sizes, stride, padding, back)
        for axis, size in enumerate(sizes, 2):
            x = (_adjoint if back else _along)(x, along.to(x.dtype), axis, size, stride, padding)
        return channels_last(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, along, _, *ctx.options, ctx.back = inputs
        ctx.sizes = list(x.shape[2:])
        ctx.save_for_backward(along)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (along,) = ctx.saved_tensors
        return _blur(gradients[0], along, ctx.sizes, *ctx.options, not ctx.back), *[None] * 5


_blur = differentiable(Blur)


def _along(x: Tensor, taps: Tensor, axis: int, size: int, stride: int, padding: int) -> Tensor:
    """A sum of shifted maps, y_j = Σ_t w_t x_{sj + t − padding}."""
    y = F.pad(x, (*[0] * (2 * (x.ndim - 1 - axis)), padding, padding))
    before = (slice(None),) * axis
    terms = [w * y[(*before, slice(t, t + stride * (size - 1) + 1, stride))] for t, w in enumerate(taps.unbind())]
    return sum(terms[1:], terms[0])


def _adjoint(g: Tensor, taps: Tensor, axis: int, size: int, stride: int, padding: int) -> Tensor:
    """Input j = s·m + a − padding met output m − u through the tap s·u + a: a short sum over u.

    The entries are picked one by one, since some versions of the compiler misread maps that are put together and
    flattened.
    """
    j = torch.arange(padding, padding + size, device=g.device)
    terms = []
    for u in range(-(-len(taps) // stride)):
        tap, output = stride * u + j % stride, j // stride - u
        met = (tap < len(taps)) & (output >= 0) & (output < g.shape[axis])
        weight = torch.where(met, taps[tap.clamp(max=len(taps) - 1)], 0)
        chosen = g.index_select(axis, output.clamp(0, g.shape[axis] - 1))
        terms.append(chosen * weight.view(-1, *[1] * (g.ndim - 1 - axis)))
    return sum(terms[1:], terms[0])


def _blurred(x: Tensor, along: Tensor, sizes: list[int], stride: int, padding: int, back: bool) -> Tensor:
    """The blur of a map, to sides of given lengths; or its adjoint."""
    from pscnn.nn import _triton_kernels

    y = portions(x).movedim(1, -1).contiguous()
    for axis, size in enumerate(sizes, 1):
        source, y = y, y.new_empty(*y.shape[:axis], size, *y.shape[axis + 1 :])
        _triton_kernels.blur(source, y, along, axis, stride, padding, back)
    return with_surplus(y.movedim(-1, 1), x.shape[1])


def _fake_blurred(x: Tensor, along: Tensor, sizes: list[int], *_: Any) -> Tensor:
    return empty(x, len(x), x.shape[1] + -x.shape[1] % CHANNELS, sizes).narrow(1, 0, x.shape[1])


blurred = Operation(
    "(Tensor x, Tensor along, SymInt[] sizes, SymInt stride, SymInt padding, bool back) -> Tensor",
    _blurred,
    _fake_blurred,
)

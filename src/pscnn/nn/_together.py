"""The kernels of a whole network at once: on a GPU a few operations for many layers, instead of a few for each."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from pscnn.nn._expansion import Shape, density_of, expanded_in_torch, has_kernels, moments_of_all, wanted_dtype
from pscnn.nn._fast import even, with_surplus
from pscnn.nn._steerable import SteerableMap


def expand_together(model: nn.Module) -> nn.Module:
    """Let all steerable convolutions of a network expand their kernels at once whenever it is trained on a GPU.

    Fewer operations are started in every step; what the network calculates stays the same. Networks made by
    ``convert`` do so by themselves.

    Args:
        model: The network, which is called as a whole. A ``torch.fx.GraphModule`` gets a node that does it, and copies
            of it do so, too; others get a hook.

    Returns:
        The same network.
    """
    if isinstance(model, fx.GraphModule):
        layers = [one for one in model.modules() if isinstance(one, SteerableMap) and one.packs]
        first = next((node for node in model.graph.nodes if node.op == "placeholder" and node.users), None)
        if first is not None and len(layers) > 1 and not any(isinstance(one, Together) for one in model.modules()):
            name = "together"
            while hasattr(model, name):
                name += "_"
            model._modules = {name: Together(layers).train(model.training), **model._modules}  # where copies have it
            with model.graph.inserting_after(first):
                node = model.graph.call_module(name, (first,))
            first.replace_all_uses_with(node, lambda user: user is not node)
            model.recompile()
    elif not any(isinstance(hook, _Before) for hook in model._forward_pre_hooks.values()):
        model.register_forward_pre_hook(_Before())
    return model


class _Before:
    """A hook that expands the kernels of a network's layers before it is called; they may be exchanged."""

    def __init__(self) -> None:
        self.together = Together([])

    def __call__(self, model: nn.Module, inputs: Any) -> None:
        if model.training and not torch.compiler.is_compiling():
            self.together._layers = [one for one in model.modules() if isinstance(one, SteerableMap) and one.packs]
            self.together(None)


@dataclass(frozen=True)
class _Bundle:
    """Layers whose kernels are made from the same basis, with moments from the same table; all tensors on one device.

    Attributes:
        numbers: Of the layers.
        shapes: Theirs.
        rows: Where the weights of each begin, and where the last ones end.
        sampled: The basis.
        table: Of the slots; None without moments.
        turns: Portions of rows, and the rows of their moments, as ``_triton_expansion`` wants them.
        parts: Larger portions for the way back, of ``steps`` times as many rows.
        ranges: Of parts, for every layer.
        chunks: Of all kernels.
        layers: Where kernels are.
        ends: Where the kernels of each end.
    """

    numbers: tuple[int, ...]
    shapes: tuple[Shape, ...]
    rows: tuple[int, ...]
    sampled: Tensor
    table: Tensor | None
    turns: Tensor
    parts: Tensor
    ranges: Tensor
    steps: int
    chunks: Tensor
    layers: Tensor
    ends: tuple[int, ...]


class Together(nn.Module):
    """Expands the kernels of layers, which each of them uses once, and hands on what it is given.

    Args:
        layers: They stay where they are in a network.
    """

    def __init__(self, layers: Sequence[SteerableMap]) -> None:
        super().__init__()
        self._layers = list(layers)
        self._known: tuple[Any, list[_Bundle]] | None = None

    def forward(self, x: Any) -> Any:
        """Hand every layer its kernel."""
        if not torch.compiler.is_compiling() and self.training and torch.is_grad_enabled():
            for layer in self._layers:
                layer._ready = None
            chosen = [one for one in self._layers if one.training and one._held is None and has_kernels(one.weight)]
            if len(chosen) > 1 and len({one.weight.device for one in chosen}) == 1:
                for layer, kernel in zip(chosen, self.expand(chosen, wanted_dtype(chosen[0].weight)), strict=True):
                    layer._ready = kernel
        return x

    def expand(self, layers: Sequence[SteerableMap], dtype: torch.dtype) -> list[Tensor]:
        """The kernels of layers, as ``packed_kernel`` gives them."""
        # A row for every layer, also where layers share a density: their gradients are added to each other by torch.
        given = [(k, density_of(one.likelihood)) for k, one in enumerate(layers) if one.likelihood is not None]
        moments, places = moments_of_all(given)
        where = [places.get(k) for k in range(len(layers))]
        kernels: list[Any] = [None] * len(layers)
        for bundle in self._bundles(layers, where):
            place = where[bundle.numbers[0]]
            own = None if place is None else moments[place[0]]
            made = ExpandedTogether.apply(own, bundle, dtype, *(layers[k].weight for k in bundle.numbers))  # type: ignore[no-untyped-call]
            for k, kernel in zip(bundle.numbers, made, strict=True):
                kernels[k] = kernel
        return kernels

    def _bundles(self, layers: Sequence[SteerableMap], where: Sequence[tuple[int, int] | None]) -> list[_Bundle]:
        """As before, if the layers and their constants are."""
        key = [(id(one), id(one.sampled0), place) for one, place in zip(layers, where, strict=True)]
        if self._known is None or self._known[0] != key:
            kinds: dict[Hashable, list[int]] = {}
            for k, (layer, place) in enumerate(zip(layers, where, strict=True)):
                shape = layer.made_of
                same = shape.tile.segments, shape.tile.d_out, shape.tile.d_in, shape.spatial, shape.irreps
                kinds.setdefault((id(layer.sampled0), None if place is None else place[0], same), []).append(k)
            self._known = key, [_bundle(layers, own, where) for own in kinds.values()]
        return self._known[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}


def _bundle(layers: Sequence[SteerableMap], numbers: Sequence[int], where: Sequence[tuple[int, int] | None]) -> _Bundle:
    from pscnn.nn import _triton_expansion

    first, height = layers[numbers[0]], _triton_expansion.ROWS
    shapes = tuple(layers[k].made_of for k in numbers)
    rows, ends = [0], [0]
    for shape in shapes:
        rows.append(rows[-1] + shape.tile.copies)
        ends.append(ends[-1] + shape.padded[0] * shape.padded[1] * shape.copies[4])
    places = [place[1] if (place := where[k]) is not None else 0 for k in numbers]
    steps = max(-(-shape.tile.copies // (height * _triton_expansion.PARTS)) for shape in shapes)

    def portions(size: int) -> list[list[tuple[int, int, int]]]:
        spans = zip(rows, rows[1:], places, strict=False)
        return [[(k, min(k + size, end), place) for k in range(begin, end, size)] for begin, end, place in spans]

    turns, parts = portions(height), portions(height * steps)
    counts = [0]
    for own in parts:
        counts.append(counts[-1] + len(own))
    chunks, infos = [], []
    for k, shape in enumerate(shapes):
        size, entries = ends[k + 1] - ends[k], shape.copies[2] * shape.copies[3] * shape.copies[4]
        chunks += [(k, n) for n in range(0, size, _triton_expansion.CHUNK)]
        infos.append(
            (size, shape.copies[1], shape.copies[0] * shape.copies[2], shape.padded[1], rows[k] * entries, ends[k])
        )

    def table(values: Iterable[tuple[int, ...]]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.int32, device=first.weight.device)

    return _Bundle(
        tuple(numbers),
        shapes,
        tuple(rows),
        first.sampled0,
        None if first.likelihood is None else first.slot_table0,
        table(one for own in turns for one in own),
        table(one for own in parts for one in own),
        table(zip(counts, counts[1:], places, strict=False)),
        steps,
        table(chunks),
        table(infos),
        tuple(ends),
    )


class ExpandedTogether(torch.autograd.Function):
    """The kernels of several layers, as ``Expanded`` makes one."""

    @staticmethod
    def forward(
        ctx: Any, moments: Tensor | None, bundle: _Bundle, dtype: torch.dtype, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        from pscnn.nn import _triton_expansion

        turned = _joined(weights, bundle)
        if moments is not None:
            turned = _triton_expansion.turn(turned, moments, bundle.table, bundle.shapes[0].largest, bundle.turns)
        sampled = bundle.sampled
        block = torch.mm(turned, sampled, out=turned.new_empty(len(turned), sampled.shape[1]))
        flat = block.new_empty(bundle.ends[-1], dtype=dtype)
        _triton_expansion.pack_all(block, flat, bundle.chunks, bundle.layers, bundle.shapes[0].copies[2:])
        ctx.save_for_backward(moments, *weights)
        ctx.set_materialize_grads(False)
        ctx.bundle = bundle
        kernels = []
        for shape, begin, end in zip(bundle.shapes, bundle.ends, bundle.ends[1:], strict=False):
            rows, columns = shape.padded
            padded = flat[begin:end].view(rows, *shape.spatial, columns).movedim(-1, 1)
            kernels.append(with_surplus(padded, shape.channels[1], shape.channels[0]))
        return tuple(kernels)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        from pscnn.nn import _triton_expansion

        moments, *weights = ctx.saved_tensors
        bundle = ctx.bundle
        shapes, sampled = bundle.shapes, bundle.sampled
        if torch.is_grad_enabled():  # this gradient is to be differentiated
            return _gradients_in_torch(bundle, moments, weights, gradients)
        w = _joined(weights, bundle)
        block = w.new_empty(len(w), sampled.shape[1])
        for shape, g, begin, end in zip(shapes, gradients, bundle.rows, bundle.rows[1:], strict=False):
            if g is None:
                block[begin:end].zero_()
            else:
                _triton_expansion.unpack(even(g), block[begin:end], shape.copies)
        own, d_moments = torch.mm(block, sampled.T, out=torch.empty_like(w)), None
        if moments is not None:
            more = bundle.parts, bundle.ranges, bundle.steps
            own, d_moments = _triton_expansion.turn_back(own, w, moments, bundle.table, shapes[0].largest, *more)
        spans = zip(bundle.rows, bundle.rows[1:], strict=False)
        return d_moments, None, None, *(own[begin:end].flatten() for begin, end in spans)


def _joined(weights: Sequence[Tensor], bundle: _Bundle) -> Tensor:
    return torch.cat([w.view(shape.tile.copies, -1) for w, shape in zip(weights, bundle.shapes, strict=True)])


def _gradients_in_torch(
    bundle: _Bundle, moments: Tensor | None, weights: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    places = bundle.ranges[:, 2].tolist()
    kernels, ups = [], []
    for weight, shape, place, up in zip(weights, bundle.shapes, places, gradients, strict=True):
        if up is not None:
            given = None if moments is None else moments[place]
            kernels.append(expanded_in_torch(weight, given, bundle.sampled, shape))
            ups.append(up.to(weight.dtype))
    inputs = [t for t in (moments, *weights) if t is not None and t.requires_grad]
    found = iter(torch.autograd.grad(kernels, inputs, ups, create_graph=True, allow_unused=True))
    own = [next(found) if t is not None and t.requires_grad else None for t in (moments, *weights)]
    return own[0], None, None, *own[1:]

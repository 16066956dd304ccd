"""Measuring how far a module is from equivariance."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._checks import check_batch
from pscnn._modes import kept_modes
from pscnn._types import Array, ArrayLike
from pscnn._words import short
from pscnn.densities._degree import TypedLayer, typed_layers
from pscnn.densities._regularization import likelihoods
from pscnn.groups import Group
from pscnn.nn import FieldType


@torch.no_grad()
def equivariance_error(
    model: nn.Module,
    x: Tensor,
    elements: ArrayLike,
    in_type: FieldType | None = None,
    out_type: FieldType | None = None,
) -> Tensor:
    """‖h·f(x) − f(h·x)‖ / ‖f(x)‖ for each element, averaged over the batch (paper, Appendix F.3).

    Args:
        model: A layer or network, used in its current mode; call ``eval()`` first, or batch statistics will change.
        x: A batch.
        elements: Shape (N, n, n).
        in_type: Type of x; by default that of the first layer that has one.
        out_type: Type of the output; by default that of the model's last module. A network that ends in plain layers
            has none: then invariance is measured, f(h·x) against f(x).

    Returns:
        Shape (N,).
    """
    check_batch("x", x)
    in_type = in_type or _first_type(model)
    out_type = out_type or _last_type(model)
    elements = checked_elements(elements, in_type.group)
    y = model(x)
    norm = y.flatten(1).norm(dim=1).clamp_min(torch.finfo(y.dtype).tiny)
    errors = []
    for element in elements:
        moved = y if out_type is None else out_type.transform(y, element)
        difference = moved - model(in_type.transform(x, element))
        errors.append((difference.flatten(1).norm(dim=1) / norm).mean())
    return torch.stack(errors)


def grid_elements(group: Group, shape: Sequence[int], most: int = 8) -> Array:
    """Elements of a group, without the identity, that map the pixels of images or volumes to pixels: none interpolates.

    Args:
        group: H.
        shape: Height and width, with a depth before them for volumes.
        most: How many at most; of more, as many that are spread among them. A group that has none gives as many random
            elements.

    Returns:
        Shape (N, n, n).
    """
    n = group.dimension
    found = []
    for order in itertools.permutations(range(n)):
        for signs in itertools.product((1.0, -1.0), repeat=n):
            element = np.eye(n)[list(order)] * np.array(signs)
            # Coordinates count the axes of an array from its end.
            same = all(shape[-1 - k] == shape[-1 - order[k]] for k in range(n))
            if same and group.contains(element) and not np.array_equal(element, np.eye(n)):
                found.append(element)
    if not found:
        return group.sample(most, seed=0)
    return np.stack([found[k] for k in np.unique(np.linspace(0, len(found) - 1, most).round().astype(int))])


def checked_elements(elements: ArrayLike, group: Group) -> Array:
    """As (N, n, n), if there are any and all are in the group: others have no meaning for its representations."""
    usual, n = f"such as {group.name}.sample(8, seed=0)", group.dimension
    try:
        out = np.asarray(elements, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"elements must be matrices, {usual}, got {short(elements)}") from None
    if out.size == 0 or out.shape[-2:] != (n, n):
        raise ValueError(f"elements must have shape (N, {n}, {n}) with N of 1 or more, got {out.shape}")
    if not np.isfinite(out).all() or not group.contains(out):
        raise ValueError(f"elements must be those of {group.name}, {usual}")
    return out.reshape(-1, n, n)


def _first_type(model: nn.Module) -> FieldType:
    likelihoods(model)  # says it if this is no model
    for given in (getattr(module, "in_type", None) for module in model.modules()):
        if isinstance(given, FieldType):
            return given
    raise ValueError(f"{type(model).__name__} has no layer with an in_type: give in_type")


def _last_type(model: nn.Module) -> FieldType | None:
    if hasattr(model, "out_type"):
        assert model.out_type is None or isinstance(model.out_type, FieldType)
        return model.out_type
    children = list(model.children())
    return _last_type(children[-1]) if children else None


class LayerError(NamedTuple):
    """How far one layer f is from equivariance at each element, shape (N,) each, averaged over the batch.

    Attributes:
        error: ‖h·f(x) − f(h·x)‖ / ‖f(x)‖ in continuous space: the kernel is rotated instead of x, which needs no
            interpolation. Zero wherever the layer's kernel is equivariant.
        measured: The same with x and f(x) rotated on the grid, as in the paper.
        twin: ``measured`` for the equivariant part of the kernel, as with a uniform density and the same weights: the
            error that is due to the grid and the interpolation of rotated images alone.
        interpolation: ‖h⁻¹·(h·x) − x‖ / ‖x‖ of the layer's input: the loss of rotating it there and back.
    """

    error: Tensor
    measured: Tensor
    twin: Tensor
    interpolation: Tensor

    @property
    def difference(self) -> Tensor:
        """What the rest of the kernel adds to the measured error, the paper's error difference."""
        return self.measured - self.twin


@torch.no_grad()
def layer_errors(model: nn.Module, x: Tensor, elements: ArrayLike, *, on_grid: bool = True) -> dict[str, LayerError]:
    """The equivariance error of layers, on the features they receive (paper, Appendix F.3).

    These are the layers with a density, or another measure; in a network without any, all layers between fields.

    Images and volumes are compared within the largest disk (ball), which rotations map to itself.

    Args:
        model: A network with layers between fields; it is evaluated in eval mode.
        x: A batch of its inputs.
        elements: Shape (N, n, n).
        on_grid: Whether to measure with rotated images as well, which takes most of the time; if False, those errors
            are NaN.

    Returns:
        By name of the layer, in the order of the modules.

    Example:
        >>> from pscnn import Likelihood, nn
        >>> from pscnn.groups import C
        >>> H = C(4)
        >>> layer = nn.Linear(FieldType(H, [H.vector]), FieldType(H, [H.regular]), likelihood=Likelihood(H))
        >>> bool(layer_errors(layer, torch.randn(8, 2), H.sample(3, seed=0))[""].error.max() < 1e-5)
        True
    """
    check_batch("x", x)
    layers = typed_layers(model)
    if any(getattr(layer.module, "likelihood", None) is not None for layer in layers.values()):
        layers = {n: layer for n, layer in layers.items() if getattr(layer.module, "likelihood", None) is not None}
    received: dict[str, Tensor] = {}

    def remember(name: str) -> Any:
        return lambda _, inputs: received.update({name: inputs[0]})

    hooks = [layer.module.register_forward_pre_hook(remember(name)) for name, layer in layers.items()]
    with kept_modes(model):  # kernels may differ between the modes, too
        try:
            model.eval()(x)
        finally:
            for hook in hooks:
                hook.remove()
        return {
            name: _layer_error(layer, received[name], elements, on_grid)
            for name, layer in layers.items()
            if name in received
        }


def _layer_error(layer: TypedLayer, x: Tensor, elements: ArrayLike, on_grid: bool) -> LayerError:
    module, in_type, out_type = layer
    kernels = layer.kernel(), layer.equivariant_part()
    bias = module.kernel_and_bias()[1]
    plain = [module.convolve(x, kernel, bias) for kernel in kernels]
    rows: list[list[Tensor]] = [[], [], [], []]
    for element in checked_elements(elements, in_type.group):
        turned = module.convolve(x, layer.steered(element.T), bias)
        rows[0].append(_relative(turned, plain[0], plain[0]))
        if not on_grid:
            for row in rows[1:]:
                row.append(torch.full_like(rows[0][-1], torch.nan))
            continue
        moved = in_type.transform(x, element)
        for row, kernel, y in zip(rows[1:3], kernels, plain, strict=True):
            row.append(_relative(out_type.transform(y, element), module.convolve(moved, kernel, bias), y))
        rows[3].append(_relative(in_type.transform(moved, element.T), x, x))
    return LayerError(*(torch.stack(row) for row in rows))


def _relative(a: Tensor, b: Tensor, reference: Tensor) -> Tensor:
    """‖a − b‖ / ‖reference‖ per sample within the disk, averaged over the batch."""
    inside = torch.as_tensor(_disk(a.shape[2:]), dtype=a.dtype, device=a.device)
    norm = (reference * inside).flatten(1).norm(dim=1).clamp_min(torch.finfo(a.dtype).tiny)
    return (((a - b) * inside).flatten(1).norm(dim=1) / norm).mean()


def _disk(shape: torch.Size) -> Array:
    """One within the largest disk or ball of a grid, zero outside; one everywhere if there is no grid."""
    if not shape:
        return np.ones(())
    axes = np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in shape), indexing="ij")
    return (np.sqrt(sum(a**2 for a in axes)) <= (min(shape) - 1) / 2 + 1e-9).astype(np.float64)

"""How equivariant any network is already, layer by layer: by its kernels and by its responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._checks import check_batch
from pscnn._modes import kept_modes
from pscnn._types import Array
from pscnn._words import aligned
from pscnn.densities._regularization import likelihoods
from pscnn.groups import MIRROR, O2, O3, Axial, Group
from pscnn.kernels import PixelBasis, exchanges, maps_pixels
from pscnn.nn import FieldType, SteerableMap

CONVOLUTIONS = nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.ConvTranspose3d
WITH_WEIGHTS = CONVOLUTIONS | nn.Linear | SteerableMap


@dataclass(frozen=True)
class LayerMeasure:
    """How far one layer is from symmetry, as numbers; arrays have one for each of the measurement's elements.

    Attributes:
        name: Of the module; "output" for the network's.
        kind: Its class.
        shares: For each irrep of H, the share of the kernel's energy in it, the trivial irrep first: that share
            commutes with H, the others do not. None without a kernel larger than a pixel between scalars.
        chance: The share of the trivial irrep that a random kernel of this size has on average; None likewise.
        kernel: ‖h·K − K‖ / ‖K‖; None likewise.
        response: ‖f(h·x) − h·f(x)‖ / ‖f(x)‖ where f is all of the network up to this layer, averaged over the images; 0
            for a symmetric one, about √2 for unrelated features of mean zero. None without images.
    """

    name: str
    kind: str
    shares: dict[str, float] | None
    chance: float | None
    kernel: Array | None
    response: Array | None


@dataclass(frozen=True)
class Measurement:
    """How equivariant a network is; ``print`` it for a table, ``report.measure_figure`` draws it.

    Attributes:
        group: H.
        labels: Of the elements, without the identity: angles, and for mirrors the direction that they reverse.
        elements: The elements, (N, n, n).
        layers: In the order in which they are called, the network's output last.
    """

    group: Group
    labels: tuple[str, ...]
    elements: Array
    layers: tuple[LayerMeasure, ...]

    def __getitem__(self, name: str) -> LayerMeasure:
        """The layer of this name."""
        return next(layer for layer in self.layers if layer.name == name)

    def __str__(self) -> str:
        kernels = [layer for layer in self.layers if layer.shares is not None]
        responses = [layer for layer in self.layers if layer.response is not None]
        out = []
        if kernels:
            irreps = list(kernels[0].shares or {})
            rows = [["kernel of", *irreps, f"({irreps[0]} if random)", *self.labels]]
            for layer in kernels:
                assert layer.shares is not None
                assert layer.kernel is not None
                numbers = [*layer.shares.values(), layer.chance, *layer.kernel]
                rows.append([layer.name or layer.kind, *(f"{number:.2f}" for number in numbers)])
            title = f"Kernels: energy by irrep of {self.group.name} ({irreps[0]} commutes with it), ‖h·K − K‖ / ‖K‖"
            out += [title, *aligned(rows, "<"), ""]
        if responses:
            rows = [["response of", *self.labels]]
            rows += [[r.name or r.kind, *map(_short, r.response)] for r in responses]  # type: ignore[arg-type]
            out += ["Responses: ‖f(h·x) − h·f(x)‖ / ‖f(x)‖ up to each layer", *aligned(rows, "<"), "", self._verdict()]
        return "\n".join(out).rstrip()

    def _verdict(self) -> str:
        errors = self.layers[-1].response
        if errors is None or not len(errors):
            return ""
        low, high = int(np.argmin(errors)), int(np.argmax(errors))
        return (
            f"The output changes least under {self.labels[low]} ({_short(errors[low])}) and most under "
            f"{self.labels[high]} ({_short(errors[high])})."
        )


@torch.no_grad()
def measure(model: nn.Module, group: Group, images: Tensor | None = None) -> Measurement:
    """Measure how equivariant a trained network already is, layer by layer.

    By kernel: convolutions between scalars commute with H if their kernels are the same after every turn and mirror of
    H; the decomposition over all functions on the pixels says how much of each kernel does. By response: whether the
    features of transformed images are the transformed features. Both take the channels of plain layers as scalars: a
    network whose *channels* are exchanged when its input is turned counts as not equivariant inside, and only its
    output tells. Layers of pscnn are compared by their own types. Features without axes of space are compared as they
    are: invariance.

    Args:
        model: Any network, plain or not; it is evaluated in eval mode.
        group: H: a group that maps pixels to pixels, such as D(4), C(4) or D(1), or one of these about an axis.
        images: A batch (B, C, H, W) or (B, C, D, H, W) of its inputs; None measures kernels only.

    Returns:
        A row for each layer with weights or that changes the size of its map, and one for the output.

    Example:
        >>> from pscnn.groups import D
        >>> blur, edge = torch.ones(1, 1, 3, 3), torch.tensor([[[[-1.0, 0, 1]] * 3]])
        >>> model = nn.Sequential(nn.Conv2d(1, 1, 3, bias=False), nn.Conv2d(1, 1, 3, bias=False))
        >>> _ = model[0].weight.data.copy_(blur), model[1].weight.data.copy_(edge)
        >>> print(measure(model, D(1)))
        Kernels: energy by irrep of D(1) (ψ0,0 commutes with it), ‖h·K − K‖ / ‖K‖
        kernel of  ψ0,0  ψ1,0  (ψ0,0 if random)     ↔
        0          1.00  0.00              0.67  0.00
        1          0.00  1.00              0.67  2.00
    """
    likelihoods(model)  # says it if this is no model
    if not maps_pixels(group):
        raise ValueError(
            f"measure: needs a group that maps pixels to pixels, such as D(4), C(4) or D(1), got {group.name}"
        )
    if images is not None:
        check_batch("images", images)
    if images is not None and images.ndim != 2 + group.dimension:
        raise ValueError(
            f"measure: {group.name} acts on {group.dimension} axes of space; images must have shape (batch, channels, "
            f"and those), got {tuple(images.shape)}"
        )
    elements = group.quadrature(0)[0]
    elements = elements[np.abs(elements - group.identity).max(axis=(1, 2)) > 1e-6]
    labels = tuple(_label(group, element) for element in elements)
    with kept_modes(model):
        model.eval()
        errors, output = ({}, None) if images is None else _responses(model, images, elements)
        called = errors if images is not None else dict(model.named_modules())
        layers = []
        for name in called:
            module = model.get_submodule(name)
            found = _of_kernel(module, group, elements)
            if found is not None or name in errors:
                shares, chance, changes = found or (None, None, None)
                layers.append(LayerMeasure(name, type(module).__name__, shares, chance, changes, errors.get(name)))
    if output is not None:
        layers.append(LayerMeasure("output", type(model).__name__, None, None, None, output))
    if not layers:
        raise ValueError(f"measure: {type(model).__name__} has no layer that {group.name} could act on")
    return Measurement(group, labels, elements, tuple(layers))


# -- kernels -----------------------------------------------------------------------------------------------------------


def _of_kernel(module: nn.Module, group: Group, elements: Array) -> tuple[dict[str, float], float, Array] | None:
    """Shares of a kernel's energy by irrep, the trivial one's of a random kernel, and the kernel's own changes."""
    kernel = None
    if isinstance(module, CONVOLUTIONS):
        kernel = module.weight
    elif isinstance(module, SteerableMap):
        irreps = {*module.in_type.irreps, *module.out_type.irreps}
        kernel = module.kernel() if all(psi.is_trivial for psi in irreps) else None
    if kernel is None or kernel.ndim != 2 + group.dimension or kernel[0, 0].numel() == 1:
        return None
    shape = tuple(kernel.shape[2:])
    if exchanges(group, shape):
        if len({n % 2 for n in shape}) > 1:
            return None  # no square about its centre has pixels where this has its own
        missing = [(max(shape) - n) // 2 for n in reversed(shape)]
        kernel = nn.functional.pad(kernel, [n for n in missing for _ in range(2)])
        shape = (max(shape),) * len(shape)
    basis = PixelBasis(group, shape)
    values = kernel.double().cpu().numpy().reshape(-1, basis.size)
    total = max(float((values**2).sum()), np.finfo(np.float64).tiny)
    energy = ((values @ basis.sample().T) ** 2).sum(axis=0)
    names = np.repeat([psi.name for psi in basis.irreps], [psi.size for psi in basis.irreps])
    shares = {psi.name: float(energy[names == psi.name].sum() / total) for psi in group.irreps(None)}
    moved = [values[:, basis.find(basis.points @ h)] - values for h in elements]
    changes = np.sqrt([(difference**2).sum() / total for difference in moved])
    return shares, float((names == group.trivial.name).mean()), changes


# -- responses ---------------------------------------------------------------------------------------------------------


def _responses(model: nn.Module, images: Tensor, elements: Array) -> tuple[dict[str, Array], Array | None]:
    """The relative changes of every layer's features, in the order of calls, and of the network's output."""
    given: dict[str, list[Tensor]] = {}
    found: dict[str, list[list[float]]] = {}
    element: Array | None = None

    def compare(name: str, module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        features = _first_tensor(output)
        if features is None or not _is_listed(module, inputs, features):
            return
        if element is None:
            given.setdefault(name, []).append(features)
            return
        reference = given[name][len(found.setdefault(name, [[]])[-1])]
        found[name][-1].append(_change(reference, features, element, module))

    hooks = [
        module.register_forward_hook(lambda m, i, o, name=name: compare(name, m, i, o))
        for name, module in model.named_modules()
        if isinstance(getattr(module, "out_type", None), FieldType) or not list(module.children())
    ]
    outputs = []
    try:
        first = _first_tensor(model(images))
        for element in elements:  # what the hooks see
            for changes in found.values():
                changes.append([])
            answer = _first_tensor(model(_moved(images, element)))
            if first is not None and answer is not None:
                outputs.append(_change(first, answer, element, model))
    finally:
        for hook in hooks:
            hook.remove()
    means = {name: np.array([np.mean(calls) for calls in found[name]]) for name in given if name in found}
    return means, np.array(outputs) if outputs else None


def _first_tensor(output: object) -> Tensor | None:
    """A module's output, or the first tensor of several."""
    if isinstance(output, dict):
        output = list(output.values())
    several: Sequence[object] = output if isinstance(output, tuple | list) else [output]
    return next((one for one in several if isinstance(one, Tensor)), None)


def _is_listed(module: nn.Module, inputs: tuple[object, ...], features: Tensor) -> bool:
    """Layers with kernels, and those that change the size of a map."""
    if isinstance(module, WITH_WEIGHTS):
        return True
    before = _first_tensor(inputs)
    return before is not None and features.ndim > 2 and before.shape[2:] != features.shape[2:]


def _change(reference: Tensor, features: Tensor, element: Array, module: nn.Module) -> float:
    """‖f(h·x) − h·f(x)‖ / ‖f(x)‖, averaged over the batch."""
    fields = getattr(module, "out_type", None)
    if reference.ndim != 2 + len(element):
        expected = reference if not isinstance(fields, FieldType) else fields.transform(reference, element)
    elif isinstance(fields, FieldType) and fields.group.contains(element):
        expected = fields.transform(reference, element)
    else:
        expected = _moved(reference, element)
    if expected.shape != features.shape:
        return float("nan")
    norm = reference.flatten(1).norm(dim=1).clamp_min(torch.finfo(reference.dtype).tiny)
    return float(((features - expected).flatten(1).norm(dim=1) / norm).mean())


def _moved(maps: Tensor, element: Array) -> Tensor:
    """Scalars that are moved in space."""
    scalar = FieldType(_group_of(len(element)), [_group_of(len(element)).trivial])
    out = scalar.transform(maps.flatten(0, 1)[:, None], element)
    return out.unflatten(0, tuple(maps.shape[:2]))[:, :, 0]


def _group_of(dimension: int) -> Group:
    return O2() if dimension == 2 else O3()


# -- words -------------------------------------------------------------------------------------------------------------


def _label(group: Group, element: Array) -> str:
    """A turn by its angle; a mirror by the direction that it reverses."""
    plane = group.lower(element[None])[0] if isinstance(group, Axial) else element
    if np.linalg.det(plane) > 0:
        return f"{round(np.degrees(np.arctan2(plane[1, 0], plane[0, 0])) % 360)}°"
    mirrors = {"↔": MIRROR, "↕": -MIRROR, "╲": np.array([[0, 1], [1, 0]]), "╱": np.array([[0, -1], [-1, 0]])}
    return next(name for name, matrix in mirrors.items() if np.allclose(plane, matrix, atol=1e-6))


def _short(number: float) -> str:
    """Two decimals, or the order of magnitude of what has none."""
    return f"{number:.2f}" if number >= 0.005 or number == 0 or np.isnan(number) else f"{number:.0e}"

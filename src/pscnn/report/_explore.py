"""What a page knows about networks at some elements of a group: densities, errors, answers."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._types import AnyArray
from pscnn.data import transform
from pscnn.data.own import About
from pscnn.densities import layer_errors, layer_summaries, likelihoods
from pscnn.experiments import receptive_fields
from pscnn.groups import O3, SO3, Elements, Group
from pscnn.likelihood import Likelihood
from pscnn.report._degree import agreement
from pscnn.report._phrases import answer_words, group_words, kept_words
from pscnn.report._spheres import globe
from pscnn.training import Task

SHOWN = 6
"""Examples that can be tried."""
TOP = 3
"""Classes whose probabilities are shown."""
FINEST = 32
"""Voxels along a side of the volumes in a page; larger ones are averaged down."""


def explored_group(model: nn.Module) -> Group | None:
    """The group of a network's first density; None without densities."""
    for likelihood in likelihoods(model).values():
        return _domain(likelihood)
    return None


def _domain(likelihood: Likelihood) -> Group:
    return likelihood.group if likelihood.support is None else likelihood.support


@torch.no_grad()
def layers_of(model: nn.Module, task: Task, images: Tensor, elements: Elements) -> list[dict[str, Any]]:
    """Of every density, in the order of what it sees: what it keeps, in words and at each element, and the error there.

    Densities over another group than the elements' are described without numbers.
    """
    found, summaries = likelihoods(model), layer_summaries(model)
    errors = layer_errors(model, images, elements.matrices, on_grid=False)
    seen = _seen(model, task)
    out = []
    for row in summaries:
        lam, error = found[row.name], errors.get(row.name)
        here: dict[str, Any] = {
            "number": row.number,
            "name": row.name,
            "sees": seen.get(row.name),
            "kept": kept_words(row),
            "group": group_words(row.support),
            "whole": finite(row.degrees[row.support]),
            "degrees": {group_words(name): finite(value) for name, value in row.degrees.items()},
        }
        if _domain(lam) == elements.group:
            density = lam.density(elements.matrices).cpu().double().numpy()
            top = max(row.highest, float(density.max()))
            here["shares"] = numbers(density / top)
            if elements.group in (SO3(), O3()):
                here["globe"] = globe(lam, top)
            if error is not None:
                here["errors"] = numbers(error.error.cpu().numpy())
                here["rho"] = finite(agreement(lam, error, elements.matrices))
        out.append(here)
    order = sorted(range(len(out)), key=lambda k: out[k]["sees"] or 0) if all(seen.values()) else range(len(out))
    return [out[k] for k in order]


def sentence(model: nn.Module, task: Task) -> str:
    """What the densities of a network say, in one sentence."""
    rows, seen = layer_summaries(model), _seen(model, task)
    rows = sorted(rows, key=lambda row: seen.get(row.name) or 0)
    unit = "voxels" if len(task.input_shape) == 4 else "pixels"
    return answer_words(rows, [seen.get(row.name) for row in rows], task.input_shape[-1], unit)


def _seen(model: nn.Module, task: Task) -> dict[str, int]:
    """How much of the image each density sees, of networks that take one image or volume."""
    channels, *sides = task.input_shape
    if task.forecasts or task.stacked or len(set(sides)) != 1:
        return {}
    with torch.enable_grad():
        return receptive_fields(model, About(tuple(sides), channels, (), "classes", 0.0, 1.0))


def examples(task: Task, images: Tensor, targets: Tensor) -> list[dict[str, Any]]:
    """Pictures and true answers; of volumes their voxels."""
    chosen = images[:SHOWN].cpu().float()
    low, high = chosen.min(), chosen.max()
    bytes_of = ((chosen - low) / (high - low).clamp_min(1e-9) * 255).round().byte()
    out = []
    for number, (x, target) in enumerate(zip(bytes_of, targets[:SHOWN], strict=True), 1):
        numbers_of = _shares(target[None], task)[0] if _dense(task) else target.reshape(-1)
        true = task.class_names[int(target)] if task.class_names else ", ".join(f"{v:.3g}" for v in numbers_of)
        here: dict[str, Any] = {"name": f"example {number}", "true": true}
        if x.ndim == 3:
            out.append({**here, "src": png(x)})
        else:
            out.append({**here, **_voxels(x[0])})
    return out


def png(pixels: Tensor) -> str:
    """A picture (channels, H, W) of bytes as an address; of two or more than three channels the first."""
    from PIL import Image

    grid = pixels.permute(1, 2, 0).numpy() if len(pixels) == 3 else pixels[0].numpy()
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(grid)).save(buffer, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _dense(task: Task) -> bool:
    return task.target is not None and task.target.output == "dense"


def _shares(masks: Tensor, task: Task) -> Tensor:
    """How much of each example is of each class, (B, …) → (B, classes)."""
    classes = range(len(task.files.names) if task.files is not None else 0)
    known = (masks >= 0).flatten(1).sum(1)
    return torch.stack([(masks == k).flatten(1).sum(1) / known for k in classes], 1)


def _voxels(volume: Tensor) -> dict[str, Any]:
    most = max(volume.shape)
    around = [half for n in reversed(volume.shape) for half in ((most - n) // 2, (most - n + 1) // 2)]
    volume = nn.functional.pad(volume, around, value=int(volume.min()))  # the page turns cubes
    side = min(most, FINEST)
    small = nn.functional.adaptive_avg_pool3d(volume[None].float(), side)[0].round().byte()
    return {"voxels": base64.b64encode(small.numpy().tobytes()).decode(), "side": side}


@torch.no_grad()
def answers(model: nn.Module, task: Task, images: Tensor, elements: Elements) -> dict[str, Any]:
    """What a network answers to transformed examples, (examples, elements, …): classes and percents, or numbers."""
    shown = images[:SHOWN]
    matrices = torch.tensor(elements.matrices)
    said = torch.stack([_said(model, task, transform(shown, element)) for element in matrices], 1)
    if task.class_names is None:
        return {"values": [numbers(row.flatten().numpy()) for row in said.cpu()]}
    top = said.softmax(-1).topk(min(TOP, said.shape[-1]), -1)
    percents = (100 * top.values).round().int()
    return {"classes": top.indices.flatten(1).tolist(), "percents": percents.flatten(1).tolist()}


def _said(model: nn.Module, task: Task, x: Tensor) -> Tensor:
    """What a network answers, (B, T): of labels probabilities, of masks the shares of the classes."""
    said = model(x).float()
    if _dense(task):
        return _shares(said.argmax(1), task)
    return said.sigmoid() if task.files is not None and task.files.kind == "labels" else said


def tried(
    networks: Mapping[str, tuple[Task, nn.Module]], images: Tensor, targets: Tensor, elements: Elements
) -> dict[str, Any]:
    """Examples and the answers of some networks to them at each element."""
    task = next(iter(networks.values()))[0]
    files = task.files
    return {
        "examples": examples(task, images, targets),
        "classes": list(task.class_names or ()),
        "targets": list(files.names) if files is not None and files.kind != "classes" else [],
        "networks": [
            {"label": name, **answers(model, own, images, elements)} for name, (own, model) in networks.items()
        ],
    }


def element_data(elements: Elements) -> dict[str, Any]:
    """For the page."""
    return {
        "group": group_words(elements.group.name),
        "space": elements.matrices.shape[-1] == 3,
        "continuous": elements.group.order is None,
        "axes": list(elements.axes),
        "sides": list(elements.sides),
        "angles": list(elements.angles),
        "matrices": [[round(float(v), 6) for v in matrix.flat] for matrix in elements.matrices],
        "words": elements.words(),
    }


def numbers(values: AnyArray | Sequence[float]) -> list[float | None]:
    """With five digits; JSON has no NaN."""
    return [finite(float(v)) for v in values]


def finite(value: float) -> float | None:
    """A number with five digits, or None."""
    return float(f"{value:.5g}") if np.isfinite(value) else None

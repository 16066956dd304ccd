"""Networks that keep their weights: the same function at first, with densities that may draw it towards symmetry."""

from __future__ import annotations

import copy
import math
from typing import Any, get_args

import numpy as np
from torch import nn

from pscnn._types import Array
from pscnn.groups import Group
from pscnn.kernels import maps_pixels
from pscnn.likelihood import Likelihood
from pscnn.nn._convert._source import NotConvertibleError
from pscnn.nn._pixel_conv import PLAIN, PixelConv

AT_IDENTITY = 0.99
"""Probability of the identity at first. Λ_i is then 0.9886 · 1 over D(4), and the weights are divided by it. Closer to
one, softmax lets hardly any gradient through to the density: at 1 − 10⁻⁶ the KL term would take thousands of steps."""


def keep_weights(model: nn.Module, group: Group, bandlimit: int, density: dict[str, Any]) -> nn.Module:
    """A copy in which convolutions larger than a pixel are ``PixelConv`` layers with the same kernels."""
    if not maps_pixels(group):
        raise ValueError(
            f"convert: weights='keep' needs a group that maps pixels to pixels, such as D(4), C(4) or D(1), got "
            f"{group.name}: other elements would have to move values between pixels, and a kernel's values there are "
            "not known"
        )
    highest = group.max_frequency or 0
    if bandlimit < highest or density.get("lowest") or density.get("keep") or density.get("support"):
        raise ValueError(
            f"convert: weights='keep' needs densities with all irreps of {group.name}, bandlimit={highest} without "
            "lowest, keep and support: the kernels of a plain network have parts of all of them"
        )

    def at_identity(elements: Array) -> Array:
        odds = AT_IDENTITY / (1 - AT_IDENTITY) * max(1, len(elements) - 1)
        return math.log(odds) * (np.abs(elements - group.identity).max(axis=(1, 2)) < 1e-6)

    options = {"initial": at_identity, **density}
    Likelihood(group, highest, **options)  # so that wrong options are not put down to the model
    out, problems, made = copy.deepcopy(model), [], {}
    for name, module in list(out.named_modules()):  # each once, also if it is used under several names
        if not isinstance(module, PLAIN) or math.prod(module.kernel_size) == 1:
            continue
        try:
            if type(module) not in get_args(PLAIN):
                raise ValueError("computes its kernel or its output in a way of its own; convert plain convolutions")
            like: dict[str, Any] = {"device": module.weight.device, "dtype": module.weight.dtype}
            made[module] = PixelConv(module, Likelihood(group, highest, **options, **like))
        except ValueError as error:
            problems.append(f"{name or 'model'} ({type(module).__name__}): {error}")
    if problems:
        raise NotConvertibleError(
            f"convert: the weights of {type(model).__name__} cannot be kept:\n- " + "\n- ".join(problems)
        )
    if not made:
        raise NotConvertibleError(
            f"convert: {type(model).__name__} has no convolution larger than a pixel, in torch.nn modules, whose "
            "kernel could be kept"
        )
    if out in made:
        return made[out]
    for parent in list(out.modules()):
        for name, child in parent._modules.items():  # with those that have another name already
            if child in made:
                parent._modules[name] = made[child]
    return out

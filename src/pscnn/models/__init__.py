"""The paper's networks and every baseline: one architecture per task, methods as ingredients."""

from __future__ import annotations

from typing import Any

from torch import nn as tnn

from pscnn.groups import Group, parse
from pscnn.models._ddmnist import double_digits
from pscnn.models._kit import METHODS, PlainKit, ResidualPathway, SteerableKit, penalty
from pscnn.models._twin import twin

__all__ = ["METHODS", "ResidualPathway", "build", "penalty", "twin"]

NONLINEARITIES = ("gated", "fourier")


def build(
    task: str,
    method: str = "p-scnn",
    group: Group | str = "O(2)",
    *,
    bandlimit: int = 2,
    nonlinearity: str = "gated",
    invariant: bool = True,
    size: int = 56,
    width: float = 1.0,
    classes: int = 100,
    density: dict[str, Any] | None = None,
) -> tnn.Sequential:
    """The network of a task, built with a method.

    Args:
        task: "ddmnist".
        method: "cnn" (plain), "scnn" (fully equivariant), "restricted" (equivariant, then free), "rpp" (residual
            pathway priors) or "p-scnn" (learnt densities).
        group: H, or its name. "cnn" does not use it.
        bandlimit: L of the densities.
        nonlinearity: "gated" or "fourier".
        invariant: Whether the classifier sees invariant features only.
        size: Side length of the images.
        width: Multiplies the numbers of fields; 1 is the paper's network.
        classes: Number of classes.
        density: Further options of ``pscnn.Likelihood``, such as ``{"alignment": "construction"}``.

    Example:
        >>> model = build("ddmnist", method="scnn", group="C4", width=0.2)
        >>> sum(p.numel() for p in model.parameters()) > 1000
        True
    """
    if task != "ddmnist":
        raise ValueError(f"unknown task {task!r}: use 'ddmnist'")
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: use one of {', '.join(METHODS)}")
    if nonlinearity not in NONLINEARITIES:
        raise ValueError(f"unknown nonlinearity {nonlinearity!r}: use one of {', '.join(NONLINEARITIES)}")
    group = parse(group) if isinstance(group, str) else group
    if group.dimension != 2:
        raise ValueError(f"{task} needs a group of the plane, got {group.name}")
    kit: SteerableKit | PlainKit
    if method == "cnn":
        kit = PlainKit(2, channels=1)
    else:
        kit = SteerableKit(method, group, bandlimit, nonlinearity, 1, density or {})
    return double_digits(kit, size=size, width=width, classes=classes, invariant=invariant)

"""What can be taken from the paper's released code instead of ours, by name; and the two terms of the loss among it."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from pscnn._regularization import Regularization, likelihoods, regularization

SWITCHES = ("sampling", "alignment", "first-kl", "gate-bias", "statistics", "basis", "artefact", "overlap")
"""Densities, losses, network, data; ``docs/reproduce.md`` says what each is."""


def parse_switches(text: str) -> tuple[str, ...]:
    """Names from a list such as "basis, overlap", in the order of ``SWITCHES``; "all" stands for all of them.

    Example:
        >>> parse_switches("overlap,basis")
        ('basis', 'overlap')
    """
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    unknown = [name for name in names if name not in (*SWITCHES, "all")]
    if unknown:
        raise ValueError(f"released must list some of {', '.join(SWITCHES)}, or be 'all', got {unknown[0]!r}")
    return tuple(name for name in SWITCHES if name in names or "all" in names)


def regularization_with(switches: Collection[str], model: nn.Module, *, uniform_first: bool) -> Regularization:
    """Alignment error and KL divergence, as the released code has them where switched.

    With "alignment", the error is that of the logits, summed: Σ max f − f(e) over all densities. With "first-kl", the
    KL divergence of the first density to the uniform one joins, and all terms are divided by the number of densities;
    with one term each, that is their mean.
    """
    found = regularization(model, uniform_first=uniform_first or "first-kl" in switches)
    return found._replace(alignment=logit_alignment(model)) if "alignment" in switches else found


def logit_alignment(model: nn.Module) -> Tensor:
    """Σ max f − f(e), the maximum over the grid and the points near the identity."""
    logits = [likelihood.logits() for likelihood in likelihoods(model).values()]
    return torch.stack([f.max() - f[-1] for f in logits]).sum()

"""The two terms that keep learnt densities readable."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._types import Array
from pscnn._words import short
from pscnn.likelihood import Likelihood
from pscnn.nn import SteerableMap

LikelihoodOrName = Likelihood | str


class Regularization(NamedTuple):
    """Differentiable scalars.

    Attributes:
        alignment: Mean over the distinct densities of max λ − λ(e).
        kl: Mean over pairs of consecutive densities of KL(λ_{n+1} ‖ λ_n).
    """

    alignment: Tensor
    kl: Tensor


def likelihoods(model: nn.Module) -> dict[str, Likelihood]:
    """The distinct densities of a model in module order, each under the name of the first layer that has it."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, got {short(model)}")
    out: dict[str, Likelihood] = {}
    for name, module in model.named_modules():  # yields each object once
        if isinstance(module, Likelihood):
            out[name.removesuffix(".likelihood") or name] = module
    return out


def parameter_groups(model: nn.Module, weight_decay: float = 0.0, **densities: Any) -> list[dict[str, Any]]:
    """Parameters for an optimiser: weight decay spares those of densities, which it would pull to the uniform one.

    Args:
        model: Any module.
        weight_decay: Of all other parameters.
        densities: What else is different for densities, such as their learning rate.

    Example:
        >>> from pscnn import FieldType, nn as pnn
        >>> from pscnn.groups import O2
        >>> fields = FieldType(O2(), [O2().vector])
        >>> model = pnn.Linear(fields, fields, likelihood=Likelihood(O2()))
        >>> optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.05, lr=0.01), lr=0.001)
        >>> [(group["weight_decay"], group["lr"]) for group in optimizer.param_groups]
        [(0.05, 0.001), (0.0, 0.01)]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, got {short(model)}")
    spared = [p for module in model.modules() if not getattr(module, "decays", True) for p in module.parameters(False)]
    known = {id(p) for p in spared}
    groups = [{"params": [p for p in model.parameters() if id(p) not in known], "weight_decay": weight_decay}]
    return [*groups, {"params": spared, "weight_decay": 0.0, **densities}] if spared else groups


def align(model: nn.Module) -> dict[str, Array]:
    """Put the peak of every density at the identity, exactly, without changing the function of the network.

    A layer depends on its density only through Λ_i w. Shifting the density, λ'(g) = λ(g·h), replaces Λ_i by
    Λ_i ψ_i(h)⁻¹; transforming the weights, w' = ψ_i(h) w, compensates for it. So a density is determined only up to
    such a shift, and the one with the peak at the identity is always available: no loss is needed for it. Densities
    aligned by construction are not changed.

    Args:
        model: Any module; it is changed in place. Call this after training, or between epochs.

    Returns:
        For each density, where its peak was, (n, n).

    Example:
        >>> from pscnn import FieldType, nn as pnn
        >>> from pscnn.groups import SO2
        >>> H = SO2()
        >>> fields = FieldType(H, [H.vector])
        >>> layer = pnn.Linear(fields, fields, likelihood=Likelihood(H, 2, initial=lambda g: g[:, 1, 0]))
        >>> before = layer.kernel()
        >>> align(layer)["likelihood"].round(3)  # the logits sin θ have their peak at 90°
        array([[ 0., -1.],
               [ 1.,  0.]])
        >>> torch.allclose(layer.kernel(), before, atol=1e-6)
        True
    """
    peaks = {}
    for name, likelihood in likelihoods(model).items():
        element = likelihood.group.identity if likelihood.alignment == "construction" else likelihood.peak()
        if not np.allclose(element, likelihood.group.identity, atol=1e-9):
            likelihood.translate(element)
            for module in model.modules():
                if isinstance(module, SteerableMap) and module.likelihood is likelihood:
                    module.translate(element)
        peaks[name] = element
    return peaks


def regularization(
    model: nn.Module,
    pairs: Iterable[tuple[LikelihoodOrName, LikelihoodOrName | None]] | None = None,
    *,
    uniform_first: bool = False,
) -> Regularization:
    """Alignment error and KL divergence of a model's densities (paper, Eqs. 13, 16 and Appendix E.3).

    Args:
        model: Any module with ``Likelihood`` objects in it; a shared one counts once.
        pairs: Which KL(a ‖ b) to average, each side a ``Likelihood`` or the name of a layer; b = None is the uniform
            density, and no gradient flows to b. By default all consecutive densities over one group, in module order.
        uniform_first: Include the KL divergence of the first density from the uniform one in the default pairs.

    Example:
        >>> from pscnn.groups import SO2
        >>> model = nn.ModuleList([Likelihood(SO2()), Likelihood(SO2())])
        >>> terms = regularization(model)
        >>> terms.alignment.item(), terms.kl.item()
        (0.0, 0.0)
    """
    found = likelihoods(model)
    ordered = list(found.values())
    if not ordered:
        parameter = next(model.parameters(), torch.zeros(()))
        zero = torch.zeros((), device=parameter.device, dtype=parameter.dtype)
        return Regularization(zero, zero)
    if (
        pairs is None
        and not uniform_first
        and len(ordered) > 1
        and all(lam.logit_matrix is ordered[0].logit_matrix for lam in ordered)
    ):
        return _batched(ordered)
    if pairs is None:
        chosen: list[tuple[Likelihood, Likelihood | None]] = [(ordered[0], None)] if uniform_first else []
        for earlier, later in pairwise(ordered):
            if earlier.group == later.group and earlier.support == later.support:
                chosen.append((later, earlier))
    else:
        chosen = [(_find(a, found), None if b is None else _find(b, found)) for a, b in pairs]
    alignment = torch.stack([lam.alignment_error() for lam in ordered]).mean()
    kl = torch.stack([a.kl(b) for a, b in chosen]).mean() if chosen else torch.zeros_like(alignment)
    return Regularization(alignment, kl)


def _batched(ordered: list[Likelihood]) -> Regularization:
    """The same two means for densities on one grid, a dozen operations for all of them instead of for each."""
    first = ordered[0]
    with torch.autocast(first.coefficients.device.type, enabled=False):
        coefficients = torch.stack([lam.logit_coefficients() for lam in ordered])
        logits = (coefficients[:, None] * first.logit_matrix).sum(2)
        on_grid = logits[:, : len(first.log_weights)]
        weighted = on_grid + first.log_weights
        log_z = torch.logsumexp(weighted, 1, keepdim=True)
        density = torch.exp(logits - log_z)
        alignment = (density.amax(1) - density[:, -1]).mean()
        log_density = on_grid - log_z
        ratio = log_density[1:] - log_density[:-1].detach()
        kl = (torch.softmax(weighted[1:], 1) * ratio).sum(1).mean()
    return Regularization(alignment, kl)


def _find(which: LikelihoodOrName, found: dict[str, Likelihood]) -> Likelihood:
    if isinstance(which, Likelihood):
        return which
    if which not in found:
        raise ValueError(f"regularization: no density named {which!r}; the model has {', '.join(found) or 'none'}")
    return found[which]

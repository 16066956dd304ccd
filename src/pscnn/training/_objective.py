"""What is minimised, and by what: one objective and one optimiser for everything that is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pscnn import models
from pscnn.densities import Regularization, regularization
from pscnn.training._settings import Settings
from pscnn.training._task import Task


@dataclass(frozen=True)
class Objective:
    """L = task + α_align · alignment + α_KL · KL (+ penalty of the method's own) (paper, Appendix F.4).

    Attributes:
        align_weight: α_align.
        kl_weight: α_KL.
        regularization: Gives the alignment error and the KL divergence of a network with densities.
        square_penalty: Whether the penalty enters squared.
    """

    align_weight: float
    kl_weight: float
    regularization: Callable[[nn.Module], Regularization] = regularization
    square_penalty: bool = False

    @classmethod
    def of(cls, task: Task) -> Objective:
        """The objective of a task's settings; exactly aligned densities need no loss for it."""
        settings = task.settings
        align_weight = settings.align_weight if settings.alignment == "soft" else 0.0
        return cls(align_weight, settings.kl_weight, task.regularization, task.square_penalty)

    def __call__(self, model: nn.Module, task: Tensor, *, densities: bool) -> dict[str, Tensor]:
        """The loss and its terms.

        Args:
            model: The network.
            task: Its loss on a batch.
            densities: Whether the network has any; a compiler need not look.
        """
        terms, total = {"task": task}, task
        if densities:
            terms["alignment"], terms["kl"] = self.regularization(model)
            total = total + self.kl_weight * terms["kl"]
            if self.align_weight:
                total = total + self.align_weight * terms["alignment"]
        penalty = models.penalty(model)
        if penalty is not None:
            terms["penalty"] = penalty.square() if self.square_penalty else penalty
            total = total + terms["penalty"]
        return {"loss": total, **terms}


def make_optimizer(
    densities: Iterable[Tensor], others: Iterable[Tensor], settings: Settings, *, adamw: bool, fused: bool = False
) -> torch.optim.Optimizer:
    """Adam, as in the paper; weight decay spares the densities, which it would pull to the uniform one."""
    groups: list[dict[str, Any]] = [{"params": list(others), "weight_decay": settings.weight_decay}]
    spared = list(densities)
    if spared:
        groups.append({"params": spared, "weight_decay": 0.0})
    make = torch.optim.AdamW if adamw else torch.optim.Adam
    return make(groups, lr=settings.lr, fused=fused or None)

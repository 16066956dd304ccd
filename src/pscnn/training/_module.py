"""The training step: task loss, alignment error, KL divergence, and the priors of residual pathways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassConfusionMatrix

from pscnn import models
from pscnn._regularization import align, likelihoods, regularization
from pscnn.training._config import Config


class Classification(lightning.LightningModule):
    """L = cross-entropy + α_align · alignment + α_KL · KL (+ penalty of the residual pathways) (paper, Appendix F.4).

    Args:
        config: The run's settings.
    """

    class_weights: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = config.build()
        self.accuracy = MulticlassAccuracy(config.classes, average="micro")
        self.confusion = MulticlassConfusionMatrix(config.classes)
        self.auc = MulticlassAUROC(config.classes) if config.dimension == 3 else None
        self.register_buffer("class_weights", torch.ones(config.classes), persistent=False)
        self._compiled: Callable[..., dict[str, Tensor]] | None = None
        self._totals: Tensor | None = None
        self._images = 0

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        return self.model(x)

    def objective(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The loss and its terms."""
        scores = self.model(x)
        terms = {"task": F.cross_entropy(scores.float(), y, self.class_weights if self.config.balanced else None)}
        total = terms["task"]
        if self.config.method == "p-scnn":
            terms["alignment"], terms["kl"] = regularization(self.model, uniform_first=self.config.uniform_first)
            total = total + self.config.kl_weight * terms["kl"]
            if self.config.alignment == "soft":
                total = total + self.config.align_weight * terms["alignment"]
        penalty = models.penalty(self.model)
        if penalty is not None:
            terms["penalty"] = penalty
            total = total + penalty
        return {"loss": total, **terms}

    def on_train_epoch_start(self) -> None:
        """Start averaging anew."""
        self._totals, self._images = None, 0

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """One step of the objective."""
        x, y = batch
        objective = self.objective
        # A smaller last batch would be compiled once more, for any size, and slow down the others.
        if self.config.compile and len(y) == self.config.batch_size:
            # The whole objective, not only the network: the densities are many small operations, and on a GPU
            # CUDA graphs launch them at once.
            self._compiled = self._compiled or torch.compile(self.objective, mode="reduce-overhead", dynamic=False)
            objective = self._compiled
        values = objective(x, y)
        self._count(values, len(y))
        return values["loss"]

    def _count(self, values: dict[str, Tensor], images: int) -> None:
        """Average over the epoch here: Lightning's own averages cost more than a small network's step."""
        stacked = torch.stack([value.detach() for value in values.values()]) * images
        self._totals = stacked if self._totals is None else self._totals + stacked
        self._images += images
        if self.trainer.is_last_batch:
            means = (self._totals / self._images).unbind()
            names = [f"train/{name}" for name in values]
            self.log_dict(
                dict(zip(names, means, strict=True)), on_step=False, on_epoch=True, batch_size=1, sync_dist=True
            )

    def _evaluate(self, batch: tuple[Tensor, Tensor], split: str) -> Tensor:
        x, y = batch
        scores = self.model(x).float()
        self.accuracy(scores, y)
        self.log(f"{split}/accuracy", self.accuracy, on_step=False, on_epoch=True)
        self.log(f"{split}/loss", F.cross_entropy(scores, y), on_epoch=True, batch_size=len(y), sync_dist=True)
        return scores

    def on_validation_start(self) -> None:
        """Before the epoch's network is judged and saved, move its densities; its answers stay the same."""
        if self.config.alignment == "exact":
            align(self.model)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Accuracy and loss."""
        self._evaluate(batch, "validation")

    def on_test_start(self) -> None:
        """Start counting anew."""
        self.confusion.reset()
        if self.auc is not None:
            self.auc.reset()

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Accuracy, loss and the confusion matrix."""
        scores = self._evaluate(batch, "test")
        self.confusion.update(scores, batch[1])
        if self.auc is not None:
            self.auc.update(scores, batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, as in the paper; weight decay spares the densities, which it would pull to the uniform one."""
        fused: dict[str, Any] = {"fused": True} if self.device.type == "cuda" else {}
        densities = [p for lam in likelihoods(self.model).values() for p in lam.parameters()]
        others = [p for p in self.parameters() if all(p is not q for q in densities)]
        groups = [{"params": others, "weight_decay": self.config.weight_decay}]
        if densities:
            groups.append({"params": densities, "weight_decay": 0.0})
        return torch.optim.AdamW(groups, lr=self.config.lr, **fused)

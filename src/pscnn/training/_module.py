"""The training step: task loss, alignment error, KL divergence, and the priors of residual pathways."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassConfusionMatrix

from pscnn import models
from pscnn.densities import align, likelihoods
from pscnn.nn import expand_once
from pscnn.training._config import Config, DoubleDigitConfig, FlowConfig, OwnConfig
from pscnn.training._released import regularization_with


class Learner(lightning.LightningModule):
    """L = task + α_align · alignment + α_KL · KL (+ penalty of the method's own) (paper, Appendix F.4).

    Args:
        config: The run's settings.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = config.build()
        self._compiled: Callable[..., dict[str, Tensor]] | None = None
        self._totals: Tensor | None = None
        self._images = 0

    def forward(self, x: Tensor) -> Tensor:
        """What the network says."""
        return self.model(x)

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """How wrong the network is about a batch."""
        raise NotImplementedError

    def results(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """What a test found, from what it logged."""
        raise NotImplementedError

    def objective(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The loss and its terms."""
        terms = {"task": self.task_loss(x, y)}
        total = terms["task"]
        if self.config.method == "p-scnn":
            switches = self.config.switches if isinstance(self.config, DoubleDigitConfig) else ()
            terms["alignment"], terms["kl"] = regularization_with(
                switches, self.model, uniform_first=self.config.uniform_first
            )
            total = total + self.config.kl_weight * terms["kl"]
            if self.config.alignment == "soft":
                total = total + self.config.align_weight * terms["alignment"]
        penalty = models.penalty(self.model)
        if penalty is not None:
            terms["penalty"] = penalty.square() if self.config.square_penalty else penalty
            total = total + terms["penalty"]
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

    def on_validation_start(self) -> None:
        """Before the epoch's network is judged and saved, move its densities; its answers stay the same."""
        if self.config.alignment == "exact":
            align(self.model)

    def configure_optimizers(self) -> Any:
        """Adam, as in the paper; weight decay spares the densities, which it would pull to the uniform one."""
        config = self.config
        fused: dict[str, Any] = {"fused": True} if self.device.type == "cuda" else {}
        densities = [p for lam in likelihoods(self.model).values() for p in lam.parameters()]
        others = [p for p in self.parameters() if all(p is not q for q in densities)]
        groups = [{"params": others, "weight_decay": config.weight_decay}]
        if densities:
            groups.append({"params": densities, "weight_decay": 0.0})
        make = torch.optim.AdamW if config.decoupled_decay else torch.optim.Adam
        optimizer = make(groups, lr=config.lr, **fused)
        if config.lr_decay == 1:
            return optimizer
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, config.lr_decay)]


class Classification(Learner):
    """Cross-entropy, judged by accuracy; in space by the area under the curve too."""

    class_weights: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.accuracy, self.other_accuracy = (MulticlassAccuracy(config.classes, average="micro") for _ in range(2))
        self.confusion = MulticlassConfusionMatrix(config.classes)
        self.auc = MulticlassAUROC(config.classes) if config.dimension == 3 else None
        self.register_buffer("class_weights", torch.ones(config.classes), persistent=False)

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of the class scores."""
        return F.cross_entropy(self.model(x).float(), y, self.class_weights if self.config.balanced else None)

    def results(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Accuracy, loss, and the area under the curve."""
        found = {"test_accuracy": metrics["test/accuracy"], "test_loss": metrics["test/loss"]}
        if "other" in self.config.tests:
            found["other_accuracy"] = metrics["other/accuracy"]
        return found if self.auc is None else {**found, "test_auc": self.auc.compute().item()}

    def _evaluate(self, batch: tuple[Tensor, Tensor], split: str) -> Tensor:
        x, y = batch
        scores = self.model(x).float()
        accuracy = self.other_accuracy if split == "other" else self.accuracy
        accuracy(scores, y)
        loss = F.cross_entropy(scores, y)
        self.log(f"{split}/accuracy", accuracy, on_step=False, on_epoch=True, add_dataloader_idx=False)
        self.log(f"{split}/loss", loss, on_epoch=True, batch_size=len(y), sync_dist=True, add_dataloader_idx=False)
        return scores

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Accuracy and loss."""
        self._evaluate(batch, "validation")

    def on_test_start(self) -> None:
        """Start counting anew."""
        self.confusion.reset()
        if self.auc is not None:
            self.auc.reset()

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        """Accuracy, loss and the confusion matrix; of another split, the accuracy."""
        scores = self._evaluate(batch, self.config.tests[dataloader_idx])
        if dataloader_idx > 0:
            return
        self.confusion.update(scores, batch[1])
        if self.auc is not None:
            self.auc.update(scores, batch[1])


class Regression(Learner):
    """Numbers; errors are measured in standard deviations of the training targets."""

    deviations: Tensor

    def __init__(self, config: OwnConfig) -> None:
        super().__init__(config)
        self.register_buffer("deviations", torch.tensor(config.holds.deviations), persistent=False)

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean square error."""
        return ((self.model(x).float() - y) / self.deviations).square().mean()

    def _evaluate(self, batch: tuple[Tensor, Tensor], split: str) -> None:
        self.log(f"{split}/mse", self.task_loss(*batch), on_epoch=True, batch_size=len(batch[1]), sync_dist=True)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """The mean square error."""
        self._evaluate(batch, "validation")

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """The mean square error."""
        self._evaluate(batch, "test")

    def results(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The root mean square error."""
        return {"test_rmse": math.sqrt(metrics["test/mse"])}


class Forecasting(Learner):
    """A network that continues a flow frame by frame, from its own frames; judged by the root of the mean square error.

    The loss is the sum over the steps of each step's mean square error, and gradients flow through all of them.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.tested: dict[str, list[Tensor]] = {}

    def forecast(self, past: Tensor, steps: int) -> Tensor:
        """Frames after the given ones, (B, steps, 2, H, W); past frames are channels, (B, 20, H, W)."""
        return roll_out(self.model, past, steps)

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum over the steps."""
        return (self.forecast(x, y.shape[1]) - y).square().mean((0, 2, 3, 4)).sum()

    def _evaluate(self, batch: tuple[Tensor, Tensor], split: str) -> Tensor:
        """Log the mean square error; that of every window and step."""
        x, y = batch
        errors = (self.forecast(x, y.shape[1]).float() - y).square().mean((2, 3, 4))
        mse = errors.mean()
        self.log(f"{split}/mse", mse, on_epoch=True, batch_size=len(x), sync_dist=True, add_dataloader_idx=False)
        return errors

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """The error over as many steps as in training."""
        self._evaluate(batch, "validation")

    def on_test_start(self) -> None:
        """Start counting anew."""
        self.tested = {split: [] for split in self.config.tests}

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        """The error over a long forecast, of later times and of other runs."""
        split = self.config.tests[dataloader_idx]
        self.tested[split].append(self._evaluate(batch, split))

    def results(self, metrics: Mapping[str, float]) -> dict[str, Any]:
        """The root mean square errors, over all steps and of each."""
        out: dict[str, Any] = {f"{split}_rmse": math.sqrt(metrics[f"{split}/mse"]) for split in self.config.tests}
        for split, batches in self.tested.items():
            out[f"{split}_rmse_by_step"] = [round(v, 4) for v in torch.cat(batches).mean(0).sqrt().tolist()]
        return out


def roll_out(model: nn.Module, past: Tensor, steps: int) -> Tensor:
    """Let a network see its own frames: the oldest is dropped, what it said is appended.

    Args:
        model: From (B, 20, H, W) to (B, 2, H, W).
        past: (B, 20, H, W).
        steps: How many frames.

    Returns:
        (B, steps, 2, H, W).
    """
    frames = []
    # A compiler sees for itself that kernels are the same in every step.
    once = contextlib.nullcontext() if torch.compiler.is_compiling() else expand_once(model)
    with once:
        for _ in range(steps):
            frames.append(model(past))
            past = torch.cat([past[:, 2:], frames[-1].to(past.dtype)], 1)
    return torch.stack(frames, 1)


def learner(config: Config) -> Learner:
    """What a configuration trains."""
    if isinstance(config, OwnConfig) and config.holds.regression:
        return Regression(config)
    return (Forecasting if isinstance(config, FlowConfig) else Classification)(config)

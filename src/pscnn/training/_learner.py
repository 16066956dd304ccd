"""What trains and tests a network with Lightning, and feeds it: rows travel to the device, examples are made there."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassConfusionMatrix

from pscnn.data import SPLITS
from pscnn.densities import align, likelihoods
from pscnn.training._graph import GraphedStep, prepare, set_rate
from pscnn.training._run import renamed, set_precision
from pscnn.training._settings import rate
from pscnn.training._task import Objective, Task, make_optimizer


class Learner(lightning.LightningModule):
    """Minimises the objective of a task; subclasses say how wrong a network is, and what a test measures.

    Args:
        task: With the run's settings.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task, self.settings = task, task.settings
        self.model = task.build()
        self._objective, self._densities = Objective.of(task), bool(likelihoods(self.model))
        self._compiled: Callable[..., dict[str, Tensor]] | None = None
        self._graphed: GraphedStep | None = None
        self._totals: Tensor | None = None
        self._images = 0
        self._average: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        """What the network says."""
        return self.model(x)

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """How wrong the network is about a batch."""
        raise NotImplementedError

    def evaluate(self, batch: tuple[Tensor, Tensor], split: str) -> None:
        """Log how good the network is on a batch that it does not learn from."""
        raise NotImplementedError

    def results(self, metrics: Mapping[str, float]) -> dict[str, Any]:
        """What a test measured, from what it logged."""
        raise NotImplementedError

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """A batch of the validation split."""
        self.evaluate(batch, "validation")

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
        """A batch of one of the splits to test on."""
        self.evaluate(batch, self.task.tests[dataloader_idx])

    def objective(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """The loss and its terms."""
        return self._objective(self.model, self.task_loss(x, y), densities=self._densities)

    def on_train_start(self) -> None:
        """On a GPU, whole steps are recorded and replayed, unless they are compiled or shared by processes."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)
        graphed = self.device.type == "cuda" and self.trainer.world_size == 1 and not self.settings.compile
        prepare(optimizer, self.device if graphed else None)
        # A checkpoint is read before the network is on its device.
        self._average = {name: value.to(self.device) for name, value in self._average.items()}
        if graphed:
            self._graphed = GraphedStep(self.objective, optimizer, self.settings.precision == "bf16")

    def on_train_end(self) -> None:
        """Give the memory of the recordings back."""
        self._graphed = None

    # A recorded step has done all that Lightning would do after the objective.

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Update the weights, unless the step has done so."""
        if self._graphed is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        else:
            optimizer_closure()

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        """Forget the gradients, unless the step has used them."""
        if self._graphed is None:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Calculate the gradients, unless the step has done so."""
        if self._graphed is None:
            super().backward(loss, *args, **kwargs)

    def on_train_epoch_start(self) -> None:
        """Start averaging anew, with the precision of the run also in processes that were started for it."""
        set_precision(self.settings.precision)
        self._totals, self._images = None, 0

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """One step of the objective."""
        x, y = batch
        objective = self.objective
        # A smaller last batch would be compiled once more, for any size, and slow down the others.
        if self.settings.compile and len(y) == self.settings.batch_size:
            # The whole objective, not only the network: the densities are many small operations, and on a GPU
            # CUDA graphs launch them at once.
            self._compiled = self._compiled or torch.compile(self.objective, mode="reduce-overhead", dynamic=False)
            objective = self._compiled
        values = objective(x, y) if self._graphed is None else self._graphed(x, y)
        # Averaged over the epoch here: Lightning's own averages cost more than a small network's step.
        stacked = torch.stack([value.detach() for value in values.values()]) * len(y)
        self._totals = stacked if self._totals is None else self._totals + stacked
        self._images += len(y)
        if self.trainer.is_last_batch:
            means = dict(zip([f"train/{name}" for name in values], self._totals / self._images, strict=True))
            self.log_dict(means, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)
        return values["loss"]

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Set the learning rate of the step: the only place that does."""
        steps = self.settings.epochs * int(self.trainer.num_training_batches)  # also of a run that is stopped earlier
        set_rate(self.trainer.optimizers[0], rate(self.settings, self.trainer.global_step, steps))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Let the average follow the weights, faster in the first steps."""
        if not self.settings.average:
            return
        weights, step = self._weights(), self.trainer.global_step
        self._average = self._average or {name: torch.clone(weight) for name, weight in weights.items()}
        kept = min(self.settings.average, (1 + step) / (10 + step))
        torch._foreach_lerp_([*self._average.values()], [*weights.values()], 1 - kept)

    def _weights(self) -> dict[str, Tensor]:
        """What is averaged: all that a checkpoint has of the network and that is no counter."""
        return {name: value for name, value in self.model.state_dict().items() if value.is_floating_point()}

    def _exchange(self) -> None:
        """The weights for their average, or back; in place, since what was compiled knows where they are."""
        for name, weight in self._weights().items():
            kept = torch.clone(weight)
            weight.copy_(self._average[name])
            self._average[name].copy_(kept)

    def on_validation_start(self) -> None:
        """Before the epoch's network is judged and saved, move its densities; its answers stay the same."""
        if self.settings.alignment == "exact":
            align(self.model)
        if self._average:
            self._exchange()

    def on_validation_end(self) -> None:
        """Training goes on with the weights themselves."""
        if self._average:
            self._exchange()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The network of a checkpoint is the one that is tested; to go on, on any device, that before averaging."""
        for state in checkpoint.get("optimizer_states", ()):
            for group in state["param_groups"]:
                group["lr"], group["capturable"] = float(group["lr"]), False
        if not self._average:
            return
        if "optimizer_states" in checkpoint:
            checkpoint["trained"] = checkpoint["state_dict"]
        average = {f"model.{name}": value for name, value in self._average.items()}
        checkpoint["state_dict"] = {**checkpoint["state_dict"], **average}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take both apart again."""
        for part in {"state_dict", "trained"} & checkpoint.keys():
            checkpoint[part] = renamed(checkpoint[part], self.state_dict())
        if "trained" in checkpoint:
            self._average = {name: checkpoint["state_dict"][f"model.{name}"] for name in self._weights()}
            checkpoint["state_dict"] = checkpoint.pop("trained")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimiser."""
        densities = [p for lam in likelihoods(self.model).values() for p in lam.parameters()]
        others = [p for p in self.parameters() if all(p is not q for q in densities)]
        fused = self.device.type == "cuda"
        return make_optimizer(densities, others, self.settings, adamw=self.task.adamw, fused=fused)


class Classification(Learner):
    """Cross-entropy, judged by accuracy; where the task says so, by the area under the curve, too."""

    class_weights: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        classes = len(task.class_names or ())
        self.accuracy, self.other_accuracy = (MulticlassAccuracy(classes, average="micro") for _ in range(2))
        self.confusion = MulticlassConfusionMatrix(classes)
        self.auc = MulticlassAUROC(classes) if "test_auc" in task.scores else None
        self.register_buffer("class_weights", torch.ones(classes), persistent=False)

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of the class scores."""
        weights = self.class_weights if self.settings.balanced else None
        smoothing = self.settings.label_smoothing
        return F.cross_entropy(self.model(x).float(), y, weights, label_smoothing=smoothing)

    def results(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Accuracy, loss, and the area under the curve."""
        found = {"test_accuracy": metrics["test/accuracy"], "test_loss": metrics["test/loss"]}
        if "other" in self.task.tests:
            found["other_accuracy"] = metrics["other/accuracy"]
        return found if self.auc is None else {**found, "test_auc": self.auc.compute().item()}

    def on_test_start(self) -> None:
        """Start counting anew."""
        self.confusion.reset()
        if self.auc is not None:
            self.auc.reset()

    def evaluate(self, batch: tuple[Tensor, Tensor], split: str) -> None:
        """Accuracy and loss; of the test that counts, the confusion matrix and the area under the curve."""
        x, y = batch
        scores = self.model(x).float()
        accuracy = self.other_accuracy if split == "other" else self.accuracy
        accuracy(scores, y)
        loss = F.cross_entropy(scores, y)
        self.log(f"{split}/accuracy", accuracy, on_step=False, on_epoch=True, add_dataloader_idx=False)
        self.log(f"{split}/loss", loss, on_epoch=True, batch_size=len(y), sync_dist=True, add_dataloader_idx=False)
        if split == self.task.tests[0]:
            self.confusion.update(scores, y)
            if self.auc is not None:
                self.auc.update(scores, y)


class Regression(Learner):
    """Numbers; errors are measured in standard deviations of the training targets."""

    deviations: Tensor

    def __init__(self, task: Task, deviations: Sequence[float]) -> None:
        super().__init__(task)
        self.register_buffer("deviations", torch.tensor(deviations), persistent=False)

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean square error."""
        return ((self.model(x).float() - y) / self.deviations).square().mean()

    def evaluate(self, batch: tuple[Tensor, Tensor], split: str) -> None:
        """The mean square error."""
        self.log(f"{split}/mse", self.task_loss(*batch), on_epoch=True, batch_size=len(batch[1]), sync_dist=True)

    def results(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The root mean square error."""
        return {"test_rmse": math.sqrt(metrics["test/mse"])}


Rows = tuple[str, Tensor, int]
"""What travels to the device: the split, row numbers, and the seed of their augmentation."""


class _Batches(Sampler[Rows]):
    """Batches of row numbers with seeds, which depend on seed and epoch alone, so that resuming changes nothing.

    In distributed training every process takes its share of each batch's rows. Training rows come in as many random
    orders, one after the other, as an epoch has passes.
    """

    def __init__(
        self, split: str, rows: int, batch_size: int, seed: int, rank: int, processes: int, passes: int = 1
    ) -> None:
        self.split, self.rows, self.batch_size, self.seed = split, rows, batch_size, seed
        self.rank, self.processes, self.epoch = rank, processes, 0
        self.passes = passes if split == "train" else 1

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = epoch if self.split == "train" else 0

    def __len__(self) -> int:
        return -(-self.passes * self.rows // (self.batch_size * self.processes))

    def __iter__(self) -> Iterator[Rows]:
        order = torch.arange(self.rows)
        number = SPLITS.index(self.split) if self.split in SPLITS else SPLITS.index("test")
        stream = 1_000_003 * (number + len(SPLITS) * self.seed) + self.epoch
        if self.split == "train":
            generator = torch.Generator().manual_seed(stream)
            order = torch.cat([torch.randperm(self.rows, generator=generator) for _ in range(self.passes)])
        for number, batch in enumerate(order.split(self.batch_size * self.processes)):
            least = 2 * self.processes  # batch statistics need two rows in every process
            if len(batch) < least and self.split == "train":
                batch = torch.cat([batch, order])[:least]
            elif len(batch) < self.processes:
                batch = batch.repeat(self.processes)[: self.processes]
            seed = (1_000_003 * stream + number) * 1024 + self.rank
            yield self.split, batch[self.rank :: self.processes], seed % 2**63


class _Passing(Dataset[Rows]):
    """Hands on what the sampler gives."""

    def __getitem__(self, item: Rows) -> Rows:
        return item


class Data(lightning.LightningDataModule):
    """The data of a run, loaded once. Whatever is random about training examples is drawn anew each epoch.

    Args:
        task: What to load.
        folder: Data folder.
    """

    def __init__(self, task: Task, folder: str | Path | None = None) -> None:
        super().__init__()
        self.task = task
        self.splits: Mapping[str, Any] = task.load(folder)

    def class_weights(self) -> Tensor:
        """Inverse frequencies of the classes in the training split, 1 on average over its examples."""
        classes = len(self.task.class_names or ())
        counts = self.splits["train"].labels.bincount(minlength=classes)
        return counts.sum() / (classes * counts.clamp(min=1))

    def _loader(self, split: str, batch_size: int) -> DataLoader[Rows]:
        rank = self.trainer.global_rank if self.trainer else 0
        processes = self.trainer.world_size if self.trainer else 1
        own = self.task.settings
        sampler = _Batches(split, len(self.splits[split]), batch_size, own.seed, rank, processes, own.passes)
        return DataLoader(_Passing(), sampler=sampler, batch_size=None)

    def train_dataloader(self) -> DataLoader[Rows]:
        """Batches in a new order each epoch."""
        return self._loader("train", self.task.settings.batch_size)

    def val_dataloader(self) -> DataLoader[Rows]:
        """Batches in order."""
        return self._loader("validation", self.task.evaluation_batch)

    def test_dataloader(self) -> list[DataLoader[Rows]]:
        """Batches in order, of every split to test on."""
        return [self._loader(split, self.task.evaluation_batch) for split in self.task.tests]

    def on_after_batch_transfer(self, batch: Rows, dataloader_idx: int) -> tuple[Tensor, Tensor]:
        """Make the examples, on the device on which the rows have arrived."""
        split, rows, seed = batch
        return self.task.batch(split, self.splits[split], rows, seed)

"""Feeds data to Lightning: row numbers travel to the device, examples are made there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from pscnn.data import SPLITS
from pscnn.training._task import Task

Rows = tuple[str, Tensor, int]
"""What travels to the device: the split, row numbers, and the seed of their augmentation."""


class _Batches(Sampler[Rows]):
    """Batches of row numbers with seeds, which depend on seed and epoch alone, so that resuming changes nothing.

    In distributed training every process takes its share of each batch's rows.
    """

    def __init__(self, split: str, rows: int, batch_size: int, seed: int, rank: int, processes: int) -> None:
        self.split, self.rows, self.batch_size, self.seed = split, rows, batch_size, seed
        self.rank, self.processes, self.epoch = rank, processes, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = epoch if self.split == "train" else 0

    def __len__(self) -> int:
        return -(-self.rows // (self.batch_size * self.processes))

    def __iter__(self) -> Iterator[Rows]:
        order = torch.arange(self.rows)
        number = SPLITS.index(self.split) if self.split in SPLITS else SPLITS.index("test")
        stream = 1_000_003 * (number + len(SPLITS) * self.seed) + self.epoch
        if self.split == "train":
            order = torch.randperm(self.rows, generator=torch.Generator().manual_seed(stream))
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
        sampler = _Batches(split, len(self.splits[split]), batch_size, self.task.settings.seed, rank, processes)
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

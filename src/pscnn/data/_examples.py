"""Examples that lie in memory, whatever they are of."""

from __future__ import annotations

import torch
from torch import Tensor


class Labelled:
    """What is drawn or looked up by row number, with a label for every row."""

    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def _move(self, device: torch.device) -> None:
        """Bring all tensors to a device, once."""
        if self.labels.device != device:
            for name, value in vars(self).items():
                if isinstance(value, Tensor):
                    setattr(self, name, value.to(device))


class Examples(Labelled):
    """Examples of one split.

    Args:
        pixels: (N, …), of any type.
        labels: Classes (N,), or targets (N, T).
    """

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.pixels, self.labels = pixels, labels

    def images(self, rows: Tensor, seed: int) -> Tensor:
        """Some examples as floating-point numbers, on the device of the row numbers; the seed is not used."""
        self._move(rows.device)
        return self.pixels[rows].float()

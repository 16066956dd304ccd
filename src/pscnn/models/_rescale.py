"""From standardised numbers to those of a data set."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch import nn as tnn


class Rescale(tnn.Module):
    """X · deviations + means, the last layer of a regression: a network then works with numbers of order one.

    Args:
        means: Of the training targets.
        deviations: Their standard deviations.

    Shape:
        (B, T) → (B, T).
    """

    means: Tensor
    deviations: Tensor

    def __init__(self, means: Sequence[float], deviations: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("means", torch.tensor(means))
        self.register_buffer("deviations", torch.tensor(deviations))

    def forward(self, x: Tensor) -> Tensor:
        """Undo the standardisation."""
        return x * self.deviations + self.means

"""Examples that lie in memory, whatever they are of."""

from __future__ import annotations

from torch import Tensor


class Examples:
    """Examples of one split.

    Args:
        pixels: (N, …), of any type.
        labels: Classes (N,), or targets (N, T).
    """

    def __init__(self, pixels: Tensor, labels: Tensor) -> None:
        self.pixels, self.labels = pixels, labels

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, rows: Tensor, seed: int) -> Tensor:
        """Some examples as floating-point numbers, on the device of the row numbers.

        Args:
            rows: Indices.
            seed: Not used: nothing is random here.
        """
        if self.pixels.device != rows.device:  # once per device
            self.pixels, self.labels = self.pixels.to(rows.device), self.labels.to(rows.device)
        return self.pixels[rows].float()

"""Examples that lie in memory: with labels, or stretches of simulations as the forecasting literature splits them."""

import torch
from torch import Tensor

from pscnn.models import PAST

STARTS = {"train": range(160), "validation": range(160, 200), "future": range(200, 250), "domain": range(100)}
"""Where windows start, by split; "domain" is of runs that are not trained on."""


class Windows:
    """Stretches of simulations: ten frames to look at, and those that follow.

    Args:
        velocity: All frames, (tasks, time, 2, H, W).
        starts: Numbers t; a window sees the frames t + 2 to t + 11.
    """

    def __init__(self, velocity: Tensor, starts: range) -> None:
        self.velocity, self.starts = velocity, starts

    def __len__(self) -> int:
        return len(self.velocity) * len(self.starts)

    @property
    def most_steps(self) -> int:
        """How many frames follow the last window."""
        return self.velocity.shape[1] - (self.starts[-1] + 2 + PAST)

    def frames(self, rows: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Windows by number.

        Args:
            rows: Which, (B,); the velocities are moved to their device.
            steps: How many frames to predict.

        Returns:
            Past frames as channels, (B, 20, H, W), the x- and y-components of a frame side by side; and what follows,
            (B, steps, 2, H, W). Rows are counted downwards and y points up, as the library's groups act on images.
        """
        if self.velocity.device != rows.device:
            self.velocity = self.velocity.to(rows.device)
        task = rows // len(self.starts)
        first = rows % len(self.starts) + self.starts.start + 2
        times = first[:, None] + torch.arange(PAST + steps, device=rows.device)
        found = self.velocity[task[:, None], times]
        return found[:, :PAST].flatten(1, 2), found[:, PAST:]


def splits(seen: Tensor, unseen: Tensor) -> dict[str, Windows]:
    """Windows of the splits, from the runs to train on and the others, each (tasks, time, 2, H, W)."""
    return {name: Windows(unseen if name == "domain" else seen, starts) for name, starts in STARTS.items()}


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

"""What trains and tests a forecasting network."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pscnn.models import roll_out
from pscnn.training import Learner


class Forecasting(Learner):
    """A network that continues a flow frame by frame, from its own frames; judged by the root of the mean square error.

    The loss is the sum over the steps of each step's mean square error, and gradients flow through all of them.
    """

    def forecast(self, past: Tensor, steps: int) -> Tensor:
        """Frames after the given ones, (B, steps, 2, H, W); past frames are channels, (B, 20, H, W)."""
        return roll_out(self.model, past, steps)

    def task_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum over the steps."""
        return (self.forecast(x, y.shape[1]) - y).square().mean((0, 2, 3, 4)).sum()

    def measure(self, x: Tensor, y: Tensor, split: str) -> dict[str, Tensor]:
        """The mean square error; of tests, that of every window and step is kept, too, with the mean square speed."""
        errors = (self.forecast(x, y.shape[1]).float() - y).square().mean((2, 3, 4))
        if split in self.tested:
            self.tested[split].append(torch.stack([errors, y.square().mean((2, 3, 4))]))
        return {"mse": errors.mean()}

    def results(self, metrics: Mapping[str, float]) -> dict[str, Any]:
        """The root mean square errors, over all steps and of each, and relative to the flows themselves."""
        out: dict[str, Any] = {f"{split}_rmse": math.sqrt(metrics[f"{split}/mse"]) for split in self.task.tests}
        for split, batches in self.tested.items():
            errors, speeds = torch.cat(batches, 1)
            out[f"{split}_rmse_by_step"] = [round(v, 4) for v in errors.mean(0).sqrt().tolist()]
            out[f"{split}_relative"] = (errors.mean() / speeds.mean()).sqrt().item()
        return out

"""A run under way: its steps, the average of its weights, its checkpoints."""

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pscnn import nn
from pscnn.training import _run as files
from pscnn.training._environment import kept_random_state
from pscnn.training._graph import GraphedStep, prepare
from pscnn.training._learner import Data, Learner
from pscnn.training._place import Place
from pscnn.training._run import LAST, RunError
from pscnn.training._task import Metric

Step = Callable[[Tensor, Tensor], dict[str, Tensor]]


class UnderWay:
    """A run under way: what is learnt, with what, and how it went so far."""

    def __init__(self, folder: Path, learner: Learner, place: Place) -> None:
        self.folder, self.learner, self.place = folder, learner, place
        self.settings = learner.settings
        self.optimizer = learner.make_optimizer()
        self.best: float | None = None
        self.history: list[dict[str, Any]] = []
        self._average: dict[str, Tensor] = {}
        files.check_has_network(folder)
        if files.trained_for_a_time(folder):
            raise RunError(f"{folder} was trained for a time and is finished; to test it: pscnn evaluate {folder}")
        if (folder / LAST).exists():
            self._continue(folder / LAST)
        elif (folder / "metrics.jsonl").exists():
            raise RunError(f"{folder} has metrics but no {LAST}: it cannot be continued. Start a new run")

    # -- steps ----------------------------------------------------------------------------------------------------

    def compile_kernels(self, data: Data) -> None:
        """Have all kernels of a GPU compiled, or loaded, at once: by a copy that goes through a step and a test."""
        if self.place.device.type != "cuda" or self.settings.compile:
            return
        x, y = next(data.batches("train", self.place))
        learner = copy.deepcopy(self.learner)
        with nn.compile_ahead(), kept_random_state():
            with self.place.autocast(self.settings.precision):
                loss = learner.train().objective(x, y)["loss"]
            loss.backward()
            with torch.no_grad(), self.place.autocast(self.settings.precision):
                learner.eval().measure(x, y, "validation")

    def make_step(self) -> Step:
        """What does one step, and gives the loss and its terms before it.

        On a GPU it is recorded and replayed, unless it is compiled or shared by processes.
        """
        own = self.settings
        graphed = self.place.device.type == "cuda" and self.place.processes == 1 and not own.compile
        if graphed:
            prepare(self.optimizer, self.place.device)
            return GraphedStep(self.learner.objective, self.optimizer, own.precision == "bf16")
        # The whole objective is compiled, not only the network: the densities are many small operations, and on a GPU
        # CUDA graphs launch them at once.
        compiled: Any = None
        if own.compile:
            torch.compiler.reset()  # compiled code of earlier runs in this process counts against torch's limit
            compiled = torch.compile(self.learner.objective, mode="reduce-overhead", dynamic=False)

        def step(x: Tensor, y: Tensor) -> dict[str, Tensor]:
            # A smaller last batch would be compiled once more, for any size, and slow down the others.
            objective = compiled if compiled is not None and len(y) == own.batch_size else self.learner.objective
            with self.place.autocast(own.precision):
                values: dict[str, Tensor] = objective(x, y)
            self.optimizer.zero_grad(set_to_none=True)
            values["loss"].backward()
            for parameter in self.learner.parameters() if self.place.processes > 1 else ():
                if parameter.grad is not None:
                    self.place.summed(parameter.grad).div_(self.place.processes)
            self.optimizer.step()
            return values

        return step

    def join_statistics(self) -> None:
        """Average the running statistics of normalisations over the processes, which have seen different images."""
        if self.place.processes == 1:
            return
        learnt = dict(self.learner.model.named_parameters())
        for name, value in (*self._weights().items(), *self._average.items()):
            if name not in learnt:
                self.place.summed(value).div_(self.place.processes)

    # -- the average of the weights -------------------------------------------------------------------------------

    def average(self, steps: int) -> None:
        """Let the average follow the weights after so many steps, faster in the first ones."""
        if not self.settings.average:
            return
        weights = self._weights()
        self._average = self._average or {name: torch.clone(weight) for name, weight in weights.items()}
        kept = min(self.settings.average, (1 + steps) / (10 + steps))
        torch._foreach_lerp_([*self._average.values()], [*weights.values()], 1 - kept)

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it the network has its average weights, if there are any."""
        if self._average:
            self._exchange()
        try:
            yield
        finally:
            if self._average:
                self._exchange()

    def _weights(self) -> dict[str, Tensor]:
        """What is averaged: all that a checkpoint has of the network and that is no counter."""
        return {name: value for name, value in self.learner.model.state_dict().items() if value.is_floating_point()}

    def _exchange(self) -> None:
        """The weights for their average, or back; in place, since recorded steps know where they are."""
        for name, weight in self._weights().items():
            kept = torch.clone(weight)
            weight.copy_(self._average[name])
            self._average[name].copy_(kept)

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def save(self, row: dict[str, Any]) -> None:
        """After an epoch: its metrics, the best network so far, and what is needed to go on."""
        self.history.append(row)
        metric = self.learner.task.metric
        trained = {f"model.{name}": value for name, value in self.learner.model.state_dict().items()}
        tested = {**trained, **{f"model.{name}": value for name, value in self._average.items()}}
        if better(row[f"validation/{metric.name}"], self.best, metric):
            self.best = row[f"validation/{metric.name}"]
            files.write_saved(self.folder / files.BEST, {"state_dict": tested})
        state = {"state_dict": tested, "best": self.best, "history": self.history}
        state |= {"optimizer": self.optimizer.state_dict(), **({"trained": trained} if self._average else {})}
        files.write_saved(self.folder / LAST, state)
        files.write_history(self.folder, self.history)  # also in the checkpoint: it can be made again

    def _continue(self, path: Path) -> None:
        """Take up what a checkpoint has: tensors and what happened; all else is in the run's settings."""
        model, own = self.learner.model, self.settings
        state = files.read_training(path)
        if ("trained" in state) != bool(own.average):
            raise RunError(f"{path} does not match its config.yaml: one has an average of the weights, the other not")
        if own.average:
            files.put_weights(model, state["state_dict"], path)
            self._average = {name: torch.clone(weight) for name, weight in self._weights().items()}
        files.put_weights(model, state.get("trained", state["state_dict"]), path)
        try:
            groups = zip(self.optimizer.state_dict()["param_groups"], state["optimizer"]["param_groups"], strict=True)
            parts = {
                "state": state["optimizer"]["state"],
                "param_groups": [g | {"params": s["params"]} for g, s in groups],
            }
            self.optimizer.load_state_dict(parts)
            for parameter, kept in self.optimizer.state.items():
                averages = [kept[name] for name in ("exp_avg", "exp_avg_sq")]
                if any(one.shape != parameter.shape or one.dtype != parameter.dtype for one in averages):
                    raise ValueError("the optimiser's averages have other shapes than the weights")
                kept |= {name: kept[name].contiguous() for name in ("exp_avg", "exp_avg_sq")}
                if not float(kept["step"]) >= 0:
                    raise ValueError("the optimiser has taken no number of steps")
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise RunError(f"{path} does not match its config.yaml: {error}") from None
        self.best, self.history = state["best"], state["history"]
        wanted = {f"validation/{self.learner.task.metric.name}", "train/loss", "seconds"}
        if not 0 < len(self.history) <= own.epochs or any(not wanted <= row.keys() for row in self.history):
            raise RunError(f"{path} does not match its config.yaml: its history is that of another run")


def better(score: float, best: float | None, metric: Metric) -> bool:
    """Whether a score is better than the best so far; any number is better than none."""
    if best is None or math.isnan(best):
        return True
    return score > best if metric.more_is_better else score < best

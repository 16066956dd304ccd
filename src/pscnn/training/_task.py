"""A task: what its data, network, loss and metric are, and the objective and the optimiser that all tasks share."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from pscnn import models
from pscnn._words import short
from pscnn.densities import Regularization, regularization
from pscnn.training._settings import ConfigError, Settings

if TYPE_CHECKING:
    from pscnn.data.own import About
    from pscnn.nn import FieldType
    from pscnn.training._learner import Learner
    from pscnn.training._targets import Target


class Metric(NamedTuple):
    """What is measured on validation and test data."""

    name: str
    more_is_better: bool


class Task(ABC):
    """What a run is about. One subclass per task, in ``pscnn.tasks``, made with its settings.

    Attributes:
        settings_type: Its settings.
        named: The settings that ``variant`` tells.
        evaluation_batch: Examples at once when nothing is learnt.
        adamw: Whether weights decay apart from the gradient, as in AdamW, or as a part of it, as in Adam.
        square_penalty: Whether a method's own penalty enters the loss squared, as in the forecasting literature's code.
        forecasts: Whether networks continue a flow frame by frame.
        stacked: Whether networks are so small that all seeds are trained at once, their weights stacked.
        settings: The run's.
        variant: Which of the task's variants, in a word or two, for tables and names of folders.
        metric: What validation data are judged by.
        scores: The results of a test that tables show, with their labels; the first is the one that counts.
        tests: Splits to test on; the first is the one that counts.
        class_names: Names of the classes, if there are classes.
        input_shape: Of one input of the network.
        target: What the network is asked for; None if the task says it in other ways.
        files: How files of examples are read for the network; None if it takes none.
        folder: That of the run, if it has one already.
    """

    settings_type: ClassVar[type[Settings]]
    named: ClassVar[tuple[str, ...]] = ()
    evaluation_batch: int = 500
    adamw: ClassVar[bool] = True
    square_penalty: bool = False
    forecasts: ClassVar[bool] = False
    stacked: ClassVar[bool] = False

    variant: str
    input_shape: tuple[int, ...]
    class_names: tuple[str, ...] | None = None
    metric = Metric("accuracy", more_is_better=True)
    scores: Mapping[str, str] = {"test_accuracy": "test accuracy"}
    tests: tuple[str, ...] = ("test",)
    target: Target | None = None
    files: About | None = None
    folder: Path | None = None

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @abstractmethod
    def build(self) -> nn.Module:
        """The network."""

    @abstractmethod
    def load(self, folder: str | Path | None) -> Mapping[str, Any]:
        """The splits "train", "validation" and those to test on.

        Args:
            folder: Data folder.
        """

    def learner(self) -> Learner:
        """What trains and tests the network."""
        from pscnn.training._learner import Classification

        return Classification(self)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """How wrong a network is about a batch; for stacked tasks."""
        raise NotImplementedError

    def measure(self, model: nn.Module, splits: Mapping[str, Any]) -> dict[str, Any]:
        """The results of a trained network; for stacked tasks."""
        raise NotImplementedError

    def field_types(self) -> tuple[FieldType, FieldType | None] | None:
        """How inputs and outputs transform under H, None for outputs that should not; None if it is not measured."""
        return None

    def batch(self, name: str, split: Any, rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of some rows of a split, on their device; a seed for whatever is random about them."""
        return split.images(rows, seed), split.labels[rows]

    def regularization(self, model: nn.Module) -> Regularization:
        """The alignment error and the KL divergence of a network's densities."""
        return regularization(model, uniform_first=self.settings.uniform_first)


def _known() -> Any:
    """Tasks are plugins of the engine: it imports them by name, as ``codecs.lookup`` imports ``encodings``."""
    return importlib.import_module("pscnn.tasks")


def task_names() -> list[str]:
    """The names of all tasks."""
    return list(_known().TASKS)


def former_names(name: str) -> list[str]:
    """What a task was called in earlier versions."""
    return [old for old, new in _known().FORMER_NAMES.items() if new == name]


def task_type(name: str) -> type[Task]:
    """The class of a task."""
    name = _known().FORMER_NAMES.get(name, name)
    if name not in _known().TASKS:
        raise ConfigError(f"unknown task {name!r}: use one of {', '.join(task_names())}")
    module, _, cls = _known().TASKS[name].partition(":")
    task: type[Task] = getattr(importlib.import_module(module), cls)
    return task


def task_of(settings: Settings) -> Task:
    """The task with some settings."""
    return task_type(settings.task)(settings)


def make_settings(values: Mapping[str, Any], *, stored: bool = False) -> Settings:
    """Settings by name, with "task" among them, as checked settings; an unknown name is an error.

    What earlier versions stored is understood: "experiment" instead of "task", names of tasks then, and settings that
    no task has any more and that had no effect.

    Args:
        values: The settings that are not the defaults, or all.
        stored: Whether they are those of a run, which may have settings without effect on its method.
    """
    values = dict(values)
    name = values.pop("task", values.pop("experiment", None))
    if not isinstance(name, str):
        raise ConfigError(f"name a task: one of {', '.join(task_names())}" + (f", not {short(name)}" if name else ""))
    make = task_type(name).settings_type
    known = make.options()
    values = {k: v for k, v in values.items() if k in known or k not in make.removed or make.removed[k] != v}
    if stored and "method" in values:
        useful = {k: make.methods_with(k) if k in known else None for k in values}
        values = {k: v for k, v in values.items() if values["method"] in (useful[k] or (values["method"],))}
    for given in values:
        if given not in known:
            others = [task for task in task_names() if given in task_type(task).settings_type.options()]
            have = f"{', '.join(others)} {'have' if len(others) > 1 else 'has'} it" if others else "no task has it"
            raise ConfigError(f"{make.task} has no setting {given!r} ({have}); it has {', '.join(known)}")
    return make(**values)


@dataclass(frozen=True)
class Objective:
    """L = task + α_align · alignment + α_KL · KL (+ penalty of the method's own) (paper, Appendix F.4).

    Attributes:
        align_weight: α_align.
        kl_weight: α_KL.
        regularization: Gives the alignment error and the KL divergence of a network with densities.
        square_penalty: Whether the penalty enters squared.
    """

    align_weight: float
    kl_weight: float
    regularization: Callable[[nn.Module], Regularization] = regularization
    square_penalty: bool = False

    @classmethod
    def of(cls, task: Task) -> Objective:
        """The objective of a task's settings; exactly aligned densities need no loss for it."""
        settings = task.settings
        align_weight = settings.align_weight if settings.alignment == "soft" else 0.0
        return cls(align_weight, settings.kl_weight, task.regularization, task.square_penalty)

    def __call__(self, model: nn.Module, task: Tensor, *, densities: bool) -> dict[str, Tensor]:
        """The loss and its terms.

        Args:
            model: The network.
            task: Its loss on a batch.
            densities: Whether the network has any; a compiler need not look.
        """
        terms, total = {"task": task}, task
        if densities:
            terms["alignment"], terms["kl"] = self.regularization(model)
            total = total + self.kl_weight * terms["kl"]
            if self.align_weight:
                total = total + self.align_weight * terms["alignment"]
        penalty = models.penalty(model)
        if penalty is not None:
            terms["penalty"] = penalty.square() if self.square_penalty else penalty
            total = total + terms["penalty"]
        return {"loss": total, **terms}


def make_optimizer(
    groups: list[dict[str, Any]], settings: Settings, *, adamw: bool, fused: bool = False
) -> torch.optim.Optimizer:
    """Adam, as in the paper, of ``parameter_groups``."""
    make = torch.optim.AdamW if adamw else torch.optim.Adam
    return make(groups, lr=settings.lr, fused=fused or None)

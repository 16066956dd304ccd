"""How far a run is: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import statistics
import sys
from types import TracebackType
from typing import Any

from pscnn._words import duration

LINES = 100
"""At most about so many, of runs with more epochs."""
FIRST = "first steps: preparing kernels and choosing algorithms (kernels are kept for later runs)"


class Progress:
    """Shows epochs, the loss, the validation score and the time left.

    Args:
        epochs: Of the whole run.
        metric: What validation data are judged by.
        done: Epochs that were trained before.
    """

    def __init__(self, epochs: int, metric: str, done: int = 0) -> None:
        self.epochs, self.metric, self.done = epochs, metric, done
        self._seconds: list[float] = []
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(FIRST, total=self.epochs, completed=self.done)
            self._bar.start()
        elif self.done < self.epochs:
            print(FIRST, file=sys.stderr, flush=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done; its metrics."""
        self._seconds.append(row["seconds"])
        number = row["epoch"] + 1
        # The first epoch says little of the others: it also prepares.
        left = (self.epochs - number) * statistics.mean(self._seconds[1:]) if self._seconds[1:] else None
        rest = f", about {duration(left)} left" if left else ""
        text = f"loss {row['train/loss']:.4g}, validation {self.metric} {row[f'validation/{self.metric}']:.4f}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=number, description=text + rest)
        elif number % -(-self.epochs // LINES) == 0 or number == self.epochs:
            print(f"epoch {number}/{self.epochs}: {text}, {row['seconds']:.1f} s{rest}", file=sys.stderr, flush=True)

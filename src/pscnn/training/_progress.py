"""How far a run is: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import statistics
import sys
from types import TracebackType
from typing import Any

LINES = 100
"""At most about so many, of runs with more epochs."""
FIRST = "first steps: preparing kernels and choosing algorithms"


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
        # The first epoch of a session also prepares.
        left = (self.epochs - number) * statistics.mean(self._seconds[1:] or self._seconds)
        text = f"loss {row['train/loss']:.4g}, validation {self.metric} {row[f'validation/{self.metric}']:.4f}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=number, description=f"{text}, {_time(left)} left")
        elif number % max(1, self.epochs // LINES) == 0 or number == self.epochs:
            rest = f", about {_time(left)} left" if number < self.epochs else ""
            print(f"epoch {number}/{self.epochs}: {text}, {row['seconds']:.1f} s{rest}", file=sys.stderr, flush=True)


def _time(seconds: float) -> str:
    """In words.

    Example:
        >>> _time(12.3), _time(200), _time(7300)
        ('12 s', '3 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"

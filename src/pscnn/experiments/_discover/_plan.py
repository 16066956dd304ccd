"""How the given minutes are divided, from how fast this machine turns out to be."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from pscnn._words import duration

SCOUT, COMPARE, NETWORKS = 0.12, 0.57, 0.87
"""Shares of the time after which scouting ends, comparing ends, and the training of the networks in the table ends."""
STEPS, SCOUT_STEPS = 240, 110
"""Of a probe, at most; more examples get more (``EPOCHS``), and so do tasks of which nothing is learnt with these."""
EPOCHS = 6
START = 6.0
"""Seconds until a process has begun."""


@dataclass(frozen=True)
class Clock:
    """The time that was given.

    Attributes:
        began: When, on the monotonic clock.
        seconds: Until the end.
        workers: Processes.
    """

    began: float
    seconds: float
    workers: int

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self.began

    def until(self, share: float) -> float:
        """Seconds until a share of the time is spent; 0 if it is."""
        return max(0.0, share * self.seconds - self.spent)

    def each(self, share: float, jobs: int) -> float:
        """Seconds for each of some jobs, so that all are done when a share of the time is spent."""
        return self.until(share) / math.ceil(jobs / self.workers)


def steps(examples: int, batch_size: int) -> int:
    """Of a probe at first, at most."""
    return max(STEPS, EPOCHS * math.ceil(examples / batch_size))


def words(clock: Clock, subgroups: int, parts: int, networks: int) -> str:
    """The plan, before anything is trained."""
    shares = SCOUT, COMPARE - SCOUT, NETWORKS - COMPARE
    times = [duration(share * clock.seconds) for share in shares]
    return (
        f"plan for {duration(clock.seconds)} with {clock.workers} "
        f"{'process' if clock.workers == 1 else 'processes'}: look for mirror lines (up to {times[0]}), enforce and "
        f"compare about {subgroups} subgroups on {parts} parts of the examples (up to {times[1]}), train {networks} "
        f"networks for the table (up to {times[2]}), write the report"
    )

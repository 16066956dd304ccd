"""Asking about known tasks, and the answers in one file, with which an interrupted benchmark goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._files import from_json, plain_file, to_json, write_whole
from pscnn.data import known
from pscnn.experiments._bench import machine
from pscnn.experiments._known import OUTCOMES, judge, words
from pscnn.training import ConfigError, environment

Answers = dict[str, dict[str, Any]]
"""By the name of the task: what was said, whether it is right, and how long it took."""
_NEEDED: dict[str, type | tuple[type, ...]] = {
    "outcome": str,
    "said": str,
    "why": list,
    "statements": list,
    "seconds": (int, float),
    "minutes": (int, float),
    "seed": int,
}


def ask(
    name: str, folder: Path, discover: Callable[..., Any], *, minutes: float, seed: int, **how: Any
) -> dict[str, Any]:
    """Draw a task's examples, let ``discover`` answer, and judge what it says.

    Args:
        name: One of ``known.TASKS``.
        folder: For its data and runs.
        discover: As ``pscnn.discover``.
        minutes: Its budget.
        seed: Of the examples.
        how: Further arguments of ``discover``.

    Raises:
        KeyboardInterrupt: If ``discover`` was interrupted.
    """
    task = known.TASKS[name]
    images, targets = known.examples(name, seed)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.npz"
    arrays: dict[str, Any] = {"images": images, "masks" if task.kind == "masks" else "labels": targets}
    np.savez_compressed(path, **arrays)
    began = time.monotonic()
    found = discover(path, minutes=minutes, out=folder / name, target=task.kind, **how)
    if not found.complete:  # ``discover`` gave the answer so far, which is not counted
        raise KeyboardInterrupt
    seconds = time.monotonic() - began
    verdict = judge(task, found.kept, found.statements)
    return {
        "outcome": verdict.outcome,
        "said": words(found.kept),
        "why": list(verdict.why),
        "statements": [
            {"subgroup": words(one.subgroup), "verdict": one.verdict, "layers": one.layers}
            | {end: float(getattr(one, end)) for end in ("cost", "low", "high")}
            for one in found.statements
        ],
        "seconds": round(seconds, 1),
        "minutes": minutes,
        "seed": seed,
        "machine": machine("cpu"),
        "environment": environment(),
    }


def read_answers(path: Path) -> Answers:
    """Answers of a file; none if there is no file."""
    if not path.exists():
        return {}
    try:
        found = from_json(plain_file(path).read_text(encoding="utf-8"))["answers"]
        for name, one in found.items():
            if name not in known.TASKS or one["outcome"] not in OUTCOMES:
                raise ValueError(f"unknown task {name!r} or outcome {one['outcome']!r}")
            for key, kind in _NEEDED.items():
                wrong = isinstance(one[key], int | float) and not 0 <= one[key] < 2**53
                if wrong or not isinstance(one[key], kind):
                    raise TypeError(f"{key} of {name} is not what it should be")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} holds no answers of pscnn benchmark-discover: {error}") from None
    return dict(found)


def write_answers(path: Path, answers: Mapping[str, Any]) -> None:
    """Write a file that ``read_answers`` reads."""
    write_whole(path, to_json({"answers": dict(answers)}, indent=1) + "\n")


def answer_rows(answers: Mapping[str, Any], names: Iterable[str]) -> list[list[str]]:
    """A table: what every task is about, what can be enforced, what was said, and how long that took."""
    rows = [["task", "what it is about", "the truth", "the answer", "", "time"]]
    for name in names:
        task, one = known.TASKS[name], answers.get(name)
        truth = " or ".join(map(words, task.truth)) or "cannot tell"
        truth += ", or cannot tell" if task.may_abstain else ""
        said = [one["said"], one["outcome"], _clock(one["seconds"])] if one else ["", "", ""]
        rows.append([name, task.words, truth, *said])
    return rows


def _clock(seconds: float) -> str:
    return f"{math.floor(seconds / 60)}:{math.floor(seconds % 60):02d}"


def answer_counts(answers: Mapping[str, Any], names: Iterable[str]) -> str:
    """How many answers are right, in a sentence."""
    outcomes = [answers[name]["outcome"] for name in names if name in answers]
    parts = [f"{outcomes.count(outcome)} {outcome}" for outcome in OUTCOMES]
    slowest = max((answers[name]["seconds"] for name in names if name in answers), default=0.0)
    return f"{len(outcomes)} tasks: {', '.join(parts)}; the slowest took {_clock(slowest)} minutes"

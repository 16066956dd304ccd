"""Several runs of one configuration, at once or one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from pscnn._processes import in_processes
from pscnn.training._config import Config
from pscnn.training._run import RunError, history, start, train


def start_seeds(config: Config, seeds: int, root: str | Path = "runs", name: str | None = None) -> list[Path]:
    """Folders of runs that differ in their seeds: the configuration's and those that follow it."""
    return [start(replace(config, seed=config.seed + k), root, name) for k in range(seeds)]


def train_together(
    folders: Sequence[Path],
    data_dir: str | Path | None = None,
    *,
    accelerator: str = "auto",
    draw: Callable[[nn.Module], Any] | None = None,
    on_done: Callable[[Path, dict[str, Any]], None] = lambda folder, result: None,
) -> dict[Path, dict[str, Any]]:
    """Train runs at once, each in a process of its own on the same device; each gives what it would give alone.

    A small network leaves a GPU idle most of the time: the processor cannot hand it work fast enough. Other processes
    fill the gaps. A run that fails does not stop the others; one whose process is killed does (all can be continued).

    Args:
        folders: Runs' folders, from ``start`` or ``start_seeds``; those with epochs behind them are continued.
        data_dir: Data folder.
        accelerator: "auto", "cpu" or "gpu".
        draw: As for ``train``; a function of a module, since processes must be able to import it.
        on_done: Called with each run and its result when it is there.

    Returns:
        The results of all runs.

    Raises:
        RunError: At the end, if some runs failed.
    """
    failed: list[str] = []
    results: dict[Path, dict[str, Any]] = {}

    def keep(number: int, result: Any) -> None:
        if isinstance(result, BaseException):
            failed.append(f"{folders[number]}: {result or type(result).__name__}")
        else:
            results[folders[number]] = result
            on_done(folders[number], result)

    in_processes(_train, [(folder, data_dir, accelerator, draw) for folder in folders], len(folders), keep)
    if failed:
        raise RunError("\n".join([f"{len(failed)} of {len(folders)} runs failed", *failed]))
    return {folder: results[folder] for folder in folders}


def _train(folder: Path, data_dir: Path | None, accelerator: str, draw: Callable[[nn.Module], Any] | None) -> Any:
    return train(folder, data_dir, accelerator=accelerator, progress=False, draw=draw)


def last_epoch(folder: Path) -> dict[str, Any] | None:
    """The metrics of a run's last complete epoch, or None."""
    try:
        epochs = history(folder)
    except FileNotFoundError:
        return None
    return epochs[-1] if epochs else None

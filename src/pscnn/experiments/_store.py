"""Runs found by their configuration, and what brings all of a table's runs to their end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import statistics
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from pscnn._files import write_whole
from pscnn._processes import in_processes
from pscnn.experiments._ray import in_ray
from pscnn.training._config import Config, ConfigError
from pscnn.training._lock import run_lock

State = Literal["finished", "running", "started", "failed", "new"]
BUSY = "busy"
ENGINES = ("local", "ray")
ATTEMPTS = 3
"""How often a run is begun whose process was killed."""


class Store:
    """A folder of runs, each in a folder that is named by its configuration.

    Whoever works on a run holds its lock, so that several runners can share the store. A lock ends with its process.

    Args:
        root: The folder.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._rates: dict[tuple[str, str], float | None] = {}

    def folder(self, config: Config) -> Path:
        """Where the run of a configuration is or will be; another value of any setting leads elsewhere."""
        text = json.dumps(config.to_dict(), sort_keys=True)
        words = (config.family, config.task, f"seed{config.seed}")
        return self.root / config.experiment / "-".join([*words, hashlib.sha256(text.encode()).hexdigest()[:8]])

    def lock(self, config: Config) -> FileLock:
        """Held by whoever works on a run."""
        folder = self.folder(config)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return run_lock(folder)

    def state(self, config: Config) -> State:
        """How far a run is."""
        folder = self.folder(config)
        if (folder / "result.json").exists():
            return "finished"
        lock = run_lock(folder)
        if Path(lock.lock_file).exists():
            try:
                with lock.acquire(timeout=0):
                    pass
            except Timeout:
                return "running"
        if (folder / "failure.json").exists():
            return "failed"
        return "started" if (folder / "metrics.jsonl").exists() else "new"

    def result(self, config: Config) -> dict[str, Any] | None:
        """What a finished run found; None for others."""
        return _read(self.folder(config) / "result.json")

    def failure(self, config: Config) -> str | None:
        """Why a run failed."""
        found = _read(self.folder(config) / "failure.json")
        return None if found is None else str(found["error"])

    def code(self, config: Config) -> str | None:
        """The version, and if known the revision, with which a run was started."""
        found = _read(self.folder(config) / "environment.json")
        if found is None:
            return None
        return str(found["versions"]["pscnn"]) + (f" ({found['git'][:10]})" if found["git"] else "")

    def estimate(self, config: Config) -> float | None:
        """Seconds that a run may take: as finished ones of its experiment, method and group took per epoch, if any."""
        key = config.experiment, config.family
        if key not in self._rates:  # a plan asks for hundreds of runs
            found = map(_read, (self.root / config.experiment).glob(f"{config.family}-*/result.json"))
            rates = [one["seconds"] / one["epochs"] for one in found if one is not None]
            self._rates[key] = statistics.mean(rates) if rates else None
        rate = self._rates[key]
        return None if rate is None else config.epochs * rate


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads(path.read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def run_one(
    values: dict[str, Any], root: str | Path, data_dir: str | Path | None, accelerator: str, wait: bool
) -> dict[str, Any] | str:
    """Bring one run to its end, from where it is, and return its result; ``BUSY`` if another process works on it.

    Args:
        values: The configuration, as ``Config.to_dict`` gives it.
        root: Folder of the store.
        data_dir: Data folder.
        accelerator: "auto", "cpu" or "gpu".
        wait: Whether to wait for the other process instead.
    """
    from pscnn.training._run import describe, train

    config = Config.from_dict(values)
    store = Store(root)
    folder = store.folder(config)
    try:
        with store.lock(config).acquire(timeout=-1 if wait else 0):
            found = store.result(config)
            if found is not None:
                return found
            folder.mkdir(exist_ok=True)
            if not (folder / "config.yaml").exists():
                describe(folder, config)
            (folder / "failure.json").unlink(missing_ok=True)
            try:
                return train(folder, data_dir, accelerator=accelerator, progress=False)
            except Exception as error:
                _record(folder, error)
                raise
    except Timeout:
        return BUSY


def _record(folder: Path, error: Exception) -> None:
    text = {
        "error": f"{type(error).__name__}: {error}",
        "traceback": traceback.format_exc(),
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    with contextlib.suppress(OSError):  # the disk may be what failed
        write_whole(folder / "failure.json", json.dumps(text, indent=2) + "\n")


def run_missing(
    configs: Sequence[Config],
    root: str | Path,
    *,
    workers: int | None = None,
    data_dir: str | Path | None = None,
    accelerator: str = "auto",
    engine: str = "local",
    gpus: float = 0,
    on_done: Callable[[Config, dict[str, Any] | BaseException], None] = lambda config, result: None,
) -> dict[Config, dict[str, Any] | BaseException]:
    """Run what is not finished, in processes; what fails is recorded and the others go on.

    Runs on which another runner works are left to it, and read when it is done; should it be killed, they are taken
    over. If a process is killed, for instance for want of memory, its run and those beside it are continued.

    Args:
        configs: What should be there in the end.
        root: Folder of the store.
        workers: Processes; one per core by default. On a GPU several small runs share it. Ray decides for itself.
        data_dir: Data folder.
        accelerator: "auto", "cpu" or "gpu".
        engine: "local", processes of this machine, or "ray", the machines of a Ray cluster, which must share the store
            and the data folder.
        gpus: With Ray, GPUs per run; a fraction lets several share one.
        on_done: Called with each run and its result, or why it failed.

    Returns:
        Every configuration with its result, or the exception that ended it.
    """
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine!r}: use one of {', '.join(ENGINES)}")
    root, data_dir = Path(root).absolute(), None if data_dir is None else Path(data_dir).absolute()
    store = Store(root)
    results: dict[Config, dict[str, Any] | BaseException] = {}
    left = []
    for config in configs:
        found = store.result(config)
        if found is None:
            left.append(config)
        else:
            results[config] = found
            on_done(config, found)
    for attempt in range(ATTEMPTS):
        final = attempt == ATTEMPTS - 1
        batch: list[Config] = list(left)
        left = []

        def keep(
            number: int, result: Any, batch: list[Config] = batch, again: list[Config] = left, final: bool = final
        ) -> None:
            config = batch[number]
            if result == BUSY or (isinstance(result, BrokenProcessPool) and not final):
                again.append(config)
            else:
                results[config] = result
                on_done(config, result)

        if batch:
            jobs = [(config.to_dict(), root, data_dir, accelerator, attempt > 0) for config in batch]
            if engine == "ray":
                in_ray(run_one, jobs, keep, gpus=gpus)
            else:
                in_processes(run_one, jobs, min(workers or os.cpu_count() or 1, len(batch)), keep)
    return {config: results[config] for config in configs}

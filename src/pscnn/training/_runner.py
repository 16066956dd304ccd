"""Brings many runs to their end, in processes."""

import contextlib
import json
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import Timeout

from pscnn._files import check_place, make_folder, reported, write_whole
from pscnn.training._gpu import gpu_is_used, shared_gpu, usual_workers
from pscnn.training._run import RunError, read_result, read_task
from pscnn.training._settings import ConfigError, Settings
from pscnn.training._store import Store, run_lock
from pscnn.training._task import task_type
from pscnn.training._workers import in_processes, in_ray

ENGINES = ("local", "ray")
ATTEMPTS = 3
"""How often a run is begun whose process was killed."""
_BUSY = "busy"
Outcome = dict[str, Any] | BaseException


def check_engine(engine: str, workers: int | None, gpus: float) -> None:
    """Refuse an engine that is not known, and what has no effect with it."""
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine!r}: use one of {', '.join(ENGINES)}")
    if engine == "local" and gpus:
        raise ConfigError("gpus applies to the engine ray; on this machine workers says how many runs share a GPU")
    if engine == "ray" and workers is not None:
        raise ConfigError("workers applies to the engine local; Ray decides for itself how many runs it does at once")


def run_missing(
    runs: Sequence[Settings],
    store: Store,
    *,
    workers: int | None = None,
    data_dir: str | Path | None = None,
    accelerator: str = "auto",
    engine: str = "local",
    gpus: float = 0,
    on_done: Callable[[Settings, Outcome], None] = lambda settings, result: None,
) -> dict[Settings, Outcome]:
    """Run what is not finished; what fails is recorded and the others go on.

    Small networks leave a GPU idle most of the time: on one GPU six processes train at the same time. Runs on which
    another runner works are left to it, and read when it is done; should it be killed, they are taken over. If a
    process is killed, for instance for want of memory, its run and those beside it are continued.

    Args:
        runs: What should be there in the end.
        store: Where.
        workers: Processes; by default one per core, or six on a GPU. Ray decides for itself.
        data_dir: Data folder.
        accelerator: "auto", "cpu" or "gpu".
        engine: "local", processes of this machine, or "ray", the machines of a Ray cluster, which must share the store
            and the data folder.
        gpus: With Ray, GPUs per run; a fraction lets several share one.
        on_done: Called with each run and its result, or why it failed.

    Returns:
        Every run with its result, or the exception that ended it.
    """
    check_engine(engine, workers, gpus)
    where, data = Store(store.root.absolute(), store.name), None if data_dir is None else Path(data_dir).absolute()
    results: dict[Settings, Outcome] = {}

    def done(settings: Settings, outcome: Outcome) -> None:
        results[settings] = outcome
        on_done(settings, outcome)

    left = []
    for settings in runs:
        found = where.result(settings)
        if found is None:
            left.append(settings)
        else:
            done(settings, found)
    for task in {settings.task for settings in left}:
        make_folder(where.root / task, "--runs", RunError)
        with reported(f"cannot write into {where.root / task}", RunError):
            check_place(where.root / task / "run")
    for attempt in range(ATTEMPTS):
        jobs, left = _jobs(left), []

        def keep(number: int, outcome: Any, jobs: Any = jobs, again: Any = left, attempt: int = attempt) -> None:
            own = outcome if isinstance(outcome, list) else [outcome] * len(jobs[number])
            for settings, one in zip(jobs[number], own, strict=True):
                if one == _BUSY or (isinstance(one, BrokenProcessPool) and attempt < ATTEMPTS - 1):
                    again.append(settings)
                else:
                    done(settings, one)

        if jobs:
            arguments = [(job, where, data, accelerator, attempt > 0) for job in jobs]
            if engine == "ray":
                in_ray(_run, arguments, keep, gpus)
            else:
                count = min(workers or usual_workers(accelerator), len(jobs))
                with shared_gpu() if count > 1 and gpu_is_used(accelerator) else contextlib.nullcontext():
                    in_processes(_run, arguments, count, keep)
    return {settings: results[settings] for settings in runs}


def _jobs(runs: Sequence[Settings]) -> list[list[Settings]]:
    """What one process does at once: a run, or all seeds of one if their networks can be stacked."""
    jobs: dict[Any, list[Settings]] = {}
    for settings in runs:
        stacked = task_type(settings.task).stacked
        jobs.setdefault(replace(settings, seed=0) if stacked else settings, []).append(settings)
    return list(jobs.values())


def _run(runs: list[Settings], store: Store, data_dir: Path | None, accelerator: str, wait: bool) -> list[Any]:
    """Bring runs to their end; their results, or ``_BUSY`` where another process has one and we do not wait."""
    from pscnn.training._fit import train
    from pscnn.training._stacked import train_stacked

    folders = [store.start(settings) for settings in runs]
    results: dict[Path, Any] = dict.fromkeys(folders, _BUSY)
    with contextlib.ExitStack() as locks:
        held = []
        for folder in folders:
            with contextlib.suppress(Timeout):
                locks.enter_context(run_lock(folder).acquire(timeout=-1 if wait else 0))
                held.append(folder)
        missing = []
        for folder in held:
            results[folder] = read_result(folder)
            if results[folder] is None:
                (folder / "failure.json").unlink(missing_ok=True)
                missing.append(folder)
        try:
            if missing and read_task(missing[0]).stacked:
                results |= dict(zip(missing, train_stacked(missing), strict=True))
            else:
                for folder in missing:
                    results[folder] = train(folder, data_dir, accelerator=accelerator, progress=False)
        except Exception as error:
            text = {
                "error": f"{type(error).__name__}: {error}",
                "traceback": traceback.format_exc(),
                "time": datetime.now().astimezone().isoformat(timespec="seconds"),
            }
            for folder in missing:
                with contextlib.suppress(OSError):  # the disk may be what failed
                    write_whole(folder / "failure.json", json.dumps(text, indent=2) + "\n")
            raise
    return [results[folder] for folder in folders]

"""Many runs at once, with those under way on the screen."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table

from pscnn import PscnnError
from pscnn._files import make_folder
from pscnn._words import duration
from pscnn.cli._app import errors, progress_bar, say

if TYPE_CHECKING:
    from pscnn.training import Settings, Store


def complete_runs(runs: Sequence[Settings], store: Store, **how: Any) -> list[Settings]:
    """Run what is not finished, as ``training.run_missing`` does; those that failed, each with a message why."""
    from rich.console import Group
    from rich.live import Live

    from pscnn import training

    make_folder(store.root, "--runs", PscnnError)
    failed: list[Settings] = []
    missing = {one for one in runs if store.result(one) is None}
    trained: list[Settings] = []
    started = time.monotonic()
    progress = progress_bar()
    bar = progress.add_task("", total=len(runs))

    def overview() -> Any:
        table = Table(Column("in progress", overflow="fold"), "epoch", "validation", box=None)
        for settings in runs:
            folder = store.folder(settings)
            if (folder / "config.yaml").exists() and not (folder / "result.json").exists():
                metric = training.task_of(settings).metric.name
                row = training.last_epoch(folder) or {"epoch": -1}
                score = row.get(f"validation/{metric}", math.nan)
                table.add_row(folder.name, f"{row['epoch'] + 1} of {settings.epochs}", f"{metric} {score:.4f}")
        return Group(table, progress) if table.rows else progress

    def done(settings: Settings, result: Any) -> None:
        if isinstance(result, BaseException):
            failed.append(settings)
        elif settings in missing:
            trained.append(settings)
        left = (time.monotonic() - started) / max(1, len(trained)) * (len(missing) - len(trained) - len(failed))
        about = f"about {duration(left)} left, " if trained and left else ""
        words = f"{about}{len(failed)} failed; last: {store.folder(settings).name}"
        progress.update(bar, advance=1, description=words)

    try:
        with training.Watch() as watch, Live(get_renderable=overview, console=errors, refresh_per_second=1):
            training.run_missing(runs, store, **how, on_done=done)
    except KeyboardInterrupt:
        say("interrupted; the last complete epoch of every run is saved. Run the same command again to continue")
        raise
    if not errors.is_terminal:
        errors.print()  # the bar has not ended its line
    if trained and watch.busy is not None and training.gpu_is_used(how.get("accelerator", "auto")):
        took = time.monotonic() - started
        each = f"{took / len(trained):.1f} s of the GPU each, which was busy {watch.busy:.0f} % of the time"
        errors.print(f"{len(trained)} runs trained in {took:.0f} s: {each}")
    for settings in failed:
        why = store.failure(settings) or "its process was killed"
        errors.print(f"failed: {store.folder(settings)}: {why}", style="red", soft_wrap=True)
    return failed

"""From data to a discovery, within the given minutes; what is finished is kept, and not done again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._extras import PscnnError
from pscnn._files import make_folder, write_whole
from pscnn._types import Array
from pscnn.data import DataError, own
from pscnn.experiments._discover import _plan
from pscnn.experiments._discover._discovery import Discovery
from pscnn.experiments._discover._networks import LABELS, Network, batch_size, settings_of, train_network
from pscnn.experiments._discover._parts import PARTS, PartResult, train_part
from pscnn.experiments._discover._subgroups import Subgroup, candidates, likely_angles, scouts
from pscnn.experiments._discover._verdict import UNCLEAR, Comparison, compare
from pscnn.groups import O2, Group, parse
from pscnn.training import ConfigError, processes

VERSION = 1
"""Of what is kept for resuming; another one is done again."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class _Work:
    """What all steps need."""

    folder: Path
    path: Path
    about: own.About
    group: Group
    clock: _plan.Clock
    pool: Executor | None
    accelerator: str
    done: Path
    say: Say


def discover(
    data: Any,
    *,
    group: Group | str | None = None,
    minutes: float = 10.0,
    out: str | Path | None = None,
    bandlimit: int = 2,
    width: float | None = None,
    workers: int | None = None,
    accelerator: str = "auto",
    resume: bool = True,
    say: Say | None = None,
    **reading: Any,
) -> Discovery:
    """Which symmetries can be enforced on your data without loss, and which network to use.

    Every subgroup of H that comes into question is enforced and compared on examples that were held out; see
    ``docs/discover.md``. An interruption (Ctrl-C) gives the answer so far, and the same call continues.

    Args:
        data: A folder, ``.npz`` or ``.csv`` file, or whatever else ``pscnn.data.own.prepare`` takes.
        group: H, or its name; O(2) for images and O(3) for volumes by default.
        minutes: For everything.
        out: Folder for data, runs and report; ``discover/NAME`` by default.
        bandlimit: L of the densities of the partially equivariant network.
        width: Of the networks in the table; None for the default.
        workers: Processes; one per core by default.
        accelerator: "auto", "cpu" or "gpu".
        resume: Whether to go on from what the folder has of the same question.
        say: Called with what is going on, in sentences; printed by default.
        reading: Further options of ``pscnn.data.own.prepare``, such as ``size`` or ``seed``.
    """
    began = time.monotonic()
    if not minutes > 0:
        raise ConfigError(f"minutes must be positive, got {minutes}")
    folder = (
        Path(out)
        if out is not None
        else Path("discover") / (Path(data).stem if isinstance(data, str | Path) else "data")
    )
    if isinstance(data, Path) and _is_prepared(data):
        path = data
    else:
        reading.setdefault("square", group is None or own.has_quarter_turns(group))
        path = prepared_file(data, folder, **reading)
    about = own.read_about(path)
    whole = parse(group) if isinstance(group, str) else group or parse("O(2)" if about.dimension == 2 else "O(3)")
    if whole.dimension != about.dimension:
        raise ConfigError(f"{whole.name} acts on {whole.dimension} axes, but the examples have {about.dimension}")
    count = workers or os.cpu_count() or 1
    clock = _plan.Clock(began, 60 * minutes, count)
    key = json.dumps([VERSION, path.name, whole.name, bandlimit, width], sort_keys=True)
    done = folder / "steps" / hashlib.sha256(key.encode()).hexdigest()[:8]
    make_folder(done, "out", PscnnError)
    if not resume:
        for file in done.iterdir():
            file.unlink()
    tell = print if say is None else say
    tell(_plan.words(clock, len(candidates(whole)), PARTS, len(LABELS)))
    found = Discovery(folder, path.name, about, whole.name, None, [], False, 0, 0.0, 0.0, 0, minutes=minutes)
    with _pool(count) as pool:
        work = _Work(folder, path, about, whole, clock, pool, accelerator, done, tell)
        for found in _steps(work, found, bandlimit, width):
            found = replace(found, seconds=round(clock.spent, 1))
            found.save()
    return found


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[Executor | None]:
    """Processes, unless one is enough; an interruption ends them and nothing else."""
    with contextlib.suppress(KeyboardInterrupt):
        if workers == 1:
            yield None
        else:
            with processes(workers) as pool:
                yield pool


def _steps(work: _Work, found: Discovery, bandlimit: int, width: float | None) -> Iterator[Discovery]:
    """The answer so far, after every step."""
    yield replace(found, complete=False)
    subgroups = candidates(work.group, _angles(work))
    names = ", ".join(str(one) for one in subgroups[1:])
    work.say(f"comparing networks in which these are enforced: {names}")
    collected: list[tuple[int, int, PartResult]] = []
    compared = None
    for seed in range(100):
        begun = work.clock.spent
        for result in _parts(work, subgroups, seed):
            collected.append(result)
            compared = _compared(subgroups, [one for *_, one in collected], work.about)
            found = _with(found, compared, len(collected))
            yield replace(found, complete=False)
        took = work.clock.spent - begun
        unclear = [one for one in found.statements if one.verdict == UNCLEAR]
        if not unclear or not found.learnt or work.clock.until(_plan.COMPARE) < 1.05 * max(took, 1.0):
            break
        work.say(f"not clear yet: {', '.join(str(one.subgroup) for one in unclear)}; once more with other networks")
    settings = settings_of(work.path, work.group.name, found.kept, width, bandlimit)
    for network in _networks(work, settings, found):
        found = replace(
            found, networks=sorted([*found.networks, network], key=lambda one: list(LABELS).index(one.kind))
        )
        yield replace(found, complete=False)
    yield replace(found, complete=True)


def _angles(work: _Work) -> list[float]:
    """Of mirror lines, from the losses of a short training in which one is enforced at every angle."""
    if work.group != O2():
        return []
    tried = scouts(work.group)
    work.say("looking for mirror lines")
    seconds = max(1.0, work.clock.each(_plan.SCOUT, 1) - _plan.START)
    size = batch_size(work.about)
    arguments = (work.path, work.group.name, tried, 0, 99, _plan.SCOUT_STEPS, seconds, size, False, work.accelerator)
    results = _do(work, train_part, [("scout.npz", arguments)], PartResult.read)
    losses = np.concatenate([one.losses for _, one in results])
    lines = [k for k, one in enumerate(tried) if one.name == "D(1)"]
    return likely_angles([tried[k].angle or 0.0 for k in lines], losses[lines])


def _parts(work: _Work, subgroups: Sequence[Subgroup], seed: int) -> Iterator[tuple[int, int, PartResult]]:
    size = batch_size(work.about)
    most = _plan.steps(sum(work.about.counts[:2]), size)
    seconds = max(1.0, work.clock.each(_plan.COMPARE, PARTS) - (0 if seed else 1))
    which = hashlib.sha256(json.dumps([one.to_json() for one in subgroups]).encode()).hexdigest()[:6]
    jobs = [
        (
            f"part-{seed}-{part}-{which}.npz",
            (work.path, work.group.name, subgroups, part, seed, most, seconds, size, True, work.accelerator),
        )
        for part in range(PARTS)
    ]
    for number, result in _do(work, train_part, jobs, PartResult.read):
        work.say(f"part {number + 1} of {PARTS}: {len(result.rows)} held-out examples, {result.steps} steps")
        yield seed, number, result


def _networks(work: _Work, settings: dict[str, Any], found: Discovery) -> Iterator[Network]:
    labels = [LABELS[kind].format(kept=found.kept) for kind in settings]
    work.say(f"training for the table: {'; '.join(labels)}")
    seconds = max(1.0, work.clock.each(_plan.NETWORKS, len(settings)) - _plan.START / 2)
    accelerator = work.accelerator
    jobs = []
    for kind, own_settings in settings.items():
        mark = hashlib.sha256(json.dumps(own_settings.to_dict(), sort_keys=True).encode()).hexdigest()[:6]
        jobs.append((f"network-{kind}-{mark}.json", (kind, own_settings, work.folder, seconds, accelerator)))
    for _, network in _do(work, train_network, jobs, _read_network):
        yield network


def _read_network(path: Path) -> Network:
    values = json.loads(path.read_text(encoding="utf-8"))
    return Network(**values | {"validation": tuple(values["validation"])})


def _save(result: Any, path: Path) -> None:
    if isinstance(result, PartResult):
        result.save(path)
    else:
        write_whole(path, json.dumps(asdict(result)) + "\n")


def _do(
    work: _Work, function: Callable[..., Any], jobs: Sequence[tuple[str, tuple[Any, ...]]], read: Callable[[Path], Any]
) -> Iterator[tuple[int, Any]]:
    """Results with their numbers, as they come: what was kept first, then what is done now, and kept."""
    left: list[int] = []
    for number, (name, _) in enumerate(jobs):
        try:
            yield number, read(work.done / name)
        except (OSError, ValueError, KeyError, TypeError, EOFError):  # not there, or damaged
            left.append(number)
    if work.pool is None:
        for number in left:
            result = function(*jobs[number][1])
            _save(result, work.done / jobs[number][0])
            yield number, result
        return
    futures: dict[Future[Any], int] = {work.pool.submit(function, *jobs[number][1]): number for number in left}
    for future in as_completed(futures):
        number = futures[future]
        result = future.result()
        _save(result, work.done / jobs[number][0])
        yield number, result


def _compared(subgroups: Sequence[Subgroup], results: Sequence[PartResult], about: own.About) -> Comparison:
    """All scores of every example, averaged over the networks that have not seen it."""
    total = sum(about.counts[:2])
    scores: Array = np.zeros((len(subgroups), total))
    constant, times, parts = np.zeros(total), np.zeros(total), np.zeros(total, dtype=int)
    for number, one in enumerate(results):
        scores[:, one.rows] += one.scores
        constant[one.rows] += one.constant
        times[one.rows] += 1
        parts[one.rows] = number
    seen = times > 0
    return compare(
        subgroups, scores[:, seen] / times[seen], constant[seen] / times[seen], parts[seen], binary=not about.regression
    )


def _with(found: Discovery, compared: Comparison, trained: int) -> Discovery:
    return replace(
        found,
        kept=compared.kept,
        statements=compared.statements,
        learnt=compared.learnt,
        examples=compared.examples,
        free=compared.free,
        constant=compared.constant,
        trained=trained,
    )


def _is_prepared(path: Path) -> bool:
    """Whether a file was written by ``prepared_file``."""
    if not (path.name.startswith("data-") and path.suffix == ".npz" and path.is_file()):
        return False
    try:
        own.read_about(path)
    except DataError:
        return False
    return True


def prepared_file(source: Any, folder: Path, **reading: Any) -> Path:
    """Prepare data in a folder, under a name that tells their content: changed data are other data.

    Args:
        source: As for ``own.prepare``.
        folder: Where; it is removed again if the data cannot be used and nothing else is in it.
        reading: Options of ``own.prepare``.
    """
    new = not folder.exists()
    make_folder(folder, "out", PscnnError)
    temporary = folder / ".data.npz"
    try:
        own.prepare(source, temporary, **reading)
    except PscnnError:
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    digest = hashlib.sha256()
    with np.load(temporary) as arrays:
        for name in ("pixels", "targets", "split", "about"):
            digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    path = folder / f"data-{digest.hexdigest()[:8]}.npz"
    temporary.replace(path)
    own.write_contact_sheet(path, folder / "examples.png")
    return path

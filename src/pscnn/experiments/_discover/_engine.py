"""From data to a discovery, within the given minutes; what is finished is kept, and not done again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from pscnn._extras import PscnnError
from pscnn._files import expanded, make_folder
from pscnn._types import Array
from pscnn.data import own
from pscnn.experiments._discover import _plan
from pscnn.experiments._discover._discovery import Discovery, check_networks
from pscnn.experiments._discover._jobs import Job, pool_of, results
from pscnn.experiments._discover._networks import (
    LABELS,
    Network,
    batch_size,
    constant_score,
    read_row,
    settings_of,
    train_network,
    write_row,
)
from pscnn.experiments._discover._parts import PARTS, PartResult, train_part
from pscnn.experiments._discover._poses import asked, find_poses, folds, read_poses, write_poses
from pscnn.experiments._discover._prepare import beside, folder_of, is_prepared, prepared_file
from pscnn.experiments._discover._subgroups import MOST_ELEMENTS, Subgroup, between, candidates, likely_mirrors, scouts
from pscnn.experiments._discover._verdict import BROKEN, FEWEST, KEPT, UNCLEAR, Comparison, compare
from pscnn.experiments._presence import Presence
from pscnn.groups import O2, C, Group, parse
from pscnn.tasks.own import OwnSettings
from pscnn.training import ConfigError, choose_device

VERSION = 2
"""Of what is kept for resuming; another one is done again."""
MOST_MINUTES = 1_000_000
ROUNDS = 20
"""In which all parts are held out once, at most."""
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
    if not isinstance(minutes, Real) or isinstance(minutes, bool) or not 0 < minutes <= MOST_MINUTES:
        raise ConfigError(f"minutes must be positive, and at most {MOST_MINUTES}, got {minutes!r}")
    minutes = float(minutes)
    if not isinstance(resume, bool):
        raise ConfigError(f"resume must be true or false, got {resume!r}")
    choose_device(accelerator)
    if workers is not None and (type(workers) is not int or workers < 1):
        raise ConfigError(f"workers must be a whole number of processes, got {workers!r}")
    if not isinstance(out, str | Path | None):
        raise ConfigError(f"out must be the path of a folder, got {out!r}")
    unknown = [name for name in reading if name not in signature(own.prepare).parameters]
    if unknown:
        raise ConfigError(f"discover knows no option {unknown[0]!r}")
    if not isinstance(group, str | Group | None):
        raise ConfigError(f"group must be a group or its name, got {group!r}")
    if isinstance(group, str):
        try:
            group = parse(group)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    if is_prepared(data):
        if reading:
            raise ConfigError(f"{data} is prepared already: {next(iter(reading))} would have no effect")
        path = expanded(data)
        folder = path.parent if out is None else Path(out)
        path = beside(path, folder)
    else:
        folder = folder_of(data, out)
        reading.setdefault("square", group is None or own.has_quarter_turns(group))
        path = prepared_file(data, folder, **reading)
    about = own.read_about(path)
    whole = group or parse("O(2)" if about.dimension == 2 else "O(3)")
    if whole.dimension != about.dimension:
        raise ConfigError(f"{whole.name} acts on {whole.dimension} axes, but the examples have {about.dimension}")
    if (whole.order or 0) > MOST_ELEMENTS:
        raise ConfigError(
            f"groups of up to {MOST_ELEMENTS} elements are compared, but {whole.name} has {whole.order}: "
            f"use one with all rotations, from which images do not tell it"
        )
    if min(about.shape) < own.SMALLEST:
        raise ConfigError(f"no network is for a side of {min(about.shape)} pixels: give {own.SMALLEST} or more")
    given: dict[str, Any] = {} if width is None else {"width": width}
    OwnSettings(data=path.name, about=about.to_json(), network="own", group=whole.name, bandlimit=bandlimit, **given)
    count = workers or os.cpu_count() or 1
    clock = _plan.Clock(began, 60 * minutes, count)
    # What was found within other minutes has had less time, or more, than what would be found now.
    done = folder / "steps" / _digest([VERSION, path.name, whole.name, bandlimit, width, minutes])
    make_folder(done, "--out", PscnnError)
    if not resume:
        for file in done.iterdir():
            file.unlink()
    tell = print if say is None else say
    before = _answered(done) if resume else None
    if before is not None:
        tell("this was answered before, within as many minutes; others, or no resuming, ask again")
        before = replace(before, folder=folder)
        before.save()
        return before
    tell(_plan.words(clock, len(candidates(whole)), PARTS, len(LABELS)))
    found = Discovery(folder, path.name, about, whole.name, None, [], False, 0, 0.0, 0.0, 0, minutes=minutes)
    with pool_of(count) as pool:
        work = _Work(folder, path, about, whole, clock, pool, accelerator, done, tell)
        for so_far in _steps(work, found, bandlimit, width):
            found = replace(so_far, seconds=round(clock.spent, 1))
            if found.networks or not _has_networks(folder):  # an answer that can be used is there until a new one is
                found.save()
        if found.complete:
            found.save(done)
    return found


def _has_networks(folder: Path) -> bool:
    """Whether a folder has an answer with networks, to whatever question."""
    with contextlib.suppress(PscnnError):
        return bool(Discovery.read(folder).networks)
    return False


def _answered(done: Path) -> Discovery | None:
    """The whole answer to the same question; what is damaged is answered again."""
    with contextlib.suppress(PscnnError):
        found = Discovery.read(done)
        if found.complete:
            return found
    return None


def _steps(work: _Work, found: Discovery, bandlimit: int, width: float | None) -> Iterator[Discovery]:
    """The answer so far, after every step."""
    yield replace(found, complete=False)
    mirrors, poses = _look(work)
    found = replace(found, presence=poses)
    subgroups = candidates(work.group, mirrors, folds(poses))
    names = ", ".join(str(one) for one in subgroups[1:])
    work.say(f"comparing networks in which these are enforced: {names}")
    collected: list[tuple[Sequence[Subgroup], PartResult]] = []
    steps = _plan.steps(sum(work.about.counts[:2]), batch_size(work.about))
    for seed in range(ROUNDS):
        begun, further = work.clock.spent, list[tuple[Sequence[Subgroup], PartResult]]()
        for result in _parts(work, subgroups, seed, steps):
            further.append((subgroups, result))
            if not collected or len(further) == PARTS:  # later rounds count as a whole
                together = [*collected, *further]
                found = _with(found, _compared(together, work.about), len(together))
                yield replace(found, complete=False)
        collected += further
        took, left = work.clock.spent - begun, work.clock.until(_plan.COMPARE)
        unclear = [one for one in found.statements if one.verdict == UNCLEAR]
        first = len(collected) == PARTS and work.group == O2()
        refined = _refined(collected, found, folds(poses)) if first else []
        if refined and left > 0.3 * took:
            work.say(f"once more with mirror lines between: {', '.join(map(str, refined))}")
            subgroups = [subgroups[0], *refined]
        elif not found.learnt:
            if found.examples < FEWEST or left < 2.1 * max(took, 1.0):
                break
            collected, steps = [], 2 * steps  # what has learnt nothing says nothing
            work.say(f"networks learnt too little in {steps // 2} steps; once more, with up to {steps}")
        elif not unclear or left < 1.05 * max(took, 1.0):
            break
        else:
            subgroups = list(dict.fromkeys(one for some, _ in collected for one in some))
            work.say(f"not clear yet: {', '.join(str(one.subgroup) for one in unclear)}; once more with other networks")
    settings = settings_of(work.path, work.group.name, found.kept or found.guess, width, bandlimit)
    found = _asked_of_kept(work, found)
    found = replace(found, table_constant=constant_score(work.path))
    for network in _networks(work, settings, found):
        table = sorted([*found.networks, network], key=lambda one: list(LABELS).index(one.kind))
        found = _doubted(replace(found, networks=table))
        yield replace(found, complete=False)
    yield replace(found, complete=True)


def _doubted(found: Discovery) -> Discovery:
    """Where the table speaks against what is kept, nothing is."""
    if found.kept is None or found.doubt is None:
        return found
    statements = [
        replace(one, verdict=UNCLEAR, because=None) if one.verdict == KEPT else one for one in found.statements
    ]
    return replace(found, kept=None, statements=statements)


def _look(work: _Work) -> tuple[list[Subgroup], list[Presence]]:
    """Subgroups with mirror lines where these may be, and which symmetries the examples themselves have.

    The mirror lines are from the losses of a short training in which a mirror line is enforced at every angle.
    """
    work.say("testing whether the examples come turned and mirrored, looking for mirror lines")
    seconds = max(1.0, work.clock.each(_plan.SCOUT, 1 if work.pool is not None else 2) - _plan.START)
    jobs = [_poses_job("poses.json", work, asked(work.group), 0.8 * seconds)]
    tried = scouts(work.group) if work.group == O2() else []
    if tried:
        jobs.append(_probe_job("scout.npz", work, tried, 0, 99, _plan.SCOUT_STEPS, seconds, held=False))
    found = dict(results(jobs, work.done, work.pool))
    lines = [k for k, one in enumerate(tried) if one.name == "D(1)"]
    if not lines:
        return [], found[0]
    angles = [tried[k].angle or 0.0 for k in lines]
    return likely_mirrors(angles, found[1].losses[lines], folds(found[0])), found[0]


def _poses_job(name: str, work: _Work, subgroups: Sequence[Subgroup], seconds: float) -> Job:
    return Job(name, find_poses, (work.path, work.group.name, subgroups, seconds), read_poses, write_poses)


def _asked_of_kept(work: _Work, found: Discovery) -> Discovery:
    """With the answer to whether examples come transformed by what is kept: who wants to augment by it asks that."""
    kept = found.kept
    if kept is None or kept.group.order == 1 or any(one.group == kept for one in found.presence):
        return found
    job = _poses_job(f"poses-{_digest(kept.to_json())}.json", work, [kept], max(1.0, work.clock.until(_plan.NETWORKS)))
    ((_, more),) = results([job], work.done, work.pool)
    return replace(found, presence=[*found.presence, *more])


def _probe_job(
    name: str, work: _Work, subgroups: Sequence[Subgroup], part: int, seed: int, steps: int, seconds: float, held: bool
) -> Job:
    size = batch_size(work.about)
    arguments = (work.path, work.group.name, subgroups, part, seed, steps, seconds, size, held, work.accelerator)

    def read(file: Path) -> PartResult:
        found = PartResult.read(file)
        found.check(len(subgroups), sum(work.about.counts[:2]))
        return found

    return Job(name, train_part, arguments, read, PartResult.save)


def _parts(work: _Work, subgroups: Sequence[Subgroup], seed: int, steps: int) -> Iterator[PartResult]:
    seconds = max(1.0, work.clock.each(_plan.COMPARE, PARTS) - 1)
    mark = _digest([one.to_json() for one in subgroups])
    jobs = [
        _probe_job(f"part-{seed}-{part}-{mark}.npz", work, subgroups, part, seed, steps, seconds, held=True)
        for part in range(PARTS)
    ]
    for number, result in results(jobs, work.done, work.pool):
        work.say(f"part {number + 1} of {PARTS}: {len(result.rows)} held-out examples, {result.steps} steps")
        yield result


def _networks(work: _Work, settings: dict[str, OwnSettings], found: Discovery) -> Iterator[Network]:
    labels = [LABELS[kind].format(kept=found.kept or found.guess) for kind in settings]
    work.say(f"training for the table: {'; '.join(labels)}")
    seconds = max(1.0, work.clock.each(_plan.NETWORKS, len(settings)) - _plan.START / 2)

    def read(file: Path) -> Network:
        found = read_row(file)
        check_networks([found], work.about.counts[1])
        return found

    jobs = [
        Job(
            f"network-{kind}-{_digest(one.to_dict())}.json",
            train_network,
            (kind, one, work.folder, seconds, work.accelerator),
            read,
            write_row,
        )
        for kind, one in settings.items()
    ]
    for _, network in results(jobs, work.done, work.pool):
        yield network


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _refined(
    collected: Sequence[tuple[Sequence[Subgroup], PartResult]], found: Discovery, numbers: Sequence[int]
) -> list[Subgroup]:
    """Mirror lines between those that were tried, where all of these are broken."""
    broken = {one.subgroup for one in found.statements if one.verdict == BROKEN}
    subgroups = collected[0][0]
    lines = [k for k, one in enumerate(subgroups) if one.name == "D(1)"]
    if not found.learnt or not lines or not all(subgroups[k] in broken for k in lines):
        return []
    losses = np.mean([one.losses[lines] for _, one in collected], 0)
    kept = [n for n in numbers if Subgroup(C(n)) not in broken]
    return between([subgroups[k].angle or 0.0 for k in lines], losses, kept)


def _compared(collected: Sequence[tuple[Sequence[Subgroup], PartResult]], about: own.About) -> Comparison:
    """All scores of every example, averaged over the networks that have not seen it.

    A subgroup's score is that of the identity, averaged over all networks, less what it loses against the identity in
    the same networks: rounds differ in how long they are trained.
    """
    union = list(dict.fromkeys(one for subgroups, _ in collected for one in subgroups))
    total = sum(about.counts[:2])
    free, lost = np.zeros(total), np.zeros((len(union), total))
    times: Array = np.zeros((len(union), total))
    constant, parts = np.zeros(total), np.full((-(-len(collected) // PARTS), total), -1)
    for number, (subgroups, one) in enumerate(collected):
        here = np.ix_(np.array([union.index(subgroup) for subgroup in subgroups]), one.rows)
        lost[here] += one.scores[:1] - one.scores  # the identity is the first of every round
        times[here] += 1
        free[one.rows] += one.scores[0]
        constant[one.rows] += one.constant
        parts[number // PARTS, one.rows] = number
    seen = (times > 0).all(0)
    free, constant = free[seen] / times[0, seen], constant[seen] / times[0, seen]
    scores: Array = free - lost[:, seen] / times[:, seen]
    return compare(union, scores, constant, parts[:, seen], binary=not about.regression)


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

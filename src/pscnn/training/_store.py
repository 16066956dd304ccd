"""Where runs are: each in a folder that is named by what differs from the defaults."""

import contextlib
import hashlib
import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from pscnn._files import make_folder, reported
from pscnn.training._environment import device_name
from pscnn.training._place import choose_device
from pscnn.training._run import (
    RunError,
    describe,
    read_environment,
    read_json,
    read_result,
    write_settings,
)
from pscnn.training._settings import ConfigError, Settings
from pscnn.training._task import former_names, make_settings, task_of
from pscnn.training._yaml import read_yaml

State = Literal["finished", "running", "started", "failed", "new"]
LONGEST = 120
"""Characters of a folder's name that tell settings; more are replaced by a digest."""


def run_name(settings: Settings) -> str:
    """Method, group, variant and seed, and whatever else differs from the defaults.

    Example:
        >>> from pscnn.tasks.double_digits import DoubleDigitSettings
        >>> run_name(DoubleDigitSettings(symmetry="C4", lr=0.001, compile=True))
        'p-scnn-O2-C4-lr=0.001-seed0'
    """
    task = task_of(settings)
    words = [_family(settings), task.variant]
    differing = settings.identity().differing()
    rest = {k: v for k, v in differing.items() if k not in ("method", "group", "seed", *task.named)}
    text = "-".join(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in rest.items())
    if len(text) > LONGEST:
        text = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = "-".join([*words, *([text] if text else []), f"seed{settings.seed}"])
    return re.sub(r"[^\w.=,@+-]+", "_", name)


def _family(settings: Settings) -> str:
    return f"{settings.method}-{re.sub('[()]', '', settings.group)}"


def run_lock(folder: Path) -> FileLock:
    """Held by whoever works on a run. It ends with its process, and can be taken again within it."""
    folder = folder.resolve()
    return FileLock(folder.with_name(f".{folder.name}.lock"), is_singleton=True)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a run's lock, or say that somebody does."""
    try:
        lock = run_lock(folder).acquire(timeout=0)
    except Timeout:
        raise RunError(f"another process is working on {folder}: wait for it, or stop it") from None
    except OSError as error:
        raise RunError(f"cannot write into {folder.parent}: {error.strerror}") from None
    with lock:
        yield


class Store:
    """A folder of runs. Several runners can share it: whoever works on a run holds its lock.

    Args:
        root: The folder.
        name: What the runs' folders are called instead of what differs from the defaults; the seed is added.
        archive: Another folder of runs, which are taken where they are finished and not so in this one. Nothing is
            written there.
    """

    def __init__(self, root: str | Path, name: str | None = None, archive: str | Path | None = None) -> None:
        if name is not None and (Path(name).name != name or "\0" in name or not name.isprintable()):
            raise RunError(
                f"--name must be the name of a single folder, got {name!r}. Use --runs to choose where it is"
            )
        self.root, self.name = Path(root), name or None
        self._archive = None if archive is None else Store(archive)
        self._rates: dict[tuple[str, str], float | None] = {}
        self._others: dict[str, dict[Settings, Path]] = {}
        self._places: dict[Settings, Path] = {}

    def folder(self, settings: Settings) -> Path:
        """Where the run of some settings is or will be."""
        own = self._own_folder(settings)
        if self._archive is not None and not (own / "result.json").exists():
            kept = self._archive.folder(settings)
            return kept if (kept / "result.json").exists() else own
        return own

    def _own_folder(self, settings: Settings) -> Path:
        run = settings.identity()
        if run in self._places:
            return self._places[run]
        name = run_name(settings) if self.name is None else f"{self.name}-seed{settings.seed}"
        place = self.root / settings.task
        for number in range(1, 10_000):
            folder = place / _numbered(name, number)
            if not (folder / "config.yaml").exists():
                break
            if _identity_of(folder) == run:
                if not (folder / "result.json").exists():
                    break
                self._places[run] = folder  # a run keeps its settings
                return folder
        known = self._known(settings.task).get(run) if self.name is None else None
        own = (folder / "config.yaml").exists()  # under the usual name, and not finished
        return folder if known is None or (own and not (known / "result.json").exists()) else known

    def _known(self, task: str) -> dict[Settings, Path]:
        """All runs by what identifies them, whatever their folders are called; of equal ones, one that is finished."""
        if task not in self._others:
            places = [self.root / name for name in (task, *former_names(task))]
            folders = [path.parent for place in places for path in place.glob("*/config.yaml")]
            folders.sort(key=lambda folder: ((folder / "result.json").exists(), folder))  # the last one counts
            found = {_identity_of(folder): folder for folder in folders}
            self._others[task] = {run: folder for run, folder in found.items() if run is not None}
        return self._others[task]

    def start(self, settings: Settings) -> Path:
        """Make a run's folder with its settings and versions, unless it has one, and return it.

        A run that is not finished is executed as these settings say from here on.
        """
        place = self.root / settings.task
        make_folder(place, "--runs", RunError)
        with (
            reported(f"cannot write into {place}", RunError),
            FileLock(place / ".start.lock"),
        ):  # two processes may want the same name for different settings
            folder = self.folder(settings)
            if not (folder / "config.yaml").exists():
                make_folder(folder, "--runs", RunError)
                describe(folder, settings)
            elif not (folder / "result.json").exists() and _settings_of(folder) != settings:
                write_settings(folder, settings)
        return folder

    def lock(self, settings: Settings) -> FileLock:
        """Held by whoever works on a run."""
        folder = self.folder(settings)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return run_lock(folder)

    def state(self, settings: Settings) -> State:
        """How far a run is."""
        folder = self.folder(settings)
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

    def result(self, settings: Settings) -> dict[str, Any] | None:
        """The result of a finished run; None for others."""
        return read_result(self.folder(settings))

    def failure(self, settings: Settings) -> str | None:
        """Why a run failed."""
        found = read_json(self.folder(settings) / "failure.json")
        return None if found is None else str(found.get("error"))

    def code(self, settings: Settings) -> str | None:
        """The version, and if known the revision, with which a run was started."""
        found = read_environment(self.folder(settings))
        if found is None:
            return None
        revision = str(found.get("git") or found.get("source") or "")
        short = revision[:10] + "+" * revision.endswith("+")
        return str(found["versions"]["pscnn"]) + (f" ({short})" if short else "")

    def estimate(self, settings: Settings) -> float | None:
        """Seconds that a run may take: as finished ones of its task, method and group took here per epoch, if any."""
        key = settings.task, _family(settings)
        if key not in self._rates:  # a plan asks for hundreds of runs
            results = (read_result(path.parent) for path in (self.root / key[0]).glob(f"{key[1]}-*/result.json"))
            here = device_name(choose_device("auto"))
            rates = [
                one["seconds"] / one["epochs"] for one in results if one is not None and _alike(one["device"], here)
            ]
            self._rates[key] = statistics.mean(rates) if rates else None
        rate = self._rates[key]
        return None if rate is None else settings.epochs * rate


def start(settings: Settings, root: str | Path = "runs", name: str | None = None) -> Path:
    """The folder of a run, made with its settings and versions if it is not there."""
    return Store(root, name).start(settings)


def new_folder(root: str | Path, name: str) -> Path:
    """A folder that did not exist: ``root/name``, or with a number behind it."""
    root = Path(root)
    make_folder(root, "--runs", RunError)
    for number in range(1, 10_000):
        with contextlib.suppress(FileExistsError):
            (root / _numbered(name, number)).mkdir()
            return root / _numbered(name, number)
    raise RunError(f"{root} contains too many folders named {name}")


def _alike(device: str, other: str) -> bool:
    """Whether times on one device say something about the other: the same GPU, or both are processors."""
    return device == other or all(re.search(r", \d+ threads$", name) for name in (device, other))


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _settings_of(folder: Path) -> Settings | None:
    try:
        return make_settings(read_yaml(folder / "config.yaml"), stored=True)
    except ConfigError:
        return None


def _identity_of(folder: Path) -> Settings | None:
    settings = _settings_of(folder)
    return None if settings is None else settings.identity()

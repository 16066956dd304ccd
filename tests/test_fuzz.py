"""Commands and files made up at random get an answer, or one sentence and exit code 1 or 2; never a traceback.

A small number of tries each time; PSCNN_FUZZ sets how many of each kind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import json
import os
import shutil
import signal
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from pscnn import PscnnError, training
from pscnn.cli import app
from pscnn.data import own

TRIES = int(os.environ.get("PSCNN_FUZZ", "15"))
PATIENCE = 60
"""Seconds of the processor after which something hangs, or ten times as many by the clock: on a busy machine a command
may get no processor for a minute.
"""
fuzz = settings(
    max_examples=TRIES,
    deadline=None,
    derandomize="PSCNN_FUZZ" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
SMALL: dict[str, Any] = {
    "kinds": 2,
    "size": 28,
    "width": 0.05,
    "train_per_class": 2,
    "validation_per_class": 1,
    "test_per_class": 1,
}
SMALL |= {"batch_size": 8, "epochs": 1, "group": "C4"}


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """Within it what takes too long is an error."""

    def late(*_: Any) -> None:
        raise AssertionError(f"no answer within {PATIENCE} s of the processor, or {10 * PATIENCE} s")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, PATIENCE), signal.SIGALRM: (signal.ITIMER_REAL, 10 * PATIENCE)}
    before = {number: signal.signal(number, late) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def answer(words: list[str]) -> str:
    """What a command says, which is no traceback."""
    with patience(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch and matplotlib about weights that are not numbers
        done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError(f"{words}: {done.exception!r}") from done.exception
    assert done.exit_code in (0, 1, 2), (words, done.output)
    assert done.exit_code == 0 or done.output.strip(), words
    assert "Traceback" not in done.output, (words, done.output)
    return done.output


# -- the command line ---------------------------------------------------------------------------------------------

NUMBERS = st.sampled_from(
    ["0", "1", "-1", "2", "0.5", "1e400", "nan", "inf", "-inf", "1e-400", "9" * 30, "1_0", "0x1", "٣"]
)
WORDS = st.one_of(
    NUMBERS,
    st.sampled_from(
        ["", "C4", "O(2)", "SO(3)", "D(0)", "C(-1)", "C(100000)", "[/x]", "[red]", "{}", "[]", "../..", "~", "."]
    ),
    st.sampled_from(
        ["--help", "--", "-", "--json", "a=b", "\0", "a\nb", "\udcff", "p-scnn", "soft", "exact", "x" * 5000]
    ),
    st.text(max_size=8),
)
NAMES = sorted(
    {
        f"--{prefix}{name.replace('_', '-')}"
        for task in training.task_names()
        for name in training.task_type(task).settings_type.options()
        for prefix in ("", "no-")
    }
    | {"--name", "--seeds", "--devices", "--accelerator", "--data-dir", "--config", "--together", "--out", "--where"}
    | {"--compare", "--format", "--save", "--only", "--known", "--minutes", "--split-seed", "--rounds", "--batch"}
)
COMMANDS = [
    *(["train", task] for task in training.task_names()),
    *(["train"], ["evaluate"], ["inspect"], ["report"], ["results"], ["predict"], ["export"], ["discover"]),
    *(["reproduce", "ddmnist", "--dry-run"], ["reproduce", "list"], ["table"], ["data"], ["bench", "--help"], []),
]


@fuzz
@given(
    command=st.sampled_from(COMMANDS),
    options=st.lists(st.tuples(st.sampled_from(NAMES), WORDS), max_size=3),
    more=st.lists(WORDS, max_size=2),
)
def test_words(command: list[str], options: list[tuple[str, str]], more: list[str]) -> None:
    words = [*command, *(word for option in options for word in option), *more]
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:  # nothing there, nothing lost
        stack.callback(os.chdir, here)
        os.chdir(place)
        if "train" in command:  # what can be trained is trained in no time
            words += ["--data-dir", "nothing", "--epochs", "1", "--batch-size", "2"]
            words += ["--count", "4"] if {"vectors", "symmetry"} & {*command} else []
            words += as_small(command)
        answer(words)


def as_small(command: list[str]) -> list[str]:
    if command[-1] == "shapes3d":
        return [
            "--train-count",
            "2",
            "--validation-count",
            "2",
            "--test-count",
            "2",
            "--width",
            "1",
            "--bandlimit",
            "1",
        ]
    if command[-1] == "ddmnist":
        return [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return []


# -- files of a run -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = training.start(training.make_settings({"task": "ddmnist", **SMALL}), tmp_path_factory.mktemp("runs"))
    training.train(folder, accelerator="cpu", progress=False)
    return folder


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
FILES = ["config.yaml", "result.json", "metrics.jsonl", "environment.json", "confusion.npy", "densities.npz"]
FILES += ["best.ckpt", "last.ckpt"]


@st.composite
def damage(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Cut off, overwritten, with something else in between, another text or another value of an entry."""
    kind = draw(st.sampled_from(["cut", "flip", "insert", "text", "value"]))
    place, junk, value = draw(st.floats(0, 1)), draw(st.binary(min_size=1, max_size=20)), draw(JSON)

    def change(content: bytes) -> bytes:
        k = int(place * len(content))
        if kind == "value":
            return with_value(content, place, value)
        parts = {
            "cut": content[:k],
            "flip": content[:k] + junk + content[k + len(junk) :],
            "insert": content[:k] + junk + content[k:],
            "text": json.dumps(value).encode(),
        }
        return parts[kind]

    return change


def with_value(content: bytes, place: float, value: Any) -> bytes:
    """The same with another value of one entry, if it is a mapping in text."""
    try:
        found = yaml.safe_load(content.decode())
        name = sorted(found)[int(place * (len(found) - 1))]
        return json.dumps({**found, name: value}).encode() + b"\n"
    except (UnicodeDecodeError, yaml.YAMLError, TypeError, AttributeError):
        return content[: int(place * len(content))]


@fuzz
@given(
    file=st.sampled_from(FILES),
    change=damage(),
    command=st.sampled_from(["evaluate", "inspect", "results", "report", "export", "resume", "save", "predict"]),
)
def test_files_of_a_run(file: str, change: Callable[[bytes], bytes], command: str, genuine: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        shutil.copytree(genuine, run)
        (run / file).write_bytes(change((run / file).read_bytes()))
        config = (run / "config.yaml").read_bytes()
        words = {"resume": ["train", "--resume"], "save": ["results", "--save", f"{place}/all.json"]}.get(
            command, [command]
        )
        if command in ("resume", "evaluate") and not harmless(run):
            return
        answer([*words, str(run), *([str(run)] if command == "predict" else [])])
        assert (run / "config.yaml").read_bytes() == config


def harmless(run: Path) -> bool:
    """Whether what the configuration asks for is done in a moment: a longer training is no fault."""
    try:
        own = training.read_task(run).settings
    except (PscnnError, OSError):
        return True
    small = {**SMALL, "passes": 1, "bandlimit": 2, "devices": 1}
    return own.task == "ddmnist" and all(
        not isinstance(value, int) or isinstance(value, bool) or getattr(own, name, 0) <= max(8, value)
        for name, value in small.items()
    )


@fuzz
@given(value=JSON, change=damage())
def test_results_files(value: Any, change: Callable[[bytes], bytes]) -> None:
    kept = (Path(__file__).parent / "kept" / "0.1" / "results.json").read_bytes()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "results.json"
        for content in (change(kept), json.dumps({"runs": [value]}).encode()):
            path.write_bytes(content)
            answer(["results", str(path)])


@fuzz
@given(
    values=st.dictionaries(st.sampled_from(["task", *(name[2:].replace("-", "_") for name in NAMES)]), JSON, max_size=4)
)
def test_configurations(values: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "settings.yaml"
        path.write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
        with patience(), contextlib.suppress(PscnnError):
            training.make_settings(training.read_yaml(path))


@fuzz
@given(name=st.sampled_from([field.name for field in dataclasses.fields(own.About)]), value=JSON, size=JSON)
def test_descriptions_of_data(name: str, value: Any, size: Any) -> None:
    new = json.loads(own.About((28, 28), 1, ("a", "b"), "classes", 0.0, 1.0).to_json())
    old = {key: one for key, one in new.items() if key not in ("shape", "kind", "frame", "spacing")}
    old |= {"dimension": 2, "size": size, "regression": False}
    for values in ({**new, name: value}, {**old, name: value}, value):
        with patience(), contextlib.suppress(ValueError):
            own.About.from_json(json.dumps(values))


# -- people's own data --------------------------------------------------------------------------------------------

DTYPES = st.sampled_from(["u1", "u2", "i2", "i8", "f2", "f4", "f8", "c8", "?", "U3", "M8[s]"])


@st.composite
def arrays(draw: st.DrawFn, count: int | None = None) -> np.ndarray:
    """Any shape and kind, mostly such that could be images."""
    sides = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 9, 28]), max_size=4))
    shape = tuple(sides) if count is None else (count, *sides[:3])
    values = np.random.default_rng(draw(st.integers(0, 9))).normal(size=shape) * draw(
        st.sampled_from([0.0, 1.0, 300.0, 1e300])
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return values.astype(np.dtype(draw(DTYPES)))


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "target": st.sampled_from([*own.KINDS, "words"]),
        "dimension": st.sampled_from([2, 3, 5]),
        "square": st.booleans(),
        "size": st.sampled_from([0, 8, 13]),
    },
)


@fuzz
@given(
    images=arrays(count=12),
    labels=arrays(count=12),
    second=st.sampled_from(["labels", "masks"]),
    spacing=st.one_of(st.none(), arrays()),
    how=OPTIONS,
    change=damage(),
)
def test_arrays(
    images: np.ndarray,
    labels: np.ndarray,
    second: str,
    spacing: np.ndarray | None,
    how: dict[str, Any],
    change: Callable[[bytes], bytes],
) -> None:
    buffer = io.BytesIO()
    more: dict[str, Any] = {second: labels} | ({} if spacing is None else {"spacing": spacing})
    np.savez(buffer, images=images, **more)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "data.npz"
        for content in (buffer.getvalue(), change(buffer.getvalue())):
            path.write_bytes(content)
            with patience(), contextlib.suppress(PscnnError):
                about = own.prepare(path, Path(place) / "prepared.npz", **how)
                splits = own.load(Path(place) / "prepared.npz")
                assert sum(map(len, splits.values())) == sum(about.counts) == 12


@fuzz
@given(array=arrays(), change=damage(), name=st.sampled_from(["a.npy", "a.png", "a.nii", "a.nii.gz", "a.tiff"]))
def test_examples(array: np.ndarray, change: Callable[[bytes], bytes], name: str) -> None:
    abouts = [own.About(shape, 3, ("a", "b"), "classes", 0.0, 1.0) for shape in ((28, 28), (9, 12, 7))]
    content = content_of(array, name)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / name
        for tried in (content, change(content)):
            path.write_bytes(tried)
            for about in abouts:
                with patience(), contextlib.suppress(PscnnError):
                    found = own.read_example(path, about)
                    assert found.shape == (3, *about.shape)
                    assert found.isfinite().all()


def content_of(array: np.ndarray, name: str) -> bytes:
    """An array as a file; what its kind of file cannot hold is an .npy file under that name."""
    buffer = io.BytesIO()
    if name.startswith("a.nii") and array.dtype.kind in "iuf" and array.dtype not in (np.float16, np.int64):
        make: Any = nibabel.Nifti1Image
        content: bytes = make(array, np.diag([2.0, 1, 0.5, 1])).to_bytes()
        return gzip.compress(content) if name.endswith("gz") else content
    if name.endswith((".png", ".tiff")) and array.size:
        with contextlib.suppress(TypeError, ValueError, OSError, KeyError, IndexError):  # no picture
            Image.fromarray(array).save(buffer, format=name.rpartition(".")[2])
            return buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@fuzz
@given(images=arrays(count=12), targets=st.lists(st.one_of(arrays(), JSON), min_size=12, max_size=12), how=OPTIONS)
def test_data_set_objects(images: np.ndarray, targets: list[Any], how: dict[str, Any]) -> None:
    same = [targets[0]] * 12
    with tempfile.TemporaryDirectory() as place:
        for rows in (list(zip(images, targets, strict=True)), list(zip(images, same, strict=True)), targets):
            for source in (rows, {"train": rows}, (images, targets[0]), targets[0]):
                with patience(), contextlib.suppress(PscnnError), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    own.prepare(source, Path(place) / "prepared.npz", **how)


CELLS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["path", "label", "mask", "split", "a.npy", "b.npy", "1", "0.5", "nan", "train", '"']),
)


@fuzz
@given(rows=st.lists(st.lists(CELLS, max_size=4), max_size=6), how=OPTIONS)
def test_tables(rows: list[list[str]], how: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        for name in ("a.npy", "b.npy"):
            np.save(Path(place) / name, np.eye(28, dtype=np.uint8))
        path = Path(place) / "table.csv"
        path.write_bytes("\n".join(",".join(row) for row in rows).encode(errors="surrogatepass"))
        with patience(), contextlib.suppress(PscnnError):
            own.prepare(path, Path(place) / "prepared.npz", **how)


@fuzz
@given(
    entries=st.dictionaries(
        st.sampled_from(["about.npy", "pixels.npy", "targets.npy", "split.npy"]), arrays(), max_size=4
    )
)
def test_prepared_files(entries: dict[str, np.ndarray]) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "prepared.npz"
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in entries.items():
                buffer = io.BytesIO()
                np.save(buffer, array)
                archive.writestr(name, buffer.getvalue())
        for read in (own.read_about, own.load):
            with patience(), contextlib.suppress(PscnnError):
                read(path)

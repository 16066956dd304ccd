"""What a run is made with and on: versions, revision, device, precision, random numbers."""

import contextlib
import hashlib
import os
import platform
import subprocess
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parents[1]


def environment() -> dict[str, Any]:
    """What a run is made with: versions, revision, a digest of the files, and when."""
    from pscnn import __version__

    versions = {"pscnn": __version__}
    for package in ("torch", "numpy", "scipy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "versions": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "git": _revision(),
        "source": _source(),
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _revision() -> str | None:
    """What PSCNN_REVISION says, for copies of the files on another machine.

    Else that of the repository that the package lies in, with a + if its files have been changed since.
    """
    if said := os.environ.get("PSCNN_REVISION"):
        return said
    try:
        head, changes = (
            subprocess.run(["git", "-C", HERE, *words], capture_output=True, text=True, check=False).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", "."))
        )
    except OSError:
        head, changes = "", ""
    return head + "+" * bool(changes) if head else None


@cache
def _source() -> str:
    """A digest of the package's files: what was run, also where it was installed without a repository."""
    digest = hashlib.sha256()
    for path in sorted(HERE.rglob("*.py")):
        digest.update(f"{path.relative_to(HERE).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def set_precision(name: str) -> None:
    """Of matrix products and convolutions."""
    torch.set_float32_matmul_precision("highest" if name == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = name != "fp32"


@contextlib.contextmanager
def precision(name: str, search: bool = True) -> Iterator[None]:
    """Within it matrix products and convolutions have this precision; afterwards that of before.

    Args:
        name: "fp32", "tf32" or "bf16".
        search: Whether a GPU's library tries which of its algorithms is the fastest. It pays for what is done often.
    """
    backends = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), backends.allow_tf32, backends.benchmark
    set_precision(name)
    backends.benchmark = search
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        backends.allow_tf32, backends.benchmark = before[1:]


def kept_random_state() -> Any:
    """Within it random numbers can be seeded; afterwards they go on as if nothing had happened."""
    return torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ())


def device_name(device: torch.device) -> str:
    """In words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"

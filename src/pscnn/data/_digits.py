"""Single handwritten digits, from two sources that are never swapped silently."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn._extras import require
from pscnn._types import AnyArray
from pscnn.data._folder import DataError, data_folder

SOURCES = ("digits", "mnist")
SPLITS = ("train", "validation", "test")
_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
# SHA-256 of the contents after decompression: independent of how a file was compressed.
_MNIST_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_MNIST_VALIDATION = 3000  # of the 10,000 test digits; the other 7,000 are for testing


@dataclass(frozen=True, eq=False)
class Digits:
    """Digit images of one split.

    Attributes:
        images: Values in [0, 1], shape (N, side, side).
        labels: 0 to 9, shape (N,).
    """

    images: Tensor
    labels: Tensor


def load_digits(source: str, side: int, folder: str | Path | None = None) -> dict[str, Digits]:
    """Digits in disjoint splits "train", "validation" and "test".

    Args:
        source: "mnist", or "digits", the 1,797 digits bundled with scikit-learn, upsampled.
        side: Side length of the images, 28 or 14.
        folder: Data folder for "mnist"; see ``data_folder``.
    """
    if source == "mnist":
        return _mnist(data_folder(folder), side)
    if source == "digits":
        return _bundled(side)
    raise ValueError(f"unknown source of digits {source!r}: use one of {', '.join(SOURCES)}")


def _mnist(folder: Path, side: int) -> dict[str, Digits]:
    """Training digits from MNIST's training split; validation and test from disjoint parts of its test split."""
    arrays = {name: _read_idx(name, folder / "mnist") for name in _MNIST_FILES}

    def digits(split: str, rows: AnyArray | slice) -> Digits:
        images = torch.from_numpy(arrays[f"{split}-images-idx3-ubyte"][rows]).float() / 255
        labels = torch.from_numpy(arrays[f"{split}-labels-idx1-ubyte"][rows].astype(np.int64))
        return Digits(_resize(images, side), labels)

    order = np.random.default_rng(0).permutation(10000)
    return {
        "train": digits("train", slice(None)),
        "validation": digits("t10k", np.sort(order[:_MNIST_VALIDATION])),
        "test": digits("t10k", np.sort(order[_MNIST_VALIDATION:])),
    }


def _read_idx(name: str, folder: Path) -> AnyArray:
    plain, packed = folder / name, folder / f"{name}.gz"
    path = plain if plain.exists() else packed
    if not path.exists():
        _download(packed)
    try:
        content = path.read_bytes() if path == plain else gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}. Delete it to download it again") from error
    if hashlib.sha256(content).hexdigest() != _MNIST_FILES[name]:
        raise DataError(f"{path} is damaged or not MNIST (its checksum is wrong). Delete it to download it again")
    axes = content[3]
    shape = [int.from_bytes(content[4 + 4 * k : 8 + 4 * k], "big") for k in range(axes)]
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape).copy()


def _download(target: Path) -> None:
    pooch = require("pooch", "data", "Downloading MNIST")
    try:
        # Verified after decompression by the caller; pooch moves the file into place when it is complete.
        pooch.retrieve(_MNIST_URL + target.name, known_hash=None, fname=target.name, path=target.parent)
    except Exception as error:  # requests and urllib raise many kinds
        raise DataError(
            f"MNIST is not in {target.parent} and could not be downloaded ({type(error).__name__}). "
            f"Put {target.name} and the other three files there, set --data-dir or PSCNN_DATA to a folder "
            "that holds mnist/, or use --source digits, which needs no download"
        ) from error


def _bundled(side: int) -> dict[str, Digits]:
    """Scikit-learn's digits, 60 % for training, 15 % for validation, 25 % for testing, the same in every class."""
    datasets = require("sklearn.datasets", "data", "The bundled digits")
    bundle = datasets.load_digits()
    # 8 × 8 pixels in a 28 × 28 frame, as large in it as MNIST's digits are.
    inner = round(side * 20 / 28)
    images = F.interpolate(torch.from_numpy(bundle.images).float()[:, None] / 16, (inner, inner), mode="bilinear")
    margin = side - inner
    images = F.pad(images[:, 0], (margin // 2, margin - margin // 2) * 2)
    labels = torch.from_numpy(bundle.target.astype(np.int64))
    rng = np.random.default_rng(0)
    rows: dict[str, list[AnyArray]] = {split: [] for split in SPLITS}
    for digit in range(10):
        order = rng.permutation(np.flatnonzero(bundle.target == digit))
        first, second = round(0.6 * len(order)), round(0.75 * len(order))
        for split, part in zip(SPLITS, np.split(order, [first, second]), strict=True):
            rows[split].append(part)
    return {split: Digits(images[index], labels[index]) for split, index in _joined(rows).items()}


def _joined(rows: dict[str, list[AnyArray]]) -> dict[str, Tensor]:
    return {split: torch.from_numpy(np.sort(np.concatenate(parts))) for split, parts in rows.items()}


def _resize(images: Tensor, side: int) -> Tensor:
    if images.shape[-1] == side:
        return images
    return F.interpolate(images[:, None], (side, side), mode="bilinear", antialias=True)[:, 0]

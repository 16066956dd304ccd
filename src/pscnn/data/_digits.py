"""Single handwritten digits, from two sources that are never swapped silently."""

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pscnn._extras import require
from pscnn._types import AnyArray
from pscnn.data._folder import DataError, check_known, data_folder, download, shuffled_classes

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


class Digits(NamedTuple):
    """Digit images of one split, (N, side, side) with values in [0, 1], and their labels, (N,)."""

    images: Tensor
    labels: Tensor


def load_digits(source: str, side: int, folder: str | Path | None = None) -> dict[str, Digits]:
    """Digits in disjoint splits, of side length 28 or 14: MNIST's, or those of scikit-learn, upsampled."""
    check_known("source of digits", source, SOURCES)
    return _mnist(data_folder(folder), side) if source == "mnist" else _bundled(side)


def _mnist(folder: Path, side: int) -> dict[str, Digits]:
    """Training digits from MNIST's training split; validation and test from disjoint parts of its test split."""
    arrays = {name: _read_idx(name, folder / "mnist") for name in _MNIST_FILES}

    def digits(split: str, rows: AnyArray | slice) -> Digits:
        images = torch.from_numpy(arrays[f"{split}-images-idx3-ubyte"][rows]).float() / 255
        labels = torch.from_numpy(arrays[f"{split}-labels-idx1-ubyte"][rows].astype(np.int64))
        if side != images.shape[-1]:
            images = F.interpolate(images[:, None], (side, side), mode="bilinear", antialias=True)[:, 0]
        return Digits(images, labels)

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
        advice = (
            f"Put {packed.name} and the other three files there, set --data-dir or PSCNN_DATA to a folder "
            "that holds mnist/, or use --source digits, which needs no download"
        )
        download(_MNIST_URL + packed.name, packed, "MNIST", advice)  # checked below, after decompression
    try:
        content = path.read_bytes() if path == plain else gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}. Delete it to download it again") from error
    if hashlib.sha256(content).hexdigest() != _MNIST_FILES[name]:
        raise DataError(f"{path} is damaged or not MNIST (its checksum is wrong). Delete it to download it again")
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape).copy()


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
    classes = shuffled_classes(bundle.target, 0)
    parts = [np.split(own, [round(0.6 * len(own)), round(0.75 * len(own))]) for own in classes]
    rows = [torch.from_numpy(np.sort(np.concatenate(part))) for part in zip(*parts, strict=True)]
    return {split: Digits(images[own], labels[own]) for split, own in zip(SPLITS, rows, strict=True)}

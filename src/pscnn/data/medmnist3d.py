"""The 3D part of MedMNIST: small medical volumes with official splits (paper, Appendix F.1.3).

Files are those that the collection publishes, ``organmnist3d.npz`` and so on, with the arrays ``train_images``,
``train_labels`` and the same for ``val`` and ``test``. They are read from ``medmnist/`` in the data folder, or
downloaded there and checked.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pscnn._types import AnyArray
from pscnn.data._digits import SPLITS
from pscnn.data._folder import DataError, array_of, check_known, data_folder, download, read_arrays, shuffled_classes
from pscnn.data._windows import Examples

__all__ = ["CLASSES", "SIZES", "DataError", "Volumes", "load", "read", "subset"]

SIZES = (28, 64)
CLASSES: dict[str, tuple[str, ...]] = {
    "organ": (
        "liver",
        "right kidney",
        "left kidney",
        "right femur",
        "left femur",
        "bladder",
        "heart",
        "right lung",
        "left lung",
        "spleen",
        "pancreas",
    ),
    "nodule": ("benign", "malignant"),
    "synapse": ("inhibitory", "excitatory"),
    "adrenal": ("normal", "hyperplasia"),
    "fracture": ("buckle", "nondisplaced", "displaced"),
    "vessel": ("vessel", "aneurysm"),
}
"""The data sets and the names of their classes."""

_URL = "https://zenodo.org/records/10519652/files/"
# MD5 of the published files at 28³ and 64³.
_CHECKSUMS = {
    "organ": ("a0c5a1ff56af4f155c46d46fbb45a2fe", "58a2205adf14a9d0a189cb06dc78bf10"),
    "nodule": ("8755a7e9e05a4d9ce80a24c3e7a256f3", "c47c5b7d457bf6332200d2ea6d64ecd8"),
    "synapse": ("1235b78a3cd6280881dd7850a78eadb6", "43bd14ebf3af9d3dd072446fedc14d5e"),
    "adrenal": ("bbd3c5a5576322bc4cdfea780653b1ce", "17721accfe9fb005146a47d33bc54b2f"),
    "fracture": ("6aa7b0143a6b42da40027a9dda61302f", "f01d7e6316aedf4210da0da5b7437b42"),
    "vessel": ("b41fd4f7e7e2feedddb201585ecafa1b", "6bb274a8846e1097066dcd64e2c4520f"),
}
_SUBSET_SEED = 42


class Volumes(Examples):
    """Volumes of one split, as bytes of shape (N, s, s, s), with their labels (N,)."""

    def images(self, rows: Tensor, seed: int) -> Tensor:
        """Some volumes with values in [−1, 1], shape (B, 1, s, s, s), on the device of the row numbers."""
        return super().images(rows, seed)[:, None] / 127.5 - 1


def load(
    dataset: str, *, size: int = 28, fraction: float = 1.0, folder: str | Path | None = None
) -> dict[str, Volumes]:
    """A data set in its official splits "train", "validation" and "test".

    Args:
        dataset: One of ``CLASSES``.
        size: Side length of the volumes, 28 or 64.
        fraction: How much of the training split to use, the same share of every class; always the same rows.
        folder: Data folder; see ``data_folder``.
    """
    check_known("data set", dataset, CLASSES)
    if size not in SIZES:
        raise ValueError(f"volumes have side length 28 or 64, got {size}")
    name = f"{dataset}mnist3d{'' if size == 28 else f'_{size}'}.npz"
    path = data_folder(folder) / "medmnist" / name
    if not path.exists():
        advice = (
            "Put it there, or set --data-dir or PSCNN_DATA to a folder that holds medmnist/, or train on shapes3d, "
            "which needs no download"
        )
        checksum = f"md5:{_CHECKSUMS[dataset][SIZES.index(size)]}"
        download(f"{_URL}{path.name}?download=1", path, "MedMNIST", advice, checksum)
    splits = read(path, size, len(CLASSES[dataset]))
    train = splits["train"]
    rows = torch.from_numpy(subset(train.labels.numpy(), fraction))
    return {**splits, "train": Volumes(train.pixels[rows], train.labels[rows])}


def read(path: Path, size: int, classes: int) -> dict[str, Volumes]:
    """Read and check a file."""
    arrays = read_arrays(path, ". Delete it to download it again")
    out = {}
    for split, short in zip(SPLITS, ("train", "val", "test"), strict=True):
        images, labels = (array_of(arrays, f"{short}_{kind}", path) for kind in ("images", "labels"))
        if images.ndim != 4 or images.shape[1:] != (size,) * 3 or images.dtype != np.uint8:
            raise DataError(
                f"{path}: {short}_images must be bytes of shape (N, {size}, {size}, {size}), "
                f"got {images.dtype} of shape {images.shape}"
            )
        flat = labels.reshape(len(labels), -1) if labels.size else labels.reshape(0, 1)
        if flat.shape != (len(images), 1) or not np.issubdtype(labels.dtype, np.integer):
            raise DataError(
                f"{path}: {short}_labels must be one whole number per volume, {len(images)} in all, "
                f"got {labels.dtype} of shape {labels.shape}"
            )
        if not len(images):
            raise DataError(f"{path}: {short}_images is empty")
        if flat.min() < 0 or flat.max() >= classes:
            raise DataError(
                f"{path}: {short}_labels must lie between 0 and {classes - 1}, got {flat.min()} to {flat.max()}"
            )
        out[split] = Volumes(torch.from_numpy(images), torch.from_numpy(flat[:, 0].astype(np.int64)))
    return out


def subset(labels: AnyArray, fraction: float) -> AnyArray:
    """Rows that hold a share of every class, at least one each; sorted, and the same every time."""
    if not 0 < fraction <= 1:
        raise ValueError(f"the fraction of the training split must lie in (0, 1], got {fraction}")
    rows = [own[: max(1, round(fraction * len(own)))] for own in shuffled_classes(labels, _SUBSET_SEED)]
    return np.sort(np.concatenate(rows))

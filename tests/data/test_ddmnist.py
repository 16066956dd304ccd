from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from pscnn.data import DataError, data_folder, ddmnist
from pscnn.data import _digits as digits_module
from pscnn.data._digits import load_digits

SMALL = {"train": 3, "validation": 2, "test": 2}


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files in MNIST's format and their checksums, holding noise."""
    rng = np.random.default_rng(0)
    sums = {}
    for split, count in (("train", 50), ("t10k", 10000)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        for name, axes, array in (("images-idx3", 3, images), ("labels-idx1", 1, labels)):
            shape = b"".join(n.to_bytes(4, "big") for n in array.shape)
            content = bytes([0, 0, 8, axes]) + shape + array.tobytes()
            sums[f"{split}-{name}-ubyte"] = hashlib.sha256(content).hexdigest()
            path = tmp_path / "mnist" / f"{split}-{name}-ubyte.gz"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(content, 1))
    monkeypatch.setattr(digits_module, "_MNIST_FILES", sums)
    return tmp_path


@pytest.mark.parametrize("side", [14, 28])
def test_bundled_digits_are_split_without_overlap(side: int) -> None:
    splits = load_digits("digits", side)
    seen: set[bytes] = set()
    total = 0
    for digits in splits.values():
        assert digits.images.shape[1:] == (side, side)
        assert 0 <= digits.images.min() <= digits.images.max() <= 1
        assert digits.labels.bincount().min() >= 20
        seen |= {image.numpy().tobytes() for image in digits.images}
        total += len(digits.images)
    assert total == 1797
    assert len(seen) == total


def test_mnist_validation_and_test_digits_are_disjoint(mnist: Path) -> None:
    splits = load_digits("mnist", 28, mnist)
    assert [len(splits[s].images) for s in ("train", "validation", "test")] == [50, 3000, 7000]
    images = [{i.numpy().tobytes() for i in splits[s].images} for s in splits]
    assert not images[0] & images[1]
    assert not images[1] & images[2]
    assert load_digits("mnist", 14, mnist)["test"].images.shape == (7000, 14, 14)


def test_uncompressed_files_are_read_too(mnist: Path) -> None:
    for packed in list((mnist / "mnist").iterdir()):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    assert len(load_digits("mnist", 28, mnist)["train"].images) == 50


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:500]), "cannot read .*Delete it to download it again"),
        (lambda p: p.write_bytes(gzip.compress(b"hello")), "its checksum is wrong"),
    ],
)
def test_damaged_files_are_named(mnist: Path, damage: object, message: str) -> None:
    damage(mnist / "mnist" / "train-images-idx3-ubyte.gz")  # type: ignore[operator]
    with pytest.raises(DataError, match=message):
        load_digits("mnist", 28, mnist)


def test_a_missing_data_set_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pooch

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(pooch, "retrieve", refuse)
    with pytest.raises(DataError, match=r"could not be downloaded .*--source digits, which needs no download"):
        load_digits("mnist", 28, tmp_path)


def test_downloads_are_verified(mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pooch

    target = mnist / "mnist" / "train-labels-idx1-ubyte.gz"
    content = target.read_bytes()
    target.unlink()
    monkeypatch.setattr(pooch, "retrieve", lambda *_, **__: target.write_bytes(content))
    assert len(load_digits("mnist", 28, mnist)["train"].labels) == 50


def test_data_folder_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PSCNN_DATA", raising=False)
    assert data_folder() == tmp_path / "pscnn"
    monkeypatch.setenv("PSCNN_DATA", "/somewhere")
    assert data_folder() == Path("/somewhere")
    assert data_folder("/else") == Path("/else")
    assert data_folder("~nobody-is-called-so") == Path("~nobody-is-called-so")
    monkeypatch.delenv("PSCNN_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "~")  # as where there is none
    with pytest.raises(DataError, match="no home folder to keep data in: set PSCNN_DATA"):
        data_folder()


def test_labels_name_the_digits_left_and_right() -> None:
    splits = ddmnist.load("digits", "C1", seed=0, per_class=SMALL)
    digits = load_digits("digits", 28)["train"]
    train = splits["train"]
    assert len(train) == 300
    assert torch.equal(digits.labels[train.pairs[:, 0]], train.labels // 10)
    assert torch.equal(digits.labels[train.pairs[:, 1]], train.labels % 10)


def test_fewer_kinds_of_digits() -> None:
    train = ddmnist.load("digits", "O2", seed=0, per_class=SMALL, kinds=3)["train"]
    assert train.labels.unique().tolist() == list(range(9))


@pytest.mark.parametrize("symmetry", ddmnist.SYMMETRIES)
def test_augmentation_moves_digits_by_their_symmetry_and_no_further(symmetry: str) -> None:
    blob = torch.zeros(400, 2, 28, 28)
    blob[..., 4:8, 12:16] = 1  # above the centre, so that its direction shows the rotation
    images = ddmnist.render(blob, symmetry, torch.Generator().manual_seed(0)) * ddmnist.STD + ddmnist.MEAN
    assert images.shape == (400, 1, 56, 56)
    assert images[:, :, :14].abs().max() < 1e-5
    left = images[:, 0, 14:42, :28]
    y, x = torch.meshgrid(torch.arange(28) - 13.5, torch.arange(28) - 13.5, indexing="ij")
    angle = torch.rad2deg(torch.atan2((left * x).sum((1, 2)), -(left * y).sum((1, 2))))
    steps = torch.remainder(angle + 3, 90) - 3
    if symmetry in ("C1", "D1"):
        assert angle.abs().max() < 3
    elif symmetry in ("C4", "D4"):
        assert steps.abs().max() < 3
        assert len(torch.round(torch.remainder(angle + 45, 360) / 90).unique()) >= 4
    else:
        assert torch.histc(angle, 8, -180, 180).min() > 20


@pytest.mark.parametrize(("symmetry", "flips"), [("C1", False), ("D1", True)])
def test_reflections_happen_half_of_the_time(symmetry: str, flips: bool) -> None:
    blob = torch.zeros(400, 2, 28, 28)
    blob[..., 12:16, 4:8] = 1  # left of the centre
    images = ddmnist.render(blob, symmetry, torch.Generator().manual_seed(0))
    moved = (images[:, 0, 14:42, :14].sum((1, 2)) < images[:, 0, 14:42, 14:28].sum((1, 2))).float().mean()
    assert moved == 0 if not flips else 0.4 < moved < 0.6


def test_images_depend_on_the_seed_alone() -> None:
    train = ddmnist.load("digits", "O2", seed=0, size=28, per_class=SMALL)["train"]
    rows = torch.arange(8)
    assert torch.equal(train.images(rows, 5), train.images(rows, 5))
    assert not torch.equal(train.images(rows, 5), train.images(rows, 6))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "cifar"}, "unknown source of digits 'cifar'"),
        ({"symmetry": "C3"}, "unknown digit symmetry 'C3'"),
        ({"size": 32}, "side 28 or 56, got 32"),
        ({"per_class": {"train": 0}}, "at least one image per class, got 0"),
        ({"kinds": 1}, "2 to 10 kinds of digits, got 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ddmnist.load(**{"source": "digits", "symmetry": "O2", "seed": 0, **arguments})  # type: ignore[arg-type]

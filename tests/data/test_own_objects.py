"""Data sets as objects: rows as torchvision and Hugging Face have them, arrays and tensors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset, TensorDataset

from pscnn.data import DataError, own

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 255, (12, 10, 14), dtype=np.uint8)
CLASSES = np.arange(12) % 2


class Rows:
    """A data set like those of torchvision, or with ``features`` like those of Hugging Face."""

    def __init__(self, rows: list[Any], **more: Any) -> None:
        self.rows = rows
        self.__dict__.update(more)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, k: int) -> Any:
        if isinstance(self.rows[k], Exception):
            raise self.rows[k]
        return self.rows[k]


def prepare(source: Any, tmp_path: Path, **options: Any) -> tuple[own.About, torch.Tensor, torch.Tensor]:
    about = own.prepare(source, tmp_path / "prepared.npz", **options)
    splits = own.load(tmp_path / "prepared.npz").values()
    return about, torch.cat([s.pixels for s in splits]).float(), torch.cat([s.labels for s in splits])


def check(pixels: torch.Tensor, labels: torch.Tensor) -> None:
    """Every stored image is one of those given, with its class."""
    for one, label in zip(pixels, labels, strict=True):
        errors = [np.abs(one[0].numpy() - (image / 127.5 - 1)).max() for image in IMAGES]
        assert min(errors) < 1e-3
        assert CLASSES[int(np.argmin(errors))] == int(label)


def test_rows_of_images_and_classes(tmp_path: Path) -> None:
    rows = Rows([(Image.fromarray(i), int(c)) for i, c in zip(IMAGES, CLASSES, strict=True)], classes=["cat", "dog"])
    about, pixels, labels = prepare(rows, tmp_path)
    assert (about.shape, about.names, about.source) == ((10, 14), ("cat", "dog"), "Rows")
    check(pixels, labels)
    about, _, _ = prepare(Subset(rows, range(10)), tmp_path)  # type: ignore[arg-type]
    assert (about.names, sum(about.counts)) == (("cat", "dog"), 10)
    about, pixels, labels = prepare([(i, "ab"[c]) for i, c in zip(IMAGES, CLASSES, strict=True)], tmp_path)
    assert about.names == ("a", "b")
    check(pixels, labels)


def test_rows_with_names(tmp_path: Path) -> None:
    feature = SimpleNamespace(names=["cat", "dog"])
    rows = [{"image": Image.fromarray(i), "label": int(c), "id": "x"} for i, c in zip(IMAGES, CLASSES, strict=True)]
    data = Rows(rows, features={"image": None, "label": feature})
    about, pixels, labels = prepare(data, tmp_path)
    assert about.names == ("cat", "dog")
    check(pixels, labels)
    about, _, _ = prepare({"train": data, "test": data}, tmp_path)
    assert (about.names, about.counts) == (("cat", "dog"), (10, 2, 12))
    several = SimpleNamespace(feature=feature)
    lists = [{**row, "label": [[0], [1], [0, 1], []][k % 4]} for k, row in enumerate(rows)]
    about, _, stored = prepare(Rows(lists, features={"label": several}), tmp_path)
    assert (about.kind, about.names) == ("labels", ("cat", "dog"))
    assert sorted(map(tuple, stored.tolist())) == sorted([(1, 0), (0, 1), (1, 1), (0, 0)] * 3)
    lists = [{**row, "label": [k % 2]} for k, row in enumerate(rows)]  # as many everywhere
    about, _, stored = prepare(Rows(lists, features={"label": several}), tmp_path)
    assert (about.kind, stored.sum(0).tolist()) == ("labels", [6, 6])
    with pytest.raises(DataError, match=r"lists of labels must hold numbers from 0 to 1, got \[5\]"):
        prepare(Rows([{**row, "label": [5]} for row in rows], features={"label": several}), tmp_path)


def test_tensors_have_their_channels_first(tmp_path: Path) -> None:
    grey, classes = torch.from_numpy(IMAGES), torch.from_numpy(CLASSES)
    check(*prepare((grey, classes), tmp_path)[1:])
    check(*prepare((grey[:, None], classes), tmp_path)[1:])
    check(*prepare((IMAGES, CLASSES), tmp_path)[1:])
    check(*prepare({"images": grey[:, None], "labels": CLASSES}, tmp_path)[1:])
    check(*prepare(TensorDataset(grey[:, None], classes), tmp_path)[1:])
    colours = torch.rand(12, 5, 10, 14)
    about, _, _ = prepare(TensorDataset(colours, classes), tmp_path)
    assert (about.channels, about.shape) == (5, (10, 14))
    volumes = torch.rand(12, 1, 6, 10, 14)
    assert prepare((volumes, classes), tmp_path)[0].shape == (6, 10, 14)
    assert prepare(TensorDataset(volumes, classes), tmp_path)[0].shape == (6, 10, 14)
    assert prepare((volumes[:, 0], classes), tmp_path, dimension=3)[0].shape == (6, 10, 14)
    like_medmnist = [(one.numpy(), np.array([c])) for one, c in zip(volumes, CLASSES, strict=True)]
    assert prepare(like_medmnist, tmp_path)[0].shape == (6, 10, 14)


def test_other_targets_of_rows(tmp_path: Path) -> None:
    rows = [(i, RNG.normal(size=2)) for i in IMAGES]
    assert prepare(rows, tmp_path)[0].kind == "numbers"
    assert prepare(rows, tmp_path, target="vectors")[0].kind == "vectors"
    about, pixels, masks = prepare([(i, Image.fromarray((i > 100).astype(np.uint8))) for i in IMAGES], tmp_path)
    assert (about.kind, about.names) == ("masks", ("0", "1"))
    assert torch.equal((pixels[:, 0] > 100.5 / 127.5 - 1).long(), masks.long())
    tensors = TensorDataset(torch.from_numpy(IMAGES)[:, None], torch.from_numpy(IMAGES > 100)[:, None])
    assert prepare(tensors, tmp_path)[0].kind == "masks"
    assert prepare((IMAGES, IMAGES > 100), tmp_path)[0].kind == "masks"
    one, other = (Rows([(i, (i > 100) * v) for i in IMAGES]) for v in (1, 3))
    about, _, masks = prepare({"train": one, "val": other, "test": one}, tmp_path)
    assert about.names == ("0", "1", "3")
    assert sorted(masks.unique().tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "data must be a path, arrays .* got int"),
        ([], "list has no examples"),
        ([(IMAGES[0], 0, 1)], "rows must be .image, target. or mappings, got tuple in example 1"),
        ([{"image": IMAGES[0], "fine": 1, "coarse": 2}], "rows must have one image and one target, .* got image, fine"),
        ([{"image": IMAGES[0], "label": 1}, {"image": IMAGES[0]}], "example 2 has no image or label, but image"),
        ([(IMAGES[0], object())], "expected numbers, arrays, tensors, images or names"),
        ([(IMAGES[0, 0], 1)], r"has shape \(14,\): an image has 2 axes"),
        ([(IMAGES[0] * np.nan, 1)], "not finite"),
        ([(IMAGES[0], [1, 2]), (IMAGES[0], [1])], "all targets must have the same shape"),
        (Rows([RuntimeError("the disk is gone")]), "reading example 1 failed .RuntimeError: the disk is gone"),
        ({"pictures": IMAGES}, "a mapping must have images and labels, or train, val and test, got pictures"),
        ({"val": [(IMAGES[0], 0)], "valid": [(IMAGES[0], 0)]}, "one data set each for train, val and test"),
        ({"train": [(IMAGES[0], 0)], "test": [(IMAGES[0], 0.3)]}, "different kinds of targets, classes, numbers"),
    ],
)
def test_objects_that_are_no_data_say_why(source: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        own.prepare(source, tmp_path / "prepared.npz")
    assert not (tmp_path / "prepared.npz").exists()


class Claims(Rows):
    """A data set that says of itself how long it is, and counts what is read."""

    read = 0

    def __len__(self) -> int:
        return int(self.rows[0])

    def __getitem__(self, k: int) -> Any:
        self.read += 1
        return IMAGES[k % 12], k % 2


@pytest.mark.parametrize(
    ("claimed", "room", "read", "message"),
    [
        (
            10**12,
            2.0**33,
            0,
            "Claims has 1000000000000 examples, which take more than 8.0 GiB, half of this machine's m",
        ),
        (1000, 256e3 + 1480, 11, "has 1000 examples, .*: give a part of them"),  # 148 bytes each, when they are read
        (10**30, 2.0**33, 0, "Claims: its length cannot be had .OverflowError: "),
        (-1, 2.0**33, 0, "Claims: its length cannot be had .ValueError: "),
    ],
)
def test_a_length_is_believed_as_far_as_memory_goes(
    claimed: int, room: float, read: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pscnn.data._own_objects.half_of_memory", lambda: room)
    data = Claims([claimed])
    with pytest.raises(DataError, match=message):
        own.prepare(data, tmp_path / "prepared.npz")
    assert data.read == read

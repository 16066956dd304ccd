"""Medical volumes from files, and bodies with known symmetries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pscnn.data import DataError, medmnist3d, shapes3d

COUNTS = {"train": 40, "val": 6, "test": 8}


def arrays(size: int = 28) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    out = {}
    for split, count in COUNTS.items():
        out[f"{split}_images"] = rng.integers(0, 256, (count, size, size, size), dtype=np.uint8)
        out[f"{split}_labels"] = (np.arange(count)[:, None] % 4 == 0).astype(np.uint8)
    return out


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "medmnist" / "adrenalmnist3d.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {**arrays(), **changes}
    kept: dict[str, Any] = {k: v for k, v in found.items() if v is not None}
    np.savez_compressed(path, **kept)
    return path


def test_volumes_keep_their_splits_and_values(tmp_path: Path) -> None:
    write(tmp_path)
    splits = medmnist3d.load("adrenal", folder=tmp_path)
    assert {name: len(split) for name, split in splits.items()} == {"train": 40, "validation": 6, "test": 8}
    images = splits["test"].images(torch.tensor([3, 1]), seed=0)
    assert images.shape == (2, 1, 28, 28, 28)
    assert torch.allclose(images[1, 0], torch.from_numpy(arrays()["test_images"][1]).float() / 127.5 - 1)
    assert splits["test"].labels.tolist() == [1, 0, 0, 0, 1, 0, 0, 0]


def test_a_fraction_keeps_the_share_of_every_class(tmp_path: Path) -> None:
    write(tmp_path)
    quarter = medmnist3d.load("adrenal", fraction=0.25, folder=tmp_path)["train"]
    assert quarter.labels.bincount().tolist() == [8, 2]  # of 30 and 10
    again = medmnist3d.load("adrenal", fraction=0.25, folder=tmp_path)["train"]
    assert torch.equal(quarter.pixels, again.pixels)
    rows = medmnist3d.subset(np.array([0] * 99 + [1]), 0.01)
    assert rows.tolist()[-1] == 99  # no class is lost
    with pytest.raises(ValueError, match="fraction"):
        medmnist3d.subset(np.zeros(3, dtype=int), 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val_images": None}, "has no array val_images; it has test_images"),
        ({"train_images": np.zeros((40, 28, 28), dtype=np.uint8)}, r"must be bytes of shape \(N, 28, 28, 28\)"),
        ({"train_images": np.zeros((40, 28, 28, 28))}, "got float64"),
        ({"test_labels": np.zeros((3, 1), dtype=np.uint8)}, "one whole number per volume, 8 in all"),
        ({"test_labels": np.zeros((8, 1))}, "one whole number per volume"),
        ({"test_labels": np.full((8, 1), 2, dtype=np.uint8)}, "between 0 and 1, got 2 to 2"),
        (
            {"val_images": np.zeros((0, 28, 28, 28), dtype=np.uint8), "val_labels": np.zeros((0, 1), dtype=np.uint8)},
            "val_images is empty",
        ),
    ],
)
def test_wrong_files_are_refused_with_a_reason(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(DataError, match=message) as found:
        medmnist3d.load("adrenal", folder=tmp_path)
    assert str(path) in str(found.value)


@pytest.mark.parametrize("content", [b"", b"not a zip", None])
def test_damaged_files_are_named(tmp_path: Path, content: bytes | None) -> None:
    path = write(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(DataError, match=r"is damaged or not an \.npz file"):
        medmnist3d.load("adrenal", folder=tmp_path)


def test_a_failed_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pooch

    asked = []

    def fail(url: str, known_hash: str, **_: object) -> None:
        asked.append((url, known_hash))
        raise ConnectionError("no route")

    monkeypatch.setattr(pooch, "retrieve", fail)
    with pytest.raises(DataError, match=r"could not be downloaded .*no route.* or train on shapes3d"):
        medmnist3d.load("organ", size=64, folder=tmp_path)
    assert asked == [
        (
            "https://zenodo.org/records/10519652/files/organmnist3d_64.npz?download=1",
            "md5:58a2205adf14a9d0a189cb06dc78bf10",
        )
    ]
    assert not list(tmp_path.rglob("*.npz"))


def test_unknown_volumes_are_named() -> None:
    with pytest.raises(ValueError, match="unknown data set 'brain'"):
        medmnist3d.load("brain")
    with pytest.raises(ValueError, match="28 or 64"):
        medmnist3d.load("organ", size=32)


# -- bodies -----------------------------------------------------------------------------------------------------------


def spread(volumes: torch.Tensor) -> torch.Tensor:
    """How wide a body is at every height, (B, size)."""
    size = volumes.shape[-1]
    grid = (2 * torch.arange(size) + 1) / size - 1
    mass = (volumes[:, 0] + 1) / 2
    return (mass * (grid**2 + grid[:, None] ** 2)).sum((2, 3)) / mass.sum((2, 3))


def test_the_two_hands_are_mirror_images() -> None:
    shapes = shapes3d.Shapes(8, "chiral", size=16)
    left = shapes.images(torch.arange(8), seed=1)
    shapes.labels = 1 - shapes.labels
    torch.testing.assert_close(shapes.images(torch.arange(8), seed=1), left.flip(2, 3, 4))
    upright = shapes3d._draw(shapes3d._body(torch.zeros(1), "chiral"), 16)
    for axes in ((2,), (3,), (4,), (2, 3, 4)):  # no mirror leaves a body as it is
        assert (upright.flip(axes) - upright).abs().max() > 1


def test_any_body_comes_in_both_hands_and_the_spiral_is_its_own_mirror_image() -> None:
    shapes = shapes3d.Shapes(200, "any", size=16)
    generator = torch.Generator().manual_seed(0)
    mirrored = torch.linalg.det(shapes3d._poses(shapes.labels, "any", generator)) < 0
    assert 0.3 < mirrored[shapes.labels == 0].float().mean() < 0.7
    spiral = shapes3d._draw(shapes3d._body(torch.ones(1), "any"), 16)
    torch.testing.assert_close(spiral.flip(2), spiral)


def test_the_axis_variant_stands_upright_or_on_its_head() -> None:
    shapes = shapes3d.Shapes(40, "axis", size=16)
    width = spread(shapes.images(torch.arange(40), seed=0))
    narrow_above = width[:, 4] > width[:, 11]
    assert torch.equal(narrow_above, shapes.labels == 0)


def test_bodies_depend_on_their_seed_alone() -> None:
    shapes = shapes3d.load("chiral", train=20)["train"]
    rows = torch.arange(4)
    assert torch.equal(shapes.images(rows, 5), shapes.images(rows, 5))
    assert not torch.equal(shapes.images(rows, 5), shapes.images(rows, 6))
    assert shapes.labels.bincount().tolist() == [10, 10]


def test_unknown_bodies_are_named() -> None:
    with pytest.raises(ValueError, match="unknown variant 'round'"):
        shapes3d.Shapes(4, "round")
    with pytest.raises(ValueError, match="side length"):
        shapes3d.Shapes(4, "any", size=20)
    with pytest.raises(ValueError, match="two bodies"):
        shapes3d.Shapes(1, "any")

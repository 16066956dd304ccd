"""Medical volumes from files, and bodies with known symmetries."""

from __future__ import annotations

from pathlib import Path

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


def write(folder: Path, **changes: object) -> Path:
    path = folder / "medmnist" / "adrenalmnist3d.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {**arrays(), **changes}
    np.savez_compressed(path, **{k: v for k, v in found.items() if v is not None})
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
    assert torch.equal(quarter.volumes, again.volumes)
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


def moments(images: torch.Tensor) -> torch.Tensor:
    """The third-order pseudo-scalar of a volume: changes its sign under reflections, and under nothing else."""
    size = images.shape[-1]
    grid = (2 * torch.arange(size) + 1) / size - 1
    mass = (images[:, 0] + 1) / 2
    z, y, x = torch.meshgrid(grid, grid, grid, indexing="ij")
    points = torch.stack([x, y, z], -1)
    total = mass.sum((1, 2, 3)).view(-1, 1)
    centre = torch.einsum("bkji,kjic->bc", mass, points) / total
    away = points - centre.view(-1, 1, 1, 1, 3)
    square = (away**2).sum(-1, keepdim=True)
    second = torch.einsum("bkji,bkjic,bkjid->bcd", mass, away, away) / total[:, :, None]
    third = torch.einsum("bkji,bkjil,bkjic->bc", mass, square, away) / total
    once = torch.einsum("bcd,bd->bc", second, third)
    twice = torch.einsum("bcd,bd->bc", second, once)
    return torch.linalg.det(torch.stack([third, once, twice], 1))


def test_handedness_is_the_class_of_the_chiral_variant_and_of_no_other() -> None:
    for variant in shapes3d.VARIANTS:
        shapes = shapes3d.Shapes(60, variant, size=28)
        sign = moments(shapes.images(torch.arange(60), seed=1)) > 0
        own = sign == (shapes.labels == 1)
        if variant == "chiral":
            assert own.float().mean() in (0.0, 1.0)
        elif variant != "any":
            assert sign.float().mean() in (0.0, 1.0)  # always the same hand
        else:
            three = sign[shapes.labels == 0]
            assert 0.2 < three.float().mean() < 0.8  # either hand


def test_the_axis_variant_stands_upright_or_on_its_head() -> None:
    shapes = shapes3d.Shapes(40, "axis", size=16)
    mass = (shapes.images(torch.arange(40), seed=0)[:, 0] + 1) / 2
    height = torch.linspace(-1, 1, 16)
    up = (mass.sum((2, 3)) * height).sum(1) > 0
    assert torch.equal(up, shapes.labels == 0)


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

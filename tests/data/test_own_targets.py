"""Labels, vectors and masks as targets of people's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pscnn.data import DataError, own

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 255, (12, 16, 12), dtype=np.uint8)
LABELS = np.array([[1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0]] * 3)


def arrays(tmp_path: Path, **values: Any) -> Path:
    np.savez(tmp_path / "a.npz", **{"images": IMAGES, **values})
    return tmp_path / "a.npz"


def prepare(source: Any, tmp_path: Path, **options: Any) -> tuple[own.About, dict[str, own.Examples]]:
    about = own.prepare(source, tmp_path / "prepared.npz", **options)
    return about, own.load(tmp_path / "prepared.npz")


def table(tmp_path: Path, head: str, rows: list[str]) -> Path:
    for k, image in enumerate(IMAGES):
        Image.fromarray(image).save(tmp_path / f"{k}.png")
    lines = "".join(f"{k}.png,{row}\n" for k, row in enumerate(rows))
    (tmp_path / "t.csv").write_text(f"path,{head}\n{lines}")
    return tmp_path / "t.csv"


def test_whole_numbers_in_columns_are_labels(tmp_path: Path) -> None:
    about, splits = prepare(arrays(tmp_path, labels=LABELS.astype(np.uint8)), tmp_path)
    assert (about.kind, about.names, about.counts) == ("labels", ("0", "1", "2"), (8, 2, 2))
    assert "Every example may have several labels." in about.notes
    stored = torch.cat([split.labels for split in splits.values()])
    assert sorted(map(tuple, stored.tolist())) == sorted(map(tuple, LABELS.tolist()))
    assert prepare(arrays(tmp_path, labels=LABELS > 0), tmp_path)[0].kind == "labels"
    assert prepare(arrays(tmp_path, labels=LABELS), tmp_path, target="numbers")[0].kind == "numbers"


def test_zeros_and_ones_that_may_be_amounts_are_asked_about(tmp_path: Path) -> None:
    path = arrays(tmp_path, labels=LABELS.astype(float))
    with pytest.raises(DataError, match=r"labels, of which there may be several \(--target labels\), or amounts"):
        prepare(path, tmp_path)
    assert prepare(path, tmp_path, target="labels")[0].kind == "labels"
    path = table(tmp_path, "cat,dog,eel", [",".join(map(str, row)) for row in LABELS])
    with pytest.raises(DataError, match=r"the targets are 0 and 1 in 3 columns"):
        prepare(path, tmp_path)
    assert prepare(path, tmp_path, target="labels")[0].names == ("cat", "dog", "eel")
    assert prepare(path, tmp_path, target="numbers")[0].kind == "numbers"
    single = table(tmp_path, "cat,dog", [f"{k % 2},{1 - k % 2}" for k in range(12)])
    with pytest.raises(DataError, match=r"has a single 1. Is it the class \(--target classes\)"):
        prepare(single, tmp_path)
    about, _ = prepare(single, tmp_path, target="classes")
    assert (about.kind, about.names) == ("classes", ("cat", "dog"))


def test_labels_that_cannot_be_learnt_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="labels are 0 or 1 each, got numbers from 0 to 2"):
        prepare(arrays(tmp_path, labels=2 * LABELS), tmp_path, target="labels")
    constant = LABELS.copy()
    constant[:, 1] = 1
    with pytest.raises(DataError, match="the target '1' is the same in all training examples"):
        prepare(arrays(tmp_path, labels=constant), tmp_path, target="labels")


def test_vectors_are_scaled_by_one_factor(tmp_path: Path) -> None:
    vectors = RNG.normal(size=(12, 2)) * [3, 0.1] + 5
    about, splits = prepare(arrays(tmp_path, labels=vectors), tmp_path, target="vectors")
    train = splits["train"].labels.double()
    assert (about.kind, about.names, about.means) == ("vectors", ("x", "y"), (0.0, 0.0))
    assert about.deviations[0] == about.deviations[1] == pytest.approx(train.square().mean().sqrt().item())
    assert "Vectors have x to the right and y upwards." in about.notes
    path = table(tmp_path, "u,v", [f"{a},{b}" for a, b in vectors])
    assert prepare(path, tmp_path, target="vectors")[0].names == ("u", "v")
    for labels, message in (
        (vectors[:, :1], r"a vector has 2 components, \(x, y\), or 3 for volumes, got 1"),
        (np.ones((12, 3)), "vectors of images have 2 components, got 3"),
        (np.zeros((12, 2)), "the vectors are zero in all training examples"),
        (np.full((12, 2), np.nan), "12 targets are not finite numbers"),
    ):
        with pytest.raises(DataError, match=message):
            prepare(arrays(tmp_path, labels=labels), tmp_path, target="vectors")
    volumes = RNG.random((12, 6, 7, 8))
    assert prepare(arrays(tmp_path, images=volumes, labels=np.ones((12, 3))), tmp_path, target="vectors")[0].names == (
        "x",
        "y",
        "z",
    )


def test_numbers_far_from_zero_are_measured_in_their_deviation(tmp_path: Path) -> None:
    """Of several columns NumPy adds one row after another, in single precision with an error of many deviations."""
    count = 50_000
    images = np.zeros((count, 8, 8), dtype=np.uint8)
    images[:, 0, 0] = RNG.integers(0, 255, count)
    labels = np.stack([1e5 + RNG.normal(size=count), RNG.normal(size=count)], 1)
    about, splits = prepare(arrays(tmp_path, images=images, labels=labels), tmp_path)
    train = splits["train"].labels.double()
    assert about.means == pytest.approx(train.mean(0).tolist(), rel=1e-9, abs=1e-9)
    assert about.deviations == pytest.approx(train.std(0, correction=0).tolist(), rel=1e-9)
    for constant in (0.3, 1.0, 1e5 + 0.1):
        labels[:, 0] = constant
        with pytest.raises(DataError, match="the target 'target 1' is the same in all training examples"):
            prepare(arrays(tmp_path, images=images, labels=labels), tmp_path)


def test_numbers_of_which_single_precision_keeps_little_are_refused(tmp_path: Path) -> None:
    images = RNG.integers(0, 255, (40, 8, 8), dtype=np.uint8)
    fine, coarse = RNG.normal(size=40), 1e7 + RNG.normal(size=40)
    for labels, name in ((coarse, "target 1"), (np.stack([fine, 100 * coarse], 1), "target 2")):
        with pytest.raises(DataError, match=f"'{name}' differs by .* about .*: subtract .* first"):
            prepare(arrays(tmp_path, images=images, labels=labels), tmp_path, target="numbers")
    prepare(arrays(tmp_path, images=images, labels=1e-30 * fine), tmp_path, target="numbers")


def test_columns_that_predictions_could_not_tell_apart_are_refused(tmp_path: Path) -> None:
    for k in range(12):
        np.save(tmp_path / f"{k}.npy", RNG.random((8, 8)))
    for heading, message in (("path,a, a", "the column 'a' occurs twice"), ("path,x,file", "give this target another")):
        rows = [heading, *(f"{k}.npy,{k / 7},{k / 3}" for k in range(12))]
        (tmp_path / "table.csv").write_text("\n".join(rows))
        with pytest.raises(DataError, match=message):
            prepare(tmp_path / "table.csv", tmp_path)


def masks_of(images: np.ndarray) -> np.ndarray:
    return np.where(images > 100, 255, 0).astype(np.uint8)


def stored_pairs(splits: dict[str, own.Examples]) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(torch.cat([getattr(s, name) for s in splits.values()]) for name in ("pixels", "labels"))  # type: ignore[return-value]


def check_pairs(splits: dict[str, own.Examples]) -> None:
    pixels, masks = stored_pairs(splits)
    assert torch.equal((pixels[:, 0].float() > 100.5 / 127.5 - 1).long(), masks.long())


def test_masks_of_arrays(tmp_path: Path) -> None:
    for dtype in (np.uint8, np.float16):
        about, splits = prepare(arrays(tmp_path, masks=masks_of(IMAGES).astype(dtype)), tmp_path)
        assert (about.kind, about.names, about.counts) == ("masks", ("0", "255"), (8, 2, 2))
        check_pairs(splits)
    own.write_contact_sheet(tmp_path / "prepared.npz", tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size[0] == 4 * (2 * 12 + 2)
    kinds = {"images": IMAGES, "masks": masks_of(IMAGES)}
    parts: dict[str, Any] = {f"{split}_{kind}": kinds[kind] for split in ("train", "val", "test") for kind in kinds}
    np.savez(tmp_path / "split.npz", **parts)
    assert prepare(tmp_path / "split.npz", tmp_path)[0].counts == (12, 12, 12)
    for masks, message in (
        (
            masks_of(IMAGES)[:, 1:],
            r"one whole number for each pixel of its example, of shape 12×16×12, got shape 12×15×12",
        ),
        (masks_of(IMAGES)[:3], "masks must have 12 rows in all"),
        (masks_of(IMAGES) + 0.5, "a mask holds whole numbers"),
        (masks_of(IMAGES) * 0, "one class only"),
        (np.arange(IMAGES.size).reshape(IMAGES.shape), "more than 256 different values"),
    ):
        with pytest.raises(DataError, match=message):
            prepare(arrays(tmp_path, masks=masks), tmp_path)
    with pytest.raises(DataError, match="has no array masks; it has images, labels"):
        prepare(arrays(tmp_path, labels=LABELS), tmp_path, target="masks")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    for name in ("images", "masks"):
        (tmp_path / "d" / name).mkdir(parents=True)
    for k, image in enumerate(IMAGES):
        Image.fromarray(image).save(tmp_path / "d" / "images" / f"{k}.png")
        Image.fromarray(masks_of(image)).save(tmp_path / "d" / "masks" / f"{k}{'_mask' * (k % 2)}.png")
    return tmp_path / "d"


def test_masks_of_folders_and_tables(pairs: Path, tmp_path: Path) -> None:
    about, splits = prepare(pairs, tmp_path)
    assert (about.kind, about.names) == ("masks", ("0", "255"))
    check_pairs(splits)
    rows = "".join(f"d/images/{k}.png,d/masks/{k}{'_mask' * (k % 2)}.png\n" for k in range(12))
    (tmp_path / "t.csv").write_text(f"path,mask\n{rows}")
    again, splits = prepare(tmp_path / "t.csv", tmp_path)
    assert again.names == about.names
    check_pairs(splits)
    (tmp_path / "split").mkdir()
    for name in ("train", "test"):
        (tmp_path / "split" / name).symlink_to(pairs)
    assert prepare(tmp_path / "split", tmp_path)[0].counts == (10, 2, 12)  # validation is taken from training


def test_masks_with_palettes_are_numbers_and_colours_are_not(pairs: Path, tmp_path: Path) -> None:
    for k, image in enumerate(IMAGES):
        palette = Image.fromarray((image > 100).astype(np.uint8) * 7)
        palette.putpalette([200, 10, 10] * 128 + [10, 200, 10] * 128)
        palette.save(pairs / "masks" / f"{k}{'_mask' * (k % 2)}.png")
    about, splits = prepare(pairs, tmp_path)
    assert about.names == ("0", "7")
    check_pairs(splits)
    Image.fromarray(RNG.integers(0, 255, (16, 12, 3), dtype=np.uint8)).save(pairs / "masks" / "2.png")
    with pytest.raises(DataError, match=r"1 of 12 masks cannot be used: .*2\.png: a mask has one whole number"):
        prepare(pairs, tmp_path)


def test_pairs_that_are_none_are_named(pairs: Path, tmp_path: Path) -> None:
    (pairs / "masks" / "4.png").rename(pairs / "masks" / "44.png")
    with pytest.raises(DataError, match=r"2 files have no partner of the same name: .*4\.png; .*44\.png"):
        prepare(pairs, tmp_path)
    with pytest.raises(DataError, match=r"holds no images|is a folder of classes"):
        prepare(tmp_path / "d" / "masks", tmp_path, target="masks")


@pytest.mark.parametrize("twin", ["images/3.npy", "masks/3.png"])  # beside 3.png, and beside 3_mask.png
def test_no_pair_is_dropped_because_another_has_its_name(twin: str, pairs: Path, tmp_path: Path) -> None:
    (pairs / twin).write_bytes((pairs / "images" / "4.png").read_bytes())
    with pytest.raises(DataError, match=r"3\.(npy|png) and 3(_mask)?\.png would have the same partner: rename"):
        prepare(pairs, tmp_path)


def test_a_class_may_be_called_masks(tmp_path: Path) -> None:
    for name in ("gloves", "masks"):
        (tmp_path / "d" / name).mkdir(parents=True)
        for k in range(5):
            Image.fromarray(IMAGES[k]).save(tmp_path / "d" / name / f"{k}.png")
    assert prepare(tmp_path / "d", tmp_path)[0].names == ("gloves", "masks")


def test_masks_are_padded_with_nothing_and_resized_without_mixing(tmp_path: Path) -> None:
    for name in ("images", "masks"):
        (tmp_path / "d" / name).mkdir(parents=True)
    for k in range(12):
        image = IMAGES[k][: 16 - k % 2]
        Image.fromarray(image).save(tmp_path / "d" / "images" / f"{k}.png")
        Image.fromarray(masks_of(image)).save(tmp_path / "d" / "masks" / f"{k}.png")
    about, splits = prepare(tmp_path / "d", tmp_path)
    _, masks = stored_pairs(splits)
    assert (about.shape, sorted({*masks.unique().tolist()})) == ((16, 12), [own.UNKNOWN, 0, 1])
    assert (masks == own.UNKNOWN).flatten(1).sum(1).sort().values.tolist() == [0] * 6 + [12] * 6
    _, splits = prepare(tmp_path / "d", tmp_path, size=8)
    assert {*stored_pairs(splits)[1].unique().tolist()} <= {own.UNKNOWN, 0, 1}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("labels", np.full((12, 3), 2, np.uint8)),
        ("labels", np.zeros((12, 2), np.uint8)),
        ("masks", np.full((12, 16, 12), 2, np.int16)),
        ("masks", np.full((12, 16, 12), -2, np.int16)),
        ("masks", np.zeros((12, 12, 16), np.int16)),
    ],
)
def test_prepared_targets_are_checked(kind: str, change: np.ndarray, tmp_path: Path) -> None:
    given = {"labels": LABELS} if kind == "labels" else {"masks": masks_of(IMAGES)}
    prepare(arrays(tmp_path, **given), tmp_path)
    with np.load(tmp_path / "prepared.npz") as found:
        kept = dict(found)
    np.savez(tmp_path / "prepared.npz", **{**kept, "targets": change})
    with pytest.raises(DataError, match="does not hold what it says"):
        own.load(tmp_path / "prepared.npz")

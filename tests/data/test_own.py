"""People's own data: what is read, how it is brought to one shape, and what is refused."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pscnn.data import DataError, own

RNG = np.random.default_rng(0)


def save(path: Path, array: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)
    return path


def grey(size: int | tuple[int, int] = 28, dtype: type = np.uint8) -> np.ndarray:
    shape = (size, size) if isinstance(size, int) else size
    return RNG.integers(0, np.iinfo(dtype).max, shape, dtype=dtype)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label in ("cat", "dog"):
        for k in range(10):
            save(tmp_path / "pets" / label / f"{k}.png", grey())
    return tmp_path / "pets"


def prepare(source: Path, **options: object) -> tuple[own.About, dict[str, own.Examples]]:
    out = source.parent / "prepared.npz"
    about = own.prepare(source, out, **options)  # type: ignore[arg-type]
    assert own.read_about(out) == about
    return about, own.load(out)


def test_a_folder_is_split_by_class_and_keeps_its_values(folder: Path) -> None:
    about, splits = prepare(folder)
    assert (about.dimension, about.size, about.channels, about.names) == (2, 28, 1, ("cat", "dog"))
    assert about.counts == (12, 4, 4)
    assert not about.regression
    for split in splits.values():
        assert split.labels.bincount().tolist() == [len(split) // 2] * 2
    values = np.asarray(Image.open(folder / "cat" / "0.png")) / 127.5 - 1
    stored = torch.cat([split.pixels for split in splits.values()]).float().numpy()
    assert min(np.abs(one[0] - values).max() for one in stored) < 1e-3
    again, other = prepare(folder, seed=1)[1], prepare(folder)[1]
    assert torch.equal(other["test"].pixels, splits["test"].pixels)
    assert not torch.equal(again["test"].pixels, splits["test"].pixels)


def test_given_splits_are_kept(tmp_path: Path) -> None:
    for split, count in (("train", 6), ("test", 3)):
        for label in "ab":
            for k in range(count):
                save(tmp_path / "d" / split / label / f"{k}.png", grey())
    about, _ = prepare(tmp_path / "d")
    assert about.counts == (10, 2, 6)  # validation is taken from training


def test_sizes_depths_and_colours_are_brought_to_one_shape(tmp_path: Path) -> None:
    for k in range(5):
        save(tmp_path / "d" / "a" / f"{k}.png", grey((60, 40)))
        save(tmp_path / "d" / "b" / f"{k}.png", RNG.integers(0, 255, (70, 70, 4), dtype=np.uint8))
    save(tmp_path / "d" / "a" / "deep.png", grey(56, np.uint16))
    save(tmp_path / "d" / "a" / "photo.jpg", RNG.integers(0, 255, (50, 50, 3), dtype=np.uint8))
    save(tmp_path / "d" / "a" / "scan.tiff", grey(56, np.uint16))
    (tmp_path / "d" / "a" / "notes.txt").write_text("not an image")
    about, splits = prepare(tmp_path / "d")
    assert (about.shape, about.channels) == ((70, 70), 3)
    left_out = "1 files of other kinds were left out."
    assert about.notes[:2] == (left_out, "Examples of 4 different shapes were padded to 70×70.")
    assert splits["train"].pixels.shape[1:] == (3, 70, 70)
    about, splits = prepare(tmp_path / "d", size=56)
    resized = "filled up to equal sides and resized to 56×56, and details finer than 1.2 pixels were lost."
    assert about.notes[:2] == (left_out, f"Examples of 4 different shapes were {resized}")
    assert splits["train"].pixels.shape[1:] == (3, 56, 56)
    assert splits["train"].pixels.abs().max() <= 1


def test_transparency_is_laid_on_white_and_rectangles_on_their_border(tmp_path: Path) -> None:
    clear = np.zeros((28, 28, 4), dtype=np.uint8)
    about = own.About((28, 28), 3, ("a", "b"), "classes", 0.0, 1.0)
    torch.testing.assert_close(own.read_example(save(tmp_path / "c.png", clear), about), torch.ones(3, 28, 28))
    flat = np.full((28, 14), 51, dtype=np.uint8)
    found = own.read_example(save(tmp_path / "r.png", flat), about)
    torch.testing.assert_close(found, torch.full((3, 28, 28), 2 * 0.2 - 1))


def test_deep_images_use_the_whole_range(tmp_path: Path) -> None:
    for label in "ab":
        for k in range(5):
            save(tmp_path / "d" / label / f"{k}.png", 1000 + grey(28, np.uint16) % 500)
    about, splits = prepare(tmp_path / "d")
    assert splits["train"].pixels.min() == -1
    assert splits["train"].pixels.max() == 1
    assert pytest.approx(about.low, rel=0.01) == 1000 / 65535


def test_arrays_in_the_layout_of_medmnist(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {}
    for split, count in (("train", 8), ("val", 4), ("test", 6)):
        arrays[f"{split}_images"] = RNG.integers(0, 255, (count, 28, 28, 28), dtype=np.uint8)
        arrays[f"{split}_labels"] = (np.arange(count) % 2)[:, None].astype(np.uint8)
    np.savez(tmp_path / "v.npz", **arrays)
    about, splits = prepare(tmp_path / "v.npz")
    assert (about.dimension, about.size, about.counts, about.names) == (3, 28, (8, 4, 6), ("0", "1"))
    expected = torch.from_numpy(arrays["test_images"][2].astype(np.float32)) / 127.5 - 1
    torch.testing.assert_close(splits["test"].images(torch.tensor([2]), 0)[0, 0], expected, atol=1e-3, rtol=0)
    assert prepare(tmp_path / "v.npz", size=16)[1]["train"].pixels.shape == (8, 1, 16, 16, 16)
    del arrays["val_images"], arrays["val_labels"]
    np.savez(tmp_path / "v.npz", **arrays)
    assert prepare(tmp_path / "v.npz")[0].counts == (6, 2, 6)
    np.savez(tmp_path / "v.npz", **arrays, val_images=arrays["test_images"])
    with pytest.raises(DataError, match="has no array val_labels"):
        prepare(tmp_path / "v.npz")
    np.savez(tmp_path / "c.npz", images=RNG.random((12, 30, 30, 3)), labels=RNG.random((12, 2)))
    about, splits = prepare(tmp_path / "c.npz")
    assert (about.channels, about.regression, about.counts) == (3, True, (8, 2, 2))
    assert splits["train"].labels.shape == (8, 2)


def table(tmp_path: Path, text: str) -> Path:
    for k in range(12):
        save(tmp_path / "images" / f"{k}.png", grey())
    path = tmp_path / "t.csv"
    path.write_text(text)
    return path


def test_a_table_of_numbers_is_a_regression(tmp_path: Path) -> None:
    rows = "\n".join(f"images/{k}.png,{k / 2},{-k}" for k in range(12))
    about, splits = prepare(table(tmp_path, f"path,angle,length\n{rows}\n"))
    assert (about.regression, about.names, about.counts) == (True, ("angle", "length"), (8, 2, 2))
    train = splits["train"].labels.double()
    assert about.means == pytest.approx(train.mean(0).tolist())
    assert about.deviations == pytest.approx(train.std(0, unbiased=False).tolist())
    lines = "".join(f"images/{k}.png,{k % 2}\n" for k in range(12))
    assert not prepare(table(tmp_path, f"path,label\n{lines}"))[0].regression
    uses = ["train"] * 6 + ["val"] * 3 + ["test"] * 3
    lines = "".join(f"images/{k}.png,{'ab'[k % 2]},{use}\n" for k, use in enumerate(uses))
    about, _ = prepare(table(tmp_path, f"file,kind,split\n{lines}"))
    assert (about.names, about.counts) == (("a", "b"), (6, 3, 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,angle\nimages/0.png,nan\nimages/1.png,2\n", "line 2: targets must be finite numbers, got nan"),
        ("path,label\nimages/0.png,a\nimages/none.png,b\n", r"names 1 files that do not exist: .*none.png"),
        ("path,label\nimages/0.png,\n", "line 2: nothing in the column 'label'"),
        ("path,label\n", "no rows"),
        ("path\nimages/0.png\n", "no column of targets"),
        ("path,a,b\nimages/0.png,x,y\n", "classes are one column"),
        ("path,label,split\nimages/0.png,a,later\n", "split must be train, val or test, got 'later'"),
    ],
)
def test_tables_that_cannot_be_used_say_why(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        prepare(table(tmp_path, text))


def test_folders_that_cannot_be_used_say_why(folder: Path, tmp_path: Path) -> None:
    (folder / "cat" / "3.png").write_bytes((folder / "cat" / "3.png").read_bytes()[:60])
    (folder / "dog" / "4.png").write_text("no image at all")
    with pytest.raises(DataError, match=r"2 of 20 files cannot be used: .*3\.png is damaged.*4\.png is damaged"):
        prepare(folder)
    assert not (tmp_path / "prepared.npz").exists()
    for k in (3, 4):
        save(folder / ("cat" if k == 3 else "dog") / f"{k}.png", grey())
    for k in range(7):
        (folder / "dog" / f"{k}.png").unlink()
    with pytest.raises(DataError, match="the class 'dog' has 3 examples; at least 5 are needed"):
        prepare(folder)
    for k in range(7, 10):
        (folder / "dog" / f"{k}.png").unlink()
    with pytest.raises(DataError, match="one class only"):
        prepare(folder)
    (tmp_path / "empty" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no images"):
        prepare(tmp_path / "empty")
    with pytest.raises(DataError, match="has no sub-folders"):
        prepare(tmp_path / "empty" / "a")
    with pytest.raises(DataError, match="does not exist"):
        prepare(tmp_path / "nowhere")
    for k in range(5):
        save(folder / "eel" / f"{k}.png", grey())
    with pytest.raises(DataError, match="size must lie between 8 and 65536, got 4"):
        prepare(folder, size=4)


def test_a_folder_without_permission_is_named(folder: Path) -> None:
    (folder / "cat").chmod(0)
    try:
        if os.access(folder / "cat", os.R_OK):
            pytest.skip("this user may read everything")
        with pytest.raises(DataError, match=r"cat may not be read"):
            prepare(folder)
    finally:
        (folder / "cat").chmod(0o755)


def test_arrays_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"PK\x03\x04 half a file")
    with pytest.raises(DataError, match=r"damaged or not an \.npz"):
        prepare(path)
    images = RNG.random((10, 28, 28))
    for values, message in (
        ({"images": images}, "no array labels; it has images"),
        ({"images": images, "labels": np.arange(3)}, "10 rows in all"),
        ({"images": images[:, 0, 0], "labels": np.arange(10)}, "must have shape"),
        ({"images": images * np.nan, "labels": np.arange(10) % 2}, "not finite"),
        ({"images": images, "labels": np.full(10, np.nan)}, "10 targets are not finite"),
        ({"images": images * 0, "labels": np.arange(10) % 2}, "the same value everywhere"),
        ({"images": images, "labels": np.ones(10)}, "the same in all training examples"),
    ):
        np.savez(path, **values)
        with pytest.raises(DataError, match=message):
            prepare(path)


def test_files_that_were_not_prepared_say_so(tmp_path: Path) -> None:
    single = tmp_path / "single.npz"
    with single.open("wb") as handle:
        np.save(handle, np.zeros(3))
    with pytest.raises(DataError, match="a single array"):
        own.read_about(single)
    np.savez(tmp_path / "old.npz", about="not JSON")
    with pytest.raises(DataError, match="was not made by this version"):
        own.read_about(tmp_path / "old.npz")
    with pytest.raises(DataError, match="was not made by pscnn discover"):
        own.load(tmp_path / "old.npz")


def test_examples_of_another_kind_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.zeros((9, 9, 9), dtype=np.uint8))
    with pytest.raises(DataError, match="expects an image, got an array of shape"):
        own.read_example(tmp_path / "v.npy", own.About((28, 28), 1, ("a", "b"), "classes", 0.0, 1.0))


def test_grey_arrays_with_a_channel_are_images(tmp_path: Path) -> None:
    image = np.random.default_rng(0).random((28, 28))
    about = own.About((28, 28), 1, ("a", "b"), "classes", 0.0, 1.0)
    np.save(tmp_path / "a.npy", image)
    np.save(tmp_path / "b.npy", image[..., None])
    one, two = (own.read_example(tmp_path / name, about) for name in ("a.npy", "b.npy"))
    assert torch.equal(one, two)


def labelled(count: int = 12) -> np.ndarray:
    return np.arange(count) % 2


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((12, 3, 28, 28), "may be images with channels or thin volumes"),
        ((12, 1, 28, 28), "may be images with channels or thin volumes"),
        ((12, 28, 28, 2), "may be images with channels or thin volumes"),
        ((12, 1, 9, 9, 9), "must have shape"),
    ],
)
def test_arrays_with_two_readings_are_refused(shape: tuple[int, ...], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=RNG.integers(0, 255, shape, dtype=np.uint8), labels=labelled())
    with pytest.raises(DataError, match=message):
        prepare(tmp_path / "a.npz")
    np.save(tmp_path / "one.npy", np.zeros(shape[1:], np.uint8))
    with pytest.raises(DataError, match=r"thin volumes|one more for channels"):
        own.read_example(tmp_path / "one.npy", own.About((28, 28), 1, ("a", "b"), "classes", 0.0, 1.0))


def test_an_axis_of_channels_says_what_is_a_volume(tmp_path: Path) -> None:
    for shape, dimension, channels in (((12, 28, 28, 3), 2, 3), ((12, 3, 28, 28, 1), 3, 1), ((12, 9, 9, 9), 3, 1)):
        np.savez(tmp_path / "a.npz", images=RNG.integers(0, 255, shape, dtype=np.uint8), labels=labelled())
        about, _ = prepare(tmp_path / "a.npz")
        assert (about.dimension, about.channels) == (dimension, channels)


@pytest.mark.parametrize("labels", [labelled().astype(float), np.eye(2)[labelled()], np.eye(2, dtype=int)[labelled()]])
def test_numbers_that_may_name_classes_are_asked_about(labels: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, images=RNG.random((12, 28, 28)), labels=labels)
    with pytest.raises(DataError, match=r"\(--target classes\).* amounts \(--target numbers\)\?"):
        prepare(path)
    about, splits = prepare(path, target="classes")
    assert (about.regression, about.names) == (False, ("0", "1"))
    assert sorted(torch.cat([split.labels for split in splits.values()]).tolist()) == 6 * [0] + 6 * [1]
    assert prepare(path, target="numbers")[0].regression


def test_columns_of_such_numbers_are_asked_about_too(tmp_path: Path) -> None:
    lines = "".join(f"images/{k}.png,{k % 2}\n" for k in range(12))
    path = table(tmp_path, f"path,kind\n{lines}")
    with pytest.raises(DataError, match=r"the numbers 0 to 1. Are they classes \(--target classes\)"):
        prepare(path)
    assert not prepare(path, target="classes")[0].regression
    assert prepare(path, target="numbers")[0].regression


def test_a_table_without_heading_keeps_its_first_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no heading: its first line names a file"):
        prepare(table(tmp_path, "".join(f"images/{k}.png,{'ab'[k % 2]}\n" for k in range(12))))
    with pytest.raises(DataError, match="line 2: it has more columns than the heading"):
        prepare(table(tmp_path, "path,label\nimages/0.png,a,b\n"))


def test_no_class_vanishes(folder: Path) -> None:
    save(folder / "eel" / "young" / "0.png", grey())
    with pytest.raises(DataError, match=r"eel/young is a folder within a class"):
        prepare(folder)
    (folder / "eel").rename(folder / "train")
    with pytest.raises(DataError, match=r"has train beside other folders, .*cat; .*dog: are those classes or not"):
        prepare(folder)
    with pytest.raises(DataError, match="is a folder of classes"):
        prepare(folder, target="numbers")


def test_images_beside_the_classes_are_counted(folder: Path) -> None:
    save(folder / "stray.png", grey())
    assert prepare(folder)[0].notes == ("1 files beside the folders of classes were left out.",)


def test_values_of_another_kind_than_in_training_are_refused(tmp_path: Path) -> None:
    about = own.About((28, 28), 1, ("a", "b"), "classes", 0.0, 1.0)
    for array in (np.full((28, 28), 200.0), np.full((28, 28), 200), np.full((28, 28), -3.0)):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(DataError, match=r"has values from .* but the network was trained on 0 to 1"):
            own.read_example(tmp_path / "a.npy", about)
    for array in (np.full((28, 28), 1j), np.array(["a"] * 784).reshape(28, 28)):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(DataError, match="must hold real numbers"):
            own.read_example(tmp_path / "a.npy", about)
    np.save(tmp_path / "a.npy", np.full((28, 28), 3e38))
    with pytest.raises(DataError, match="larger than 1e"):
        own.read_example(tmp_path / "a.npy", about)


def test_whole_numbers_of_many_bits_are_numbers(tmp_path: Path) -> None:
    images = RNG.integers(0, 200, (12, 28, 28))
    np.savez(tmp_path / "a.npz", images=images, labels=labelled())
    about, _ = prepare(tmp_path / "a.npz")
    assert 0 <= about.low < about.high <= 199
    np.save(tmp_path / "one.npy", images[0])
    found = own.read_example(tmp_path / "one.npy", about)[0]
    wanted = 2 * (images[0] - about.low) / (about.high - about.low) - 1
    torch.testing.assert_close(found, torch.from_numpy(wanted).float())


def test_grey_transparency_is_laid_on_white_too(tmp_path: Path) -> None:
    about = own.About((28, 28), 1, ("a", "b"), "classes", 0.0, 1.0)
    clear = np.zeros((28, 28, 2), np.uint8)
    clear[:14, :, 1] = 255  # black above, nothing below
    wanted = torch.ones(1, 28, 28)
    wanted[:, :14] = -1
    torch.testing.assert_close(own.read_example(save(tmp_path / "la.png", clear), about), wanted)


def test_photographs_are_turned_as_the_camera_says(tmp_path: Path) -> None:
    image = Image.fromarray(np.repeat(np.arange(28, dtype=np.uint8)[:, None] * 9, 28, 1))  # brighter below
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    image.save(tmp_path / "turned.png", exif=exif)
    found = own.read_example(tmp_path / "turned.png", own.About((28, 28), 1, ("a", "b"), "classes", 0.0, 1.0))[0]
    assert found[0].mean() > found[-1].mean()


def test_pipes_among_the_images_are_not_waited_for(folder: Path) -> None:
    (folder / "cat" / "3.png").unlink()
    os.mkfifo(folder / "cat" / "3.png")
    os.mkfifo(folder / "cat" / "x.npy")
    with pytest.raises(DataError, match=r"2 of 21 files cannot be used: .*Not a plain file"):
        prepare(folder)


def test_examples_are_shown_as_they_were_read(tmp_path: Path) -> None:
    images = RNG.integers(0, 255, (12, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=labelled())
    prepare(tmp_path / "a.npz")
    own.write_contact_sheet(tmp_path / "prepared.npz", tmp_path / "sheet.png")
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert sheet.shape == (3 * 30, 4 * 30, 3)
    assert np.abs(sheet[:28, :28, 0].astype(int) - images[0]).max() <= 1
    assert np.abs(sheet[60:88, 90:118, 1].astype(int) - images[11]).max() <= 1


@pytest.mark.parametrize(
    "change",
    [
        {"pixels": np.zeros((12, 1, 28, 27), np.float16)},
        {"pixels": np.full((12, 1, 28, 28), np.nan, np.float16)},
        {"targets": np.full(12, 2)},
        {"targets": np.zeros(12, np.float32)},
        {"split": np.zeros(12, np.uint8)},
        {"split": np.zeros(11, np.uint8)},
    ],
)
def test_a_prepared_file_holds_what_it_says(change: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=RNG.integers(0, 255, (12, 28, 28), dtype=np.uint8), labels=labelled())
    prepare(tmp_path / "a.npz")
    with np.load(tmp_path / "prepared.npz") as arrays:
        kept = dict(arrays)
    np.savez(tmp_path / "prepared.npz", **{**kept, **change})
    with pytest.raises(DataError, match="does not hold what it says"):
        own.load(tmp_path / "prepared.npz")


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["a"]},
        {"names": []},
        {"channels": -1},
        {"channels": 10**6},
        {"channels": True},
        {"shape": [28]},
        {"shape": [28, 0]},
        {"shape": [28, 28.0]},
        {"shape": 28},
        {"shape": [10**6, 10**6]},
        {"frame": [28]},
        {"spacing": -1.0},
        {"spacing": "x"},
        {"kind": "words"},
        {"low": "x"},
        {"low": 2.0},
        {"high": float("inf")},
        {"kind": "numbers"},
        {"kind": "vectors", "names": ["x", "y", "z"], "means": [0, 0, 0], "deviations": [1, 1, 1]},
        {"kind": None},
        {"notes": [1]},
        {"dimension_given": 1},
    ],
)
def test_descriptions_of_data_are_checked(change: dict[str, Any]) -> None:
    values = json.loads(own.About((28, 28), 1, ("a", "b"), "classes", 0.0, 1.0, counts=(2, 1, 1)).to_json())
    assert "dimension_given" not in values  # as before, unless it is: runs are found by this text
    own.About.from_json(json.dumps(values))
    with pytest.raises(ValueError, match="not a description of prepared data"):
        own.About.from_json(json.dumps({**values, **change}))


@pytest.mark.parametrize("regression", [False, True])
def test_descriptions_of_earlier_versions_are_understood(regression: bool) -> None:
    old = {"dimension": 3, "size": 16, "channels": 1, "names": ["a", "b"], "regression": regression, "low": 0.0}
    old |= {"high": 1.0, "means": [0.0] * 2 * regression, "deviations": [1.0] * 2 * regression, "counts": [2, 1, 1]}
    about = own.About.from_json(json.dumps({**old, "notes": [], "source": "here"}))
    assert (about.shape, about.kind, about.frame) == ((16, 16, 16), "numbers" if regression else "classes", ())
    for change in ({"dimension": 4}, {"dimension": [2]}, {"size": "x"}, {"regression": 1}):
        with pytest.raises(ValueError, match="not a description of prepared data"):
            own.About.from_json(json.dumps({**old, **change}))


def test_a_fourth_channel_is_opacity(tmp_path: Path) -> None:
    for images in (np.full((12, 28, 28, 4), 7), np.full((12, 28, 28, 4), 7.0), np.full((12, 28, 28, 4), -1, np.int8)):
        np.savez(tmp_path / "a.npz", images=images, labels=labelled())
        with pytest.raises(DataError, match="the last of four channels is opacity"):
            prepare(tmp_path / "a.npz")


def test_huge_numbers_name_no_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=RNG.random((12, 28, 28)), labels=1e300 * labelled())
    with pytest.raises(DataError, match="labels must be one whole number per example"):
        prepare(tmp_path / "a.npz", target="classes")
    np.savez(tmp_path / "a.npz", images=RNG.random((12, 28, 28)), labels=labelled().astype(np.float16))
    assert prepare(tmp_path / "a.npz", target="classes")[0].names == ("0", "1")


def test_targets_that_are_too_large_are_not_finite(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=RNG.random((12, 28, 28)), labels=RNG.random(12) * 1e300)
    with pytest.raises(DataError, match="12 targets are not finite numbers"):
        prepare(tmp_path / "a.npz")


def test_a_broken_header_is_a_damaged_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((28, 28)))
    content = (tmp_path / "a.npy").read_bytes()
    for header in (b"{'descr': ((((((", b"{'descr': '<f8', 'shape': '''"):
        (tmp_path / "a.npy").write_bytes(content[:10] + header.ljust(118) + content[128:])
        with pytest.raises(DataError, match=r"a\.npy is damaged or not an array"):
            own.read_example(tmp_path / "a.npy", own.About((28, 28), 1, ("a", "b"), "classes", 0.0, 1.0))


def test_archives_that_are_packed_in_another_way_are_refused(tmp_path: Path) -> None:
    np.savez(path := tmp_path / "a.npz", images=np.zeros((12, 8, 8)), labels=np.arange(12) % 2)
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):  # the method, in both headers of the first array
        place = content.index(mark) + offset
        content[place : place + 2] = (99).to_bytes(2, "little")
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"is damaged or not an \.npz file"):
        own.prepare(path, tmp_path / "data.npz")


def test_what_is_called_an_image_is_read_as_one_and_starts_no_program(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for k in range(6):
            (tmp_path / "data" / name / f"{k}.png").write_bytes(
                b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n"
            )
    with pytest.raises(DataError, match=r"\.png"):
        own.prepare(tmp_path / "data", tmp_path / "out.npz")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,y,y\n0.png,1,2\n", "the column 'y' occurs twice"),
        ("path,label\n0.png,a\n1.png,b,c\n", "line 3: it has more columns than the heading"),
        ("path,label\n0.png,a\n0.png,b\n1.png,b\n", "names 1 files more than once"),
        ("path,height\n0.png,1_5\n1.png,2\n", "targets must be finite numbers, got 1_5"),
    ],
)
def test_tables_that_say_two_things_are_refused(text: str, message: str, tmp_path: Path) -> None:
    for k in range(2):
        save(tmp_path / f"{k}.png", grey())
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        own.prepare(tmp_path / "t.csv", tmp_path / "prepared.npz", target="numbers" if "1_5" in text else None)


def test_images_of_32_bits_and_masks_of_64_are_not_cut(tmp_path: Path, folder: Path) -> None:
    Image.fromarray(np.array([[0, 70000], [3, 4]], dtype=np.int32)).save(folder / "cat" / "x.tiff")
    with pytest.raises(DataError, match="has values from 0 to 70000, images have up to 16 bits"):
        own.prepare(folder, tmp_path / "prepared.npz")
    masks = np.zeros((20, 12, 12), dtype=np.uint64)
    masks[:, 0, 0] = 2**64 - 1
    np.savez(tmp_path / "masks.npz", images=RNG.random((20, 12, 12)), masks=masks)
    with pytest.raises(DataError, match="have up to 31 bits"):
        own.prepare(tmp_path / "masks.npz", tmp_path / "prepared.npz")


@pytest.mark.parametrize("name", ["grey-and-opacity.png", "colour.png", "colour-and-opacity.png", "colour.tif"])
def test_colours_of_16_bits_are_not_cut(name: str, tmp_path: Path) -> None:
    """Files whose headers say so: no writer at hand makes whole ones, and none is read further."""
    path = save(tmp_path / name, grey(28, np.uint16) if name.endswith(".png") else grey((28, 84)).reshape(28, 28, 3))
    content = path.read_bytes()
    if name.endswith(".png"):
        kind = {"grey-and-opacity": 4, "colour": 2, "colour-and-opacity": 6}[path.stem]
        header = content[12:25] + bytes([kind]) + content[26:29]
        content = content[:12] + header + zlib.crc32(header).to_bytes(4, "big") + content[33:]
    else:
        content = content.replace(struct.pack("<3H", 8, 8, 8), struct.pack("<3H", 16, 16, 16))
    path.write_bytes(content)
    about = own.About((28, 28), 3, ("a", "b"), "classes", 0.0, 1.0)
    message = "has 16 bits in each of several channels, but .* are read with 8: save it as .npy"
    with pytest.raises(DataError, match=message):
        own.read_example(path, about)
    with Image.open(path) as opened, pytest.raises(DataError, match=message):
        own.prepare([(opened, 0)], tmp_path / "prepared.npz")
    pair = tmp_path / "pair"
    for folder in ("images", "masks"):
        (pair / folder).mkdir(parents=True)
    save(pair / "images" / "1.png", grey())
    (pair / "masks" / f"1{path.suffix}").write_bytes(content)
    with pytest.raises(DataError, match=f"1 of 1 masks cannot be used: .*{message}"):
        own.prepare(pair, tmp_path / "prepared.npz")


def test_colours_of_16_bits_in_arrays_keep_them(tmp_path: Path) -> None:
    image = RNG.integers(0, 65536, (12, 10, 3)).astype(np.uint16)
    np.save(tmp_path / "1.npy", image)
    about = own.About((12, 10), 3, ("a", "b"), "classes", 0.0, 1.0)
    again = (own.read_example(tmp_path / "1.npy", about).double().numpy().transpose(1, 2, 0) + 1) / 2 * 65535
    np.testing.assert_allclose(again, image, atol=0.01)


def test_one_huge_image_does_not_make_all_others_huge(tmp_path: Path, folder: Path) -> None:
    Image.new("1", (9000, 9000)).save(folder / "cat" / "huge.png")
    with pytest.raises(DataError, match="an example of 9000×9000 is among examples whose longer side is mostly 28"):
        own.prepare(folder, tmp_path / "prepared.npz")


def test_colours_are_grey_to_a_network_for_grey_images(folder: Path, tmp_path: Path) -> None:
    about, _ = prepare(folder)
    values = grey()
    flat = own.read_example(save(tmp_path / "grey.png", values), about)
    coloured = own.read_example(save(tmp_path / "colour.png", np.stack(3 * [values], -1)), about)
    assert torch.equal(flat, coloured)


def test_arrays_that_no_memory_holds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros((40, 64, 64)), labels=np.arange(40) % 2)
    monkeypatch.setattr("pscnn.data._folder.half_of_memory", lambda: 1e6)
    with pytest.raises(DataError, match=r"its arrays take 0\.00 GiB, and 0\.00 are allowed"):
        own.prepare(tmp_path / "a.npz", tmp_path / "prepared.npz")


def test_tensors_of_half_the_usual_precision(tmp_path: Path) -> None:
    x, y = torch.rand(20, 12, 12).bfloat16(), torch.arange(20) % 2
    assert own.prepare((x, y), tmp_path / "prepared.npz").shape == (12, 12)


@pytest.mark.parametrize("kind", ["labels", "classes", "numbers", "vectors", None])
def test_targets_without_a_number_are_refused(kind: str | None, tmp_path: Path) -> None:
    rows: list[tuple[torch.Tensor, list[int]]] = [(image, []) for image in torch.rand(20, 12, 12)]
    with pytest.raises(DataError, match=r"labels must be one whole number per .*, got float64 of shape \(20, 0\)"):
        own.prepare(rows, tmp_path / "prepared.npz", target=kind)


def test_copies_of_examples_are_counted_and_said(tmp_path: Path) -> None:
    images = RNG.integers(0, 255, (40, 12, 12), dtype=np.uint8)
    labels = np.arange(40) % 2
    images[1] = images[3] = images[5]  # one class; three times
    images[20] = images[31]  # two classes
    parts = {"train": slice(0, 24), "val": slice(24, 32), "test": slice(32, 40)}
    arrays: dict[str, Any] = {f"{name}_{kind}": values[rows] for name, rows in parts.items()
              for kind, values in (("images", images), ("labels", labels))}  # fmt: skip
    np.savez(tmp_path / "a.npz", **arrays)
    about, _ = prepare(tmp_path / "a.npz")
    (note,) = about.notes
    assert note == (
        "3 of 40 examples are copies of others (in several of training, validation and test: 1; with different "
        "targets: 1). A network seems to know what it has seen: leave one of each."
    )
    arrays["train_images"] = RNG.integers(0, 255, (24, 12, 12), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", **arrays)
    assert prepare(tmp_path / "a.npz")[0].notes == ()


def test_a_home_of_nobody_is_a_path_as_others(tmp_path: Path) -> None:
    for name in ("~nobody-is-called-so", "~\0"):
        with pytest.raises(DataError, match="~"):
            own.prepare(name, tmp_path / "prepared.npz")

"""Own data of any size, shape, depth and spacing: what is kept, what is padded, what is lost and said."""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pscnn.data import DataError, _own_fit, _own_shape, own

RNG = np.random.default_rng(0)


def prepare(
    tmp_path: Path, images: np.ndarray, more: dict[str, Any] | None = None, **options: Any
) -> tuple[own.About, torch.Tensor]:
    np.savez(tmp_path / "a.npz", images=images, labels=np.arange(len(images)) % 2, **(more or {}))
    about = own.prepare(tmp_path / "a.npz", tmp_path / "prepared.npz", **options)
    splits = own.load(tmp_path / "prepared.npz")
    assert own.read_about(tmp_path / "prepared.npz") == about
    return about, torch.cat([split.pixels for split in splits.values()]).float()


def holds(stored: torch.Tensor, wanted: np.ndarray, tolerance: float) -> bool:
    """Whether one of the stored examples is the wanted one."""
    return bool((stored - torch.from_numpy(wanted).float()).abs().flatten(1).amax(1).min() <= tolerance)


@pytest.mark.parametrize("shape", [(512, 512), (40, 60), (33, 9), (600, 16)])
def test_images_keep_their_size(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = RNG.integers(0, 255, (10, *shape), dtype=np.uint8)
    about, stored = prepare(tmp_path, images)
    assert about.shape == shape
    assert holds(stored[:, 0], images[3] / 127.5 - 1, 1e-3)
    assert ("keeps this frame" in " ".join(about.notes)) == (shape[0] != shape[1])


def test_sixteen_bits_are_kept(tmp_path: Path) -> None:
    images = RNG.integers(0, 65536, (10, 12, 9)).astype(np.uint16)
    about, stored = prepare(tmp_path, images)
    again = ((stored[:, 0].double() + 1) / 2 * (about.high - about.low) + about.low) * 65535
    assert holds(again, images[0].astype(float), 0.3)  # a step is 1
    Image.fromarray(images[0]).save(tmp_path / "one.png")
    assert holds(stored, own.read_example(tmp_path / "one.png", about).numpy(), 1e-6)


def test_the_order_of_bytes_changes_nothing(tmp_path: Path) -> None:
    image = RNG.integers(0, 65536, (10, 12)).astype(np.uint16)
    big = image.astype(">u2")
    about = own.About((10, 12), 1, ("a", "b"), "classes", 0.0, 1.0)
    np.save(tmp_path / "1.npy", image)
    np.save(tmp_path / "2.npy", big)
    scan = Image.frombytes("I;16B", (12, 10), big.tobytes())
    scan.save(tmp_path / "3.tif")
    one, *others = (own.read_example(tmp_path / name, about) for name in ("1.npy", "2.npy", "3.tif"))
    assert all(torch.equal(one, other) for other in others)
    few: dict[str, np.ndarray] = {"images": np.stack([image] * 10), "labels": np.arange(10) % 2}
    many = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in few.items()}
    np.savez(tmp_path / "a.npz", images=many["images"], labels=many["labels"])
    sources: list[Any] = [few, many, tmp_path / "a.npz", [(scan, "ab"[k % 2]) for k in range(10)]]
    for source in sources:
        assert own.prepare(source, tmp_path / "prepared.npz").high == image.max() / np.float32(65535)


def test_white_is_zero_in_some_scans(tmp_path: Path) -> None:
    about = own.About((10, 12), 1, ("a", "b"), "classes", 0.0, 1.0)
    for kind in (np.uint8, np.uint16):
        image = RNG.integers(0, np.iinfo(kind).max, (10, 12)).astype(kind)
        Image.fromarray(image).save(tmp_path / "usual.tif")
        written_so = image if kind is np.uint8 else np.iinfo(kind).max - image  # 8 bits Pillow turns round on writing
        Image.fromarray(written_so).save(tmp_path / "white.tif", tiffinfo={262: 0})
        one, other = (own.read_example(tmp_path / f"{name}.tif", about) for name in ("usual", "white"))
        with Image.open(tmp_path / "white.tif") as written:
            assert getattr(written, "tag_v2")[262] == 0  # noqa: B009 (only these images have it)
        assert torch.equal(one, other)


def test_what_is_missing_of_a_scan_is_not_black(tmp_path: Path) -> None:
    Image.fromarray(RNG.integers(0, 255, (16, 16), dtype=np.uint8)).save(tmp_path / "a.tif")
    data = bytearray((tmp_path / "a.tif").read_bytes())
    start = int.from_bytes(data[4:8], "little")
    count = int.from_bytes(data[start : start + 2], "little")
    entries = [start + 2 + 12 * k for k in range(count)]
    (height,) = (place for place in entries if int.from_bytes(data[place : place + 2], "little") == 257)
    for rows in (100, 2**23):
        data[height + 8 : height + 12] = rows.to_bytes(4, "little")
        (tmp_path / "b.tif").write_bytes(data)
        about = own.About((16, 16), 1, ("a", "b"), "classes", 0.0, 1.0)
        with pytest.raises(DataError, match=r"b.tif is damaged or not an image \(.*\)"):
            own.read_example(tmp_path / "b.tif", about)


def test_damaged_scans_are_refused_in_a_sentence(tmp_path: Path) -> None:
    about = own.About((16, 16), 1, ("a", "b"), "classes", 0.0, 1.0)
    scans = [Image.fromarray(RNG.integers(0, 255, (16, 16), dtype=np.uint8)) for _ in range(2)]
    scans[0].save(tmp_path / "a.tif", save_all=True, append_images=scans[1:])
    whole = (tmp_path / "a.tif").read_bytes()
    for k in range(300):
        data = bytearray(whole)
        for place in RNG.integers(0, len(data), 1 + k % 4):
            data[place] = RNG.integers(256)
        (tmp_path / "b.tif").write_bytes(data)
        with contextlib.suppress(DataError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about what it does not understand
            own.read_example(tmp_path / "b.tif", about)


def test_any_number_of_channels_if_it_is_said(tmp_path: Path) -> None:
    images = RNG.random((10, 24, 20, 7))
    about, stored = prepare(tmp_path, images, dimension=2)
    assert (about.shape, about.channels) == ((24, 20), 7)
    np.save(tmp_path / "one.npy", images[2])
    assert holds(stored, own.read_example(tmp_path / "one.npy", about).numpy(), 1e-6)
    first, _ = prepare(tmp_path, images.transpose(0, 3, 1, 2)[:, :3], dimension=2)  # as torch has them
    assert (first.shape, first.channels) == ((24, 20), 3)
    four = RNG.random((10, 24, 20, 4)) * 9  # no opacity
    assert prepare(tmp_path, four, dimension=2)[0].channels == 4
    about, _ = prepare(tmp_path, images)
    assert about.shape == (24, 20, 7)
    assert "Arrays (24, 20, 7) were read as volumes; --dimension 2 takes the last axis as channels." in about.notes
    assert prepare(tmp_path, images[:, :, :, :3], dimension=3)[0].shape == (24, 20, 3)
    volumes, _ = prepare(tmp_path, RNG.random((10, 6, 9, 8, 5)), dimension=3)
    assert (volumes.shape, volumes.channels) == ((6, 9, 8), 5)


@pytest.mark.parametrize(
    ("shape", "dimension"),
    [((3, 20, 20), 2), ((1, 20, 20), 2), ((20, 20, 3), 2), ((4, 20, 20), 2), ((3, 20, 20), 3), ((20, 20, 3), 3)],
)
def test_single_files_are_read_as_in_training(shape: tuple[int, ...], dimension: int, tmp_path: Path) -> None:
    for k in range(10):
        (tmp_path / "d" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "d" / "ab"[k % 2] / f"{k}.npy", RNG.random(shape).astype(np.float32))
    about = own.prepare(tmp_path / "d", tmp_path / "prepared.npz", dimension=dimension)
    assert about.dimension == dimension
    assert own.About.from_json(about.to_json()) == about
    stored = torch.cat([split.pixels for split in own.load(tmp_path / "prepared.npz").values()])
    assert holds(stored, own.read_example(tmp_path / "d" / "a" / "0.npy", about).numpy(), 1e-6)
    if about.channels == 3:
        np.save(tmp_path / "four.npy", RNG.random((20, 20, 4)).astype(np.float32))
        with pytest.raises(DataError, match="has 4 channels, but the network expects 3"):
            own.read_example(tmp_path / "four.npy", about)  # none of them is opacity


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimension": 4}, "dimension must be 2 for images or 3 for volumes"),
        ({"dimension": 3}, "volumes have 3 axes, and one more for channels"),
        ({"target": "words"}, "target must be one of classes, labels, numbers, vectors, masks, got 'words'"),
        ({"size": 7}, "size must lie between 8 and 65536, got 7"),
    ],
)
def test_options_that_cannot_be_say_why(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        prepare(tmp_path, RNG.random((10, 12, 12)), **options)


def test_quarter_turns_get_square_frames(tmp_path: Path) -> None:
    images = RNG.integers(0, 255, (10, 20, 12), dtype=np.uint8)
    about, stored = prepare(tmp_path, images, square=True)
    assert (about.shape, about.frame) == ((20, 20), (20, 20))
    assert about.notes == (
        "Examples of 20×12 were padded to equal sides of 20, so that quarter turns keep them whole.",
        "It can be seen where examples end and padding begins: nearly all of them fill 20×12.",
    )
    assert holds(stored[:, 0, :, 4:16], images[1] / 127.5 - 1, 1e-3)


def test_what_examples_fill_is_known_where_padding_can_be_seen(tmp_path: Path) -> None:
    noise = RNG.integers(0, 255, (40, 20, 12), dtype=np.uint8)
    assert prepare(tmp_path, noise)[0].content == ()  # nothing is padded
    assert prepare(tmp_path, noise, square=True)[0].content == (20, 12)
    assert prepare(tmp_path, noise, square=True, size=10)[0].content == (10, 6)
    faint = noise.copy()
    faint[:, :, [0, -1]] = faint[:, [0, -1]] = 99
    assert prepare(tmp_path, faint, square=True)[0].content == ()  # a border of one value
    one = faint.copy()
    one[0] = noise[0]
    assert prepare(tmp_path, one, square=True)[0].content == ()  # in one of forty
    for k in range(40):
        place = tmp_path / "some" / "ab"[k % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise[k] if k % 4 else noise[k, :12].T).save(place / f"{k}.png")  # one in four lies on its side
    about = own.prepare(tmp_path / "some", tmp_path / "some.npz")
    assert (about.shape, about.content) == ((20, 12), (12, 12))
    assert own.About.from_json(about.to_json()) == about
    for wrong in ([12], [12, 13], [0, 12], ["a", "b"], [True, 12], 5):
        with pytest.raises(ValueError, match="not a description of prepared data"):
            own.About.from_json(json.dumps(json.loads(about.to_json()) | {"content": wrong}))


def test_resizing_keeps_proportions_and_says_what_is_lost(tmp_path: Path) -> None:
    about, _ = prepare(tmp_path, RNG.integers(0, 255, (10, 60, 40), dtype=np.uint8), size=30)
    assert (about.shape, about.frame) == ((30, 20), (60, 40))
    assert about.notes[0] == "Examples of 60×40 were resized to 30×20, and details finer than 2 pixels were lost."
    smooth = np.add.outer(np.arange(60.0), 2 * np.arange(40.0))[None].repeat(10, 0)
    _, stored = prepare(tmp_path, smooth, size=30)
    blocks = smooth[0].reshape(30, 2, 20, 2).mean((1, 3))  # of a plane, the mean of four pixels
    wanted = 2 * (blocks - blocks.min()) / (blocks.max() - blocks.min()) - 1
    assert np.abs(stored[0, 0].numpy() - wanted)[2:-2, 2:-2].max() < 0.02


def test_what_does_not_fit_into_memory_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_own_shape, "half_of_memory", lambda: 24.0)
    with pytest.raises(
        DataError, match=r"10 examples of 64×64 with 1 channels take 0\.0 GiB, .* give a smaller --size"
    ):
        prepare(tmp_path, RNG.integers(0, 255, (10, 64, 64), dtype=np.uint8))


def test_volumes_are_resampled_to_equal_spacing(tmp_path: Path) -> None:
    z, y, x = np.meshgrid(np.arange(8) * 3.0, np.arange(20), np.arange(16), indexing="ij")
    volumes = (z + 2 * y + 3 * x)[None].repeat(10, 0)
    about, stored = prepare(tmp_path, volumes, {"spacing": np.array([3.0, 1.0, 1.0])})
    assert (about.shape, about.spacing) == ((24, 20, 16), 1.0)
    assert about.notes[0] == (
        "Voxels with spacing 3×1×1 were resampled to 1 along every side, since turns mix the sides: 8×20×16 became "
        "24×20×16."
    )
    middle = stored[0, 0][4:-4].double() * (about.high - about.low) / 2  # in voxels: a step in z as long as one in y
    for axis, slope in ((0, 1), (1, 2), (2, 3)):
        torch.testing.assert_close(
            middle.diff(dim=axis), torch.full_like(middle.diff(dim=axis), slope), atol=1e-3, rtol=0
        )
    same, _ = prepare(tmp_path, volumes, {"spacing": np.array([2.0, 2.0, 2.0])})
    assert (same.shape, same.spacing) == ((8, 20, 16), 2.0)
    assert not any("resampled" in note for note in same.notes)
    for wrong in (np.ones(2), np.zeros(3), np.zeros(3, np.float16), np.full(3, np.nan), np.array(["a"] * 3)):
        with pytest.raises(DataError, match="spacing must be"):
            prepare(tmp_path, volumes, {"spacing": wrong})


def test_long_voxels_do_not_fill_the_memory() -> None:
    sides, lengths = (100, 512, 512), (5.0, 0.7, 0.7)
    spacing = _own_fit.common_spacing([sides], [lengths])
    assert 0.7 < spacing < 5
    assert np.prod(_own_fit.with_spacing(sides, lengths, spacing), dtype=float) < 1.02 * np.prod(sides, dtype=float)


@pytest.mark.parametrize(
    ("sides", "shape", "frame"),
    [
        ((10, 14), (10, 14), (10, 14)),
        ((7, 9), (12, 14), (12, 14)),
        ((20, 28), (10, 14), (20, 28)),
        ((40, 28), (10, 14), (20, 28)),
        ((9, 20), (16, 16), ()),
        ((5, 7, 6), (8, 8, 8), (8, 8, 8)),
    ],
)
def test_masks_come_back_from_the_networks_shape(
    sides: tuple[int, ...], shape: tuple[int, ...], frame: tuple[int, ...]
) -> None:
    """There and back a mask with large parts is the same, but for the pixels along their edges."""
    mask = torch.zeros(sides, dtype=torch.int64)
    mask[tuple(slice(0, n // 2) for n in sides)] = 1
    fitted = _own_fit.fit(mask[None], shape, frame)[0]
    assert fitted.shape == shape
    again = _own_fit.unfit(fitted, sides, frame)
    assert again.shape == sides
    assert (again == mask).float().mean() > 0.75
    if max(n / m for n, m in zip(sides, frame or sides, strict=True)) <= 1 and shape == frame:
        assert torch.equal(again, mask)
        assert (fitted == own.UNKNOWN).sum() == fitted.numel() - mask.numel()


def test_padding_has_the_mean_of_each_channels_border() -> None:
    x = torch.zeros(2, 3, 5)
    x[0, 1, 1:-1] = 9  # inside: it does not count
    x[1] = 0.5
    out = _own_fit.pad_to(x, (7, 5))
    assert torch.equal(out[:, 2:5], x)
    assert (out[0, :2] == 0).all()
    assert (out[1] == 0.5).all()
    bright = torch.full((1, 256, 256), 0.5)
    bright[:, 1:-1, 1:-1] = 1e6 * torch.rand(254, 254, generator=torch.Generator().manual_seed(0))
    assert (_own_fit.pad_to(bright, (258, 256))[:, 0] == 0.5).all()  # whatever lies inside


@pytest.mark.parametrize("name", ["C(4)", "D(4)", "SO(2)", "O(2)", "SO(3)", "SO(2)@z", "C(8)"])
def test_groups_with_quarter_turns_are_known(name: str) -> None:
    assert own.has_quarter_turns(name)


@pytest.mark.parametrize("name", ["C(1)", "C(2)", "D(1)", "D(2)", "C(3)", "D(6)", "C(2)@x"])
def test_groups_without_quarter_turns_are_known(name: str) -> None:
    assert not own.has_quarter_turns(name)


def test_contact_sheets_of_oblong_and_large_examples(tmp_path: Path) -> None:
    prepare(tmp_path, RNG.integers(0, 255, (10, 600, 20), dtype=np.uint8))
    own.write_contact_sheet(tmp_path / "prepared.npz", tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (4 * (7 + 2), 3 * (200 + 2))  # every third pixel

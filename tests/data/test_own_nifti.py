"""NIfTI volumes: axes and spacing as the affine says them; damaged and foreign files."""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch

from pscnn import PscnnError
from pscnn.data import DataError, own

RNG = np.random.default_rng(0)


def write(path: Path, values: np.ndarray, affine: np.ndarray | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    make: Any = nibabel.Nifti1Image
    nibabel.save(make(values, np.eye(4) if affine is None else affine), path)
    return path


def volume() -> np.ndarray:
    return RNG.random((5, 7, 9)).astype(np.float32)


ABOUT = own.About((9, 7, 5), 1, ("a", "b"), "classes", 0.0, 1.0, frame=(9, 7, 5), spacing=1.0)


def test_x_is_to_the_right_y_forward_and_z_up(tmp_path: Path) -> None:
    """In memory planes come first and rows are counted against y, as in all volumes here."""
    values = volume()
    found = own.read_example(write(tmp_path / "a.nii.gz", values), ABOUT)[0]
    wanted = torch.from_numpy(np.ascontiguousarray(values.transpose(2, 1, 0)[:, ::-1])) * 2 - 1
    torch.testing.assert_close(found, wanted)
    mirrored = write(tmp_path / "b.nii", values[::-1], np.diag([-1.0, 1, 1, 1]))  # stored the other way round
    torch.testing.assert_close(own.read_example(mirrored, ABOUT)[0], wanted)
    turned = np.array([[0.0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]])  # the array's axes are y, z and x
    stored = write(tmp_path / "c.nii", values.transpose(1, 2, 0), turned)
    torch.testing.assert_close(own.read_example(stored, ABOUT)[0], wanted)


def test_spacing_of_the_affine_is_respected(tmp_path: Path) -> None:
    for label in "ab":
        for k in range(5):
            write(tmp_path / "d" / label / f"{k}.nii.gz", volume(), np.diag([2.0, 1, 1, 1]))
    about = own.prepare(tmp_path / "d", tmp_path / "prepared.npz")
    assert (about.dimension, about.shape, about.spacing) == (3, (9, 7, 10), 1.0)
    assert about.notes[0].startswith("Voxels with spacing 1×1×2 were resampled to 1 along every side")
    coarse = write(tmp_path / "one.nii", volume()[:, :, ::3], np.diag([2.0, 1, 3, 1]))
    assert own.read_example(coarse, about).shape == (1, 9, 7, 10)
    write(tmp_path / "d" / "a" / "fine.nii", volume(), np.diag([0.5, 0.5, 0.5, 1]))
    mixed = own.prepare(tmp_path / "d", tmp_path / "prepared.npz")
    assert "of 2 kinds were resampled to 0.5" in mixed.notes[0]
    np.save(tmp_path / "d" / "a" / "plain.npy", volume())
    with pytest.raises(DataError, match="1 examples have no voxel spacing, but others have one"):
        own.prepare(tmp_path / "d", tmp_path / "prepared.npz")


def test_masks_channels_and_single_planes(tmp_path: Path) -> None:
    for k in range(10):
        values = volume()
        write(tmp_path / "d" / "images" / f"{k}.nii.gz", values, np.diag([2.0, 1, 1, 1]))
        write(tmp_path / "d" / "masks" / f"{k}.nii.gz", (values > 0.5).astype(np.uint8), np.diag([2.0, 1, 1, 1]))
    about = own.prepare(tmp_path / "d", tmp_path / "prepared.npz")
    assert (about.kind, about.names, about.shape) == ("masks", ("0", "1"), (9, 7, 10))
    split = own.load(tmp_path / "prepared.npz")["train"]
    agree = ((split.pixels[:, 0] > 0) == (split.labels > 0)).float().mean()
    assert agree > 0.8  # resampled voxels are mixed, masks are not
    many = own.About((9, 7, 5), 4, ("a", "b"), "classes", 0.0, 1.0)
    assert own.read_example(write(tmp_path / "c.nii", RNG.random((5, 7, 9, 4))), many).shape == (4, 9, 7, 5)
    flat = own.About((7, 5), 1, ("a", "b"), "classes", 0.0, 1.0)
    assert own.read_example(write(tmp_path / "f.nii", RNG.random((5, 7, 1))), flat).shape == (1, 7, 5)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1), (1, 0, 2)])
def test_masks_are_written_as_their_volumes_lie(order: tuple[int, ...], tmp_path: Path) -> None:
    values = volume().transpose(order)
    affine = np.eye(4)
    affine[:3, :3] = np.diag([-2.0, 1, 3])[:, list(order)]  # x runs against the array's axis
    path = write(tmp_path / "a.nii.gz", values, affine)
    seen = own.About((9, 7, 5), 1, ("a", "b"), "classes", 0.0, 1.0)
    canonical = own.read_example(path, seen)[0].numpy()
    out = own.write_mask((canonical > 0).astype(np.int64), tmp_path / "masks", path)
    found: Any = nibabel.load(out)
    assert np.array_equal(np.asarray(found.dataobj), (values > 0.5).astype(int))
    assert np.allclose(found.affine, affine)


def header(path: Path, place: int, content: bytes, out: Path) -> Path:
    whole = path.read_bytes()
    out.write_bytes(whole[:place] + content + whole[place + len(content) :])
    return out


def test_files_that_are_none_say_so(tmp_path: Path) -> None:
    good = write(tmp_path / "a.nii", volume())
    bad = {
        "no.nii": b"not a volume",
        "half.nii": good.read_bytes()[:700],
        "empty.nii.gz": b"",
        "packed.nii.gz": gzip.compress(good.read_bytes())[:-30],
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=r"is damaged or not a NIfTI file|too large for it"):
            own.read_example(tmp_path / name, ABOUT)
    huge = header(good, 40, struct.pack("<8h", 3, 30000, 30000, 30000, 1, 1, 1, 1), tmp_path / "huge.nii")
    packed = tmp_path / "huge.nii.gz"
    packed.write_bytes(gzip.compress(huge.read_bytes()))
    for path in (huge, packed):
        with pytest.raises(DataError, match="says that it has shape 30000×30000×30000, which is too large"):
            own.read_example(path, ABOUT)
    lost = header(good, 76, struct.pack("<8f", 1, np.nan, 1, 1, 1, 1, 1, 1), tmp_path / "lost.nii")
    with pytest.raises(DataError, match=r"affine does not say|is damaged"):
        own.read_example(lost, ABOUT)
    colours = np.zeros((5, 7, 9), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    with pytest.raises(DataError, match="a volume has 3 axes of real numbers"):
        own.read_example(write(tmp_path / "rgb.nii", colours), ABOUT)
    with pytest.raises(DataError, match="is damaged or not a NIfTI file"):
        own.read_example(tmp_path / "nowhere.nii", ABOUT)


def test_without_nibabel_it_is_said_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.nii", volume())
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(PscnnError, match=r"Reading NIfTI volumes needs nibabel, .* pip install 'pscnn\[nifti\]'"):
        own.read_example(path, ABOUT)

"""One image or volume from a file: PNG, JPEG, TIFF, BMP, ``.npy`` or NIfTI; and masks from such files."""

import gzip
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pscnn._extras import require
from pscnn._files import DAMAGED, plain_file
from pscnn._memory import LARGEST
from pscnn._types import AnyArray
from pscnn.data._folder import DataError, native

NIFTI = (".nii", ".nii.gz")
SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".npy", *NIFTI)
FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
"""Of images: for others a reader may start programs."""
CHANNELS = (1, 3, 4)
"""Lengths of a last axis that count channels."""
_LARGEST_VALUE = 1e30
"""Of a pixel: sums of squares of larger ones are not finite."""
_THINNEST = 5
"""Voxels along a side from which on it is one of a volume."""
_DEFLATED = 1100
"""How many times smaller than its content a packed file can be; less is a file that lacks something."""


class Example(NamedTuple):
    """One image or volume: values as the file has them, channels last, and the distance of neighbours along each side.

    Of volumes it is that of planes, rows and columns; None if the file does not say it.
    """

    values: AnyArray
    spacing: tuple[float, ...] | None = None


def suffix(path: Path) -> str:
    """Of a file's name, in small letters; ``.nii.gz`` is one."""
    return ".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix.lower()


def is_example(path: Path) -> bool:
    """Whether a file may be an image or a volume, by its name."""
    return suffix(path) in SUFFIXES and not path.name.startswith(".")


def read_file(path: Path, dimension: int | None = None) -> Example:
    """An image or volume.

    Args:
        path: The file.
        dimension: 2 if ``.npy`` files are images, whose last axis is channels, 3 if they are volumes; None if it is to
            be seen from their shapes.
    """
    if suffix(path) in NIFTI:
        return _nifti(path)
    return Example(
        with_channels(_array(path), f"{path}: its numbers", 0, dimension) if _is_array(path) else _image(path)
    )


def read_mask(path: Path, sides: Sequence[int]) -> AnyArray:
    """A mask: a whole number per pixel or voxel of an example with these sides."""
    if suffix(path) in NIFTI:
        array = _nifti(path).values
    else:
        array = _array(path) if _is_array(path) else _open_image(path, mask_values)
    return as_mask(array, sides, path)


def as_mask(array: AnyArray, sides: Sequence[int], what: object) -> AnyArray:
    """Whole numbers, one for each pixel or voxel; channels that are all equal count as one."""
    check_real(array, what)
    if array.ndim == len(sides) + 1 and array.shape[-1] and (array == array[..., :1]).all():
        array = array[..., 0]
    if array.shape != tuple(sides):
        raise DataError(
            f"{what}: a mask has one whole number for each pixel of its example, of shape {_times(sides)}, got shape "
            f"{_times(array.shape)}"
        )
    if array.dtype.kind == "f":
        array = array.astype(np.float64)  # half precision has no 2³¹
        if not (np.isfinite(array) & (abs(array) < 2**31) & (array == array.round())).all():
            raise DataError(f"{what}: a mask holds whole numbers, which name classes")
    elif array.size and not -(2**31) < int(array.min()) <= int(array.max()) < 2**31:
        raise DataError(f"{what}: the numbers of a mask, which name classes, have up to 31 bits")
    return array.astype(np.int64)


def _times(sides: Sequence[int]) -> str:
    return "×".join(map(str, sides))


def _is_array(path: Path) -> bool:
    return path.suffix.lower() == ".npy"


def _array(path: Path) -> AnyArray:
    try:
        with plain_file(path).open("rb") as handle:
            array = native(np.lib.format.read_array(handle, allow_pickle=False))
    except DAMAGED as error:
        raise DataError(f"{path} is damaged or not an array ({error})") from None
    if array.ndim not in (2, 3, 4):
        raise DataError(f"{path}: an image has 2 axes, a volume 3, and one more for channels, got shape {array.shape}")
    return array


def with_channels(array: AnyArray, what: str, first: int, dimension: int | None = None) -> AnyArray:
    """Images and volumes with an axis of channels at the end; the spatial axes begin at ``first``.

    Three axes are a volume, or an image whose last axis has 1, 3 or 4 channels; where it has four, the last is opacity.
    A volume with a side of so few voxels is more likely an image whose channels come first, so it must have an axis of
    channels. If the dimension is given, so many axes are spatial, and a further one is channels, however many.
    """
    check_real(array, what)
    axes = array.ndim - first
    if dimension is not None:
        if axes not in (dimension, dimension + 1):
            raise DataError(
                f"{what} have shape {array.shape}; {'images' if dimension == 2 else 'volumes'} have {dimension} axes, "
                "and one more for channels"
            )
        if axes > dimension and array.shape[first] < _THINNEST <= array.shape[-1]:
            return np.moveaxis(array, first, -1)  # as torch has them
        return array if axes > dimension else array[..., None]
    if axes == 4 and array.shape[-1] not in CHANNELS:
        raise DataError(
            f"{what} have shape {array.shape}: an image has 2 axes, a volume 3, and one more for channels, of which "
            "there are 1, 3 or 4 (pscnn discover --dimension 3 reads any number)"
        )
    if axes == 4 or (axes == 3 and array.shape[-1] in CHANNELS):
        return colour(array, what) if axes == 3 else array
    if axes == 3 and min(array.shape[first:]) < _THINNEST:
        raise DataError(
            f"{what} have shape {array.shape}, which may be images with channels or thin volumes: give images with "
            "channels of 1, 3 or 4 last, volumes with one more axis of length 1 at the end; or say to pscnn discover "
            "with --dimension 2 that these are images, with --dimension 3 that they are volumes"
        )
    return array[..., None]


def _image(path: Path) -> AnyArray:
    return _open_image(path, pixels_of)


def _open_image(path: Path, read: Any) -> AnyArray:
    image_module = require("PIL.Image", "data", "Reading images")
    try:
        with plain_file(path).open("rb") as handle, image_module.open(handle, formats=FORMATS) as opened:
            found: AnyArray = read(opened, path)
            return found
    except PermissionError:
        raise DataError(f"{path} may not be read") from None
    except (DataError, MemoryError):
        raise
    except Exception as error:  # of damaged files Pillow raises many kinds
        raise DataError(f"{path} is damaged or not an image ({error or type(error).__name__})") from None


def pixels_of(image: Any, what: object) -> AnyArray:
    """The pixels of a PIL image, channels last."""
    if getattr(image, "n_frames", 1) > 1:
        raise DataError(f"{what} has {image.n_frames} pages: volumes are read from .npz, .npy and .nii files")
    _check_depth(image, what)
    _check_strips(image)
    inverted = image.mode.startswith("I;16") and _tag(image, _PHOTOMETRIC) == (0,)
    image = require("PIL.ImageOps", "data", "Reading images").exif_transpose(image)  # as cameras mean it
    grey = image.mode in ("1", "L", "I", "F", "I;16", "I;16B", "I;16L", "LA", "La")
    if not grey or image.mode in ("LA", "La") or (image.mode == "L" and "transparency" in image.info):
        laid = colour(np.asarray(image.convert("RGBA")), what)  # on white
        return laid[..., :1] if grey else laid
    array = native(np.asarray(image.convert("L") if image.mode == "1" else image))[..., None]
    if image.mode != "I":
        return np.iinfo(np.uint16).max - array if inverted else array  # of 8 bits Pillow does it
    if array.min() < 0 or array.max() >= 2**16:  # 16 of its 32 bits are used
        raise DataError(
            f"{what} has values from {array.min()} to {array.max()}, images have up to 16 bits: give an .npy or .npz"
        )
    return array.astype(np.uint16)


def mask_values(image: Any, what: object) -> AnyArray:
    """The numbers of a PIL image, also of one with a palette, whose colours mean nothing."""
    _check_depth(image, what)
    _check_strips(image)
    return np.asarray(image)


def _check_depth(image: Any, what: object) -> None:
    """Refuse colours of 16 bits: PIL has no such mode, and cuts them to 8 without a word.

    The file says it: a TIFF for each channel (its tag 258), a PNG by how it is to be unpacked, until that was done.
    """
    if image.mode.startswith(("I", "F")):
        return
    bits = max(_tag(image, _BITS) or (8,))
    unpacked = [str(tile[3]) for tile in getattr(image, "tile", ()) if image.format == "PNG"]
    if bits > 8 or any(mode.endswith(";16B") for mode in unpacked):
        raise DataError(
            f"{what} has 16 bits in each of several channels, but images with colours or opacity are read with 8: save "
            "it as .npy, which keeps all"
        )


# Of TIFF files: bits of each channel, whether black is 0 or the largest number, and where their strips or tiles are.
_BITS, _PHOTOMETRIC, _STRIPS, _ROWS, _TILES, _TILE_SIDES = 258, 262, 273, 278, 324, (322, 323)


def _tag(image: Any, number: int) -> tuple[int, ...]:
    """What a TIFF file says, as whole numbers; nothing for others."""
    value = getattr(image, "tag_v2", {}).get(number, ())
    value = value if isinstance(value, tuple) else (value,)
    return value if all(isinstance(one, int) for one in value) else ()


def _check_strips(image: Any) -> None:
    """Refuse a TIFF file with fewer strips or tiles than its size asks for: Pillow takes what is missing for zeros."""
    if image.format != "TIFF":
        return
    width, height = image.size
    if strips := _tag(image, _STRIPS):
        found, needed = len(strips), math.ceil(height / max(1, *(_tag(image, _ROWS) or (height,))))
    else:
        across, down = (max(1, *(_tag(image, side) or (1,))) for side in _TILE_SIDES)
        found, needed = len(_tag(image, _TILES)), math.ceil(width / across) * math.ceil(height / down)
    if found < needed:
        raise ValueError(f"it has {found} of {needed} parts")


def _nifti(path: Path) -> Example:
    """Axes as close as possible to right, forward and up, which are x, y and z; their spacing from the affine."""
    nibabel = require("nibabel", "nifti", "Reading NIfTI volumes")
    try:
        packed = plain_file(path).stat().st_size
        image = nibabel.load(path)
        if not isinstance(image, nibabel.Nifti1Image | nibabel.Nifti2Image):
            raise DataError(f"{path} is not a NIfTI file")
        sides, kind = tuple(map(int, image.shape)), image.get_data_dtype()
        while len(sides) > 2 and sides[-1] == 1:
            sides = sides[:-1]
        if len(sides) not in (2, 3, 4) or min(sides) < 1 or kind.kind not in "iuf":
            raise DataError(f"{path}: a volume has 3 axes of real numbers, got {kind} of shape {_times(image.shape)}")
        numbers = math.prod(sides)
        if numbers > LARGEST or numbers * kind.itemsize > packed * (_DEFLATED if suffix(path) == ".nii.gz" else 1):
            raise DataError(f"{path} says that it has shape {_times(sides)}, which is too large for it or for anybody")
        values = np.asarray(image.get_fdata(dtype=np.float32, caching="unchanged")).reshape(sides)
        values = values.reshape(*sides, *(1,) * (4 - len(sides)))
        spacing = np.abs(np.array(image.header.get_zooms()[:3], dtype=float))
        spacing = np.concatenate([spacing, np.ones(3)])[:3]
        turned = nibabel.io_orientation(image.affine)
        if not (np.isfinite(turned).all() and np.isfinite(spacing).all() and (spacing > 0).all()):
            raise DataError(f"{path}: its affine does not say how its axes lie in space")
        values = nibabel.apply_orientation(values, turned)
    except DataError:
        raise
    except PermissionError:
        raise DataError(f"{path} may not be read") from None
    except Exception as error:  # nibabel, gzip and zlib raise many kinds
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} is damaged or not a NIfTI file ({why})") from None
    along = np.ones(3)
    along[turned[:, 0].astype(int)] = spacing
    values = values.transpose(2, 1, 0, 3)[:, ::-1]  # planes upwards, rows from the front, columns to the right
    if values.shape[0] == 1:
        return Example(values[0], (along[1], along[0]))
    return Example(values, (along[2], along[1], along[0]))


def nifti_like(mask: AnyArray, path: Path) -> bytes:
    """A packed NIfTI file with a mask of another such file, in the order of its axes and with its affine."""
    nibabel = require("nibabel", "nifti", "Writing NIfTI volumes")
    image = nibabel.load(path)
    planes = mask.reshape(-1, *mask.shape[-2:])[:, ::-1].transpose(2, 1, 0)  # right, forward and up
    ours = np.array([[0, 1], [1, 1], [2, 1]])
    turned = nibabel.orientations.ornt_transform(ours, nibabel.io_orientation(image.affine))
    values = nibabel.apply_orientation(planes, turned).astype(np.int32)
    return gzip.compress(nibabel.Nifti1Image(values, image.affine).to_bytes())


def is_bytes(array: AnyArray) -> bool:
    """Whether the range of the values is known."""
    return array.dtype in (np.uint8, np.bool_)


def check_real(array: AnyArray, what: object) -> None:
    """Refuse what holds no real numbers."""
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} must hold real numbers, got {array.dtype}")


def colour(array: AnyArray, what: object) -> AnyArray:
    """RGB of RGBA, laid on white; fewer channels stay as they are."""
    if array.shape[-1] < 4:
        return array
    opaque = array[..., 3:]
    if array.dtype not in (np.uint8, np.uint16) and not ((opaque >= 0) & (opaque <= 1)).all():
        raise DataError(
            f"{what}: the last of four channels is opacity, from 0 to 1, or whole numbers of 8 or 16 bits "
            "(pscnn discover --dimension 2 reads all four as they are)"
        )
    whole = array.dtype in (np.uint8, np.uint16)
    top = np.iinfo(array.dtype).max if whole else 1
    opacity = opaque.astype(np.float32) / top
    mixed = array[..., :3] * opacity + top * (1 - opacity)
    return mixed.round().astype(array.dtype) if whole else mixed


def check_values(array: AnyArray, what: object) -> None:
    """Refuse what is empty, or not real, finite numbers of a sensible size; before any memory is taken for all."""
    check_real(array, what)
    if array.size == 0:
        raise DataError(f"{what} is empty")
    if array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not (low > -_LARGEST_VALUE and high < _LARGEST_VALUE):
            raise DataError(f"{what} holds values that are not finite, or larger than {_LARGEST_VALUE:g}")


def unit(array: AnyArray) -> AnyArray:
    """Floating-point numbers; those of images, of 8 and 16 bits, are divided by the largest of their kind."""
    out = array.astype(np.float32)
    if array.dtype in (np.uint8, np.uint16):
        out /= np.iinfo(array.dtype).max
    return out

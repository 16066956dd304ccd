"""Single files for a network that was trained on prepared data, and the masks that it gives for them."""

import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pscnn._extras import require
from pscnn._types import AnyArray
from pscnn.data._folder import DataError, save
from pscnn.data._own_about import About
from pscnn.data._own_files import NIFTI, Example, check_values, nifti_like, read_file, suffix
from pscnn.data._own_fit import resize, unfit, with_spacing
from pscnn.data._own_shape import fitted, scale


def read_example(path: str | Path, about: About) -> Tensor:
    """One image or volume as a network for prepared data expects it, (C, H, W) or (C, D, H, W).

    Args:
        path: PNG, JPEG, TIFF, BMP, ``.npy`` or NIfTI.
        about: What the network was trained on.
    """
    example = _read_checked(Path(path), about)
    pixels = fitted(example, about)
    low, high, span = float(pixels.min()), float(pixels.max()), about.high - about.low
    if low < about.low - span or high > about.high + span:
        raise DataError(
            f"{path} has values from {low:.4g} to {high:.4g}, but the network was trained on {about.low:.4g} to "
            f"{about.high:.4g} (whole numbers of 8 and 16 bits count as 0 to 1): give it the same kind of file"
        )
    return torch.from_numpy(scale(pixels, about.low, about.high)).float()


def _read_checked(path: Path, about: About) -> Example:
    seen = not about.dimension_given and about.dimension == 2 and about.channels in (1, 3)  # from shapes, in training
    example = read_file(path, None if seen else about.dimension)
    check_values(example.values, path)
    sides, channels = example.values.shape[:-1], example.values.shape[-1]
    if len(sides) != about.dimension:
        wanted = "an image" if about.dimension == 2 else "a volume"
        raise DataError(f"{path}: the network expects {wanted}, got an array of shape {sides}")
    if about.channels == 1 and channels == 3:
        grey = example.values.mean(-1, keepdims=True)
        kind = example.values.dtype  # 8 and 16 bits stay such, and are divided by the largest number of their kind
        return Example(grey.round().astype(kind) if kind.kind in "iu" else grey, example.spacing)
    if channels not in (1, about.channels):
        raise DataError(f"{path} has {channels} channels, but the network expects {about.channels}")
    return example


def mask_of_file(mask: Tensor, path: str | Path, about: About) -> AnyArray:
    """What a network says of every pixel of a file, brought back from its shape to that of the file.

    Args:
        mask: Numbers of classes, of the network's shape.
        path: The file.
        about: What the network was trained on.
    """
    example = _read_checked(Path(path), about)
    sides = example.values.shape[:-1]
    inner = with_spacing(sides, example.spacing, about.spacing) if example.spacing and about.spacing else sides
    return resize(unfit(mask, inner, about.frame)[None], sides)[0].numpy()


def write_mask(mask: AnyArray, folder: Path, path: Path) -> Path:
    """Write a mask under the name of its example: of a NIfTI file such a file, of an image a PNG, else an ``.npy``.

    Args:
        mask: A whole number per pixel. PNG files hold numbers of 8 bits; others make it an ``.npy``.
        folder: Where to.
        path: The example. A file that exists is not replaced.
    """
    small = mask.ndim == 2 and mask.min() >= 0 and mask.max() < 256
    kind = ".nii.gz" if suffix(path) in NIFTI else ".png" if small else ".npy"
    out = folder / f"{path.name[: -len(suffix(path))]}{kind}"
    if out.exists():
        raise DataError(f"{out} exists; choose another folder for masks")
    buffer = io.BytesIO()
    if kind == ".nii.gz":
        buffer.write(nifti_like(mask, path))
    elif kind == ".png":
        require("PIL.Image", "data", "Writing masks").fromarray(mask.astype(np.uint8)).save(buffer, format="PNG")
    else:
        np.save(buffer, mask)
    save(out, buffer, "Choose another folder")
    return out

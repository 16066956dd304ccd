"""One image or volume: from its file to numbers, and to the shape that a network expects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from pscnn._extras import require
from pscnn._types import AnyArray
from pscnn.data._folder import DataError


def read_file(path: Path) -> tuple[AnyArray, bool]:
    """Channels last, whole numbers divided by the largest of their kind; and whether they were bytes."""
    array = _array(path) if path.suffix.lower() == ".npy" else _image(path)
    return unit(array, path), is_bytes(array)


def is_bytes(array: AnyArray) -> bool:
    """Whether the range of the values is known."""
    return array.dtype in (np.uint8, np.bool_)


def _array(path: Path) -> AnyArray:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is damaged or not an array ({error})") from None
    if array.ndim not in (2, 3):
        raise DataError(f"{path}: an image has 2 axes, a volume 3, got shape {array.shape}")
    return colour(array) if array.ndim == 3 and array.shape[-1] in (1, 3, 4) else array[..., None]


def _image(path: Path) -> AnyArray:
    image_module = require("PIL.Image", "data", "Reading images")
    try:
        with image_module.open(path) as image:
            if getattr(image, "n_frames", 1) > 1:
                raise DataError(f"{path} has {image.n_frames} pages: volumes are read from .npz and .npy files")
            if image.mode not in ("1", "L", "I", "F", "I;16", "I;16B", "I;16L", "LA"):
                return colour(np.asarray(image.convert("RGBA")))
            array = np.asarray(image.convert("L") if image.mode in ("1", "LA") else image)[..., None]
            return array.clip(0, 65535).astype(np.uint16) if image.mode == "I" else array  # 16 of its 32 bits are used
    except PermissionError:
        raise DataError(f"{path} may not be read") from None
    except (OSError, ValueError, SyntaxError, EOFError, image_module.DecompressionBombError) as error:
        raise DataError(f"{path} is damaged or not an image ({error})") from None


def colour(array: AnyArray) -> AnyArray:
    """RGB of RGBA, laid on white; fewer channels stay as they are."""
    if array.shape[-1] < 4:
        return array
    top = np.iinfo(array.dtype).max if np.issubdtype(array.dtype, np.integer) else 1
    opacity = array[..., 3:].astype(np.float32) / top
    mixed = array[..., :3] * opacity + top * (1 - opacity)
    return mixed.round().astype(array.dtype) if np.issubdtype(array.dtype, np.integer) else mixed


def unit(array: AnyArray, path: Path) -> AnyArray:
    """Floating-point numbers; whole ones are divided by the largest of their kind."""
    if not np.issubdtype(array.dtype, np.number) and array.dtype != np.bool_:
        raise DataError(f"{path} must hold numbers, got {array.dtype}")
    if array.size == 0:
        raise DataError(f"{path} is empty")
    out = array.astype(np.float32)
    if np.issubdtype(array.dtype, np.integer):
        out /= np.iinfo(array.dtype).max
    if not np.isfinite(out).all():
        raise DataError(f"{path} holds values that are not finite")
    return out


def fit(example: AnyArray, size: int, channels: int) -> AnyArray:
    """(…, C) → (channels, size, …): filled up around to equal sides with the border's mean, then resized."""
    x = torch.from_numpy(np.ascontiguousarray(np.moveaxis(example, -1, 0)))[None]
    if x.shape[1] < channels:
        x = x.expand(-1, channels, *x.shape[2:])
    side = max(x.shape[2:])
    if any(n != side for n in x.shape[2:]):
        around = [half for n in reversed(x.shape[2:]) for half in ((side - n) // 2, (side - n + 1) // 2)]
        inside = [slice(1, -1) if n > 2 else slice(0, 0) for n in x.shape[2:]]
        inner = x[(slice(None), slice(None), *inside)]
        border = (x.sum() - inner.sum()) / max(1, x.numel() - inner.numel())
        x = F.pad(x, around, value=float(border))
    if side != size and x.ndim == 4:
        x = F.interpolate(x, (size, size), mode="bilinear", antialias=True, align_corners=False)
    elif side > size:
        x = F.adaptive_avg_pool3d(x, size)
    elif side < size:
        x = F.interpolate(x, (size,) * 3, mode="trilinear", align_corners=False)
    return x[0].numpy()

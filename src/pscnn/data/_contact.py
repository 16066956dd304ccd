"""A picture of prepared examples, to see before training whether they were read as they were meant."""

import io
import math

import numpy as np

from pscnn._extras import require
from pscnn._types import AnyArray

MOST = 64
SIDE = 256
"""Pixels along the longest side that are shown."""


def contact_sheet(pixels: AnyArray, masks: AnyArray | None = None) -> bytes:
    """Some of the examples beside each other, as a PNG; of volumes, the middle slices.

    Args:
        pixels: From −1 to 1, (N, C, H, W) or (N, C, D, H, W).
        masks: Numbers of classes, (N, H, W) or (N, D, H, W), shown to the right of their examples.
    """
    image_module = require("PIL.Image", "data", "The contact sheet")
    rows = np.linspace(0, len(pixels) - 1, min(MOST, len(pixels))).astype(int)
    chosen = _slices(pixels[rows]).astype(np.float32)
    chosen = chosen[:, :3] if chosen.shape[1] >= 3 else np.repeat(chosen[:, :1], 3, 1)
    if masks is not None:
        shades = 2 * _slices(masks[rows][:, None]).astype(np.float32) / max(1, masks.max()) - 1
        chosen = np.concatenate([chosen, np.repeat(shades, 3, 1)], 3)
    columns, height, width = math.ceil(math.sqrt(len(chosen))), chosen.shape[-2] + 2, chosen.shape[-1] + 2
    sheet = np.full((height * math.ceil(len(chosen) / columns), width * columns, 3), 0.2, dtype=np.float32)
    for k, one in enumerate(chosen):
        row, column = height * (k // columns), width * (k % columns)
        sheet[row : row + height - 2, column : column + width - 2] = np.clip(one.transpose(1, 2, 0), -1, 1)
    buffer = io.BytesIO()
    image_module.fromarray(np.uint8(255 * (sheet + 1) / 2)).save(buffer, format="PNG")
    return buffer.getvalue()


def _slices(examples: AnyArray) -> AnyArray:
    """(N, C, …) → (N, C, H, W), of large ones every second or third pixel."""
    if examples.ndim == 5:
        examples = examples[:, :, examples.shape[2] // 2]
    step = math.ceil(max(examples.shape[2:]) / SIDE)
    return examples[:, :, ::step, ::step]

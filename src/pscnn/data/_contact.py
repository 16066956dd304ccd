"""A picture of prepared examples, to see before training whether they were read as they were meant."""

import io
import math

import numpy as np

from pscnn._extras import require
from pscnn._types import AnyArray

MOST = 64


def contact_sheet(pixels: AnyArray) -> bytes:
    """Some of the examples beside each other, as a PNG; of volumes, the middle slices.

    Args:
        pixels: From −1 to 1, (N, C, s, s) or (N, C, s, s, s).
    """
    image_module = require("PIL.Image", "data", "The contact sheet")
    chosen = pixels[np.linspace(0, len(pixels) - 1, min(MOST, len(pixels))).astype(int)].astype(np.float32)
    if chosen.ndim == 5:
        chosen = chosen[:, :, chosen.shape[2] // 2]
    chosen = chosen[:, :3] if chosen.shape[1] >= 3 else np.repeat(chosen[:, :1], 3, 1)
    columns, side = math.ceil(math.sqrt(len(chosen))), chosen.shape[-1] + 2
    sheet = np.full((side * math.ceil(len(chosen) / columns), side * columns, 3), 0.2)
    for k, one in enumerate(chosen):
        row, column = side * (k // columns), side * (k % columns)
        sheet[row : row + side - 2, column : column + side - 2] = np.clip(one.transpose(1, 2, 0), -1, 1)
    buffer = io.BytesIO()
    image_module.fromarray(np.uint8(255 * (sheet + 1) / 2)).save(buffer, format="PNG")
    return buffer.getvalue()

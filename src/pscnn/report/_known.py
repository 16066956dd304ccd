"""A picture with some examples of every task with a known answer."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pscnn._extras import require
from pscnn._files import reported, write_whole
from pscnn._types import AnyArray
from pscnn.data import known
from pscnn.training import ConfigError

ACROSS, SIDE, TEXT = 12, 42, 110


def draw_known(names: Sequence[str], path: Path, seed: int = 0) -> Path:
    """A row of examples for every task, its classes one after the other; of volumes the brightest along z.

    Args:
        names: Tasks.
        path: The PNG file.
        seed: Of the examples.
    """
    image_module, draw_module = (require(f"PIL.{part}", "plots", "The picture") for part in ("Image", "ImageDraw"))
    sheet = image_module.new("L", (TEXT + ACROSS * (SIDE + 2), len(names) * (SIDE + 4)), 255)
    pen = draw_module.Draw(sheet)
    for row, name in enumerate(names):
        pen.text((2, row * (SIDE + 4) + SIDE // 2 - 6), name, fill=0)
        for column, image in enumerate(_some(name, seed)):
            tile = image_module.fromarray(image).resize((SIDE, SIDE), image_module.Resampling.NEAREST)
            sheet.paste(tile, (TEXT + column * (SIDE + 2), row * (SIDE + 4)))
    content = io.BytesIO()
    sheet.save(content, format="PNG")
    with reported(f"cannot write {path}", ConfigError):
        write_whole(path, content.getvalue(), new=True)
    return path


def _some(name: str, seed: int) -> AnyArray:
    images, targets = known.examples(name, seed, count=min(known.TASKS[name].count, 200))
    images = images.max(1) if images.ndim == 4 else images
    if targets.ndim == 2:
        return images[:ACROSS]
    order = np.argsort(targets.reshape(len(targets), -1).max(1), kind="stable")
    return images[order[np.linspace(0, len(order) - 1, ACROSS).astype(int)]]

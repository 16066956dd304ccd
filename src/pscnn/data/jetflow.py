"""Measured jets of air: velocities at 24 stations of a nozzle's wake, whose symmetry is broken by the measurement.

The files are not made by this library and not downloaded by it. They belong to "Approximately Equivariant Networks for
Imperfectly Symmetric Dynamics" (Wang, Walters and Yu, ICML 2022), whose authors publish them with their code:
``raw_data_{a}_{b}.pt`` for a from 1 to 3 and b from 1 to 8. Put them into ``jetflow/`` in the data folder.
"""

from pathlib import Path

import torch
from torch import Tensor

from pscnn.data._folder import DataError, data_folder
from pscnn.data._windows import STARTS, Windows, splits

__all__ = ["DOMAIN_STATIONS", "SIZE", "STATIONS", "load"]

SIZE = (62, 23)
STATIONS = tuple((a, b) for a in range(1, 4) for b in range(1, 9))
DOMAIN_STATIONS = ((1, 5), (2, 3), (2, 5), (2, 7), (3, 2), (3, 7))
LEAST_FRAMES = STARTS["future"].stop + 12 + 20 - 1
"""For the last window and a forecast of twenty frames."""


def load(folder: str | Path | None = None) -> dict[str, Windows]:
    """The splits "train", "validation", "future" (later times) and "domain" (other stations).

    Args:
        folder: Data folder; see ``pscnn.data.data_folder``.
    """
    place = data_folder(folder) / "jetflow"
    frames = {station: _read(place / "raw_data_{}_{}.pt".format(*station)) for station in STATIONS}
    length = min(len(found) for found in frames.values())
    seen = torch.stack([frames[s][:length] for s in STATIONS if s not in DOMAIN_STATIONS])
    return splits(seen, torch.stack([frames[s][:length] for s in DOMAIN_STATIONS]))


def _read(path: Path) -> Tensor:
    if not path.exists():
        raise DataError(
            f"{path} is missing. JetFlow is published with the code of Wang, Walters and Yu, "
            '"Approximately Equivariant Networks for Imperfectly Symmetric Dynamics" (ICML 2022): '
            f"put its files raw_data_1_1.pt to raw_data_3_8.pt into {path.parent}"
        )
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)  # tensors only: a file cannot run code
    except Exception as error:  # what is not a tensor fails in many ways
        raise DataError(f"{path} cannot be read as a tensor ({type(error).__name__}): fetch it again") from None
    what = f"{tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
    if not isinstance(found, Tensor) or found.ndim != 4 or found.shape[1:] != (2, *SIZE) or len(found) < LEAST_FRAMES:
        raise DataError(f"{path} must hold {LEAST_FRAMES} or more frames, (time, 2, {SIZE[0]}, {SIZE[1]}), got {what}")
    return found.float()

"""Trained networks to take away: files for torch and ONNX that need no pscnn, and answers for files."""

import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pscnn._extras import require
from pscnn._files import reported, written_whole
from pscnn.data import DataError, own
from pscnn.nn import export as plain_network
from pscnn.training._run import RunError, Trained, load
from pscnn.training._settings import ConfigError
from pscnn.training._targets import target_of

FORMATS = {"torch": ".pt2", "onnx": ".onnx"}
TOLERANCE = 1e-5
"""How far outputs of an exported network may be from the original's, as a share of the largest."""


def export_run(folder: str | Path, out: str | Path | None = None, kind: str = "torch") -> Path:
    """Write a run's network as a file that is used without pscnn, after checking that it gives the same.

    Inputs are (B, channels, size, size[, size]) for any B, scaled as the task scales them; of flows, past
    frames. Outputs are class scores before the softmax, the numbers of a regression, or the next frame.

    Args:
        folder: The run.
        out: The file; by default in the run's folder. An existing file is never replaced.
        kind: "torch", a program for ``torch.export.load(path).module()``, or "onnx".
    """
    if kind not in FORMATS:
        raise ConfigError(f"unknown format {kind!r}: use one of {', '.join(FORMATS)}")
    folder = Path(folder)
    task, model = _load_finite(folder)
    path = Path(out) if out is not None else folder / f"model{FORMATS[kind]}"
    if path.exists():
        raise RunError(f"{path} exists; choose another file with --out")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, *task.input_shape, generator=generator)
    plain = plain_network(model)
    with reported(f"cannot write {path}", RunError, ". Choose another file with --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path, new=True) as partial:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of torch about itself
                run = _export_onnx(plain, x, partial) if kind == "onnx" else _export_torch(plain, x, partial)
            _check(model, run, x)
    return path


def _load_finite(folder: str | Path) -> Trained:
    """A run's network, if it says anything."""
    found = load(folder)
    if not all(value.isfinite().all() for value in found.model.state_dict().values() if value.is_floating_point()):
        raise RunError(f"the training of {folder} diverged: its network has weights that are not numbers")
    return found


def _export_torch(plain: nn.Module, x: Tensor, path: Path) -> Callable[[Tensor], Tensor]:
    for value in (*plain.parameters(), *plain.buffers()):
        value.data = value.data.contiguous()  # torch warns about kernels whose axes lie in another order
    program = torch.export.export(plain, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    buffer = io.BytesIO()  # torch reports a full disk in words of its own
    torch.export.save(program, buffer)
    path.write_bytes(buffer.getvalue())
    buffer.seek(0)
    module = torch.export.load(buffer).module()
    return lambda batch: module(batch)


def _export_onnx(plain: nn.Module, x: Tensor, path: Path) -> Callable[[Tensor], Tensor]:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        require(name, "onnx", "Export to ONNX")
    import onnxruntime

    program: Any = torch.onnx.export(
        plain, (x,), dynamo=True, dynamic_shapes=({0: torch.export.Dim.AUTO},), input_names=["input"],
        output_names=["output"], verbose=False,
    )  # fmt: skip
    program.save(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda batch: torch.from_numpy(np.asarray(session.run(None, {"input": batch.numpy()})[0]))


def _check(model: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor) -> None:
    for batch in (x, x[:1]):
        with torch.no_grad():
            wanted = model(batch)
            got = run(batch)
        error = ((got - wanted).abs().max() / wanted.abs().max().clamp(min=1)).item()
        if not error < TOLERANCE:
            raise RunError(
                f"the outputs of the exported network differ from the original's by {error:.1e}; nothing was written"
            )


def answers(
    folder: str | Path, files: Iterable[str | Path], masks: str | Path | None = None
) -> Iterator[tuple[Path, dict[str, Any] | DataError]]:
    """What a run's network says of images or volumes, one after another.

    Args:
        folder: The run.
        files: PNG, JPEG, TIFF, BMP, ``.npy`` or NIfTI files; a folder stands for those in it and in its folders.
        masks: A folder, into which predicted masks are written.

    Yields:
        The file, and: "class" with "probability", the probability of every label, every number or component of a
        vector, or of masks the share of every class; or why it cannot be read.
    """
    task, model = _load_finite(folder)
    about = task.files
    if about is None:
        raise ConfigError(f"{folder} is a run of {task.settings.task}; predict needs a network for images or volumes")
    target = target_of(about)
    if masks is not None and about.kind != "masks":
        raise ConfigError(f"{folder} predicts {about.kind}, no masks")
    for path in _expand(files):
        try:
            x = own.read_example(path, about)[None]
            with torch.no_grad():
                said = model(x)[0].float()
            answer = target.answer(said) if about.kind != "masks" else _mask_answer(said, path, about, masks)
        except DataError as error:
            yield path, error
            continue
        yield path, answer


def _mask_answer(said: Tensor, path: Path, about: own.About, masks: str | Path | None) -> dict[str, Any]:
    """The shares of the classes in a file, and where its mask was written, in the values of the masks of training."""
    found = own.mask_of_file(said.argmax(0), path, about)
    shares = np.bincount(found.ravel(), minlength=len(about.names)) / found.size
    answer: dict[str, Any] = dict(zip(about.names, shares.tolist(), strict=True))
    if masks is not None:
        values = np.array([int(name) for name in about.names])
        answer["mask"] = str(own.write_mask(values[found], Path(masks), path))
    return answer


def _expand(files: Iterable[str | Path]) -> Iterator[Path]:
    for file in map(Path, files):
        if file.is_dir():
            yield from sorted(child for child in file.rglob("*") if own.is_example(child))
        else:
            yield file

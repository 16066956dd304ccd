"""Runs that leave as files which need no pscnn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pscnn import training
from pscnn.data import own


def test_volumes_and_regressions_are_exported_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "v.npz", images=rng.random((12, 16, 16, 16)), labels=rng.random((12, 2)))
    about = own.prepare(tmp_path / "v.npz", tmp_path / "data.npz")
    config = training.make_settings(
        {"task": "own-volumes-regression", "data": str(tmp_path / "data.npz"), "group": "SO(3)", "epochs": 1}
    )
    run = training.start(config, tmp_path / "runs")
    result = training.train(run, accelerator="cpu", progress=False)
    assert np.isfinite(result["test_rmse"])
    for kind in ("torch", "onnx"):
        assert training.export_run(run, kind=kind).exists()
    np.save(tmp_path / "one.npy", rng.random((16, 16, 16)))
    ((_, answer),) = training.answers(run, [tmp_path / "one.npy"])
    assert isinstance(answer, dict)
    assert set(answer) == set(about.names)

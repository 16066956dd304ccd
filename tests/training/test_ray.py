"""Runs on a Ray cluster of two nodes, one of whose workers is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pscnn.tasks.double_digits import DoubleDigitSettings
from pscnn.training import ConfigError, Store, run_missing

EPOCHS = 12
CONFIGS = [
    DoubleDigitSettings(
        method="cnn", source=source, size=28, width=0.1, epochs=EPOCHS, kinds=2, train_per_class=4,
        validation_per_class=2, test_per_class=4, batch_size=8, seed=seed,
    )
    for source, seed in (("digits", 0), ("digits", 1), ("mnist", 0))
]  # fmt: skip


def test_a_worker_killed_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    found = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(tmp_path)],
        env={**os.environ, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    report = json.loads(found.stdout.splitlines()[-1])
    assert report["nodes"] == 2
    assert report["killed"] == 1
    first, second, failed = report["results"]
    assert "DataError" in failed  # there is no MNIST in that folder
    store = Store(tmp_path / "runs")
    for config, result in zip(CONFIGS, (first, second), strict=False):
        assert result == store.result(config)
        assert len((store.folder(config) / "metrics.jsonl").read_text().splitlines()) == EPOCHS
    assert store.state(CONFIGS[2]) == "failed"


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown engine 'slurm'"):
        run_missing(CONFIGS, Store(tmp_path), engine="slurm")
    with pytest.raises(ConfigError, match="gpus applies to the engine ray"):
        run_missing(CONFIGS, Store(tmp_path), gpus=0.5)
    with pytest.raises(ConfigError, match="workers applies to the engine local"):
        run_missing(CONFIGS, Store(tmp_path), engine="ray", workers=2)


def workers() -> list[int]:
    """Processes in which Ray runs one of our runs."""
    out = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            name = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if name.startswith(b"ray::_run"):
            out.append(int(place.name))
    return out


def main(folder: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 2**27})
    cluster.add_node(num_cpus=1, object_store_memory=2**27)
    ray.init(address=cluster.address, log_to_driver=False)
    store = Store(folder / "runs")
    metrics = store.folder(CONFIGS[0]) / "metrics.jsonl"
    killed = []

    def kill() -> None:
        while not metrics.exists():
            time.sleep(0.02)
        killed.extend(workers()[:1])
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    results = run_missing(CONFIGS, store, engine="ray", data_dir=folder / "nothing", accelerator="cpu")
    values = [results[config] for config in CONFIGS]
    texts = [value if isinstance(value, dict) else f"{type(value).__name__}: {value}" for value in values]
    print(json.dumps({"nodes": len(ray.nodes()), "killed": len(killed), "results": texts}))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

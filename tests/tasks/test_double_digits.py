"""Pairs of digits: what a network is tested on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers import tiny

from pscnn import training
from pscnn.tasks.double_digits import DoubleDigitSettings
from pscnn.training import Store, run_missing, task_of


def test_a_network_is_tested_on_digits_that_move_otherwise(tmp_path: Path) -> None:
    config = tiny(method="cnn", symmetry="C1", other_symmetry="O2", test_per_class=20)
    result = run_missing([config], Store(tmp_path), workers=1, accelerator="cpu")[config]
    assert isinstance(result, dict)
    model = training.load(Store(tmp_path).folder(config)).model
    for name, key in (("test", "test_accuracy"), ("other", "other_accuracy")):
        split = task_of(config).load(None)[name]
        with torch.no_grad():
            right = model(split.images(torch.arange(len(split)), _seed(config))).argmax(1) == split.labels
        assert result[key] == pytest.approx(right.float().mean().item(), abs=1e-6)
    splits = task_of(config).load(None)
    assert torch.equal(splits["test"].labels, splits["other"].labels)
    assert splits["other"].symmetry == "O2"


def _seed(config: DoubleDigitSettings) -> int:
    """Of the only batch of a test split; see ``training.Data``."""
    stream = 1_000_003 * (2 + 3 * config.seed)
    return (1_000_003 * stream * 1024) % 2**63

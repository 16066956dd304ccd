"""Recorded steps, as far as they can be tried without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from pscnn.training import GraphedStep, prepare
from pscnn.training._graph import EAGER_STEPS, set_rate


def test_what_cannot_be_recorded_is_trained_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where a recording executes nothing and an objective that waits for the device breaks it."""
    recording = False

    @contextlib.contextmanager
    def record(*_: Any) -> Iterator[None]:
        nonlocal recording
        recording = True
        try:
            yield
        finally:
            recording = False

    for name in ("Stream", "CUDAGraph", "current_stream", "graph_pool_handle"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def objective(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        if recording:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        return {"loss": ((weight - x) * y).sum()}

    step, ones = GraphedStep(objective, optimizer, half=False), torch.ones(3)
    for _ in range(EAGER_STEPS):
        step(ones, ones)
    with pytest.warns(UserWarning, match=r"cannot be recorded \(operation not permitted when stream is capturing\)"):
        step(ones, ones)
    step(ones, ones)  # says it once
    assert torch.equal(weight.detach(), torch.full((3,), -0.5 * (EAGER_STEPS + 2)))


def test_the_rate_is_where_the_step_finds_it() -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(3))], lr=0.5)
    prepare(optimizer, torch.device("cpu"))
    (group,) = optimizer.param_groups
    place = group["lr"]
    set_rate(optimizer, 0.25)
    assert group["lr"] is place
    assert place.item() == 0.25
    assert group["capturable"]


def test_without_a_recording_the_rate_is_a_number() -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(3))], lr=0.5)
    set_rate(optimizer, 0.125)
    assert optimizer.param_groups[0]["lr"] == 0.125

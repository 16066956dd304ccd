"""Kernels are started with the code that Triton compiled for arguments that are alike, and only for those."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from triton.compiler import CompiledKernel

from pscnn import nn
from pscnn.nn import _launch


class Compiled(CompiledKernel):  # type: ignore[misc]
    """Code that writes down how it is started."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __del__(self) -> None:
        """There is nothing to unload."""

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments: self.log.append(("direct", grid, arguments))


class Function:
    """A kernel of Triton's, or of its interpreter, which compiles nothing."""

    def __init__(self, interpreted: bool = False) -> None:
        self.log: list[Any] = []
        self.interpreted = interpreted

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def run(*arguments: Any, num_warps: int) -> Compiled | None:
            self.log.append(("asked", grid, arguments))
            return None if self.interpreted else Compiled(self.log)

        return run


def aligned(offset: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    memory = torch.zeros(64, dtype=dtype)
    start = (-memory.data_ptr() % 16) // memory.element_size()
    return memory[start + offset :]


def test_the_same_is_asked_once() -> None:
    function = Function()
    kernel = _launch.Kernel(function)
    for x in (aligned(), aligned(), aligned(4)):
        kernel.start((2, 3), (x, x), (7, 0.5), (True,))
    assert [how for how, *_ in function.log] == ["asked", "direct", "direct"]
    _, grid, arguments = function.log[-1]
    assert grid == (2, 3, 1)
    assert arguments == (x.data_ptr(), x.data_ptr(), 7, 0.5, True)


@pytest.mark.parametrize(
    ("grid", "x", "numbers", "constants", "num_warps"),
    [
        ((2, 4), aligned(), (7, 0.5), (True,), 4),
        ((2, 3), aligned(1), (7, 0.5), (True,), 4),
        ((2, 3), aligned(dtype=torch.bfloat16), (7, 0.5), (True,), 4),
        ((2, 3), aligned(), (16, 0.5), (True,), 4),
        ((2, 3), aligned(), (7, 0.5), (False,), 4),
        ((2, 3), aligned(), (7, 0.5), (True,), 8),
    ],
)
def test_others_are_asked_for(grid: Any, x: torch.Tensor, numbers: Any, constants: Any, num_warps: int) -> None:
    function = Function()
    kernel = _launch.Kernel(function)
    kernel.start((2, 3), (aligned(), aligned()), (7, 0.5), (True,))
    kernel.start(grid, (aligned(), x), numbers, constants, num_warps)
    assert [how for how, *_ in function.log] == ["asked", "asked"]


def test_interpreted_and_older_kernels_are_asked_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted, older = Function(interpreted=True), Function()
    for function in (interpreted, older):
        kernel = _launch.Kernel(function)
        for _ in range(2):
            kernel.start((1,), (aligned(),), (), ())
        assert [how for how, *_ in function.log] == ["asked", "asked"]
        monkeypatch.setattr(_launch, "DIRECT", False)


def test_code_that_wants_other_arguments_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise TypeError("function takes exactly 12 arguments (14 given)")

    monkeypatch.setattr(Compiled, "__getitem__", lambda self, grid: refuse)
    function = Function()
    kernel = _launch.Kernel(function)
    for _ in range(3):
        kernel.start((1,), (aligned(),), (), ())
    assert [how for how, *_ in function.log] == ["asked", "asked", "asked"]
    assert not kernel.known


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_launch, "REMEMBERED", 3)
    kernel = _launch.Kernel(Function())
    for n in range(10):
        kernel.start((1,), (aligned(),), (n,), ())
    assert len(kernel.known) <= 3


@pytest.mark.parametrize(("n", "size", "portions", "power"), [(1, 4, 1, 1), (8, 4, 2, 8), (9, 4, 3, 16)])
def test_numbers(n: int, size: int, portions: int, power: int) -> None:
    assert (_launch.ceil_div(n, size), _launch.power_of_two(n)) == (portions, power)


def test_compiled_ahead_each_kind_once_and_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiler(Function):
        def warmup(self, *arguments: Any, grid: tuple[int, ...], num_warps: int) -> None:
            self.log.append(("compiled", arguments[1:]))
            if arguments[1] == 1:
                raise RuntimeError("too hard")  # it will be said when it is to run

    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    function = Compiler()
    kernel = _launch.Kernel(function)
    with nn.compile_ahead():
        for number in (3, 7, 1, 16, 64):  # what is compiled for 3 will do for 7, for 16 also for 64
            kernel.start((2,), (aligned(),), (number,), (True,))
        kernel.start((2,), (aligned(1),), (3,), (True,))
        kernel.start((9,), (aligned(),), (3,), (False,))
    assert sorted(function.log) == sorted(
        ("compiled", values) for values in ((3, True), (1, True), (16, True), (3, True), (3, False))
    )
    kernel.start((2,), (aligned(),), (3,), (True,))
    assert function.log[-1][0] == "asked"

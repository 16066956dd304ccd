"""What steerability costs: the plain twin, the equivariant and the partially equivariant network in one run."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pscnn import models
from pscnn.densities import likelihoods
from pscnn.experiments import _escnn
from pscnn.experiments._relaxations import PLAIN
from pscnn.experiments._sheets import closest_width, weights_of
from pscnn.groups import parse
from pscnn.training import GraphedStep, Objective, precision, prepare

TWINS = ("twin", "fast twin")
"""The plain twin; the twin whose convolutions use the layout that steerable ones use on a GPU."""
STEPS = 3
"""Steps per timing."""
COURSE = 1000
"""Steps of the training that methods with a schedule are told of."""


@dataclass(frozen=True)
class BenchCase:
    """One setting in which networks are compared.

    Attributes:
        group: H; of the plane for double digits, of space for volumes.
        precision: "fp32", "tf32" or "bf16".
        compile: Whether to compile, with CUDA graphs on a GPU.
        batch: Images or volumes per step.
        width: Of the network.
        size: Side length of images or volumes.
        nonlinearity: "gated" or "fourier".
        record: Whether training steps are recorded and replayed, as ``pscnn train`` does on a GPU.
    """

    group: str
    precision: str = "fp32"
    compile: bool = False
    batch: int = 256
    width: float = 1.0
    size: int = 56
    nonlinearity: str = "gated"
    record: bool = False

    @property
    def mode(self) -> str:
        """How training steps are executed, in a word."""
        return "compiled" if self.compile else "recorded" if self.record else "eager"

    @property
    def task(self) -> str:
        """The task whose network it is."""
        return "ddmnist" if parse(self.group).dimension == 2 else "medmnist3d"


def _network(case: BenchCase, name: str) -> nn.Module:
    if name == "escnn":
        return _escnn.EscnnDoubleDigits(parse(case.group), case.size, case.width, 100)
    whole = case.task != "ddmnist"

    def build(method: str, width: float) -> nn.Module:
        options = {"size": case.size, "nonlinearity": case.nonlinearity}
        return models.build(case.task, method, case.group, width=int(width) if whole else width, **options)

    width = case.width
    if name in PLAIN:
        width = closest_width(partial(build, "cnn"), weights_of(build("p-scnn", width)), whole)
    model = models.twin(build("p-scnn", width)) if name in TWINS else build(name, width)
    for module in [*model.modules()] if name == "fast twin" else []:
        for key, child in module.named_children():
            if isinstance(child, nn.Conv2d | nn.Conv3d):
                setattr(module, key, models.FreeConvolution(child))
    return model


class _Subject:
    """A network with its optimiser, ready to be timed."""

    def __init__(self, case: BenchCase, name: str, device: torch.device) -> None:
        started = time.perf_counter()
        model = _network(case, name)
        self.construction = time.perf_counter() - started
        self.model = model.to(device)
        bf16 = case.precision == "bf16"
        self.autocast = partial(torch.autocast, device.type, dtype=torch.bfloat16, enabled=bf16)
        self.densities, self.step = bool(likelihoods(self.model)), 0
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=device.type == "cuda" or None)
        generator = torch.Generator().manual_seed(0)
        shape = (case.batch, 1) + (case.size,) * parse(case.group).dimension
        self.x = torch.randn(shape, generator=generator).to(device)
        classes = 100 if case.task == "ddmnist" else 2
        self.y = torch.randint(classes, (case.batch,), generator=generator).to(device)
        compiled: Any = partial(torch.compile, mode="reduce-overhead", dynamic=False) if case.compile else lambda f: f
        self.objective, self.forward = compiled(self._objective), compiled(self.model)
        self.recorded: GraphedStep | None = None
        if case.record:
            prepare(self.optimizer, device)
            self.recorded = GraphedStep(self._objective, self.optimizer, bf16)

    def _objective(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        loss = F.cross_entropy(self.model(x).float(), y)
        return Objective(1.0, 1.0)(self.model, loss, densities=self.densities)

    def train_step(self) -> None:
        """Forward, backward and an update."""
        models.advance(self.model, self.step % COURSE, COURSE)
        self.step += 1
        if self.recorded is not None:
            self.recorded(self.x, self.y)
            return
        with self.autocast():
            loss = self.objective(self.x, self.y)["loss"]
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def infer(self) -> None:
        """A forward pass; in eval mode kernels are expanded once."""
        with torch.no_grad(), self.autocast():
            self.forward(self.x)


def _milliseconds(function: Callable[[], None], device: torch.device) -> float:
    wait: Callable[[], Any] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    for _ in range(STEPS):
        function()
    wait()
    return 1000 * (time.perf_counter() - started) / STEPS


def run_bench(
    case: BenchCase, device: str = "cpu", rounds: int = 10, methods: Sequence[str] = ("scnn", "p-scnn")
) -> dict[str, Any]:
    """Time the networks in turns, so that all see the machine in the same state.

    Args:
        case: The setting.
        device: "cpu" or "cuda".
        rounds: How often each is timed; each time takes three steps.
        methods: Of the networks beside the plain twin.

    Returns:
        The case, and per network: all timings of a training step and of inference in milliseconds, seconds of
        construction, weights, and on a GPU the peak memory of a training step in MiB. "cnn", "augment" and "augerino"
        are as wide as it takes to have as many weights as the P-SCNN, the twins have as many channels. If escnn is
        installed, its equivariant network for double digits is among them, or the error that kept it out.
    """
    place = torch.device(device)
    names = list(dict.fromkeys([*(TWINS if place.type == "cuda" else TWINS[:1]), *methods]))
    if case.task == "ddmnist" and _escnn.available():
        names.append("escnn")
    with precision(case.precision):
        found: dict[str, dict[str, Any]] = {}
        subjects = {}
        for name in names:
            held = torch.cuda.memory_allocated() if place.type == "cuda" else 0
            try:
                subject = _Subject(case, name, place)
                subject.train_step()  # compiles and chooses algorithms
            except Exception as error:  # another library's network may not do everything that ours do
                if name != "escnn":
                    raise
                found[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
                continue
            subjects[name] = subject
            weights = weights_of(subject.model)
            took = round(subject.construction, 3)
            found[name] = {"train_ms": [], "infer_ms": [], "construction_s": took, "weights": weights}
            if place.type == "cuda":  # the second step, since a CUDA graph allocates nothing from the third on
                torch.cuda.reset_peak_memory_stats()
                subject.train_step()
                torch.cuda.synchronize()
                found[name]["peak_mib"] = round((torch.cuda.max_memory_allocated() - held) / 2**20)
            for _ in range(3):
                subject.train_step()
            subject.model.eval()
            for _ in range(4):
                subject.infer()
        for kind, what in (("train_ms", "train_step"), ("infer_ms", "infer")):
            for subject in subjects.values():
                subject.model.train(what == "train_step")
                for _ in range(3):
                    getattr(subject, what)()
            for _ in range(rounds):
                for name, subject in subjects.items():
                    found[name][kind].append(round(_milliseconds(getattr(subject, what), place), 3))
    return {"case": asdict(case), "networks": found}


def ratio(result: dict[str, Any], name: str, kind: str) -> float:
    """How many times as long as the plain twin: the quotient of medians."""
    networks = result["networks"]
    return float(statistics.median(networks[name][kind]) / statistics.median(networks["twin"][kind]))


def machine(device: str) -> dict[str, Any]:
    """What the timings belong to."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return {"device": name, "threads": torch.get_num_threads(), **versions}

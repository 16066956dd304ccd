"""The layouts that are used on a GPU give what the plain operations give."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from pscnn import models
from pscnn.nn import _fast

F64 = torch.float64


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(len(shape))).requires_grad_()


def same(one: torch.Tensor, two: torch.Tensor, inputs: list[torch.Tensor]) -> None:
    """Equal values and equal gradients."""
    torch.testing.assert_close(one, two)
    gradient = noise(*one.shape).detach()
    found = (torch.autograd.grad(y, inputs, gradient, retain_graph=True) for y in (one, two))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def applied(function: type[torch.autograd.Function], *inputs: object) -> torch.Tensor:
    return function.apply(*inputs)


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize(("stride", "padding", "size"), [(2, 1, 15), (2, 1, 12), (1, 1, 5), (3, 2, 11), (2, 0, 9)])
def test_blur(dimension: int, stride: int, padding: int, size: int) -> None:
    x = noise(2, 3, *[size] * dimension)
    along = torch.tensor([0.1, 0.2, 0.35, 0.25, 0.1], dtype=F64)
    kernel = along[:, None] * along if dimension == 2 else along[:, None, None] * along[:, None] * along
    plain = _fast.blur(x, 3, kernel, stride, padding)
    same(applied(_fast.Blur, x, along, list(plain.shape[2:]), stride, padding, False), plain, [x])


@pytest.mark.parametrize(
    ("dimension", "channels", "fields", "kernel", "stride", "padding", "dilation"),
    [(2, 36, 60, 5, 1, 2, 1), (2, 3, 33, 3, 2, 1, 1), (3, 5, 7, 3, 2, 2, 1), (2, 32, 64, 3, 1, 1, 2)],
)
def test_convolutions(
    dimension: int, channels: int, fields: int, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    x, w = noise(2, channels, *[9] * dimension), noise(fields, channels, *[kernel] * dimension)
    options = stride, padding, dilation
    plain = (F.conv2d if dimension == 2 else F.conv3d)(x, w, None, *options)
    fast = applied(_fast.ByPortions, x, w, None, *options)
    same(fast, plain, [x, w])
    b = noise(fields)
    biased = plain + b.view(-1, *[1] * dimension)
    same(applied(_fast.ByPortions, x, w, b, *options), biased, [x, w, b])
    if dilation == 1:
        patches = applied(_fast.ByPatches, x.detach(), w, stride, padding)
        assert patches.stride(1) == 1
        same(patches, plain, [w])


def test_volumes_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU volumes are laid out so in eager mode too, where torch.func must work and gradients have gradients."""
    model = models.build("medmnist3d", "p-scnn", "SO(3)", size=16, width=1, classes=3).double().eval()
    x = noise(2, 1, 16, 16, 16)
    found = []
    for fast in (False, True):
        monkeypatch.setattr(_fast, "fast_layout", lambda t, fast=fast: fast)
        y = model(x)
        (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        second = torch.autograd.grad(gradient.square().sum(), [x, *model.parameters()], allow_unused=True)
        one_by_one = torch.func.vmap(lambda a: model(a[None])[0])(x.detach())
        named: dict[str, torch.Tensor] = dict(model.named_parameters())

        def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
            # Skip connections share modules, which torch would not put back otherwise.
            return torch.func.functional_call(model, parameters, x.detach(), tie_weights=False).square().sum()

        of_parameters = torch.func.grad(loss)(named)
        found.append([y, gradient, *(g for g in second if g is not None), one_by_one, *of_parameters.values()])
        assert model(x[:0]).shape == (0, 3)
    for slow, quick in zip(*found, strict=True):
        torch.testing.assert_close(quick, slow, atol=1e-9, rtol=1e-7)


def test_gradients_of_gradients_and_transforms_see_no_handed_on_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """One convolution after the other, where a map's zeros are handed on beside autograd."""
    x, first, second = noise(2, 5, 8, 8), noise(6, 5, 3, 3), noise(7, 6, 3, 3)

    def both(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return _fast.convolve(_fast.convolve(x, first, None, 1, 1, 1), second, None, 1, 1, 1).pow(3).sum()

    found = []
    for fast in (False, True):
        monkeypatch.setattr(_fast, "fast_layout", lambda t, fast=fast: fast)
        monkeypatch.setattr(_fast, "FEW_CHANNELS", 0)
        (gradient,) = torch.autograd.grad(both(x, first, second), second, create_graph=True)
        inputs = [x, first, second]
        found.append([*torch.autograd.grad(gradient.square().sum(), inputs)])
        found[-1] += torch.func.grad(both, (0, 1, 2))(*(t.detach() for t in inputs))
    for slow, quick in zip(*found, strict=True):
        torch.testing.assert_close(quick, slow)


@pytest.mark.parametrize("method", ["scnn", "p-scnn"])
@pytest.mark.parametrize(("task", "group", "size"), [("ddmnist", "O(2)", 28), ("medmnist3d", "SO(3)", 16)])
def test_network_in_the_fast_layout(
    monkeypatch: pytest.MonkeyPatch, task: str, group: str, size: int, method: str
) -> None:
    width = 0.1 if task == "ddmnist" else 1
    model = models.build(task, method, group, size=size, width=width, classes=3).double()
    x = noise(3, 1, *[size] * (2 if task == "ddmnist" else 3)).detach()
    other = copy.deepcopy(model)
    expected = model(x)
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph.print_readable(print_output=False))
        return graph

    monkeypatch.setattr(_fast, "fast_layout", lambda t: torch.compiler.is_compiling())
    torch.compiler.reset()
    found = torch.compile(other, fullgraph=True, backend=backend)(x)
    (graph,) = graphs
    assert "channels_last" in graph
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    found.square().sum().backward()
    expected.square().sum().backward()
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(two.grad, one.grad, atol=1e-8, rtol=1e-6, msg=name)

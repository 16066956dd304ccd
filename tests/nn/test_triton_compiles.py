"""The kernels can be compiled for a GPU, which takes none; the interpreter, in which they are tested, forgives more."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, direct_sum
from pscnn.nn import _batch_norm, _expansion, _fast, _fourier, _gated_batch_norm, _nonlinearity

triton = pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from pscnn.nn import _launch  # noqa: E402

TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int32: "*i32", torch.int64: "*i64"}


def compile_it(function: Any, tensors: Any, numbers: Any, constants: Any, num_warps: int) -> None:
    names = function.arg_names
    kinds = [TYPES[t.dtype] for t in tensors] + ["i32" if isinstance(n, int) else "fp32" for n in numbers]
    kinds += ["constexpr"] * len(constants)
    source = ASTSource(
        fn=function,
        signature=dict(zip(names, kinds, strict=True)),
        constexprs={(names.index(n),): c for n, c in zip(names[-len(constants) :], constants, strict=True)},
    )
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps})


def test_for_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel that these layers start, in their maps' precision."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # some versions warn without
    asked: dict[Any, Any] = {}

    def start(self: Any, grid: Any, tensors: Any, numbers: Any, constants: Any, num_warps: int = 4) -> None:
        key = self.function.__name__, constants, *(t.dtype for t in tensors)
        asked.setdefault(key, (self.function, tensors, numbers, constants, num_warps))

    monkeypatch.setattr(_launch.Kernel, "start", start)
    for module in (_batch_norm, _expansion, _fast, _fourier, _gated_batch_norm, _nonlinearity):
        monkeypatch.setattr(module, "fused", lambda x: True)
    monkeypatch.setattr(_fast, "fast_layout", lambda x: True)
    group = O2()
    scalars, functions = FieldType(group, 3 * [group.trivial]), FieldType(group, 4 * [group.functions(2)])
    gate = nn.GatedBatchNorm(FieldType(group, 3 * [direct_sum(list(group.irreps(2)))]))
    layers = [
        nn.FourierBatchNorm(functions, degree=4),
        nn.FourierPointwise(functions),
        gate,
        nn.BatchNorm(functions),
        nn.BatchNorm(scalars, relu=True),
        nn.AvgPoolAntialiased(functions, 2, 1),
    ]
    maps = [(layer, torch.randn(2, layer.in_type.size, 6, 6).bfloat16()) for layer in layers]
    maps.append((nn.FourierBatchNorm(functions, degree=4), torch.randn(2, 40, 6, 6)))
    convolutions = (
        nn.Conv2d(scalars, functions, 7, 2, 3, likelihood=Likelihood(group)),
        nn.Conv2d(scalars, functions, 5, likelihood=Likelihood(group)),
        nn.Conv2d(functions, functions, 3, 2, 1, likelihood=Likelihood(group)),
    )
    maps += [(one, torch.randn(2, one.in_type.size, 12, 12)) for one in convolutions]
    both = nn.expand_together(torch.nn.Sequential(*convolutions[-1:], nn.Conv2d(functions, functions, 3)))
    for layer, x in [*maps, (both, torch.randn(2, 40, 12, 12))]:
        y = layer(x if x.shape[1] == 3 else x.requires_grad_())
        y.sum().backward()
    names = {name for name, *_ in asked}
    assert {"_forward", "_gradients", "_combine", "_moments", "_statistics", "_slopes", "_fold", "_patches"} <= names
    assert {"_blur", "_density", "_density_backward", "_turn", "_turn_back", "_collect", "_pack", "_pack_all"} <= names
    for arguments in asked.values():
        compile_it(*arguments)

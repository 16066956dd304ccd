"""What layers and functions say to input that they cannot use, before it costs anything."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pscnn
from pscnn import FieldType, Likelihood, PscnnError, models, nn, testing
from pscnn._memory import TooLargeError
from pscnn.data import own
from pscnn.groups import O2, SO3, C, D, rotation

H = O2()
GREY, VECTORS = FieldType(H, [H.trivial]), FieldType(H, [H.irrep(1, 1)])
CNN = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 2, 3))
WIDE = FieldType(H, 3000 * [H.trivial])
NO_BATCHES: list[Any] = [None, 5, {}, np.zeros((2, 1, 9, 9)), torch.zeros(2, 1, 9, 9, dtype=torch.complex64)]


def small(**options: Any) -> torch.nn.Module:
    return models.build("images", "p-scnn", **{"group": "C4", "width": 0.1, "size": 28, **options})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: C(10**9).regular, "the regular representation of C.1000000000. would take .* GiB"),
        (lambda: C(10**5).regular, "would take 75 GiB of memory: use a smaller group"),
        (lambda: C(10**9).irreps(None), "irreps are listed up to frequency 100000"),
        (lambda: Likelihood(D(10**9), 2), r"the elements of D\(1000000000\) would take"),
        (lambda: Likelihood(SO3(), 60), "a quadrature of degree .* in space would take"),
        (lambda: Likelihood(H, 10**9), "irreps are listed up to frequency"),
        (lambda: Likelihood(H, 10**4), r"a density on O\(2\) with band-limit 10000 would take"),
        (
            lambda: nn.Conv2d(GREY, VECTORS, 301),
            "the basis of kernels of side 301 would take .*: use a smaller kernel_s",
        ),
        (lambda: nn.Conv2d(WIDE, WIDE, 7), "the kernel from .* channels would take .*: use fewer fields"),
        (lambda: SO3().quadrature(2000), "use a lower degree"),
        (lambda: small(width=1e9), r"a network of width 1e\+09 would take .* GiB of memory: use a smaller width"),
        (lambda: small(width=1000), "a network of width 1000 would take 87 GiB"),
        (lambda: models.build("volumes", group="SO(3)", width=10**9), r"a network of width 1e\+09 would take"),
        (lambda: models.build("own", width=1e200), r"a network of width 1e\+200 would take"),
        (lambda: models.build("own", width=1e9, output="dense"), r"a network of width 1e\+09 would take"),
        (lambda: models.build("own", shape=(10**9, 10**9)), "an image of shape .* would take"),
        (lambda: models.build("flow", hidden=10**6), r"a network of hidden 1e\+06 would take .*: use a smaller hidden"),
        (
            lambda: nn.convert(CNN, H, frequency=1000),
            r"over O\(2\) may have frequencies up to 64, got 1000: use a lower f",
        ),
        (lambda: nn.convert(CNN, C(1000), fields="regular"), "up to 64, got 500: .* and fields='functions'"),
    ],
)
def test_what_costs_too_much_is_said_before_it_is_begun(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TooLargeError, match=message):
        call()


def conv() -> nn.Conv2d:
    return nn.Conv2d(GREY, VECTORS, 5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: conv()(torch.zeros(1, 1, 9, 9, dtype=torch.uint8)),
            TypeError,
            "got a tensor of torch.uint8: use x.fl",
        ),
        (lambda: conv()(torch.zeros(1, 1, 9, 9, dtype=torch.complex64)), TypeError, "got a tensor of torch.complex64"),
        (lambda: conv()(np.zeros((1, 1, 9, 9))), TypeError, "got ndarray"),
        (lambda: small()(torch.zeros(1, 1, 28, 28, dtype=torch.int64)), TypeError, "got a tensor of torch.int64"),
        (lambda: small()(torch.zeros(1, 1, 28, 28).double()), TypeError, "the layer is in torch.float32, got input in"),
        (
            lambda: conv()(torch.zeros(1, 1, 3, 3)),
            ValueError,
            "expected images of 5 or more with the padding, got 3 × 3",
        ),
        (lambda: nn.DiskMask(GREY, 9)(torch.zeros(1, 1, 11, 11)), ValueError, "expected images of side 9, got 11 × 11"),
        (lambda: nn.Conv2d(GREY, VECTORS, 3, stride=0), ValueError, "stride must be 1 or more, got 0"),
        (lambda: nn.Conv2d(GREY, VECTORS, 3, dilation="1"), ValueError, "dilation must be 1 or more, got '1'"),  # type: ignore[arg-type]
        *(
            (
                lambda groups=groups: nn.Conv2d(GREY, GREY, 3, groups=groups),
                ValueError,
                "groups must be a whole number of 1",
            )
            for groups in (2.0, "2", None, H, 0, -1)
        ),
        *(
            (
                lambda network=network, given=given: models.build(network, group="SO(3)", density=given),
                TypeError,
                r"density must be a mapping of options such as \{'alignment': 'construction'\}, got ",
            )
            for network in ("own", "volumes", "vectors")
            for given in (5, "x", [1], 0)
        ),
        *(
            (
                lambda method=method, name=name: models.build("own", method, density={name: 1}),
                TypeError,
                f"density has no option {name!r}; it has {known}",
            )
            for method, known in (
                ("p-scnn", "lowest, keep, support, initial, alignment"),
                ("projection", "strength"),
                ("fixed", "keep"),
                ("augment", "none"),
                ("augerino", "strength"),
            )
            for name in ("nonsense", "bandlimit", 5)
        ),
        *(
            (lambda options=options: testing.leak(**{"model": conv(), "shape": (9, 9), **options}), error, message)
            for options, error, message in (
                ({"model": None}, TypeError, "expected a torch.nn.Module, got None"),
                ({"images": 5}, ValueError, "unknown kind 5: use 'smooth', 'plus' or a tensor of images"),
                ({"images": np.zeros((2, 1, 9, 9))}, ValueError, "unknown kind array"),
                (
                    {"images": torch.zeros(9, 9)},
                    ValueError,
                    r"real numbers \(B, 1, H, W\), got torch.float32 of shape \(9, 9\)",
                ),
                ({"images": torch.zeros(2, 3, 9, 9)}, ValueError, r"images must be .* of shape \(2, 3, 9, 9\)"),
                ({"images": torch.zeros(0, 1, 9, 9)}, ValueError, r"images must be .* of shape \(0, 1, 9, 9\)"),
                *(
                    (
                        {"shape": shape},
                        ValueError,
                        "shape must be height and width, with a depth before them for volumes, got ",
                    )
                    for shape in (5, "99", None, (9.0, 9), (-1, 9), (9,))
                ),
                ({"shape": (9, 9, 9)}, ValueError, r"O\(2\) acts on 2 axes, got images of shape \(9, 9, 9\)"),
                ({"group": "O(2)"}, TypeError, "group must be a group such as O2\\(\\), got 'O\\(2\\)'"),
                ({"elements": "a"}, TypeError, "elements must be matrices, such as "),
                ({"elements": 5}, ValueError, "elements must have shape"),
                ({"elements": np.ones((1, 2, 2))}, ValueError, r"elements must be those of O\(2\)"),
                ({"out_type": [H.trivial]}, TypeError, "out_type must be a pscnn.FieldType or None, got "),
                ({"channels": 2.5}, ValueError, "channels must be a whole number of 1 or more, got 2.5"),
                ({"channels": True}, ValueError, "channels must be a whole number of 1 or more, got True"),
                ({"images": torch.zeros(2, 1, 9, 9)}, ValueError, "says the same of all images; give two or more that"),
                ({"count": 1}, ValueError, "says the same of all images; give two or more that differ"),
                ({"count": "8"}, ValueError, "count must be a whole number of 1 or more, got '8'"),
                ({"count": 10**9}, TooLargeError, "1000000000 pictures of shape .* would take .*: use a smaller count"),
                ({"seed": None}, ValueError, "seed must be a whole number of 0 or more, got None"),
            )
        ),
        (lambda: nn.AvgPoolAntialiased(GREY, 0), ValueError, "stride must be 1 or more, got 0"),
        *(
            (lambda call=call: call(None), TypeError, "torch.nn.Module, got None")
            for call in (pscnn.summary, pscnn.regularization, pscnn.align, nn.export, lambda _: nn.convert(None, H))  # type: ignore[arg-type]
        ),
        *(
            (lambda call=call, model=model: call(model), TypeError, "expected a torch.nn.Module, got .{1,100}$")
            for call in (pscnn.degree, lambda model: pscnn.measure(model, D(4)))
            for model in (None, 5, "x", torch.zeros(9, 9))
        ),
        *(
            (lambda call=call, group=group: call(CNN, group), TypeError, "group must be a group such as .*, got ")
            for call, groups in ((pscnn.degree, ("O(2)", 5)), (pscnn.measure, ("O(2)", 5, None)))
            for group in groups
        ),
        (
            lambda: pscnn.degree(conv(), SO3()),
            ValueError,
            r"SO\(3\) acts on 3 axes, O\(2\) of the network's fields on 2: use a group of 2 axes",
        ),
        (lambda: nn.Conv2d(GREY, None, 3), TypeError, "Conv2d: out_type must be a pscnn.FieldType, got None"),  # type: ignore[arg-type]
        *(
            (lambda make=make, size=size: make(GREY, GREY, size), ValueError, "kernel_size must be a number such as 3")
            for make in (nn.Conv2d, nn.ConvTranspose2d)
            for size in ("x", (3, 3), 0)
        ),
        *(
            (lambda options=options: nn.convert(CNN, H, **options), error, f"convert: {message}")
            for options, error, message in (
                ({"in_type": 5}, TypeError, "in_type must be a pscnn.FieldType, got 5"),
                ({"out_type": "x"}, TypeError, "out_type must be a pscnn.FieldType, got 'x'"),
                ({"method": 5}, TypeError, "method must be a name such as 'projection', got 5"),
                ({"frequency": "x"}, ValueError, "frequency must be a whole number of 0 or more, got 'x'"),
                ({"frequency": 1.5}, ValueError, "frequency must be a whole number of 0 or more, got 1.5"),
            )
        ),
        *(
            (
                lambda network=network, group=group: models.build(network, group=group, width="x"),
                ValueError,
                "width must be positive and finite, got 'x'",
            )
            for network, group in (("images", "C4"), ("own", "C4"), ("volumes", "SO(3)"))
        ),
        (
            lambda: models.build("volumes", group="SO(3)", width=2.5),
            ValueError,
            "width must be a whole number of 1 or more, got 2.5",
        ),
        (lambda: small(classes=10**12), ValueError, "classes must be 1000000 or less, got 1000000000000"),
        (lambda: small(channels=10**12), ValueError, "channels must be 1000000 or less"),
        (lambda: small(group=5), ValueError, "unknown group 5"),
        *(
            (lambda size=size: models.build("flow", size=size), ValueError, "size must be height and width, whole num")
            for size in (-3, 0, (64, -3), (64, 64, 64))
        ),
        (lambda: models.build("flow", layers=0), ValueError, "layers must be a whole number of 1 or more, got 0"),
        (lambda: models.build("own", shape=5), ValueError, r"acts on 2 axes, got images of shape \(5,\)"),
        (lambda: pscnn.layer_errors(None, torch.zeros(1), np.eye(2)), TypeError, "got None"),  # type: ignore[arg-type]
        *(
            (lambda call=call, x=x: call(x), TypeError, "must be a torch.Tensor of real numbers, got ")
            for x in NO_BATCHES
            for call in (
                lambda x: pscnn.layer_errors(conv(), x, np.eye(2)[None]),
                lambda x: pscnn.equivariance_error(conv(), x, np.eye(2)[None]),
                lambda x: pscnn.testing.assert_equivariant(conv(), x, np.eye(2)[None]),
                lambda x: pscnn.experiments.curve(CNN, x, torch.zeros(2), H),
                lambda x: pscnn.experiments.presence(x, H, [H]),
                lambda x: pscnn.measure(CNN, D(4), [x]),  # type: ignore[arg-type]
            )
        ),
        (lambda: pscnn.report.html_report([]), PscnnError, "give the folders of one or more runs"),
        *(
            (lambda out=out: own.prepare(([], []), out), PscnnError, "out must be the path of the file to write, got ")
            for out in ("", ".", None, 5)
        ),
        *(
            (lambda kernel=kernel: nn.equivariant_part(kernel, GREY, GREY), ValueError, "output channels and equal sid")
            for kernel in (torch.zeros(1, 1, 3, 5), torch.zeros(2, 1, 3, 3), torch.zeros(1, 1, 3))
        ),
        (lambda: small(width=-1), ValueError, "width must be positive and finite, got -1"),
        (lambda: small(width=float("nan")), ValueError, "width must be positive and finite, got nan"),
        (lambda: small(classes=0), ValueError, "classes must be a whole number of 1 or more, got 0"),
        (lambda: small(classes=2.5), ValueError, "classes must be a whole number of 1 or more, got 2.5"),
        (lambda: small(channels=0), ValueError, "channels must be a whole number of 1 or more, got 0"),
    ],
)
def test_wrong_input_is_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        (np.zeros((0, 2, 2)), r"shape \(N, 2, 2\) with N of 1 or more, got \(0, 2, 2\)"),
        (np.eye(3), r"got \(3, 3\)"),
        (np.diag([2.0, 1.0]), r"must be those of C\(4\)"),
        (rotation([0.3]), r"must be those of C\(4\), such as C\(4\).sample"),
        (np.full((1, 2, 2), np.nan), r"must be those of C\(4\)"),
    ],
)
def test_errors_are_measured_at_elements_of_the_group_only(elements: np.ndarray, message: str) -> None:
    model, x = small().eval(), torch.randn(1, 1, 28, 28)
    for measure in (pscnn.equivariance_error, pscnn.layer_errors):
        with pytest.raises(ValueError, match=message):
            measure(model, x, elements)


@pytest.mark.parametrize("elements", [C(4), "x", [np.eye(2), 5]], ids=str)
def test_elements_are_matrices(elements: Any) -> None:
    model, x = small().eval(), torch.randn(1, 1, 28, 28)
    for measure in (pscnn.equivariance_error, pscnn.layer_errors):
        with pytest.raises(TypeError, match=r"elements must be matrices, such as C\(4\).sample\(8, seed=0\), got "):
            measure(model, x, elements)


def test_half_precision_is_what_autocast_is_for() -> None:
    with torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert conv()(torch.zeros(1, 1, 9, 9).bfloat16()).dtype == torch.bfloat16

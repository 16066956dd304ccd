from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from helpers import function_type, grid_elements, irrep_type, noise, quotient_type

import pscnn
from pscnn import FieldType, Likelihood, nn
from pscnn.groups import O2, SO2, SO3, C, D, Group, rotation


def test_size_and_matrix_follow_the_fields(group: Group) -> None:
    irreps = group.irreps(1)
    fields = FieldType(group, [irreps[-1], irreps[0]])
    h = group.sample(3, seed=0)
    assert fields.size == irreps[-1].size + 1
    np.testing.assert_allclose(fields.matrix(h)[:, :-1, :-1], irreps[-1](h))
    np.testing.assert_allclose(fields.matrix(h)[:, -1, -1], 1)
    assert fields.matrix(h[0]).shape == (fields.size, fields.size)


def test_is_a_value(group: Group) -> None:
    assert irrep_type(group) == irrep_type(group)
    assert hash(irrep_type(group)) == hash(irrep_type(group))
    assert irrep_type(group, 2) != irrep_type(group, 3)
    assert group.name in str(irrep_type(group))


def pasted(text: str) -> object:
    names: dict[str, object] = {}
    exec("from pscnn.groups import *\nfrom pscnn import FieldType", names)
    return eval(text, names)


def test_reads_back_from_its_repr(group: Group) -> None:
    irreps = group.irreps(1)
    mixed = FieldType(group, [*3 * [irreps[-1]], irreps[0], group.vector, *2 * [group.functions(1)]])
    for fields in (irrep_type(group), function_type(group), quotient_type(group), mixed):
        copy = pasted(repr(fields))
        assert copy == fields
        assert str(copy) == str(fields)


def test_repeated_fields_are_written_once() -> None:
    scalar, vector = H.irrep(0, 0), H.irrep(1, 1)
    assert repr(FieldType(H, 8 * [scalar, vector])) == "FieldType(O2(), 8 * [O2().irrep(0, 0), O2().irrep(1, 1)])"
    assert repr(FieldType(H, [scalar, *3 * [vector]])) == "FieldType(O2(), [O2().irrep(0, 0)] + 3 * [O2().irrep(1, 1)])"
    assert repr(FieldType(C(4), 2 * [C(4).regular])) == "FieldType(C(4), 2 * [C(4).regular])"


def test_transform_is_an_action(group: Group) -> None:
    fields = irrep_type(group)
    x = noise(fields, 5)
    elements = grid_elements(group)
    for g in elements[:4]:
        for h in elements[-4:]:
            torch.testing.assert_close(fields.transform(fields.transform(x, h), g), fields.transform(x, g @ h))


def test_rotation_by_a_quarter_turns_counter_clockwise() -> None:
    fields = FieldType(SO2(), [SO2().trivial])
    image = torch.arange(9.0).view(1, 1, 3, 3)
    turned = fields.transform(image, rotation(np.pi / 2))
    assert torch.equal(turned[0, 0], torch.from_numpy(np.rot90(image[0, 0].numpy()).copy()))
    mirrored = FieldType(D(1), [D(1).trivial]).transform(image, np.diag([-1.0, 1.0]))
    assert torch.equal(mirrored[0, 0], image[0, 0].flip(-1))


def test_exact_and_interpolated_transforms_agree() -> None:
    fields = FieldType(SO3(), [SO3().irrep(1)])
    x = noise(fields, 5)
    quarter = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    nearly = quarter @ np.array([[np.cos(1e-7), -np.sin(1e-7), 0], [np.sin(1e-7), np.cos(1e-7), 0], [0, 0, 1]])
    torch.testing.assert_close(fields.transform(x, nearly), fields.transform(x, quarter), atol=1e-5, rtol=0)


def test_vectors_transform_without_space() -> None:
    fields = FieldType(O2(), [O2().irrep(1, 1)])
    h = O2().sample(1, seed=0)[0]
    x = torch.randn(4, 2, dtype=torch.float64)
    torch.testing.assert_close(fields.transform(x, h), x @ torch.as_tensor(h).T)


H = O2()
GRAY = FieldType(H, [H.trivial])
FEATURES = FieldType(H, [H.trivial, H.irrep(1, 1)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FieldType(H, []), "at least one field, got an empty list"),
        (lambda: FieldType(H, [C(4).trivial]), r"over O\(2\), but ψ0 is over C\(4\)"),
        (
            lambda: nn.Conv2d(FieldType(C(4), [C(4).trivial]), GRAY, 3),
            r"Conv2d: in_type is over C\(4\), out_type over O\(2\); both must be over one group",
        ),
        (lambda: H.irrep(2, 1), r"O\(2\) has no irrep \(2, 1\); up to frequency 3 it has \(0, 0\), \(1, 0\)"),
        (lambda: H.irrep(0, 1), "has no irrep"),
        (lambda: C(4).irrep(3), "has no irrep"),
        (
            lambda: nn.Conv2d(GRAY, GRAY, 0),
            "kernel_size must be a number such as 3 or 5, the same in all directions, got 0",
        ),
        (lambda: nn.Conv2d(GRAY, GRAY, cast(Any, None)), "kernel_size must be a number such as 3 or 5, got None"),
        (lambda: Likelihood(H, -1), "bandlimit must be a whole number of 0 or more, got -1"),
        (lambda: H.irreps(-1), "bandlimit must be 0 or more, got -1"),
        (
            lambda: nn.Conv2d(GRAY, GRAY, 3, likelihood=Likelihood(SO2())),
            r"the likelihood is over SO\(2\), the fields over O\(2\)",
        ),
        (
            lambda: nn.Linear(GRAY, GRAY, likelihood=Likelihood(H, dtype=torch.float64)),
            r"the likelihood is in torch.float64, the layer in torch.float32",
        ),
        (lambda: nn.Conv3d(GRAY, GRAY, 3), r"needs a group that acts on R\^3, O\(2\) acts on R\^2"),
        (lambda: nn.Conv2d(GRAY, GRAY, 3, padding=-1), "padding must be 0 or more, 'same' or 'valid', got -1"),
        (lambda: nn.Conv2d(GRAY, GRAY, 3, padding="same", stride=2), "padding='same' needs stride 1, got 2"),
        (lambda: nn.Conv2d(GRAY, GRAY, 3, padding_mode=cast(Any, "mirror")), "unknown padding_mode 'mirror'"),
        (lambda: nn.Conv2d(GRAY, FEATURES, 3)(torch.zeros(1, 3, 5, 5)), r"expected input of shape \(batch, 1, height"),
        (lambda: nn.Conv2d(GRAY, FEATURES, 3)(torch.zeros(1, 5, 5)), r"got \(1, 5, 5\)"),
        (lambda: nn.Linear(FEATURES, GRAY)(torch.zeros(2, 4)), r"Linear: expected input of shape \(batch, 3\)"),
        (lambda: nn.BatchNorm(FEATURES)(torch.zeros(2, 4, 5, 5)), "BatchNorm: expected input"),
        (lambda: nn.BatchNorm(FEATURES)(torch.zeros(1, 3)), "more than one value per channel"),
        (lambda: nn.GatedNonlinearity(FieldType(C(4), [C(4).regular])), "regular has a change of basis"),
        (lambda: nn.NormNonlinearity(FieldType(C(4), [C(4).regular])), "use FourierPointwise for regular fields"),
        (lambda: nn.FourierPointwise(FEATURES), "all fields must be equal"),
        (lambda: nn.FourierPointwise(FieldType(H, [H.irrep(1, 1)])), r"fields must be H.functions\(L\)"),
        (lambda: nn.QuotientFourierPointwise(FieldType(H, [H.functions(2)])), r"fields must be H.functions\(L, K\)"),
        (lambda: nn.FourierPointwise(FieldType(H, [H.functions(2)]), degree=3), "degree must be 4 or more"),
        (lambda: nn.Restriction(GRAY, SO3()), r"SO\(3\) is not a subgroup of O\(2\)"),
        (lambda: nn.FieldDropout(GRAY, 1.0), "p must be at least 0 and below 1"),
        (lambda: nn.AvgPoolAntialiased(GRAY, 2, kernel_size=0), "kernel_size must be 1 or more, got 0"),
        (lambda: nn.AvgPoolAntialiased(GRAY, 2, sigma=0), "sigma must be positive"),
        (lambda: nn.DiskMask(GRAY, 1), "size ≥ 2"),
        (lambda: nn.DiskMask(GRAY, 9, edge=0), "edge must be positive, got 0"),
        (lambda: nn.Upsample(GRAY, 0), "size must be 1 or more"),
        (lambda: GRAY.transform(torch.zeros(1, 2, 5, 5), H.identity), r"expected \(batch, 1\)"),
        (lambda: H.trivial(np.eye(3)), r"elements of O\(2\) have shape \(N, 2, 2\)"),
        (lambda: H.trivial + C(4).trivial, "cannot add"),
        (lambda: H.trivial.tensor(C(4).trivial), "cannot multiply"),
        (lambda: H.regular, r"O\(2\) is infinite"),
        (lambda: H.irreps(None), "infinitely many irreps"),
        (lambda: pscnn.equivariance_error(torch.nn.ReLU(), torch.zeros(1, 1), H.identity), "give in_type"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: FieldType(cast(Any, "O(2)"), []),
        lambda: FieldType(H, cast(Any, ["trivial"])),
        lambda: nn.BatchNorm(cast(Any, 3)),
        lambda: nn.Linear(GRAY, cast(Any, "scalar")),
        lambda: nn.Linear(GRAY, GRAY, likelihood=cast(Any, 2)),
        lambda: H.trivial + cast(Any, 1),
    ],
)
def test_wrong_types_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        make()


def test_assert_equivariant_names_the_worst_element() -> None:
    layer = nn.Linear(FEATURES, FEATURES, likelihood=Likelihood(H, initial=lambda h: h[:, 0, 0]))
    with pytest.raises(AssertionError, match=r"Linear is not equivariant: relative error .* at element 1"):
        pscnn.testing.assert_equivariant(layer, torch.randn(3, 3), np.stack([np.eye(2), -np.eye(2)]))

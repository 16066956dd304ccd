from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pscnn.groups import (
    O2,
    O3,
    SO2,
    SO3,
    Axial,
    C,
    D,
    DirectSum,
    Group,
    Irrep,
    PlanarGroup,
    clebsch_gordan,
    direct_sum,
    octahedral_sphere_rule,
    parse,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("C(4)", C(4)),
        ("c4", C(4)),
        ("C12", C(12)),
        ("D(1)", D(1)),
        (" d6 ", D(6)),
        ("SO(2)", SO2()),
        ("so2", SO2()),
        ("O(2)", O2()),
        ("SO3", SO3()),
        ("o(3)", O3()),
        ("SO(2)@z", SO2().about((0, 0, 1))),
        ("so2@Z", SO2().about((0, 0, 1))),
        ("C4@(1,1,0)", C(4).about((1, 1, 0))),
        ("C(4)@(0.5, 0.5, 0)", C(4).about((1, 1, 0))),
        ("D(4)@x", D(4).about((1, 0, 0))),
        ("D(4)@x, turn", D(4).about((1, 0, 0), "turn")),
    ],
)
def test_parse_reads_the_usual_names(text: str, expected: Group) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "C", "C0", "C(-1)", "D(0)", "SO(4)", "O1", "U(1)", "C(4)x", "C(4", "C4)", "C2.5", 4, f"C{'9' * 5000}"),
        *("C(4)@", "C(4)@w", "SO(3)@z", "C(0)@z", "C(4)@(0, 0, 0)", "C(4)@(1, 0)", "C(4)@(1, 0, 0, 0)", "@z"),
        *("C(4)@(1, 0, nan)", "C(4)@(1, 0, a)", "C(4)@1, 0, 0", "D(4)@z, flip", "O(2), turn"),
    ],
    ids=lambda text: str(text)[:20],
)
def test_parse_refuses_anything_else(text: Any) -> None:
    with pytest.raises(ValueError, match=r"unknown group .*: use C\(N\).*names such as 'SO\(2\)@z'") as error:
        parse(text)
    assert repr(text) in str(error.value)


def test_parse_reads_every_name_back(group: Group) -> None:
    assert parse(group.name) == parse(str(group)) == group


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    planar=st.sampled_from([C(1), C(5), D(1), D(12), SO2(), O2()]),
    axis=st.one_of(
        st.tuples(*3 * [st.floats(-1e3, 1e3)]).filter(lambda axis: np.linalg.norm(axis) > 1e-6),
        st.tuples(*3 * [st.integers(-40, 40)]).filter(any),
    ),
    kind=st.sampled_from(["mirror", "turn"]),
)
@example(planar=O2(), axis=(1e-12, 0, -1), kind="turn")
def test_names_and_reprs_about_any_axis_read_back(
    planar: PlanarGroup, axis: tuple[float, float, float], kind: str
) -> None:
    group = planar.about(axis, kind)
    assert parse(group.name) == group
    assert eval(repr(group)) == group


def test_axes_in_small_whole_numbers_are_named_by_these() -> None:
    assert SO2().about((0, 0, 1)).name == "SO(2)@z"
    assert SO2().about((0, 0, -1)).name == "SO(2)@(0, 0, -1)"
    assert D(3).about((-2, 3, 6), "turn").name == "D(3)@(-2, 3, 6), turn"
    assert C(4).about((0.5, 0.5, 0)).name == "C(4)@(1, 1, 0)"
    assert repr(C(4).about((2, 2, 0))) == "C(4).about((1, 1, 0))"


def test_groups_are_values(group: Group) -> None:
    copy = pickle.loads(pickle.dumps(group))
    assert copy == group
    assert hash(copy) == hash(group)
    assert len({copy, group}) == 1
    assert group != SO2().about((0, 1, 1))
    with pytest.raises(AttributeError):
        group.dimension = 5


def test_groups_read_back_from_their_repr(group: Group) -> None:
    assert eval(repr(group)) == group


def test_irreps_are_values_and_read_back_from_their_repr(group: Group) -> None:
    for psi in group.irreps(3):
        copy = pickle.loads(pickle.dumps(psi))
        assert copy == psi == group.irrep(*psi.index)
        assert hash(copy) == hash(psi)
        assert eval(repr(psi)) == psi
    assert len(set(group.irreps(3))) == len(group.irreps(3))


def test_representations_are_values(group: Group) -> None:
    h = group.sample(3, seed=0)
    for rho in (group.vector + group.trivial, group.irreps(2)[-1] + group.trivial, group.functions(2)):
        copy = pickle.loads(pickle.dumps(rho))
        assert copy == rho
        assert hash(copy) == hash(rho)
        assert rho != group.trivial
        np.testing.assert_array_equal(copy(h), rho(h))


def test_representations_read_back_from_their_repr(group: Group) -> None:
    psi = group.irreps(2)[-1]
    made = [
        group.vector,
        group.vector + psi,
        psi + group.trivial + psi,
        psi.tensor(group.vector),
        group.functions(2),
        group.functions(2, C(1)),
        group.functions(1) + group.functions(1),
        psi.restrict(C(1)) + C(1).trivial if group.dimension == 2 else psi.restrict(C(1)),
        DirectSum(group, group.vector.irreps, np.eye(group.dimension)[::-1].copy()),
    ]
    if group.order is not None:
        made += [group.regular, group.quotient(C(1)), group.regular + group.trivial]
    for rho in made:
        assert eval(repr(rho)) == rho


def test_different_groups_and_bases_are_not_equal() -> None:
    assert len({C(4), D(4), C(8), SO2(), O2(), SO3(), O3(), SO2().about((0, 0, 1)), SO2().about((0, 1, 0))}) == 9
    assert C(4).irrep(1) != SO2().irrep(1)
    assert O2().about((0, 0, 1), "turn") != O2().about((0, 0, 1), "mirror")
    rho = D(4).regular
    assert rho != direct_sum(list(rho.irreps))


@settings(deadline=None, derandomize=True, max_examples=50)
@given(axis=st.tuples(*3 * [st.integers(-9, 9)]).filter(any), length=st.sampled_from([0.1, 1.0, 3.0, 1e3]))
@example(axis=(1, 1, 0), length=2.0)
@example(axis=(-5, 3, 0), length=2.0)
def test_the_length_of_an_axis_does_not_matter(axis: tuple[int, int, int], length: float) -> None:
    group = SO2().about(axis)
    assert isinstance(group, Axial)
    assert SO2().about(np.multiply(length, axis)) == group
    assert SO2().about(group.axis) == group
    assert eval(repr(group)) == group
    np.testing.assert_allclose(group.frame[:, 2], np.array(axis) / np.linalg.norm(axis), atol=1e-11)


def test_a_group_without_reflections_does_not_depend_on_their_kind() -> None:
    assert SO2().about((0, 0, 1), "turn") == SO2().about((0, 0, 1), "mirror")
    assert SO3().irrep(1).restrict(SO2()).group == SO2().about((0, 0, 1))


@pytest.mark.parametrize("n", [0, -1, 2.0, "4", True, None])
@pytest.mark.parametrize("family", [C, D])
def test_orders_must_be_positive_whole_numbers(family: type[C | D], n: Any) -> None:
    with pytest.raises(ValueError, match=rf"{family.__name__}\(N\) needs a whole number N ≥ 1, got"):
        family(n)


@pytest.mark.parametrize(
    ("group", "index", "message"),
    [
        (C(4), (3,), r"C\(4\) has no irrep \(3,\); up to frequency 3 it has \(0\), \(1\), \(2\)$"),
        (C(4), (1, 1), r"C\(4\) has no irrep"),
        (C(4), (-1,), r"C\(4\) has no irrep"),
        (C(4), (1.0,), r"C\(4\) has no irrep \(1.0,\)"),
        (D(3), (0, 1), r"D\(3\) has no irrep"),
        (D(4), (2, 1), r"D\(4\) has no irrep"),
        (SO2(), (), r"SO\(2\) has no irrep \(\).*and so on"),
        (O2(), (0, 1), r"O\(2\) has no irrep \(0, 1\).*\(1, 3\), and so on"),
        (O2(), (1,), r"O\(2\) has no irrep"),
        (SO3(), (0, 1), r"SO\(3\) has no irrep"),
        (O3(), (2, 1), r"O\(3\) has no irrep"),
        (O3(), (0, -1), r"O\(3\) has no irrep"),
        (SO2().about((0, 0, 1)), (0, 1), r"SO\(2\)@z has no irrep"),
    ],
    ids=str,
)
def test_unknown_irreps_are_refused_with_the_known_ones(group: Group, index: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group.irrep(*index)


def test_bandlimits_are_checked(group: Group) -> None:
    with pytest.raises(ValueError, match="bandlimit must be 0 or more, got -1"):
        group.irreps(-1)


def test_bandlimits_of_function_spaces_are_checked_at_once() -> None:
    with pytest.raises(ValueError, match=r"bandlimit must be .*0 or more, got -1"):
        O2().functions(-1)


def test_infinite_groups_have_no_full_list_of_irreps_and_no_regular_representation(infinite: Group) -> None:
    assert infinite.order is None
    assert infinite.max_frequency is None
    with pytest.raises(ValueError, match="infinitely many irreps: give a bandlimit"):
        infinite.irreps(None)
    with pytest.raises(ValueError, match=r"is infinite.*functions\(bandlimit\)"):
        _ = infinite.regular


@pytest.mark.parametrize("axis", [(0, 0, 0), (np.nan, 0, 0), (np.inf, 0, 0), (1, 0), (1, 0, 0, 0)], ids=str)
def test_axes_must_be_directions(axis: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="axis must be three"):
        SO2().about(axis)


def test_reflections_about_an_axis_are_mirrors_or_turns() -> None:
    with pytest.raises(ValueError, match="reflections must be 'mirror' or 'turn', got 'flip'"):
        O2().about((0, 0, 1), "flip")


@pytest.mark.parametrize(
    ("group", "stranger"),
    [
        (C(4), C(3)),
        (C(4), C(8)),
        (C(4), D(1)),
        (C(4), SO2()),
        (C(8), SO2()),
        (D(8), O2()),
        (C(16).about((0, 0, 1)), SO2().about((0, 0, 1))),
        (D(3), D(2)),
        (SO2(), O2()),
        (SO2(), SO3()),
        (O2(), O3()),
        (SO3(), O3()),
        (SO3(), O2().about((0, 0, 1), "mirror")),
        (SO2().about((0, 0, 1)), SO2().about((0, 1, 0))),
        (SO2().about((0, 0, 1)), SO3()),
    ],
    ids=str,
)
def test_strangers_are_not_subgroups(group: Group, stranger: Group) -> None:
    with pytest.raises(ValueError, match="is not a subgroup of"):
        group.trivial.restrict(stranger)
    with pytest.raises(ValueError, match="is not a subgroup of"):
        group.functions(1, stranger)


def test_plane_groups_in_space_turn_about_z() -> None:
    assert O3().as_subgroup(O2()) == O2().about((0, 0, 1), "mirror")
    assert SO3().as_subgroup(O2()) == O2().about((0, 0, 1), "turn")
    assert SO3().as_subgroup(SO2()).contains(np.diag([-1.0, -1.0, 1.0]))


def test_representations_of_different_groups_do_not_mix() -> None:
    a, b = C(4).irrep(1), O2().irrep(1, 1)
    with pytest.raises(ValueError, match=r"cannot add representations of C\(4\) and O\(2\)"):
        a + b
    with pytest.raises(ValueError, match=r"cannot multiply representations of C\(4\) and O\(2\)"):
        a.tensor(b)
    with pytest.raises(TypeError):
        a + 3  # type: ignore[operator]


@pytest.mark.parametrize(
    "call", [lambda a, b: direct_sum([a, b]), lambda a, b: clebsch_gordan(a, b, a)], ids=["sum", "cg"]
)
def test_functions_refuse_irreps_of_different_groups(call: Callable[[Irrep, Irrep], object]) -> None:
    with pytest.raises(ValueError, match="one group"):
        call(C(4).irrep(1), O2().irrep(1, 1))


def test_elements_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"elements of C\(4\) have shape \(N, 2, 2\) or \(2, 2\)"):
        C(4).irrep(1)(np.eye(3))
    with pytest.raises(ValueError, match=r"elements of O\(3\) have shape \(N, 3, 3\) or \(3, 3\)"):
        O3().trivial(np.ones((2, 2, 3, 3)))


@pytest.mark.parametrize(
    "result",
    [
        lambda: O2().quadrature(4)[0],
        lambda: SO3().quadrature(4)[1],
        lambda: octahedral_sphere_rule(5)[0],
        lambda: SO2().irrep(1).endomorphisms,
        lambda: clebsch_gordan(SO3().irrep(1), SO3().irrep(1), SO3().irrep(1)),
        lambda: D(4).regular.change_of_basis,
        lambda: SO3().functions(2, SO2()).columns[1][1],
    ],
    ids=["nodes", "weights", "sphere", "endomorphisms", "clebsch_gordan", "basis", "columns"],
)
def test_results_handed_out_cannot_be_used_to_change_the_library(result: Callable[[], np.ndarray]) -> None:
    first, second = result(), result()
    assert not first.flags.writeable or not np.shares_memory(first, second)

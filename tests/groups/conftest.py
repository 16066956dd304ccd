from __future__ import annotations

import pytest

from pscnn.groups import O2, O3, SO2, SO3, C, D, FunctionSpace, Group

FINITE = [C(1), C(2), C(3), C(4), C(7), D(1), D(2), D(3), D(4), D(6), D(3).about((0, 1, 0))]
INFINITE = [
    SO2(),
    O2(),
    SO3(),
    O3(),
    SO2().about((1, 1, 0)),
    O2().about((0, 0, 1), "mirror"),
    O2().about((0, 0, 1), "turn"),
]

QUOTIENTS = [
    (SO3().functions(2, SO2()), 9),
    (SO3().functions(2, SO2().about((1, 1, 0))), 9),
    (SO3().functions(3, O2()), 6),
    (SO3().functions(2, C(2)), 1 + 3 + 5 * 3),
    (SO3().functions(3, D(3).about((0, 1, 0), "turn")), 1 + 5 + 7),
    (O3().functions(2, O2()), 9),
    (O3().functions(2, SO2()), 18),
    (O3().functions(2, O2().about((0, 0, 1), "turn")), 12),
    (O3().functions(2, SO3()), 2),
    (O3().functions(1, D(3)), 1 + 3),
    (O2().functions(3, D(1)), 7),
    (O2().functions(3, SO2()), 2),
    (O2().functions(3, C(2)), 2 + 4),
    (SO2().functions(4, C(3)), 1 + 2),
    (D(6).functions(3, C(2)), 6),
    (C(4).functions(2, C(1)), 4),
]


@pytest.fixture(scope="session", params=[*FINITE, *INFINITE], ids=lambda group: group.name)
def group(request: pytest.FixtureRequest) -> Group:
    return request.param


@pytest.fixture(scope="session", params=FINITE, ids=lambda group: group.name)
def finite(request: pytest.FixtureRequest) -> Group:
    return request.param


@pytest.fixture(scope="session", params=INFINITE, ids=lambda group: group.name)
def infinite(request: pytest.FixtureRequest) -> Group:
    return request.param


@pytest.fixture(scope="session", params=QUOTIENTS, ids=lambda case: case[0].name)
def quotient(request: pytest.FixtureRequest) -> tuple[FunctionSpace, int]:
    """A space of functions on a quotient, and its size."""
    return request.param


@pytest.fixture(
    scope="session",
    params=[*(group.functions(2) for group in [*FINITE, *INFINITE]), *(space for space, _ in QUOTIENTS)],
    ids=lambda space: space.name,
)
def space(request: pytest.FixtureRequest) -> FunctionSpace:
    return request.param

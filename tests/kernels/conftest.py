from __future__ import annotations

import pytest

from pscnn.groups import O2, O3, SO2, SO3, C, D, Group

GROUPS = [
    C(1),
    C(3),
    C(4),
    D(1),
    D(3),
    D(4),
    SO2(),
    O2(),
    SO3(),
    O3(),
    SO2().about((1, 1, 0)),
    D(3).about((0, 1, 0)),
    O2().about((0, 0, 1), "turn"),
]


@pytest.fixture(scope="session", params=GROUPS, ids=lambda group: group.name)
def group(request: pytest.FixtureRequest) -> Group:
    return request.param

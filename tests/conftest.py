from __future__ import annotations

import pytest
import torch
from helpers import GROUPS

from pscnn.groups import Group


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=GROUPS, ids=lambda group: group.name)
def group(request: pytest.FixtureRequest) -> Group:
    return request.param

from __future__ import annotations

import os
import signal

import pytest
import torch
from helpers import GROUPS

from pscnn.groups import Group

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; commands would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if "PYTEST_XDIST_WORKER" in os.environ:  # workers that each use all cores hold each other up
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=GROUPS, ids=lambda group: group.name)
def group(request: pytest.FixtureRequest) -> Group:
    return request.param

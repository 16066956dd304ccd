"""What importing the library, or a part of it, brings along."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pscnn


@pytest.mark.parametrize("room", ["pscnn", "pscnn.groups", "pscnn.kernels"])
def test_mathematics_needs_no_torch(room: str) -> None:
    program = (
        f"import {room}, sys\n"
        "loaded = {'torch', 'pscnn.nn', 'pscnn.report'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_can_be_had_and_is_listed() -> None:
    program = (
        "import pscnn\n"
        "for name in (*pscnn.__all__, 'report', 'kernels'):\n"
        "    assert name in dir(pscnn), name\n"
        "    assert getattr(pscnn, name).__name__.split('.')[-1] == name, name\n"
        "from pscnn import *\n"
        "assert nn.FieldType is FieldType\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_uses_no_network() -> None:
    program = (
        "import socket\n"
        "def refuse(*args, **kwargs): raise AssertionError(f'the network was used: {args}')\n"
        "socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse\n"
        "import pscnn, importlib\n"
        "for room in ('nn', 'models', 'data', 'training', 'tasks', 'experiments', 'report', 'cli'):\n"
        "    importlib.import_module(f'pscnn.{room}')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'pscnn' has no attribute 'symmetry'"):
        _ = pscnn.symmetry


def test_errors_can_be_caught_by_their_base_class() -> None:
    assert issubclass(pscnn.data.DataError, pscnn.PscnnError)
    assert issubclass(pscnn.MissingExtraError, pscnn.PscnnError)

"""How the tests of apps/ start ranks and read what they wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cusz_operator
import support
from support import MPI_ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
APPS = ROOT / "apps"
TIMEOUT_S = 60


@pytest.fixture(scope="session")
def mpi_environment() -> dict[str, str]:
    """Lets mpirun start ranks on this machine as root, more of them than cores, and programs find the plugin."""
    return {**os.environ, **MPI_ENVIRONMENT, "ADIOS2_PLUGIN_PATH": str(cusz_operator.plugin_path())}


@pytest.fixture(scope="session")
def ranks(mpi_environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ranks(4, "program", ...)`; a .py file runs with this Python. Fails unless the exit status is `status`."""

    def run(
        n: int, *command: object, status: int = 0, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        words = [str(word) for word in command]
        if words[0].endswith(".py"):
            words.insert(0, sys.executable)
        words = ["timeout", "--kill-after=5", str(TIMEOUT_S), "mpirun", "-n", str(n), *words]
        return support.run(words, status=status, env={**mpi_environment, **(env or {})})

    return run


@pytest.fixture(scope="session")
def gray_scott() -> Path:
    """The program."""
    return APPS / "gray_scott.py"


@pytest.fixture(scope="session")
def stored_bytes() -> Callable[[Path], int]:
    """Bytes of a BP file (a folder)."""
    return lambda path: sum(file.stat().st_size for file in path.rglob("*") if file.is_file())

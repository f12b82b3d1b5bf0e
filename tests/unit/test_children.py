"""What programs started by tests inherit from the process of the tests."""

from __future__ import annotations

import os
import subprocess

from mpi4py import MPI


def test_children_get_the_environment_of_python() -> None:
    assert MPI.Is_initialized()
    found = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    names = {line.split("=")[0] for line in found.splitlines() if not line.startswith((" ", "\t"))}
    assert "PMIX_RANK" not in names or "PMIX_RANK" in os.environ
    assert "PATH" in names

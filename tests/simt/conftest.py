"""Builds the executor of CUDA kernels, and what runs on it, once per session."""

import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent
BUILD = SOURCE.parents[1] / "build" / "simt"


@pytest.fixture(scope="session")
def simt_build() -> Path:
    """The folder of the build, in which everything is up to date."""
    for command in (["cmake", "-G", "Ninja", "-S", SOURCE, "-B", BUILD], ["cmake", "--build", BUILD]):
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if result.returncode != 0:
            if "Boost.Context was not found" in result.stdout:
                pytest.skip("Boost.Context is not there (Debian: libboost-context-dev)")
            pytest.fail(f"{' '.join(map(str, command))}\n{result.stdout}")
    return BUILD

"""What programs need to find the filter."""

from __future__ import annotations

import os
import shutil

import pytest

from cusz_core import hdf5


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Variables for a program that knows nothing of this package."""
    return {**os.environ, "HDF5_PLUGIN_PATH": str(hdf5.plugin_path())}


@pytest.fixture(scope="session")
def require_tool():
    """Skips a test whose program is not there."""

    def require(name: str, package: str) -> str:
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not there (Debian: {package})")
        return path

    return require

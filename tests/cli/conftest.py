"""Runs commands in a folder with a field."""

import numpy as np
import pytest

import support


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with x.npy and x.raw (float32) and d.raw (float64), as the current one."""
    x = support.smooth((20, 30, 40), support.F32)
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", x)
    x.tofile("x.raw")
    x.astype(np.float64).tofile("d.raw")
    return tmp_path


@pytest.fixture
def run(folder, cusz_cli):
    """Runs a command line in that folder; returns (exit code, standard output, standard error)."""
    return cusz_cli

"""Commands in a folder with a field."""

import numpy as np
import pytest

import support
from cusz_core import cli


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
def run(folder, capsys):
    """Runs a command line; returns (exit code, standard output, standard error)."""

    def call(*arguments):
        code = cli.main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call

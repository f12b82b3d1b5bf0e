"""An application that does not know the operator gains it through a configuration file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cusz_operator

CONFIGURED = [sys.executable, Path(__file__).parent / "ranks" / "configured.py"]


@pytest.mark.parametrize(
    ("engine", "form", "predictor", "version"),
    [
        ("BP5", "xml", "spline", 2),
        ("BP5", "yaml", "lorenzo", 1),
        ("BP4", "xml", "lorenzo", 1),
        ("BP4", "yaml", "spline", 2),
    ],
)
def test_bpls_tells_minimum_and_maximum(
    engine: str, form: str, predictor: str, version: int, program: Callable, tmp_path: Path
) -> None:
    """With what `cusz config` prints, they are the min and max of the values that were put."""
    command = [sys.executable, "-m", "cusz_core", "config", "--variable", "T", "--eb", "0.1", "--io", "simulation"]
    config, field_file, output = (tmp_path / name for name in (f"config.{form}", "T.npy", "out.bp"))
    command += ["--engine", engine, "--format", form, "--predictor", predictor]
    config.write_text(program(command).stdout, encoding="utf-8")
    np.save(field_file, np.linspace(-2.5, 3.75, 6400, dtype=np.float32).reshape(80, 80))
    assert "cusz" not in program([*CONFIGURED, config, "simulation", field_file, output]).stderr
    (block, _) = cusz_operator.inspect_bp(output)
    assert (block["operator"], block["kind"], block["version"]) == ("cusz", "tiled", version)
    (line,) = program(["bpls", "-l", output]).stdout.splitlines()
    assert re.search(r"\bT\b.* = -2\.5 / 3\.75$", line)

"""An application that does not know the operator gains it through a configuration file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cusz_core
import cusz_operator
import support

CONFIGURED = [sys.executable, Path(__file__).parent / "ranks" / "configured.py"]
YAML = """---
- IO: "simulation"
  Engine:
    Type: "{engine}"
  Variables:
    - Variable: "T"
      Operations:
        - Type: "plugin"
          PluginName: "cusz"
          PluginLibrary: "cusz_operator"
          Accuracy: "1e-2"
          Mode: "REL"
"""


def test_python_application(engine: str, program: Callable, tmp_path: Path) -> None:
    """Keys and values in upper or lower case; only the environment and the file tell the application of the plugin."""
    config, field_file, output = (tmp_path / name for name in ("config.yaml", "T.npy", "out.bp"))
    config.write_text(YAML.format(engine=engine), encoding="utf-8")
    field = support.smooth((70, 90), support.F32)
    np.save(field_file, field)
    done = program([*CONFIGURED, config, "simulation", field_file, output])
    assert "cusz" not in done.stderr

    blocks = list(cusz_operator.inspect_bp(output))
    info = cusz_core.inspect(cusz_core.compress(field, 1e-2, "rel"))
    bound = support.bound_in_force(info, support.absolute_bound(field, 1e-2, "rel"))
    assert [(b["variable"], b["step"], b["mode"], b["eb"], b["eb_abs"]) for b in blocks] == [
        ("T", 0, "rel", 1e-2, bound),
        ("T", 1, "rel", 1e-2, bound),
    ]


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
    program([*CONFIGURED, config, "simulation", field_file, output])
    (block, _) = cusz_operator.inspect_bp(output)
    assert (block["operator"], block["kind"], block["version"]) == ("cusz", "tiled", version)
    (line,) = program(["bpls", "-l", output]).stdout.splitlines()
    assert re.search(r"\bT\b.* = -2\.5 / 3\.75$", line)

"""An application that knows nothing of the operator gains it by a configuration file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cusz_core
import cusz_operator
import support

pytestmark = pytest.mark.mpi

APPS = Path(__file__).parents[2] / "apps"
CONFIGURED = [sys.executable, Path(__file__).parent / "ranks" / "configured.py"]
EB = 1e-3
SIZE = ["40", "30", "50", "20", "10"]


def temperatures(file: Path) -> list[NDArray[Any]]:
    adios2 = pytest.importorskip("adios2")
    io = adios2.Adios().declare_io("reader")
    engine = io.open(str(file), adios2.Mode.ReadRandomAccess)
    variable = io.inquire_variable("temperature")
    steps = []
    for step in range(variable.steps()):
        variable.set_step_selection([step, 1])
        steps.append(np.empty(variable.shape(), np.float64))
        engine.get(variable, steps[-1], adios2.Mode.Sync)
    engine.close()
    return steps


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("suffix", "predictor"), [("xml", None), ("yaml", None), ("xml", "lorenzo"), ("xml", "spline")]
)
def test_cpp_application(suffix: str, predictor: str | None, programs: Path, program: Callable, tmp_path: Path) -> None:
    heat = programs / "heat_xml"
    if not heat.exists():
        pytest.skip("this ADIOS2 has no MPI for C++")
    config = (APPS / f"heat_xml.{suffix}").read_text(encoding="utf-8")
    if predictor is not None:
        config = config.replace("</operation>", f'<parameter key="predictor" value="{predictor}"/></operation>')
    (tmp_path / f"config.{suffix}").write_text(config, encoding="utf-8")
    program(["mpirun", "-n", "2", heat, tmp_path / "raw.bp", "-", *SIZE])
    program(["mpirun", "-n", "2", heat, tmp_path / "compressed.bp", tmp_path / f"config.{suffix}", *SIZE])

    before, after = temperatures(tmp_path / "raw.bp"), temperatures(tmp_path / "compressed.bp")
    assert len(before) == len(after) == 3
    for x, y in zip(before, after, strict=True):
        assert support.violations(x, y, EB) == []
        assert not support.same_bits(x, y)
    blocks = [b for b in cusz_operator.inspect_bp(tmp_path / "compressed.bp") if b["variable"] == "temperature"]
    assert [(b["step"], b["writer"]) for b in blocks] == [(step, rank) for step in range(3) for rank in range(2)]
    assert all(b["operator"] == "cusz" and b["eb_abs"] == EB and b["ratio"] > 4 for b in blocks)
    for b in blocks:
        x = support.part(before[b["step"]], b["start"], b["count"])
        archive = cusz_core.compress(x, EB, predictor=predictor or "auto")
        assert (b["version"], b["archive_bytes"]) == (cusz_core.inspect(archive).version, len(archive))
        assert predictor is None or b["predictor"] == predictor


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
    """Keys and values in any case; nothing but the environment tells the application of the plugin."""
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
    """With what `cusz config` prints, they are those of the values that were put."""
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

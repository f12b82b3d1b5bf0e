"""The examples of docs/operator.md work as they stand."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cusz_operator
from cusz_core.parameters import TABLE

TEXT = (Path(__file__).parents[2] / "docs" / "operator.md").read_text(encoding="utf-8")


def examples(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert found
    return found


def test_every_parameter_is_told() -> None:
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    for key in TABLE:
        assert any(f"`{key}`" in row for row in rows), key


def test_python(program: Callable, tmp_path: Path) -> None:
    code = f"import os\nos.chdir({str(tmp_path)!r})\n" + "\n".join(examples("python"))
    done = program([sys.executable, "-c", code])
    of_variable, of_block = done.stdout.splitlines()
    assert re.fullmatch(r"T \(Asked\(mode='abs', eb=0.001\),\) 0.001 \d+\.\d+ \d+", of_variable)
    assert re.fullmatch(r"T 0 0 cusz \d+\.\d+", of_block)


@pytest.mark.parametrize("language", ["xml", "yaml"])
def test_configuration(language: str, program: Callable, tmp_path: Path) -> None:
    (config,) = examples(language)
    (tmp_path / f"config.{language}").write_text(config, encoding="utf-8")
    code = """
import sys
import adios2
import numpy as np
io = adios2.Adios(sys.argv[1]).declare_io("SimulationOutput")
x = np.linspace(0, 1, 5000)
T = io.define_variable("T", x, x.shape, [0], x.shape)
engine = io.open(sys.argv[2], adios2.Mode.Write)
engine.begin_step()
engine.put(T, x)
engine.end_step()
engine.close()
"""
    program([sys.executable, "-c", code, tmp_path / f"config.{language}", tmp_path / "run.bp"])
    (block,) = cusz_operator.inspect_bp(tmp_path / "run.bp")
    assert (block["kind"], block["eb"], block["mode"]) == ("tiled", 1e-3, "abs")


def test_cpp(program: Callable, programs: Path, tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler (Debian: g++)")
    (code,) = examples("cpp")
    (tmp_path / "example.cpp").write_text(code, encoding="utf-8")
    build = tmp_path / "build"
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(example CXX C)\nfind_package(ADIOS2 REQUIRED)\n"
        "add_executable(example example.cpp)\ntarget_link_libraries(example PRIVATE adios2::cxx)\n",
        encoding="utf-8",
    )
    found = next(
        line.split("=", 1)[1]
        for line in (programs / "CMakeCache.txt").read_text(encoding="utf-8").splitlines()
        if line.startswith("ADIOS2_DIR:")
    )
    program(["cmake", "-G", "Ninja", "-S", tmp_path, "-B", build, f"-DADIOS2_DIR={found}"], timeout=300)
    program(["cmake", "--build", build], timeout=300)
    program(["sh", "-c", f"cd '{tmp_path}' && build/example"])
    (block,) = cusz_operator.inspect_bp(tmp_path / "run.bp")
    assert block["kind"] == "tiled"


def test_every_parameter_is_described() -> None:
    for name in ("accuracy", "tolerance", "eb", "mode", "fill", "order", "bins", "backend", "threads"):
        assert f"`{name}`" in TEXT

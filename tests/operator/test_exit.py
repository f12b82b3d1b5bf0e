"""A program with the operator ends as it does without, even if adios2::ADIOS outlives main and what it loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

WHERES = ("local", "global", "static", "leaked", "fork")
WHATS = ("nothing", "write", "read", "both")


@dataclasses.dataclass(frozen=True)
class Ending:
    status: int
    stdout: str


@pytest.fixture(scope="module")
def ending(programs: Path, program: Callable, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ending]:
    """How tests/operator/programs/lifetimes.cpp ends."""
    folders = {kind: tmp_path_factory.mktemp("lifetimes") for kind in ("with", "plain")}

    def run(name: str, where: str, what: str, *, plain: bool) -> Ending:
        if not (programs / name).exists():
            pytest.skip("this ADIOS2 has no MPI for C++")
        folder, last = (folders["plain"], ["plain"]) if plain else (folders["with"], [])
        if what == "read" and not (folder / "read.bp").exists():
            program([programs / "lifetimes", "local", "write", folder, *last])
            (folder / "both.bp").rename(folder / "read.bp")
        done = program([programs / name, where, what, folder, *last], check=False)
        return Ending(done.returncode, done.stdout)

    return run


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("name", "where"),
    [
        *[("lifetimes", where) for where in WHERES],
        *[pytest.param("lifetimes_mpi", where, marks=pytest.mark.mpi) for where in ("global", "leaked")],
    ],
)
def test_the_end_of_a_program(name: str, where: str, ending: Callable[..., Ending]) -> None:
    for what in WHATS:
        plain, with_operator = ending(name, where, what, plain=True), ending(name, where, what, plain=False)
        assert with_operator == plain
        assert plain.stdout == f"{where} {what}: well"
        assert plain.status == 0 or name == "lifetimes_mpi"


PYTHON = """
import sys
import adios2
import numpy as np

adios = adios2.Adios()
io = adios.declare_io("out")
T = np.arange(6000.0).reshape(60, 100)
variable = io.define_variable("T", T, T.shape, [0, 0], T.shape)
plugin = {"PluginName": "cusz", "PluginLibrary": "cusz_operator", "accuracy": "1e-3"}
variable.add_operation(adios.define_operator("cusz", "plugin", plugin))
engine = io.open(sys.argv[1], adios2.Mode.Write)
engine.begin_step()
engine.put(variable, T)
engine.end_step()
if sys.argv[2] == "closed":
    engine.close()
sys.stdout.write("buffered")
sys.modules["kept"] = adios, io, engine
"""


@pytest.mark.parametrize("how", ["closed", "open"])
def test_objects_that_python_never_destroys(how: str, python: Callable, tmp_path: Path) -> None:
    assert python(PYTHON, tmp_path / "kept.bp", how).stdout == "buffered"

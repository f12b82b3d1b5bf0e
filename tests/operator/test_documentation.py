"""Examples in the documentation work as they stand, and the reference pages are complete."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import cusz_core
import cusz_operator
import support
from cusz_core import cli
from cusz_core.parameters import TABLE

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import c_header
import command_line

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "guides/adios2.md").read_text(encoding="utf-8")


def examples(language: str, text: str = TEXT) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert found
    return found


def test_every_parameter_is_told() -> None:
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    for key in (*TABLE, "accuracy", "tolerance", "order"):
        assert any(f"`{key}`" in row for row in rows), key


def test_python(program: Callable, tmp_path: Path) -> None:
    code = f"import os\nos.chdir({str(tmp_path)!r})\n" + "\n".join(examples("python"))
    done = program([sys.executable, "-c", code])
    of_variable, of_block = done.stdout.splitlines()
    assert re.fullmatch(r"T \(Asked\(mode='abs', eb=0.001\),\) 0.001 \d+\.\d+ \d+", of_variable)
    assert re.fullmatch(r"T 0 0 cusz \d+\.\d+", of_block)


def test_python_of_readme(program: Callable, tmp_path: Path) -> None:
    (code,) = examples("python", (DOCS.parent / "README.md").read_text(encoding="utf-8"))
    given = """
import numpy as np
comm, global_shape, offset = None, (20, 30), (0, 0)
u = first = np.random.default_rng(0).random((20, 30)).cumsum(0)
"""
    check = """
with cusz_operator.Reader("run.bp") as run:
    read = run[-1].read("U")
assert 0 < abs(read - first).max() <= 1e-3 * (first.max() - first.min())
assert cusz_core.verify(read, archive).max_error > 0
assert np.array_equal(u, cusz_core.decompress(archive))
"""
    program([sys.executable, "-c", f"{given}{code}{check}"], cwd=tmp_path)


def test_python_to_get_started(program: Callable, tmp_path: Path) -> None:
    """The code blocks of the page, in order, after the setup that they assume."""
    page = (DOCS / "get-started/python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.MULTILINE)
    code = [textwrap.dedent(block).strip() for block in blocks if "pip install" not in block]
    assert len(code) == 4
    given = """
import h5py, numpy as np, xarray
field = np.random.default_rng(0).random((20, 64, 64)).cumsum(0)
np.save("field.npy", field)
comm, simulation, global_shape, offset = None, [field, field], field.shape, (0, 0, 0)
dataset = xarray.Dataset({"T": (("t", "y", "x"), np.concatenate([field] * 4))})
file, t = h5py.File("run.h5", "w"), dataset["T"].values
"""
    check = """
low, high = field.min(), field.max()
assert abs(y - field).max() <= 1e-3 * (high - low)
with cusz_operator.Reader("run.bp") as run:
    assert abs(run[-1].read("U") - field).max() <= 1e-3 * (high - low)
for back in xarray.open_zarr("run.zarr")["T"].values, file["T"][...]:
    assert 0 < abs(back - t).max() <= 1e-3
with xarray.open_dataset("run.nc", engine="h5netcdf") as back:
    assert 0 < abs(back["T"].values - t).max() <= 1e-3
"""
    program([sys.executable, "-c", "\n".join([given, *code, check])], cwd=tmp_path)


def test_python_of_writer_and_reader(program: Callable, tmp_path: Path) -> None:
    page = (DOCS / "guides/writer.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.MULTILINE)
    # The others: constructors alone, and commands.
    writing, restarting, _, reading, _, recording = map(textwrap.dedent, blocks)
    given = """
import numpy as np
comm, global_shape, offset = None, (20, 32, 32), (0, 0, 0)
U = np.random.default_rng(0).random(global_shape).cumsum(0)
simulation = [(U, U - 5)] * 4
"""
    check = """
    for name, given, bound in (("U", U, 1e-3 * (U.max() - U.min())), ("V", U - 5, 1e-4)):
        assert 0 < abs(run[-1].read(name) - given).max() <= bound
"""
    program([sys.executable, "-c", given + writing.rstrip() + check + reading], cwd=tmp_path)
    stream = """
import os
import cusz_operator as cz
if os.fork() == 0:
    with cz.Writer("run", eb=0, engine="SST") as out:
        for u, _ in simulation:
            with out.step():
                out.put("U", u)
    os._exit(0)
"""
    check = "assert [0 < abs(step.read('U') - U).max() <= 1e-2 for step in cz.Reader('run.bp')] == [True] * 4"
    program([sys.executable, "-c", given + stream + recording + check], cwd=tmp_path)
    assert "AppendAfterSteps" in restarting


@pytest.mark.mpi
def test_restarting(mpirun: Callable, tmp_path: Path) -> None:
    """The first of two jobs ends after steps that are computed again, and leaves a part of another one."""
    page = (DOCS / "guides/writer.md").read_text(encoding="utf-8")
    code = textwrap.dedent(page[page.index("    def steps_of") : page.index("- **Steps after the state**")])
    given = """
import contextlib, math, os, sys
import numpy as np
from mpi4py import MPI
import cusz_core, cusz_operator as cz
comm, end = MPI.COMM_WORLD, int(sys.argv[1])
advance = lambda u: (u * 1.1 + 1).astype(np.float32)
whole = np.arange(600, dtype=np.float32).reshape(20, 30)
begin, stop = (20 * (comm.rank + n) // comm.size for n in (0, 1))
global_shape, offset, u = whole.shape, (begin, 0), whole[begin:stop]
"""
    left = """
if comm.rank == 0:
    for path in ("run.bp", "state.bp"):
        with open(path + "/mmd.0", "ab") as file:
            file.write(bytes(10))
"""
    (tmp_path / "job.py").write_text(given + code + left, "utf-8")
    for ranks, end in ((2, 14), (3, 31)):
        mpirun(ranks, str(tmp_path / "job.py"), str(end), cwd=tmp_path, timeout=60)
    cusz_operator.repair(tmp_path / "run.bp")
    u = np.arange(600, dtype=np.float32).reshape(20, 30)
    with cusz_operator.Reader(tmp_path / "run.bp") as run:
        assert [int(step.read("n")) for step in run] == list(range(31))
        for step in run:
            u = (u * 1.1 + 1).astype(np.float32)
            assert not support.violations(u, step.read("u"), 1e-3)


def test_python_of_the_tools(program: Callable, tmp_path: Path) -> None:
    field = np.linspace(0, 1, 5000).reshape(50, 100)
    support.write_run(tmp_path / "run.bp", *({"temperature": field + i} for i in range(3)), eb=1e-3)
    code = "\n".join(examples("python", (DOCS / "guides/tools.md").read_text(encoding="utf-8")))
    program([sys.executable, "-c", code], cwd=tmp_path)
    with cusz_operator.Reader(tmp_path / "smaller.bp") as copy:
        for i, step in enumerate(copy):
            assert step.blocks("temperature")["eb_abs"] == 1e-2
            assert abs(step.read("temperature") - (field + i)).max() <= 1e-2 + 1e-3
    assert len(copy) == 3


@pytest.mark.parametrize("language", ["xml", "yaml"])
def test_configuration(language: str, program: Callable, tmp_path: Path) -> None:
    (config,) = examples(language)
    (tmp_path / f"config.{language}").write_text(config, encoding="utf-8")
    np.save(tmp_path / "T.npy", np.linspace(0, 1, 5000))
    command = [sys.executable, Path(__file__).parent / "ranks" / "configured.py", tmp_path / f"config.{language}"]
    program([*command, "SimulationOutput", tmp_path / "T.npy", tmp_path / "run.bp"])
    block, _ = cusz_operator.inspect_bp(tmp_path / "run.bp")
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


@pytest.mark.parametrize("package", [cusz_core, cusz_operator])
def test_the_api_page_has_every_name(package: ModuleType) -> None:
    page = (DOCS / "reference/api" / f"{package.__name__}.md").read_text(encoding="utf-8")
    documented = set(re.findall(rf"{package.__name__}\.(\w+)", page)) | {"__version__"}
    assert set(package.__all__) <= documented


def test_the_c_page_has_every_declaration() -> None:
    for path in ("cusz_core/include/cusz/cusz.h", "operator/plugin/cusz_operator.h"):
        header = (DOCS.parent / path).read_text(encoding="utf-8")
        page = c_header.markdown(header, 3)
        declared = re.findall(r"^\w+_API [^(]*?(\w+)\(", header, re.M)
        declared += re.findall(r"^typedef (?:enum|struct) (\w+)", header, re.M)
        assert len(declared) > 5
        assert all(re.search(rf"^:+\{{c:\w+\}} .*?\b{name}\b", page, re.M) for name in declared)
        for value in re.findall(r"\b(CUSZ_\w+) = -?\d+\b", header):
            assert f"{{c:enumerator}} {value} = " in page
        comments = " ".join(re.findall(r"\w{4,}", " ".join(re.findall(r"/\*(.*?)\*/", header, re.S))))
        assert set(comments.split()) <= set(re.findall(r"\w{4,}", page.replace("\\_", "_")))


def test_the_page_of_the_command_line_has_every_option_of_every_command() -> None:
    parser = cli.parser()
    commands = command_line.commands(parser)
    assert {"compress", "tune", "config", "check", "diff", "report"} <= set(commands)
    sections = re.split(r"^## ", command_line.markdown(parser, 2), flags=re.MULTILINE)[1:]
    assert len(sections) == len(commands)
    for (name, sub), section in zip(commands.items(), sections, strict=True):
        assert section.startswith(f"cusz {name}\n")
        assert argparse.SUPPRESS not in section
        for action in sub._actions:
            if action.help != argparse.SUPPRESS and action.dest != "help":
                assert all(re.search(rf"`{option}[ `]", section) for option in action.option_strings), (name, action)


def test_what_is_no_declaration_is_refused() -> None:
    with pytest.raises(ValueError, match="what is"):
        c_header.markdown("union { int a; };", 2)

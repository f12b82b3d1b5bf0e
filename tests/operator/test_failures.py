"""Run-time failures are reported clearly, and cost no more than they must."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cusz_operator
import support

LIBRARY = cusz_operator.plugin_path() / "libcusz_operator.so"

# Reads A, B and C of several files, continuing after failures.
READ = """
import sys
import adios2
import support

field = support.smooth((50, 60), support.F32)
for path in sys.argv[1:]:
    with adios2.FileReader(path) as run:
        for name in "ABC":
            try:
                print(name, "violations:", support.violations(field, run.read(name).reshape(field.shape), 1e-3))
            except Exception as error:
                print(name, type(error).__name__, error)
    print("closed")
"""


@pytest.fixture
def file(engine: str, tmp_path: Path) -> Path:
    """A file with the compressed variables A and B, and C, which is not compressed."""
    with pytest.importorskip("other_program").Program(tmp_path / "written.bp", engine) as out, out.step():
        for name, eb in (("A", 1e-3), ("B", 1e-3), ("C", None)):
            out.put(name, support.smooth((50, 60), support.F32), eb=eb, predictor="lorenzo")
    return tmp_path / "written.bp"


def nowhere(tmp_path: Path) -> dict[str, str]:
    """An environment in which ADIOS2 does not find the plugin."""
    (tmp_path / "empty").mkdir(exist_ok=True)
    return {"ADIOS2_PLUGIN_PATH": str(tmp_path / "empty")}


# ------------------------------------------------------------------------------------------ a missing plugin


def test_missing_plugin_when_writing(python: Callable, tmp_path: Path) -> None:
    code = """
import os, sys
import adios2
try:
    adios2.Adios().define_operator("o", "plugin", {"PluginName": "cusz", "PluginLibrary": "cusz_operator"})
except RuntimeError as error:
    print("caught", error)

import cusz_operator
from cusz_operator import PluginError
os.environ["ADIOS2_PLUGIN_PATH"] = sys.argv[1]
try:
    cusz_operator.define_operator(adios2.Adios(), eb=1e-3)
except PluginError as error:
    print("PluginError:", error)
"""
    for path in (str(tmp_path), None):
        done = python(code, tmp_path, env={"ADIOS2_PLUGIN_PATH": path})
        caught, refused = [line for line in done.stdout.splitlines() if line.startswith(("caught", "PluginError"))]
        assert ("operator plugin named cusz" if path else "Failed to load library") in caught
        assert "cannot load its operator plugin 'cusz'" in refused
        assert str(cusz_operator.plugin_path()) in refused
        assert "\x1b" not in refused


@pytest.mark.parametrize("set_path", [True, False])
def test_missing_plugin_when_reading(set_path: bool, file: Path, python: Callable, tmp_path: Path) -> None:
    """Metadata and variables without the operator can be read; a compressed block is a clean error."""
    done = python(READ, file, env={"ADIOS2_PLUGIN_PATH": str(tmp_path) if set_path else None})
    assert done.stdout.count("RuntimeError") == 2
    assert done.stdout.count("operator plugin named cusz" if set_path else "Failed to load library") == 2
    assert "C violations: []" in done.stdout
    assert "closed" in done.stdout


WITHOUT_PLUGIN = """
import sys
import cusz_operator
from cusz_operator import PluginError
calls = [
    cusz_operator.plugin_path,
    lambda: cusz_operator.inspect_bp(sys.argv[1]),
    lambda: cusz_operator.Reader(sys.argv[1]),
    lambda: cusz_operator.define_operator(__import__("adios2").Adios(), eb=1e-3),
]
for call in calls:
    try:
        call()
        print("went well")
    except PluginError as error:
        print("PluginError:", error)
"""


def test_package_without_plugin(file: Path, python: Callable, tmp_path: Path) -> None:
    package = Path(cusz_operator.__file__).parent
    shutil.copytree(package, tmp_path / "site" / package.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    site = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])

    done = python(WITHOUT_PLUGIN, file, env={"PYTHONPATH": site, **nowhere(tmp_path)})
    assert done.stdout.count("PluginError: the ADIOS2 plugin libcusz_operator.so is in none of") == 4
    assert str(tmp_path / "empty") in done.stdout

    # A folder on ADIOS2_PLUGIN_PATH is enough.
    done = python(WITHOUT_PLUGIN, file, env={"PYTHONPATH": site})
    assert done.stdout.count("went well") == 4


def test_two_copies_of_the_plugin_are_refused(file: Path, python: Callable, tmp_path: Path) -> None:
    """The functions of one copy do not know what ADIOS2 does with the other."""
    copy = tmp_path / "copy" / LIBRARY.name
    copy.parent.mkdir()
    shutil.copy(LIBRARY, copy)
    libraries = Path(LIBRARY.parent.parent / "cusz_core")  # the copy finds the compressor where the original does
    code = """
import ctypes, os, sys
import cusz_operator
from cusz_operator import PluginError
if sys.argv[3] == "before":
    ctypes.CDLL(sys.argv[2])
    os.environ["ADIOS2_PLUGIN_PATH"] = os.path.dirname(sys.argv[2])
    ctypes.CDLL(str(cusz_operator.plugin_path() / "libcusz_operator.so"))
blocks = []
try:
    for block in cusz_operator.inspect_bp(sys.argv[1]):
        blocks.append(block["operator"])
        os.environ["ADIOS2_PLUGIN_PATH"] = os.path.dirname(sys.argv[2])
    print(blocks)
except PluginError as error:
    print("PluginError:", error)
"""
    env = {"LD_LIBRARY_PATH": str(libraries)}
    done = python(code, file, copy, "before", env=env)
    assert "PluginError: several copies of the ADIOS2 plugin are loaded" in done.stdout
    assert str(copy) in done.stdout
    assert str(LIBRARY) in done.stdout

    # A single copy works, whichever it is: here ADIOS2 loaded the first one before the variable changed.
    done = python(code, file, copy, "after", env=env)
    assert done.stdout.strip() == "['cusz', 'cusz', 'none or other']"


# ------------------------------------------------------------------------------------------ damaged files


def damage(file: Path, offset: int) -> None:
    """Changes a byte of A's archive, which is the first in the file."""
    support.damage(file / "data.0", offset, 0x20, within=b"cuSZ")


def test_a_damaged_block_is_an_error(file: Path, python: Callable, tmp_path: Path) -> None:
    """In magic, shape, checksum, bound, codebook or payload: no wrong data, and the other blocks can be read."""
    copies = [tmp_path / f"{offset}.bp" for offset in (0, 9, 45, 60, 130, 400)]
    for copy in copies:
        shutil.copytree(file, copy)
        damage(copy, int(copy.stem))
    *of_files, rest = python(READ, *copies).stdout.split("closed\n")
    assert (len(of_files), rest) == (len(copies), "")
    for said in of_files:
        of_a = next(line for line in said.splitlines() if "cannot read a block" in line)
        assert of_a.startswith("A RuntimeError cusz_operator: cannot read a block")
        assert "corrupt archive" in of_a
        for line in ("B violations: []", "C violations: []"):
            assert line in said


def test_inspection_of_what_is_no_bp_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.bp"):
        cusz_operator.inspect_bp(tmp_path / "missing.bp")
    text = tmp_path / "text.bp"
    text.write_text("This is no BP file.\n" * 100, encoding="utf-8")
    with pytest.raises(Exception, match="ADIOS2 cannot open"):
        list(cusz_operator.inspect_bp(text))

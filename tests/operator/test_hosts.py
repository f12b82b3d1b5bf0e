"""One plugin in other programs: every version of ADIOS2 that it serves, and those that it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cusz_operator
import support
from cusz_operator.configuring.files import OperatedVariable, xml

pytestmark = pytest.mark.full  # each version is a download

LIBRARY = cusz_operator.plugin_path() / "libcusz_operator.so"
HERE = Path(__file__).parent

# The wheels of PyPI. 2.10.2.100774 contains the libraries of 2.11; those of 2.10 use the string ABI before C++11.
VERSIONS = ("2.10.0.0", "2.10.1", "2.10.2.100774", "2.11.0.1014", "2.12.1.1001")
OLD_STRINGS = ("2.10.0.0", "2.10.1")
FILES = ("BP5_0_Sync", "BP5_1_Deferred", "BP4_1_Sync", "BP4_0_Deferred")  # engine, StatsLevel, way to put


def sources(version: str, folder: Path) -> list[str]:
    """The arguments of ranks/read.py for this version."""
    # The Python package of 2.10.0.0 cannot query a shape in a stream.
    ways = {file: "stream" if file[4] == "0" and version != "2.10.0.0" else "random" for file in FILES}
    return [f"{how},{file[:3]},{folder / file}.bp" for file, how in ways.items()]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_writes_and_reads(
    version: str, from_pypi: Callable, mpirun: Callable, written: Callable[[int], Path], tmp_path: Path
) -> None:
    """All kinds of variables (ranks/cases.py), exchanged in both directions with the version of this environment."""
    host = from_pypi(f"adios2=={version}")
    said = mpirun(1, "write.py", tmp_path, *(file.replace("_", ",") for file in FILES), env=host.env).stderr
    reports = [line for line in said.splitlines() if "cusz_operator" in line]
    assert len(reports) == 1
    assert "the error bound is given more than once, as 0.001 and 0.002; the stricter one is used" in reports[0]
    for reader, folder, env in (
        (version, tmp_path, host.env),
        ("this", tmp_path, None),
        (version, written(4), host.env),
    ):
        done = mpirun(1, "read.py", *sources(reader, folder), env=env)
        assert done.stdout.count("selections") == len(FILES), (reader, done.stdout)


TROUBLE = """
import sys
import adios2
import numpy as np
import support

folder = sys.argv[1]
Mode = adios2.bindings.Mode
field = support.smooth((50, 60), support.F32)
adios = adios2.Adios()
io = adios.declare_io("output")
engine = io.open(folder + "/trouble.bp", Mode.Write)
engine.begin_step()
plugin = {"PluginName": "cusz", "PluginLibrary": "cusz_operator"}
good = {"accuracy": "1e-3", "predictor": "lorenzo"}
for name, parameters in ("raw", {}), ("wrong", {"accuracy": "fine"}), ("good", good):
    variable = io.define_variable(name, field, field.shape, [0, 0], field.shape)
    variable.add_operation(adios.define_operator(name, "plugin", {**plugin, **parameters}))
    engine.put(variable, field, Mode.Sync)
engine.end_step()
engine.close()

data = open(folder + "/trouble.bp/data.0", "r+b")
bytes_of_file = data.read()
at = bytes_of_file.rfind(b"cuSZ")  # the archive of `good`
assert at > 0
data.seek(at + 400)
data.write(bytes([bytes_of_file[at + 400] ^ 1]))
data.close()

io = adios.declare_io("input")
engine = io.open(folder + "/trouble.bp", Mode.Read)
engine.begin_step()
for name in "raw", "wrong", "good":
    got = np.empty_like(field)
    try:
        engine.get(io.inquire_variable(name), got, Mode.Sync)
        print(name, "same" if got.tobytes() == field.tobytes() else "other")
    except Exception as error:
        print(name, type(error).__name__, error)
try:
    engine.end_step()
    engine.close()
except RuntimeError as error:  # ADIOS2 2.10 tries once more to read what failed
    print(error)
print("ended")
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_mistakes_and_damage(version: str, from_pypi: Callable, python: Callable, tmp_path: Path) -> None:
    """In every version, nothing is thrown on the write path, and reading a damaged block raises an exception."""
    done = python(TROUBLE, tmp_path, env=from_pypi(f"adios2=={version}").env)
    raw, wrong, good, *_, ended = done.stdout.splitlines()
    assert (raw, wrong, ended) == ("raw same", "wrong same", "ended")
    assert re.match(
        r"good RuntimeError cusz_operator: cannot read a block( of variable 'good')?: corrupt archive: ", good
    )
    warnings = sorted(line.partition(": ")[2] for line in done.stderr.splitlines() if line.startswith("cusz_operator"))
    assert len(warnings) == 2
    assert warnings[0].startswith("no error bound is given")
    assert warnings[1].startswith("parameter 'accuracy' = 'fine' is not an error bound")


@pytest.mark.parametrize("version", ["2.10.1", "2.11.0.1014"])
def test_programs_of_other_versions_end_well(
    version: str, from_pypi: Callable, program: Callable, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Like test_exit.py, in C++, also with a global adios2::ADIOS."""
    (adios2,) = from_pypi(f"adios2=={version}").folder.rglob("adios2-config.cmake")
    build = tmp_path_factory.mktemp("build")
    old_strings = "ON" if version in OLD_STRINGS else "OFF"
    options = [f"-DADIOS2_DIR={adios2.parent}", f"-DOLD_STRINGS={old_strings}"]
    program(["cmake", "-G", "Ninja", "-S", HERE / "programs", "-B", build, *options], timeout=300)
    program(["cmake", "--build", build, "--target", "lifetimes"], timeout=600)
    # A wheel of 2.10 parses a configuration in the shared memory of a string: it can be used for one IO only.
    what = "write" if version in OLD_STRINGS else "both"
    for where in ("global", "static", "local"):
        done = program([build / "lifetimes", where, what, build])
        assert done.stdout == f"{where} {what}: well"


# -------------------------------------------------------------------------------------------------- the in-situ layer

LAYER = """
import sys
import adios2
import numpy as np
import cusz_operator
import support

field = support.smooth((20, 30, 40), support.F32)
for engine in ("BP5", "BP4"):
    path = f"{sys.argv[1]}/{engine}.bp"
    support.write_run(path, {"U": field}, eb=1e-3, engine=engine)
    with cusz_operator.Reader(path, None) as run:
        print(engine, support.violations(field, run[0].read("U"), 1e-3))
    with adios2.FileReader(path) as run:
        told = run.available_variables()["U"]
        low_high = (field.min(), field.max()) if engine == "BP5" else (0, 0)
        print([f"{float(told[end]):g}" for end in ("Min", "Max")] == [f"{value:g}" for value in low_high])
    print(*(block["kind"] for block in cusz_operator.inspect_bp(path)))
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_writer_and_reader(version: str, from_pypi: Callable, python: Callable, tmp_path: Path) -> None:
    done = python(LAYER, tmp_path, env=from_pypi(f"adios2=={version}").env, check=False)
    if version in OLD_STRINGS:  # adios2's Python interface cannot put an address there
        assert done.returncode == 1
        assert f"Python's adios2 is {version}, whose interface lacks what is needed here: install 2.11" in done.stderr
        return
    assert done.stdout.splitlines() == ["BP5 []", "True", "tiled", "BP4 []", "True", "tiled"], done.stderr
    assert "cusz_operator" not in done.stderr


# -------------------------------------------------------------------------------------------------------- openPMD-api

OPENPMD = """
import sys
import numpy as np
import openpmd_api
import support

path, access, configuration = sys.argv[1:]
field = support.smooth((20, 30, 40), support.F32)
if access == "write":
    series = openpmd_api.Series(path, openpmd_api.Access.create, configuration)
    series.iterations[0].meshes["E"].axis_labels = ["z", "y", "x"]
    E = series.iterations[0].meshes["E"]["x"]
    E.reset_dataset(openpmd_api.Dataset(field.dtype, field.shape))
    E.store_chunk(field)
    particles = series.iterations[0].particles["electrons"]["position"]["x"]
    particles.reset_dataset(openpmd_api.Dataset(np.dtype(np.float64), [field.size]))
    particles.store_chunk(field.reshape(-1).astype(np.float64))
else:
    series = openpmd_api.Series(path, openpmd_api.Access.read_only)
    mesh = series.iterations[0].meshes["E"]["x"].load_chunk()
    particles = series.iterations[0].particles["electrons"]["position"]["x"].load_chunk()
    series.flush()
    print(support.violations(field, mesh, 1e-3))
    print(support.violations(field.reshape(-1).astype(np.float64), particles, 1e-3))
series.close()
"""

TOML = """
[[adios2.dataset.operators]]
type = "plugin"
[adios2.dataset.operators.parameters]
PluginName = "cusz"
PluginLibrary = "cusz_operator"
accuracy = "1e-3"
"""


@pytest.mark.parametrize("suffix", ["bp", "bp5", "bp4"])
@pytest.mark.parametrize("form", ["json", "toml"])
def test_the_wheel_of_openpmd_api(
    form: str, suffix: str, from_pypi: Callable, python: Callable, tmp_path: Path
) -> None:
    """It contains its own ADIOS2 (2.11.1), linked statically and without exported symbols."""
    host = from_pypi("openpmd-api==0.17.1.post4")
    operator = {"type": "plugin", "parameters": cusz_operator.operator_parameters(eb=1e-3)}
    configuration = TOML if form == "toml" else json.dumps({"adios2": {"dataset": {"operators": [operator]}}})
    file = tmp_path / f"series.{suffix}"
    for access in ("write", "read"):
        done = python(OPENPMD, file, access, configuration, env=host.env)
    assert done.stdout.splitlines() == ["[]", "[]"]
    blocks = {block["variable"]: block for block in cusz_operator.inspect_bp(file)}
    assert blocks["/data/0/meshes/E/x"]["kind"] == "tiled"
    assert blocks["/data/0/particles/electrons/position/x"]["eb_abs"] == 1e-3
    field = support.smooth((20, 30, 40), support.F32)
    with cusz_operator.Reader(file) as run:
        assert not support.violations(field, run["/data/0/meshes/E/x"].read(), 1e-3)
        whole = run["/data/0/particles/electrons/position/x"].read()
        assert not support.violations(field.reshape(-1).astype(np.float64), whole, 1e-3)
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(file, engine="cusz", group="/data/0/meshes") as data:
        assert data["E/x"].dims == ("step", "z", "y", "x")
        assert not support.violations(field, data["E/x"][0].values, 1e-3)


# ------------------------------------------------------------------------------------------------------------ refused


SERVED = r"cusz_operator [0-9.]+ works with ADIOS2 2\.10, 2\.11 and 2\.12, and that in "
REMEDY = "a program built with one of them, or take the operator out of its configuration"


def test_who_is_no_adios2_that_is_served(programs: Path, program: Callable) -> None:
    done = program([programs / "stranger", LIBRARY])
    (line,) = done.stdout.splitlines()
    assert re.fullmatch(f"{SERVED}this program is none of these: use {REMEDY}", line)


@pytest.mark.parametrize(
    ("version", "what"),
    [("2.9.2", "2\\.9: use "), ("2.12.1", "none of these: use "), ("2.13.0", "2\\.13: use a newer cusz, or ")],
)
def test_who_has_a_number_and_no_interface_that_is_known(
    version: str, what: str, programs: Path, program: Callable
) -> None:
    """CUSZ_TRY_ADIOS2 does not help there."""
    for wanted in (None, version.rpartition(".")[0]):
        env = {"CUSZ_TRY_ADIOS2": wanted}
        (line,) = program([programs / "numbered_stranger", LIBRARY, version], env=env).stdout.splitlines()
        assert re.fullmatch(f"{SERVED}this program is {what}{REMEDY}", line)


@pytest.mark.parametrize("version", ["2.13.0", "2.20.1", "3.0.0"])
def test_a_version_that_is_newer_is_refused_unless_it_is_to_be_tried(
    version: str, programs: Path, program: Callable
) -> None:
    """It may expect another object layout, which would crash."""
    newcomer = [programs / "newcomer", LIBRARY, version]
    number = version.rpartition(".")[0]
    (line,) = program(newcomer, env={"CUSZ_TRY_ADIOS2": None}).stdout.splitlines()
    assert re.fullmatch(
        rf"{SERVED}this program is {number}: use a newer cusz, or {REMEDY} \(or try it as 2\.12 with "
        rf"CUSZ_TRY_ADIOS2={number} in the environment, at the risk of a crash or wrong data\)",
        line,
    )
    for wanted in ("", "1", "2.1", "2.99", "2.12"):
        assert program(newcomer, env={"CUSZ_TRY_ADIOS2": wanted}).stdout.splitlines() == [line]
    assert program(newcomer, env={"CUSZ_TRY_ADIOS2": number}).stdout.splitlines() == ["the same"]


@pytest.mark.parametrize("version", ["2.12.0", "2.12.1", "2.12.9"])
def test_what_2_12_does_not_have_is_an_exception(version: str, programs: Path, program: Callable) -> None:
    """A development snapshot after 2.12 has the same number, and may call a function that was added."""
    newcomer = [programs / "newcomer", LIBRARY, version]
    assert program(newcomer).stdout.splitlines() == ["the same"]
    (line,) = program([*newcomer, "+"]).stdout.splitlines()
    assert re.fullmatch(
        f"{SERVED}this program is none of these, as it calls a function of the operator that they do not have: "
        f"use a newer cusz, or {REMEDY}",
        line,
    )


@pytest.fixture(scope="module")
def from_the_future(from_pypi: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the newest tested ADIOS2, whose library claims to be 2.13."""
    version = VERSIONS[-1]
    major, minor, patch = map(int, version.split(".")[:3])
    said, later = (struct.pack("<3i", patch, number, major) for number in (minor, 13))
    folder = tmp_path_factory.mktemp("future") / "packages"
    shutil.copytree(from_pypi(f"adios2=={version}").folder, folder)
    for library in folder.glob("adios2/libadios2_core.so*"):
        content = library.read_bytes()
        text = version.encode() + b"\0"  # adios2_version_str; the numbers follow it
        assert content.count(text + said) == 1
        library.write_bytes(content.replace(text + said, text + later))
    return folder


FUTURE = """
import sys
import adios2
import cusz_operator
import support
from cusz_core import CuszError

folder = sys.argv[1]
field = support.smooth((20, 30, 40), support.F32)

def define():
    cusz_operator.define_operator(adios2.Adios(), eb=1e-3)
    return "well"

def write():
    support.write_run(f"{folder}/new.bp", {"U": field}, eb=1e-3)
    return "well"

def read(engine):
    with cusz_operator.Reader(f"{folder}/{engine}.bp", None) as run:
        assert not support.violations(field, run[0].read("U"), 1e-3)
    return "well"

for what in (define, write, lambda: read("BP5"), lambda: read("BP4")):
    try:
        print(what())
    except CuszError as error:
        print(error)
"""

CONFIGURED = """
import sys
import adios2
import support

adios = adios2.Adios(sys.argv[1])
field = support.smooth((20, 30, 40), support.F32)
adios.declare_io("output").define_variable("U", field, field.shape, [0, 0, 0], field.shape)
print("well")
"""


def test_a_package_that_is_newer(from_the_future: Path, python: Callable, tmp_path: Path) -> None:
    """BP5 files of a Writer are read without ADIOS2's help; everything else is refused, or tried."""
    for engine in ("BP5", "BP4"):
        field = support.smooth((20, 30, 40), support.F32)
        support.write_run(tmp_path / f"{engine}.bp", {"U": field}, eb=1e-3, engine=engine)
    configuration = tmp_path / "adios2.xml"
    operated = OperatedVariable("U", {"accuracy": 1e-3})
    configuration.write_text(xml("output", "BP5", [operated]), encoding="utf-8")

    env = {"PYTHONPATH": os.pathsep.join([str(from_the_future), str(HERE.parent)]), "CUSZ_TRY_ADIOS2": None}
    refused = f"{SERVED}{re.escape(str(from_the_future))}/adios2/libadios2_core\\.so[0-9.]* is 2\\.13: use "
    define, write, from_bp5, from_bp4 = python(FUTURE, tmp_path, env=env).stdout.splitlines()
    assert re.match(refused, define)
    assert re.match("cannot write .*: rank 0: " + refused, write)
    assert from_bp5 == "well"
    assert re.match("ADIOS2 cannot read 'U' of .*: " + refused, from_bp4)
    configured = python(CONFIGURED, configuration, env=env, check=False)
    assert configured.returncode in (1, -signal.SIGABRT)
    assert re.search(refused, configured.stderr)

    tried = {**env, "CUSZ_TRY_ADIOS2": "2.13"}
    assert python(FUTURE, tmp_path, env=tried).stdout.splitlines() == ["well"] * 4
    assert python(CONFIGURED, configuration, env=tried).stdout == "well\n"

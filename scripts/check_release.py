#!/usr/bin/env python3
"""Checks a release from its files alone, as seen by users without a checkout or a compiler.

    scripts/check_release.py dist/*

Every wheel is installed, with its dependencies from PyPI, into a fresh virtual environment of the Python that it is
for, which has to be on PATH as pythonX.Y (pythonX.Yt: without a GIL). There, with nothing else on PATH, a field goes
through every interface: the core, the command line, the ADIOS2 plugin, the HDF5 filter, Zarr. Versions and licences are
checked in the files. Prints a line for each check; the exit status is 1 if one of them failed. Uses only Python's
standard library.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path

#: Licence files that a wheel must contain, and a name that each must mention.
LICENCES = {
    "LICENSE": "The cusz authors",
    "LICENSE.nanobind": "Wenzel Jakob",
    "LICENSE.robin-map": "Thibaut",
    "LICENSE.zstd": "Meta Platforms",
}
#: Files that a source distribution must contain besides the sources.
FOR_TESTS = (
    "LICENSE",
    "CITATION.cff",
    "CHANGELOG.md",
    "tests/conftest.py",
    "tests/golden/test_golden.py",
    "scripts/setup",
)
EXTRAS = ("adios", "hdf5", "zarr", "xarray")
FOREIGN = ("PYTHON", "LD_", "ADIOS2", "CUSZ", "CMAKE", "HDF5", "VIRTUAL_ENV", "PIP_CONSTRAINT")

#: The code that every door begins with. Fractions check the bound in exact arithmetic.
COMMON = """
import os, subprocess, sys
from fractions import Fraction
import numpy as np

EB = 1e-3
def field(dtype):
    t = np.linspace(0, 3, 24)
    x = np.sin(t[:, None, None]) + np.cos(2 * t[None, :, None]) * t[None, None, :]
    return np.ascontiguousarray(x, dtype)

def check(x, y):
    assert (y.shape, y.dtype) == (x.shape, x.dtype), (y.shape, y.dtype)
    eb = Fraction(EB)
    wrong = [(a, b) for a, b in zip(x.flat, y.flat) if abs(Fraction(float(a)) - Fraction(float(b))) > eb]
    assert not wrong, f"{len(wrong)} values break the bound: {wrong[:3]}"

def alone(code, *words):
    # In a process that imports nothing of cusz by itself.
    subprocess.run([sys.executable, "-c", code, *words], check=True)
"""

DOORS = {
    "core": """
import cusz_core
for dtype in ("f4", "f8"):
    for options in ({}, {"lossless": "zstd"}, {"predictor": "lorenzo"}, {"predictor": "spline"}):
        x = field(dtype)
        archive = cusz_core.compress(x, EB, **options)
        assert len(archive) < x.nbytes / 2
        check(x, cusz_core.decompress(archive))
        cusz_core.verify(x, archive)
site = os.path.realpath(sys.prefix)
assert os.path.realpath(cusz_core.__file__).startswith(site), cusz_core.__file__
""",
    "command line": """
x = field("f4")
np.save("u.npy", x)
for words in (
    "compress u.npy --eb 0.001",
    "inspect u.npy.cusz",
    "verify u.npy u.npy.cusz",
    "decompress u.npy.cusz -o v.npy",
):
    subprocess.run(["cusz", *words.split()], check=True, stdout=subprocess.DEVNULL)
check(x, np.load("v.npy"))
""",
    "ADIOS2 plugin": """
import adios2, cusz_operator
x = field("f8")
adios = adios2.Adios()
io = adios.declare_io("out")
variable = io.define_variable("u", x, x.shape, [0] * x.ndim, x.shape)
variable.add_operation(cusz_operator.define_operator(adios, eb=EB))
engine = io.open("run.bp", adios2.Mode.Write)
engine.begin_step()
engine.put(variable, x, adios2.Mode.Sync)
engine.end_step()
engine.close()
(block,) = cusz_operator.inspect_bp("run.bp")
assert block["ratio"] > 2, block
os.environ["ADIOS2_PLUGIN_PATH"] = str(cusz_operator.plugin_path())
alone('''
import adios2, numpy, sys
io = adios2.Adios().declare_io("in")
engine = io.open("run.bp", adios2.Mode.ReadRandomAccess)
variable = io.inquire_variable("u")
y = numpy.empty(variable.shape())
engine.get(variable, y, adios2.Mode.Sync)
engine.close()
assert not [name for name in sys.modules if name.startswith("cusz")]
numpy.save("back.npy", y)
''')
check(x, np.load("back.npy"))
""",
    "HDF5 filter": """
import h5py
from cusz_core import hdf5
x = field("f4")
with h5py.File("run.h5", "w") as file:
    file.create_dataset("u", data=x, chunks=(10, 11, 12), **hdf5.Cusz(EB))
    assert file["u"].id.get_storage_size() < x.nbytes / 2
os.environ["HDF5_PLUGIN_PATH"] = str(hdf5.plugin_path())
alone('''
import h5py, numpy, sys
with h5py.File("run.h5") as file:
    y = file["u"][...]
assert not [name for name in sys.modules if name.startswith("cusz")]
numpy.save("back.npy", y)
''')
check(x, np.load("back.npy"))
""",
    "Zarr": """
import zarr
READ = '''
import numpy, sys, zarr
assert not [name for name in sys.modules if name.startswith("cusz")]
numpy.save("back.npy", zarr.open_array(sys.argv[1], mode="r")[...])
'''
from cusz_core.numcodecs import Cusz
has_format_3 = int(zarr.__version__.partition(".")[0]) >= 3
for dtype in ("f4", "f8"):
    x = field(dtype)
    options = {"shape": x.shape, "chunks": (10, 11, 12), "dtype": dtype}
    of_format_2 = {"zarr_format": 2} if has_format_3 else {}
    array = zarr.open_array("2.zarr", mode="w", compressor=Cusz(EB), **options, **of_format_2)
    array[...] = x
    alone(READ, "2.zarr")
    check(x, np.load("back.npy"))
    if has_format_3:  # zarr for Python 3.10 has not
        from cusz_core.zarr import CuszCodec
        of_format_3 = {"serializer": CuszCodec(EB), "compressors": None, "overwrite": True}
        array = zarr.create_array("3.zarr", **options, **of_format_3)
        array[...] = x
        alone(READ, "3.zarr")
        check(x, np.load("back.npy"))
""",
}

VERSIONS = """
import importlib.metadata, subprocess, cusz_core
assert importlib.metadata.version("cusz") == cusz_core.__version__, importlib.metadata.version("cusz")
print(cusz_core.__version__)
"""


class CheckFailedError(Exception):
    """A failed check; the message says what was found."""


def require(condition: object, found: str) -> None:
    if not condition:
        raise CheckFailedError(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="wheels, and a source distribution")
    parser.add_argument("--files-only", action="store_true", help="look into the files, but install nothing")
    asked = parser.parse_args()
    ok = True

    def check(name: str, do: Callable[[], str]) -> bool:
        nonlocal ok
        try:
            print(f"ok      {name}: {do()}", flush=True)
        except (CheckFailedError, OSError, tarfile.TarError, zipfile.BadZipFile) as error:
            print(f"FAILED  {name}: {error}", flush=True)
            ok = False
            return False
        return True

    versions = set()
    for file in asked.files:
        found = re.fullmatch(r"cusz-([0-9.]+?)(\.tar\.gz|-(cp3\d+)-(cp3\d+t?)-(\w+)\.whl)", file.name)
        if found is None:
            check(file.name, lambda: fail("this is neither a wheel of cusz nor its source distribution"))
            continue
        versions.add(found[1])
        if found[2] == ".tar.gz":
            check(file.name, lambda file=file, version=found[1]: source_distribution(file, version))  # type: ignore[misc]
            continue
        is_good = check(file.name, lambda file=file, version=found[1]: wheel(file, version))  # type: ignore[misc]
        if is_good and not asked.files_only:
            install_and_use(file.resolve(), found[1], f"python3.{found[4].removeprefix('cp3')}", check)
    if len(versions) > 1:
        check("versions", lambda: fail(f"the files are of several releases: {', '.join(sorted(versions))}"))
    return 0 if ok else 1


def fail(found: str) -> str:
    raise CheckFailedError(found)


def source_distribution(file: Path, version: str) -> str:
    top = f"cusz-{version}/"
    with tarfile.open(file) as opened:
        names = opened.getnames()
        require(all(name.startswith(top) for name in names), f"not all of it is in {top}")
        missing = [name for name in FOR_TESTS if top + name not in names]
        require(not missing, f"it has no {', '.join(missing)}")

        def text(name: str) -> str:
            member = opened.extractfile(top + name)
            return "" if member is None else member.read().decode()

        same_version(text("PKG-INFO"), version)
        stated = re.search(r"project\(cusz VERSION ([0-9.]+)", text("CMakeLists.txt"))
        require(stated and stated[1] == version, f"CMakeLists.txt has version {stated and stated[1]}")
        dated = re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", text("CHANGELOG.md"), re.MULTILINE)
        require(dated, f"CHANGELOG.md has no dated section for {version}")
        require(f"\nversion: {version}\n" in text("CITATION.cff"), f"CITATION.cff is not of {version}")
    return f"version {version}, {len(names)} files with tests"


def wheel(file: Path, version: str) -> str:
    with zipfile.ZipFile(file) as opened:
        info = f"cusz-{version}.dist-info"
        names = opened.namelist()
        require(f"{info}/METADATA" in names, f"it has no {info}/METADATA")
        same_version(opened.read(f"{info}/METADATA").decode(), version)
        for licence, holder in LICENCES.items():
            name = f"{info}/licenses/{licence}"
            require(name in names, f"it has no {name}")
            require(holder in opened.read(name).decode(), f"{name} does not name {holder}")
        require("manylinux" in file.name, "it is for one distribution only: let auditwheel repair it (scripts/wheels)")
    return f"version {version}, {len(LICENCES)} licences"


def same_version(metadata: str, version: str) -> None:
    stated = HeaderParser().parsestr(metadata)["Version"]
    require(stated == version, f"its metadata have version {stated}, its name {version}")


def install_and_use(file: Path, version: str, python: str, check: Callable[[str, Callable[[], str]], bool]) -> None:
    """Installs a wheel into an empty environment, and goes through every door."""
    with tempfile.TemporaryDirectory(prefix="cusz-release-") as folder:
        venv, name = Path(folder) / "venv", f"{file.name}, {python}"
        env = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
        env |= {"PATH": str(venv / "bin"), "VIRTUAL_ENV": str(venv), "PYTHONNOUSERSITE": "1"}

        def run(*words: str | Path) -> str:
            done = subprocess.run(
                [str(word) for word in words],
                cwd=folder,
                env=env,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            require(done.returncode == 0, f"exit status {done.returncode}\n{done.stdout.rstrip()}")
            return done.stdout

        def install() -> str:
            interpreter = shutil.which(python)
            require(interpreter, f"there is no {python} on PATH")
            run(str(interpreter), "-m", "venv", venv)
            found = [
                tool for tool in ("cc", "c++", "gcc", "g++", "clang", "cmake") if shutil.which(tool, path=env["PATH"])
            ]
            require(not found, f"there are compilers: {found}")
            pip = [venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run(*pip, "--only-binary", ":all:", f"{file}[{','.join(EXTRAS)}]")
            return f"installed with {', '.join(EXTRAS)}, without compilers"

        if not check(name, install):
            return

        def of_library() -> str:
            found = run(venv / "bin/python", "-c", VERSIONS).strip()
            require(found == version, f"the library's version is {found}, the file's {version}")
            return f"the library says {version}, too"

        check(f"{name}, version", of_library)
        for door, code in DOORS.items():
            check(f"{name}, {door}", lambda code=code: through(run, venv, code))  # type: ignore[misc]


def through(run: Callable[..., str], venv: Path, code: str) -> str:
    run(venv / "bin/python", "-c", COMMON + code)
    return "within the bound"


if __name__ == "__main__":
    sys.exit(main())

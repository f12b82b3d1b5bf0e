"""The wheels of scripts/wheels, installed without a compiler; and the source distribution."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import adios2
import numpy as np
import pytest

import support
from support import F32, F64, output

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build/wheels"  # where scripts/wheels builds
EB = 1e-3
PLUGIN = "cusz_operator/libcusz_operator.so"


# ------------------------------------------------------------------------------------------- source distribution


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files of the source distribution, relative to its folder."""
    folder = tmp_path_factory.mktemp("sdist")
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, check=True)
    (archive,) = folder.glob("cusz-*.tar.gz")
    assert archive.stat().st_size < 2_500_000
    with tarfile.open(archive) as opened:
        return [name.partition("/")[2] for name in opened.getnames()]


def test_the_sdist_has_what_git_has_and_no_more(sdist: list[str]) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git")
    tracked = output("git", "-C", ROOT, "ls-files", "-z").split("\0")
    folders = ("cusz_core/", "operator/", "apps/", "scripts/", "tests/")
    files = r"docs/[^/]*\.(md|py)|docs/([^/]*/)+[^/]*\.md|[^/]*\.md"
    wanted = {name for name in tracked if name.startswith(folders) or re.fullmatch(files, name)}
    assert set(sdist) == wanted | {"CITATION.cff", "CMakeLists.txt", "LICENSE", "PKG-INFO", "pyproject.toml"}


# -------------------------------------------------------------------------------------------------------- wheels


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What scripts/wheels makes for this Python: the wheel, and the script's output."""
    folder = tmp_path_factory.mktemp("dist")
    said = output(ROOT / "scripts/wheels", "--output", folder)
    (wheel,) = folder.glob("*.whl")
    assert sorted(folder.iterdir()) == sorted([wheel, *folder.glob("cusz-*.tar.gz")])
    return wheel, said


@pytest.fixture(scope="module")
def without_compilers(made: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of a process in a fresh virtual environment, which has the wheel and PyPI's ADIOS2 and is
    alone on PATH."""
    venv = tmp_path_factory.mktemp("fresh") / "venv"
    output(sys.executable, "-m", "venv", venv)
    foreign = ("PYTHON", "LD_", "ADIOS2", "CUSZ", "CMAKE", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    env |= {**support.MPI_ENVIRONMENT, "PATH": str(venv / "bin"), "VIRTUAL_ENV": str(venv)}
    assert not any(shutil.which(name, path=env["PATH"]) for name in ("cc", "c++", "gcc", "g++", "cmake", "ninja"))
    pip = [venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]

    wanted = f"adios2=={adios2.__version__}.*"  # PyPI's versions have a fourth number
    command = [str(word) for word in [*pip, "--only-binary", ":all:", wanted, "numpy"]]
    installed = subprocess.run(command, env=env, text=True, capture_output=True, check=False)
    if installed.returncode != 0:
        support.not_installed(wanted, installed.stderr)
    output(*pip, "--no-index", f"{made[0]}[adios]", env=env)  # all its dependencies are installed by now
    return env


ROUND_TRIP = """
import json, sys
from pathlib import Path
import adios2
import numpy as np
import cusz_core, cusz_operator

folder, eb = Path(sys.argv[1]), float(sys.argv[2])
fields = np.load(folder / "fields.npz")
adios = adios2.Adios()
operator = cusz_operator.define_operator(adios, eb=eb)
io = adios.declare_io("output")
engine = io.open(str(folder / "run.bp"), adios2.Mode.Write)
engine.begin_step()
for name in fields.files:
    u = fields[name]
    variable = io.define_variable(name, u, u.shape, [0] * u.ndim, u.shape)
    variable.add_operation(operator)
    engine.put(variable, u, adios2.Mode.Sync)
engine.end_step()
engine.close()

back = {}
io = adios.declare_io("input")
engine = io.open(str(folder / "run.bp"), adios2.Mode.ReadRandomAccess)
for name in fields.files:
    back[name] = np.empty_like(fields[name])
    engine.get(io.inquire_variable(name), back[name], adios2.Mode.Sync)
engine.close()
for name in fields.files:
    archive = cusz_core.compress(fields[name], eb, lossless="zstd")
    back[name + " zstd"] = cusz_core.decompress(archive)
np.savez(folder / "back.npz", **back)

loaded = {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
blocks = cusz_operator.inspect_bp(str(folder / "run.bp"))
print(json.dumps({
    "loaded": sorted(path.strip() for path in loaded),
    "ratios": {block["variable"]: block["ratio"] for block in blocks},
}))
"""


@pytest.fixture(scope="module")
def run(
    without_compilers: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, np.ndarray]]:
    """The folder of a file written by the wheel with PyPI's ADIOS2, and the original fields."""
    folder = tmp_path_factory.mktemp("run")
    fields = {"a": support.smooth((20, 30, 40), F32), "b": support.smooth((1000,), F64)}
    np.savez(folder / "fields.npz", **fields)
    python = Path(without_compilers["PATH"]) / "python"
    (folder / "said.json").write_text(output(python, "-c", ROUND_TRIP, folder, str(EB), env=without_compilers))
    return folder, fields


@pytest.mark.full
def test_a_wheel_has_the_plugin_and_licences(made: tuple[Path, str]) -> None:
    wheel, said = made
    assert "cusz wheel: operator plugin yes, HDF5 filter yes, CUDA no, zstd yes" in said
    tag = re.search(r"manylinux_2_(\d+)", wheel.name)
    assert tag
    assert f"needs glibc 2.{tag[1]} or newer" in said
    names = zipfile.ZipFile(wheel).namelist()
    assert {PLUGIN, "cusz_core/hdf5_plugin/libcusz_hdf5.so"} <= set(names)
    (entry_points,) = (name for name in names if name.endswith("/entry_points.txt"))
    assert "check = cusz_operator.commands:CHECK" in zipfile.ZipFile(wheel).read(entry_points).decode()
    assert not [name for name in names if "adios2" in name.lower() and not name.endswith(".py")]
    assert len([name for name in names if name.startswith("cusz.libs/") and not name.endswith("/")]) == 1  # zstd
    licences = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
    assert {"LICENSE", "LICENSE.nanobind", "LICENSE.robin-map", "LICENSE.zstd"} <= licences
    for name, holder in {"nanobind": "Wenzel Jakob", "robin-map": "Thibaut", "zstd": "Meta Platforms"}.items():
        (file,) = (file for file in names if file.endswith(f"/LICENSE.{name}"))
        assert holder in zipfile.ZipFile(wheel).read(file).decode()


@pytest.mark.full
def test_a_release_is_checked_from_its_files(made: tuple[Path, str], without_compilers: dict[str, str]) -> None:
    """It needs PyPI, which is reachable if `without_compilers` could be made."""
    files = sorted(made[0].parent.iterdir())
    said = output(sys.executable, ROOT / "scripts/check_release.py", *files)
    assert "FAILED" not in said
    doors = ("version", "core", "command line", "ADIOS2 plugin", "HDF5 filter", "Zarr")
    for door in doors:
        assert re.search(rf"^ok      {re.escape(made[0].name)}, python3\.\d+, {door}: ", said, re.MULTILINE), door
    assert len(said.splitlines()) == len(files) + 1 + len(doors)


@pytest.mark.full
def test_the_tests_of_a_source_distribution_run_in_it(made: tuple[Path, str], tmp_path: Path) -> None:
    (sdist,) = made[0].parent.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # not in 3.11.2
        opened.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    pytest_there = [sys.executable, "-m", "pytest", "-q", "--rootdir", folder]
    found = output(*pytest_there, "--collect-only", folder / "tests", env=env)
    assert re.search(r"^\d+/\d+ tests collected", found, re.MULTILINE), found
    # tests that need archives, sources that are compiled, and documents
    compiled = "reference/test_format_v2_library.py::test_heads_are_read_and_written_alike"
    names = [f"{folder}/tests/{name}" for name in ("golden", compiled, "unit/test_parameters.py")]
    said = output(*pytest_there, *names, env=env)
    assert re.search(r"^\d+ passed", said, re.MULTILINE), said


@pytest.mark.full
def test_a_wheel_works_with_the_adios2_of_pypi(
    run: tuple[Path, dict[str, np.ndarray]], without_compilers: dict[str, str]
) -> None:
    folder, fields = run
    said = json.loads((folder / "said.json").read_text())
    back = np.load(folder / "back.npz")
    assert set(said["ratios"]) == set(fields)
    for name, field in fields.items():
        assert said["ratios"][name] > 2
        for got in (back[name], back[f"{name} zstd"]):
            assert not support.violations(field, got, EB)
    venv = without_compilers["VIRTUAL_ENV"]
    code = 'eval "$(cusz config --environment)" && cusz check "$1"'
    checked = output("/bin/sh", "-c", code, "sh", folder / "run.bp", env=without_compilers)
    assert "no problems found" in checked  # printed by a command from an entry point
    own = [path for path in said["loaded"] if re.search(r"libcusz_|_native\.|cusz\.libs/libzstd", path)]
    assert len(own) == 4
    assert all(path.startswith(venv) for path in own), own


@pytest.mark.full
def test_bpls_of_another_adios2_uses_the_plugin_of_a_wheel(
    run: tuple[Path, dict[str, np.ndarray]], without_compilers: dict[str, str]
) -> None:
    bpls = Path(sys.executable).parent / "bpls"
    if not bpls.exists():
        pytest.skip("this ADIOS2 was installed without bpls")
    folder, fields = run
    back = np.load(folder / "back.npz")
    for name, field in fields.items():
        dump = [bpls, folder / "run.bp", "--dump", name, "--noindex", "--columns", "1", "--format", "%.17g"]
        code = 'eval "$(cusz config --environment)" && exec "$@"'
        lines = output("/bin/sh", "-c", code, "sh", *dump, env=without_compilers).splitlines()
        values = [line for line in map(str.strip, lines) if re.fullmatch(r"[-+.0-9e]+", line)]
        shown = np.array(values, np.float64).astype(field.dtype).reshape(field.shape)
        assert support.same_bits(shown, back[name])


def rebuilt(folder: Path, *options: str) -> tuple[Path, str]:
    """A wheel built from the source distribution in the build folder of scripts/wheels, and what CMake prints."""
    (source,) = WORK.glob("cusz-*/")
    command = [sys.executable, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "-w", folder]
    settings = [f"build-dir={WORK}/build-{sys.implementation.cache_tag}", "cmake.define.CUSZ_USE_CUDA=OFF", *options]
    said = output(*command, *(f"--config-settings={setting}" for setting in settings), source)
    (wheel,) = folder.glob("*.whl")
    return wheel, said


@pytest.mark.full
def test_without_the_plugin_only_if_one_says_so(made: tuple[Path, str], tmp_path: Path) -> None:
    wheel, said = rebuilt(tmp_path / "without", "cmake.define.CUSZ_BUILD_OPERATOR=OFF")
    assert "cusz wheel: operator plugin no, HDF5 filter yes, CUDA no, zstd yes" in said
    assert PLUGIN not in zipfile.ZipFile(wheel).namelist()
    site = tmp_path / "site"
    output(sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", site, wheel)
    env = {**os.environ, "PYTHONPATH": str(site), "ADIOS2_PLUGIN_PATH": ""}
    refused = output(sys.executable, "-c", "import cusz_operator; cusz_operator.plugin_path()", env=env, ok=False)
    assert f"PluginError: the ADIOS2 plugin libcusz_operator.so is in none of {site / 'cusz_operator'}" in refused
    assert "installed without it (CUSZ_BUILD_OPERATOR=OFF)" in refused

    # The build folder remembers that, but a later build must not be affected.
    wheel, said = rebuilt(tmp_path / "with")
    assert "cusz wheel: operator plugin yes, HDF5 filter yes, CUDA no, zstd yes" in said
    assert PLUGIN in zipfile.ZipFile(wheel).namelist()

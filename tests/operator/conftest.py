"""Shared by the tests of the operator: ranks, subprocesses, compiled programs, a second ADIOS2."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import cusz_operator
import support
from support import MPI_ENVIRONMENT, locked, not_installed

HERE = Path(__file__).parent
RANKS = HERE / "ranks"
sys.path.insert(0, str(RANKS))  # for `import cases`

Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """An environment in which programs find the plugin and the modules that the tests share."""
    result = {**os.environ, **MPI_ENVIRONMENT, "ADIOS2_PLUGIN_PATH": str(cusz_operator.plugin_path())}
    result["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    folders = [str(HERE.parent), str(RANKS), os.environ.get("PYTHONPATH")]
    result["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    for name, value in (changes or {}).items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def run(
    command: Sequence[str | Path], *, env: Mapping[str, str | None] | None = None, check: bool = True, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; fails the test with its output if it fails, unless check is False."""
    return support.run(command, status=0 if check else None, env=environment(env), **{"timeout": 120, **options})


def mpirun_command(ranks: int, script: str, *arguments: str | Path) -> list[str | Path]:
    if shutil.which("mpirun") is None:
        pytest.fail("mpirun is not on PATH: scripts/setup installs Open MPI (Debian: openmpi-bin)")
    return ["mpirun", "-n", str(ranks), sys.executable, RANKS / script, *arguments]


@pytest.fixture(params=["BP5", "BP4"])
def engine(request: pytest.FixtureRequest) -> Any:
    """Runs a test once for each engine that writes files."""
    return request.param


@pytest.fixture
def plugin_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a user who has done what the documentation says."""
    monkeypatch.setattr("cusz_operator.plugin._SEARCHED_BY_OTHERS", str(cusz_operator.plugin_path()))


@pytest.fixture(scope="session")
def program() -> Run:
    """Runs a command: program([name, argument, ...], env=..., cwd=..., timeout=..., check=...)."""
    return run


@pytest.fixture(scope="session")
def python() -> Run:
    """Runs Python code in a separate process: python(code, arguments..., env=..., timeout=..., check=...)."""

    def run_code(code: str, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return run([sys.executable, "-c", code, *arguments], **options)

    return run_code


@pytest.fixture(scope="session")
def mpirun() -> Run:
    """Runs a script of ranks/: mpirun(ranks, script, arguments..., env=..., timeout=..., check=...)."""

    def run_ranks(ranks: int, script: str, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return run(mpirun_command(ranks, script, *arguments), **options)

    return run_ranks


@pytest.fixture(scope="session")
def require_right() -> Callable[[Path, int], int]:
    """Checks what ranks/faults.py wrote, with the Reader and with plain ADIOS2, in a separate process.

    Fails if anything is wrong or there are fewer than `steps` steps; returns how many there are."""

    def read(path: Path, steps: int) -> int:
        command = [sys.executable, RANKS / "faults.py", "check", path, str(steps)]
        n, *found = run(command, timeout=60).stdout.splitlines()
        assert not found, found
        return int(n)

    return read


@pytest.fixture(scope="session")
def bpls() -> str:
    """The path of bpls."""
    path = shutil.which("bpls", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if path is None:
        pytest.skip("this ADIOS2 was installed without bpls")
    return path


@pytest.fixture(scope="session")
def shown_by_bpls(bpls: str) -> Callable[[Path, str, int], list[str]]:
    """shown_by_bpls(file, name, ndim): the values of a variable at its first step, as bpls prints them."""

    def shown(file: Path, name: str, ndim: int) -> list[str]:
        assert name in run([bpls, "--long", file]).stdout
        box = ["--start", ",".join("0" * (ndim + 1)), "--count", ",".join(["1", *["-1"] * ndim])]
        dump = ["--dump", name, *box, "--noindex", "--columns", "1", "--format", "%.17g"]
        lines = (line.strip() for line in run([bpls, file, *dump]).stdout.splitlines())
        return [line for line in lines if line and name not in line and "slice" not in line]

    return shown


@pytest.fixture
def start_ranks() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a script of ranks/ without waiting for it; kills it if it still runs after the test."""
    jobs: list[subprocess.Popen[str]] = []

    def start(ranks: int, script: str, *arguments: str | Path) -> subprocess.Popen[str]:
        command = [str(word) for word in mpirun_command(ranks, script, *arguments)]
        job = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        jobs.append(job)
        return job

    yield start
    for job in jobs:
        with job:  # closes its pipe and waits for it
            job.kill()


@pytest.fixture(scope="session")
def together() -> Callable[..., list[str]]:
    """Waits for concurrent processes, which must all succeed: together([...], timeout=...) -> outputs."""

    def wait(processes: Sequence[subprocess.Popen[str]], timeout: float = 120) -> list[str]:
        try:
            outputs = [process.communicate(timeout=timeout)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        for process, output in zip(processes, outputs, strict=True):
            assert process.returncode == 0, output
        return outputs

    return wait


@pytest.fixture(scope="session")
def adios2_prefix() -> Path:
    """Prefix of the ADIOS2 that scripts/setup chose."""
    pointed_at = Path(sys.prefix) / ".adios2-dir"  # left by scripts/setup with CUSZ_ADIOS2_DIR
    return Path(pointed_at.read_text(encoding="utf-8")) if pointed_at.is_file() else Path(sys.prefix)


@pytest.fixture(scope="session")
def programs(adios2_prefix: Path) -> Path:
    """The folder with the compiled programs of programs/; builds them if necessary."""
    build = HERE.parents[1] / "build" / "operator-tests"
    prefixes = [os.environ.get("CMAKE_PREFIX_PATH", ""), sys.prefix, str(adios2_prefix)]
    configure = ["cmake", "-G", "Ninja", "-S", HERE / "programs", "-B", build, "-DCMAKE_CXX_FLAGS=-O1"]
    configure.append(f"-DCMAKE_PREFIX_PATH={';'.join(filter(None, prefixes))}")
    with locked(build):
        if run(configure, timeout=300, check=False).returncode != 0:
            shutil.rmtree(build, ignore_errors=True)  # the checkout or ADIOS2 may have moved
            run(configure, timeout=300)
        run(["cmake", "--build", build], timeout=600)
    return build


@dataclasses.dataclass(frozen=True)
class PyPI:
    """A PyPI package in its own folder.

    Attributes:
        folder: where it was installed, without its dependencies.
        env: makes this Python import it.
    """

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join([str(self.folder), str(HERE.parent)])}


@pytest.fixture(scope="session")
def from_pypi() -> Callable[[str], PyPI]:
    """from_pypi("adios2==2.10.1"): that wheel, kept in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cusz"

    def install(requirement: str) -> PyPI:
        folder = cache / f"{requirement.replace('==', '-')}-{sys.implementation.cache_tag}-{os.uname().machine}"
        with locked(folder):
            if not folder.exists():
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
                with tempfile.TemporaryDirectory(dir=folder.parent) as half_done:
                    command = [*pip, "--only-binary", ":all:", "--target", half_done, requirement]
                    installed = run(command, timeout=600, check=False)
                    if installed.returncode != 0:
                        not_installed(requirement, installed.stderr)
                    Path(half_done).rename(folder)
        return PyPI(folder)

    return install


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """written(ranks): the folder with the files that ranks/write.py writes on that many ranks."""

    @functools.cache
    def write(ranks: int) -> Path:
        folder = tmp_path_factory.mktemp(f"by{ranks}")
        kinds = ["BP5,0,Sync", "BP5,1,Deferred", "BP4,1,Sync", "BP4,0,Deferred"]  # engine, StatsLevel, way to put
        run(mpirun_command(ranks, "write.py", folder, *kinds))
        return folder

    return write


@pytest.fixture(scope="session")
def by_layer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, str], Path]:
    """by_layer(ranks, engine): the file that ranks/layer_write.py writes."""

    @functools.cache
    def write(ranks: int) -> dict[str, Path]:
        folder = tmp_path_factory.mktemp("by_layer")
        files = {engine: folder / f"{engine}.bp" for engine in ("BP5", "BP4")}
        words = [word for engine, file in files.items() for word in (file, engine)]
        run(mpirun_command(ranks, "layer_write.py", *words))
        return files

    return lambda ranks, engine: write(ranks)[engine]


# ------------------------------------------------------------------------------------------ memory of a device


@dataclasses.dataclass(frozen=True)
class Device:
    """A CUDA device, or an emulated one, for the tests' programs in Python.

    Attributes:
        runtime: the library with cudaMalloc and cudaMemcpy.
        env: additional environment variables that a process needs.
        is_simulated: whether it is the emulator of tests/simt, with the functions of emulator.hpp.
    """

    runtime: str
    env: Mapping[str, str]
    is_simulated: bool = False

    @property
    def code(self) -> str:
        """Prologue of a program: defines on_device(array, device=0), the address of a copy in device memory."""
        return f"""
import ctypes
runtime = ctypes.CDLL({self.runtime!r})
{"runtime.simt_hide_device_memory(1)" if self.is_simulated else ""}

def on_device(array, device=0):
    address, size = ctypes.c_void_p(), ctypes.c_size_t(array.nbytes)
    host_to_device = 1
    assert runtime.cudaSetDevice(device) == 0
    assert runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(max(array.nbytes, 1))) == 0
    assert runtime.cudaMemcpy(address, ctypes.c_void_p(array.ctypes.data), size, host_to_device) == 0
    assert runtime.cudaSetDevice(0) == 0
    return address.value
"""


@pytest.fixture(scope="session")
def cuda() -> str:
    """CUDA support here: "absent" (a build without CUDA), "no device" or "device"."""
    code = """
import ctypes
import cusz_core  # loads the library
library = ctypes.CDLL("libcusz_core.so.0")
present = library.cusz_has_backend(2)
print("absent" if not present else "device" if library.cusz_device_count(None) > 0 else "no device")
"""
    return run([sys.executable, "-c", code]).stdout.strip()


@pytest.fixture(scope="session")
def simulated_device(simt_build: Path, simt_environment: dict[str, str]) -> Device:
    """A build of the compressor whose CUDA runtime runs kernels on the CPU. Device memory is hidden from the host."""
    env = {**simt_environment, "PYTHONPATH": os.pathsep.join([simt_environment["PYTHONPATH"], str(RANKS)])}
    return Device(str(simt_build / "lib" / "libcusz_core.so.0"), env, True)


@pytest.fixture(scope="session")
def real_device(cuda: str) -> Device | None:
    """The first CUDA device of this machine, or None."""
    if cuda != "device":
        return None
    for runtime in ("libcudart.so", "libcudart.so.13", "libcudart.so.12", "/usr/local/cuda/lib64/libcudart.so"):
        if run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({runtime!r})"], check=False).returncode == 0:
            return Device(runtime, {})
    pytest.fail("there is a CUDA device, but no libcudart.so (CUDA's runtime) to make memory on it with")


@pytest.fixture(
    scope="session",
    params=[pytest.param("simulated", marks=pytest.mark.simt), pytest.param("real", marks=pytest.mark.gpu)],
)
def device(request: pytest.FixtureRequest) -> Device:
    found: Device | None = request.getfixturevalue(f"{request.param}_device")
    if found is None:
        pytest.skip(f"no {request.param} device here")
    return found
